#!/usr/bin/env bash
# Builds and tests everything: release, AddressSanitizer with UBSan, ThreadSanitizer, tidy, end to end, fuzzers' short form.
# Ends in one line: N passed, N failed.
set -uo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root" || exit 1
# shellcheck source=deploy/lib.sh
. "$root/deploy/lib.sh"

usage() {
    cat <<TXT
Usage: ./tests/run.sh [--quick] [--only PART[,PART]]

  --quick   The release build's unit tests and tidy only.
  --only    Of: release, asan, tsan, tidy, e2e, e2e-asan, e2e-tsan, fuzz, golden, golden-full (with the default model's
            numerics and perplexity, plain float32 too: several minutes).

Needs the packages of deploy/packages.txt; python packages come from PyPI into build/venv. Tests over the default model or over
third parties' golden files say plainly when those are missing (PENSTOCK_SMOLLM2, PENSTOCK_GOLDEN name them).
TXT
}

parts=tidy,release,golden,e2e,asan,e2e-asan,tsan,fuzz
while [ $# -gt 0 ]; do
    case $1 in
    --quick) parts=tidy,release ;;
    --only) parts=${2:?--only needs a list}; shift ;;
    --help | -h) usage; exit 0 ;;
    *) die "unknown argument '$1'; see ./tests/run.sh --help" ;;
    esac
    shift
done
missing=$(missing_packages "$root")
[ -z "$missing" ] || say "Note: these packages seem to be missing: $missing"

passed=0 failed=0 skipped=0
jobs=$(nproc)
has() { case ,$parts, in *,"$1",*) return 0 ;; *) return 1 ;; esac }
title() { printf '\n== %s\n' "$*"; }
count() { # PASSED FAILED
    passed=$((passed + $1))
    failed=$((failed + $2))
}

build() { # PRESET
    title "build $1"
    cmake --preset "$1" -DPENSTOCK_TESTS=ON >"build/$1.configure.log" 2>&1 && cmake --build --preset "$1" -j "$jobs" >"build/$1.build.log" 2>&1 && return 0
    grep -E 'error|FAILED|undefined' "build/$1.build.log" | head -n 20
    tail -n 5 "build/$1.configure.log"
    say "The build $1 failed; see build/$1.build.log."
    count 0 1
    return 1
}

unit() { # PRESET [REGEX]
    build "$1" || return
    title "unit tests, $1"
    local out p f
    out=$(ctest --test-dir "build/$1" -j "$jobs" --output-on-failure -R "${2:-.}" 2>&1)
    printf '%s\n' "$out" | grep -vE '^ *[0-9]+/[0-9]+ .*Passed|Start ' | tail -n 60
    f=$(printf '%s\n' "$out" | grep -cE '\*\*\*(Failed|Timeout|Exception|Not Run)')
    p=$(printf '%s\n' "$out" | grep -cE ' Passed ')
    [ $((p + f)) -gt 0 ] || { say "no unit test ran"; f=1; }
    count "$p" "$f"
}

python_env() {
    local want=build/venv/.ready
    [ -f $want ] && cmp -s tests/e2e/requirements.txt $want && return 0
    title "python packages into build/venv"
    python3 -m venv build/venv >/dev/null && build/venv/bin/python -m pip install --quiet --disable-pip-version-check -r tests/e2e/requirements.txt &&
        cp tests/e2e/requirements.txt $want
}

e2e() { # PRESET [pytest args]
    local preset=$1 out p f s
    shift
    [ -x "build/$preset/bin/penstock-gateway" ] || build "$preset" || return
    python_env || { say "The python packages could not be had: no end-to-end tests."; count 0 1; return; }
    title "end to end, $preset"
    out=$(PENSTOCK_BIN="$root/build/$preset/bin" build/venv/bin/python -m pytest -q -x --no-header -p no:cacheprovider tests/e2e "$@" 2>&1)
    printf '%s\n' "$out" | tail -n 40
    p=$(printf '%s\n' "$out" | grep -oE '[0-9]+ passed' | tail -n 1 | cut -d' ' -f1)
    f=$(printf '%s\n' "$out" | grep -oE '[0-9]+ (failed|error)' | tail -n 1 | cut -d' ' -f1)
    s=$(printf '%s\n' "$out" | grep -oE '[0-9]+ skipped' | tail -n 1 | cut -d' ' -f1)
    [ -n "$p$f$s" ] || f=1
    count "${p:-0}" "${f:-0}"
    skipped=$((skipped + ${s:-0}))
}

golden() {
    title "golden data, with penstock-model"
    local folder=${PENSTOCK_GOLDEN:-$root/../shared/golden} out
    [ -x build/release/bin/penstock-model ] || build release || return
    if [ ! -f "$folder/check.py" ]; then
        say "skipped: no golden folder at $folder (PENSTOCK_GOLDEN)"
        skipped=$((skipped + 1))
        return
    fi
    out=$(python3 "$folder/check.py" --bin build/release/bin ${PENSTOCK_SMOLLM2:+--smollm2 "$PENSTOCK_SMOLLM2"} --only tokenizer,templates,unit 2>&1)
    out=$out$'\n'$(python3 "$folder/check.py" --bin build/release/bin --only gguf --match 'llama64|llama-rope3|qwen2' 2>&1)
    if [ -n "${PENSTOCK_SMOLLM2:-}" ] && has golden-full; then # minutes of plain float32
        out=$out$'\n'$(python3 "$folder/check.py" --bin build/release/bin --smollm2 "$PENSTOCK_SMOLLM2" --only numerics,perplexity 2>&1)
    fi
    printf '%s\n' "$out" | tail -n 30
    while read -r p _ f _ s _; do
        count "$p" "$f"
        skipped=$((skipped + s))
    done < <(printf '%s\n' "$out" | grep -E '^[0-9]+ passed, [0-9]+ failed' | tr -d ,)
}

fuzz() {
    title "fuzzers, ${FUZZ_SECONDS:-8} seconds each"
    local target name
    if ! printf 'int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { return d && n > 1e9; }' | clang -x c -fsanitize=fuzzer - -o /tmp/penstock-fuzz.$$ 2>/dev/null; then
        say "skipped: no clang with libFuzzer (packages clang and libclang-rt-14-dev)"
        skipped=$((skipped + 1))
        return
    fi
    rm -f /tmp/penstock-fuzz.$$
    build fuzz || return
    for target in build/fuzz/fuzz/fuzz_*; do
        name=$(basename "$target")
        mkdir -p "build/corpus/$name"
        if "$target" -max_total_time="${FUZZ_SECONDS:-8}" -max_len=65536 -timeout=10 -rss_limit_mb=3000 -artifact_prefix=build/corpus/ "build/corpus/$name" >"build/corpus/$name.log" 2>&1; then
            count 1 0
        else
            tail -n 15 "build/corpus/$name.log"
            say "$name found something; the input is in build/corpus/"
            count 0 1
        fi
    done
}

mkdir -p build
if [ -z "${PENSTOCK_SMOLLM2:-}" ]; then
    if model=$("$root/deploy/get-model.sh" 2>/tmp/penstock-model.$$); then
        export PENSTOCK_SMOLLM2=$model
    else
        say "No default model ($(tail -n 1 /tmp/penstock-model.$$)): tests over it are skipped."
    fi
    rm -f /tmp/penstock-model.$$
fi
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1} TSAN_OPTIONS=${TSAN_OPTIONS:-suppressions=$root/tests/tsan.supp:halt_on_error=1}

if has tidy; then
    title tidy
    if python3 tests/tidy; then count 1 0; else count 0 1; fi
fi
has release && unit release
if has golden || has golden-full; then golden; fi
has e2e && e2e release
has asan && unit asan
has e2e-asan && e2e asan -m "not slow"
has tsan && unit tsan 'ring|pool|mailbox|transport|http_server|linear|engine|metrics'
has e2e-tsan && e2e tsan -m "not slow"
has fuzz && fuzz

printf '\n'
[ "$skipped" = 0 ] || say "$skipped skipped (said above)"
say "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
