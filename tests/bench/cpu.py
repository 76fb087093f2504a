#!/usr/bin/env python3
"""Drives penstock-model bench, peer_llama_cpp.py and bench_http in turns; prints tables with ratios next to their targets."""
import argparse
import json
import os
import socket
import statistics
import subprocess
import tempfile
import time
import urllib.request


def ports(n):
    socks = [socket.socket() for _ in range(n)]
    for s in socks:
        s.bind(("127.0.0.1", 0))
    found = [s.getsockname()[1] for s in socks]
    for s in socks:
        s.close()
    return found


def run_json(args):
    p = subprocess.run(args, capture_output=True, text=True)
    if p.returncode != 0:
        raise SystemExit(f"{' '.join(args)}\n{p.stdout}{p.stderr}")
    return json.loads(p.stdout.strip().splitlines()[-1])


def median(values):
    return statistics.median(values)


def row(name, ours, theirs, target):
    ratio = ours / theirs
    print(f"  {name:34s} {ours:10.1f} {theirs:10.1f} {ratio:7.2f}x   {'>= ' + format(target, '.1f') + 'x' if target else '':9s} {'' if not target else 'ok' if ratio >= target else 'MISSED'}")


def compare(a, path, label, batches, turns, targets):
    """Turn by turn: neighbours on the machine hit both alike."""
    ours, theirs = [], []
    for _ in range(turns):
        ours.append(run_json([f"{a.root}/build/release/bin/penstock-model", "bench", path, "-p", "512", "-n", "48", "-b", batches, "--depth", "64",
                              "--rounds", "3", "--threads", str(a.threads), "--json"]))
        theirs.append(run_json([a.peer_python, f"{a.root}/tests/bench/peer_llama_cpp.py", path, "--prompt", "512", "--tokens", "48", "--batch", batches,
                                "--depth", "64", "--rounds", "3", "--threads", str(a.threads)]))
    print(f"\n{label}, {a.threads} threads, tokens/s (medians of {turns} turns of 3 rounds)\n  {'':34s} {'penstock':>10s} {'llama.cpp':>10s} {'ratio':>8s}   target")
    row("prefill of 512 tokens", median([x["prefill"]["tokens_per_s"] for x in ours]), median([x["prefill"]["tokens_per_s"] for x in theirs]), targets["prefill"])
    for k, d in enumerate(ours[0]["decode"]):
        row(f"decode, {d['streams']} stream{'s' if d['streams'] > 1 else ''}", median([x["decode"][k]["tokens_per_s"] for x in ours]),
            median([x["decode"][k]["tokens_per_s"] for x in theirs]), targets.get(d["streams"]))
    share = median([x["decode"][0]["bandwidth_share"] for x in ours])
    print(f"  one stream reads {share * 100:.0f} % of the read bandwidth of the same run ({median([x['read_bandwidth_bytes_per_s'] for x in ours]) / 1e9:.1f} GB/s), "
          f"{ours[0]['read_bytes_per_token'] / 1e6:.0f} MB a token")


def cluster(a, folder):
    http, admin, workers, worker_admin = ports(4)
    bin_ = f"{a.root}/build/release/bin"
    log = open(os.path.join(folder, "log"), "w")
    gateway = subprocess.Popen([f"{bin_}/penstock-gateway", "--http", f"127.0.0.1:{http}", "--admin", f"127.0.0.1:{admin}", "--workers", f"tcp://127.0.0.1:{workers}"], stderr=log)
    worker = subprocess.Popen([f"{bin_}/penstock-worker", "--model", a.model, "--model-name", "bench", "--gateway", f"tcp://127.0.0.1:{workers}",
                               "--admin", f"127.0.0.1:{worker_admin}", "--threads", str(a.threads)], stderr=log)
    for _ in range(600):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{admin}/health/ready", timeout=1)
            return http, [worker, gateway]
        except OSError:
            time.sleep(0.1)
    raise SystemExit("the cluster did not get ready: " + open(os.path.join(folder, "log")).read()[-500:])


def http_path(a, turns):
    load = f"{a.root}/build/release/tests/bench_http"
    engine, served, ttft = [], [], []
    for _ in range(turns):
        engine.append(run_json([f"{a.root}/build/release/bin/penstock-model", "bench", a.model, "-p", "64", "-n", "192", "-b", "32", "--depth", "64",
                                "--rounds", "3", "--threads", str(a.threads), "--json"])["decode"][0]["tokens_per_s"])
        with tempfile.TemporaryDirectory() as folder:
            http, processes = cluster(a, folder)
            try:
                run_json([load, "--http", f"127.0.0.1:{http}", "--model", "bench", "--streams", "32", "--requests", "32", "--prompt", "64", "--tokens", "16"])
                served.append(run_json([load, "--http", f"127.0.0.1:{http}", "--model", "bench", "--streams", "32", "--requests", "32", "--prompt", "64", "--tokens", "192"]))
                ttft.append(run_json([load, "--http", f"127.0.0.1:{http}", "--model", "bench", "--prompt", "1500", "--tokens", "4", "--ttft"]))
            finally:
                for p in processes:
                    p.terminate()
                    p.wait()
    ours, bare = median([x["steady_events_per_s"] for x in served]), median(engine)
    print(f"\nthe HTTP path, 32 streams (prompt 64, 192 tokens each; while all 32 run): {ours:.0f} tokens/s against {bare:.0f} of the bare engine: "
          f"{ours / bare * 100:.0f} %   >= 90 % {'ok' if ours / bare >= 0.9 else 'MISSED'}")
    print(f"  TPOT p50 {median([x['tpot_p50_ms'] for x in served]):.2f} ms, p99 {median([x['tpot_p99_ms'] for x in served]):.2f} ms; "
          f"failed {sum(x['failed'] for x in served)}")
    cold, warm = median([x["ttft_cold_s"] for x in ttft]), median([x["ttft_warm_s"] for x in ttft])
    print(f"TTFT of a 1,500-token prompt: cold {cold * 1e3:.1f} ms, warm {warm * 1e3:.1f} ms: {warm / cold:.3f}   <= 0.1 {'ok' if warm / cold <= 0.1 else 'MISSED'}")


def main():
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument("--root", required=True)
    p.add_argument("--peer-python", required=True)
    p.add_argument("--model", required=True)
    p.add_argument("--big")
    p.add_argument("--quick", action="store_true")
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    a = p.parse_args()
    turns = 1 if a.quick else 2
    compare(a, a.model, os.path.basename(a.model), "1,32", turns, {"prefill": 4, 1: 2, 32: 4})
    if a.big:
        compare(a, a.big, "synth llama-1b q4_0", "1,16", turns, {"prefill": 2, 1: 1.2, 16: 3})
    http_path(a, turns)


main()
