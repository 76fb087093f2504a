#!/usr/bin/env bash
# Brings Penstock up on this machine: packages, build, model, a gateway and a worker on loopback, and one answer, streamed.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=deploy/lib.sh
. "$root/deploy/lib.sh"

HTTP=127.0.0.1:${PENSTOCK_PORT:-8080}
ADMIN=127.0.0.1:${PENSTOCK_ADMIN_PORT:-8081}
WORKER_ADMIN=127.0.0.1:${PENSTOCK_WORKER_ADMIN_PORT:-8082}
WORKERS=tcp://127.0.0.1:${PENSTOCK_WORKERS_PORT:-5570}
bin=$root/build/release/bin

usage() {
    cat <<TXT
Usage: ./deploy/quickstart.sh [--model FILE.gguf] [--once] [--question TEXT]
       ./deploy/quickstart.sh stop | status

Installs what is missing, builds, gets the default model (SmolLM2-135M-Instruct, 94 MiB, Apache-2.0), starts
penstock-gateway and penstock-worker on loopback, asks a question and streams the answer.

  --model FILE.gguf   Serve this file instead of the default model.
  --once              Stop everything at the end.
  --question TEXT     Ask this.
  stop                Stop what an earlier run started.
  status              Say what runs.

Ports: API $HTTP, gateway's probes and metrics $ADMIN, worker's $WORKER_ADMIN; set PENSTOCK_PORT, PENSTOCK_ADMIN_PORT,
PENSTOCK_WORKER_ADMIN_PORT, PENSTOCK_WORKERS_PORT for others. Logs: $PENSTOCK_STATE.
TXT
}

alive() { # NAME: prints the pid if it runs and is ours
    local pid
    pid=$(cat "$PENSTOCK_STATE/$1.pid" 2>/dev/null) || return 1
    [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null && tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -q "penstock-$1" && printf '%s\n' "$pid"
}

stop_one() {
    local pid i
    pid=$(alive "$1") || { rm -f "$PENSTOCK_STATE/$1.pid"; return 0; }
    kill "$pid" 2>/dev/null || true
    for i in $(seq 100); do
        kill -0 "$pid" 2>/dev/null || break
        [ "$i" = 50 ] && kill "$pid" 2>/dev/null # a second signal ends it at once
        sleep 0.1
    done
    kill -9 "$pid" 2>/dev/null || true
    rm -f "$PENSTOCK_STATE/$1.pid"
    say "Stopped penstock-$1 ($pid)."
}

stop_all() { stop_one worker; stop_one gateway; rm -f "$PENSTOCK_STATE/model"; }

status() {
    local name pid
    for name in gateway worker; do
        if pid=$(alive "$name"); then say "penstock-$name runs ($pid)."; else say "penstock-$name does not run."; fi
    done
    if curl -sf -m 2 "http://$ADMIN/health/ready" >/dev/null 2>&1; then say "Ready: http://$HTTP/v1"; else say "Not ready."; fi
}

need_port() { # PORT WHAT VARIABLE
    if (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; then
        die "port $1 for $2 is taken by another program; stop it, or choose another port: $3=PORT ./deploy/quickstart.sh"
    fi
}

start_one() { # NAME ARGS...
    local name=$1
    shift
    setsid "$bin/penstock-$name" "$@" >"$PENSTOCK_STATE/$name.log" 2>&1 </dev/null &
    echo $! >"$PENSTOCK_STATE/$name.pid"
}

build() {
    [ "$(free_mib "$root")" -ge 300 ] || die "the build needs 300 MiB of room in $root; make room"
    say "Building (build/release) ..."
    if ! { cmake --preset release -S "$root" -DPENSTOCK_TESTS=OFF && cmake --build --preset release; } >"$PENSTOCK_STATE/build.log" 2>&1; then
        grep -m 5 -iE 'error|not found|no space' "$PENSTOCK_STATE/build.log" >&2 || tail -n 5 "$PENSTOCK_STATE/build.log" >&2
        die "the build failed; the whole of it is in $PENSTOCK_STATE/build.log"
    fi
}

start_cluster() { # MODEL
    local model=$1 i name
    if alive gateway >/dev/null && alive worker >/dev/null && [ "$(cat "$PENSTOCK_STATE/model" 2>/dev/null)" = "$model" ]; then
        say "The cluster runs already."
        return
    fi
    stop_all >/dev/null
    need_port "${HTTP##*:}" "the API" PENSTOCK_PORT
    need_port "${ADMIN##*:}" "the gateway's probes" PENSTOCK_ADMIN_PORT
    need_port "${WORKER_ADMIN##*:}" "the worker's probes" PENSTOCK_WORKER_ADMIN_PORT
    need_port "${WORKERS##*:}" "workers" PENSTOCK_WORKERS_PORT
    say "Starting a gateway and a worker on loopback ..."
    start_one gateway --http "$HTTP" --admin "$ADMIN" --workers "$WORKERS"
    start_one worker --model "$model" --gateway "$WORKERS" --admin "$WORKER_ADMIN"
    printf '%s\n' "$model" >"$PENSTOCK_STATE/model"
    for i in $(seq 1200); do
        curl -sf -m 1 "http://$ADMIN/health/ready" >/dev/null 2>&1 && return
        for name in gateway worker; do
            alive "$name" >/dev/null && continue
            grep -v '^ts=' "$PENSTOCK_STATE/$name.log" | tail -n 3 >&2
            stop_all >/dev/null
            die "penstock-$name did not start; the line above and $PENSTOCK_STATE/$name.log say why"
        done
        [ $((i % 50)) = 0 ] && say "... the model is being loaded ($((i / 10)) s)"
        sleep 0.1
    done
    stop_all >/dev/null
    die "the cluster did not get ready within two minutes; see $PENSTOCK_STATE/worker.log"
}

main() {
    local model='' once=false question="What is the capital of France? Answer in one sentence." name
    while [ $# -gt 0 ]; do
        case $1 in
        --model) [ $# -ge 2 ] || die "--model needs a file"; model=$2; shift ;;
        --model=*) model=${1#*=} ;;
        --question) [ $# -ge 2 ] || die "--question needs a text"; question=$2; shift ;;
        --once) once=true ;;
        --help | -h) usage; exit 0 ;;
        stop) stop_all; exit 0 ;;
        status) status; exit 0 ;;
        *) die "unknown argument '$1'; see ./deploy/quickstart.sh --help" ;;
        esac
        shift
    done
    mkdir -p "$PENSTOCK_STATE" || die "cannot make $PENSTOCK_STATE; set XDG_STATE_HOME to a folder that you may write to"
    if [ -n "$model" ]; then
        [ -r "$model" ] || die "there is no file '$model' to read"
        model=$(realpath "$model")
    fi
    install_packages "$root"
    build
    [ -n "$model" ] || model=$("$root/deploy/get-model.sh")
    [ "$once" = true ] && trap 'stop_all >/dev/null' EXIT
    start_cluster "$model"
    name=$(basename "$model" .gguf)
    printf "\nModel: %s\nQuestion: %s\n\n" "$name" "$question"
    python3 "$root/deploy/ask.py" "http://$HTTP" "$name" "$question" || die "no answer came; see $PENSTOCK_STATE/gateway.log and worker.log"
    [ "$once" = true ] && return
    cat <<TXT

It goes on running. Talk to it:

  curl http://$HTTP/v1/chat/completions -H 'Content-Type: application/json' -d '{
    "model": "$name", "stream": true, "messages": [{"role": "user", "content": "Hello!"}]}'

  from openai import OpenAI
  client = OpenAI(base_url="http://$HTTP/v1", api_key="none")

Metrics: curl http://$ADMIN/metrics        Stop it: ./deploy/quickstart.sh stop
TXT
}
main "$@"
