#!/usr/bin/env bash
# Our figures next to a peer's, in one run, as ratios.  usage: tests/bench/run.sh cpu [--quick] [--peer-python PYTHON] [--model FILE]
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
# shellcheck source=deploy/lib.sh
. "$root/deploy/lib.sh"

usage() {
    cat <<TXT
Usage: tests/bench/run.sh cpu [--quick] [--peer-python PYTHON] [--model FILE.gguf]

Measures prefill and decode of Penstock and of llama.cpp on the same files, turn by turn in one run, and prints medians and
ratios; then the HTTP path against the bare engine, and the time to the first token, cold and warm. Nothing else should run.

  --quick              One turn, the default model only.
  --peer-python PATH   A python that has llama-cpp-python; else build/peer-venv is made and it is built from source.
  --model FILE         Instead of the default model.
TXT
}

[ "${1:-}" = cpu ] || { usage; [ "${1:-}" = --help ] && exit 0; exit 2; }
shift
quick=false peer='' model=''
while [ $# -gt 0 ]; do
    case $1 in
    --quick) quick=true ;;
    --peer-python) peer=$2; shift ;;
    --model) model=$2; shift ;;
    --help) usage; exit 0 ;;
    *) die "unknown argument '$1'" ;;
    esac
    shift
done

{ cmake --preset release -DPENSTOCK_TESTS=ON && cmake --build --preset release; } >/dev/null
[ -n "$model" ] || model=$("$root/deploy/get-model.sh")
if [ -z "$peer" ]; then
    peer=$root/build/peer-venv/bin/python
    if ! "$peer" -c 'import llama_cpp' 2>/dev/null; then
        say "Building llama-cpp-python natively into build/peer-venv (some minutes) ..."
        python3 -m venv build/peer-venv
        CMAKE_ARGS="-DGGML_NATIVE=ON" "$peer" -m pip install --quiet --no-binary llama-cpp-python llama-cpp-python
    fi
fi
big=$PENSTOCK_CACHE/models/synth-llama-1b-q4_0.gguf
if [ "$quick" = false ] && [ ! -f "$big" ]; then
    mkdir -p "$(dirname "$big")"
    build/release/bin/penstock-model synth "$big" --shape llama-1b --type q4_0
fi
size=(--big "$big")
[ "$quick" = false ] || size=(--quick)
exec python3 tests/bench/cpu.py --root "$root" --peer-python "$peer" --model "$model" "${size[@]}"
