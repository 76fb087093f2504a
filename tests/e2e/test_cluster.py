"""Several processes: determinism under load, failover, drain, refusals at start."""
import concurrent.futures
import json
import os
import signal
import socket
import struct
import subprocess
import threading
import time
import urllib.request

import pytest

from conftest import BIN, PATIENCE, SANITIZED, free_port, get, metric, post, wait_for


def ask(url, prompt, **more):
    status, answer, _ = post(url + "/v1/completions", {"model": "m", "prompt": prompt, "max_tokens": 24, "temperature": 0.9, "seed": 5, "ignore_eos": True, **more})
    assert status == 200, answer
    return answer["choices"][0]["text"], answer["usage"]


def test_the_same_alone_and_among_31_others(cluster):
    g = cluster.gateway()
    cluster.worker("--max-sequences", "32", "--kv-memory", "64M")
    cluster.wait_ready()
    prompt = "The quick brown fox jumps over the lazy dog. " * 4
    alone, cold = ask(g.url, prompt)
    warm_text, warm = ask(g.url, prompt)
    assert warm_text == alone and cold["prompt_tokens_details"]["cached_tokens"] == 0 < warm["prompt_tokens_details"]["cached_tokens"]
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        others = [pool.submit(ask, g.url, f"{i} " * (i + 1), seed=i) for i in range(31)]
        again = pool.submit(ask, g.url, prompt)
        [o.result() for o in others]
        assert again.result()[0] == alone


def test_two_gateways_two_workers(cluster):
    gateways = [cluster.gateway(), cluster.gateway("--threads", "2")]
    cluster.worker()
    cluster.worker()
    for g, n in zip(gateways, (2, 4)):  # two loops: each hears both workers
        wait_for(lambda: metric(g.admin, "penstock_gateway_workers_ready") == n, 20)
    texts = {ask(g.url, "Hello there")[0] for g in gateways for _ in range(3)}
    assert len(texts) == 1


def stream(url, body, out, on_token=None):
    r = urllib.request.Request(url + "/v1/completions", json.dumps({"stream": True, **body}).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(r, timeout=120 * PATIENCE) as x:
        for line in x:
            if not line.startswith(b"data: "):
                continue
            if line.strip() == b"data: [DONE]":
                out["done"] = True
                break
            event = json.loads(line[6:])
            out.setdefault("errors", []).extend([event["error"]] if "error" in event else [])
            for c in event.get("choices", []):
                out[c["index"]] = out.get(c["index"], "") + c["text"]
                out["events"] = out.get("events", 0) + 1
                if on_token:
                    on_token(out["events"])


@pytest.mark.parametrize("how", ["kill", "drain"])
def test_a_stream_outlives_its_worker(cluster, how):
    g = cluster.gateway()
    workers = [cluster.worker("--drain-timeout-ms", "100"), cluster.worker("--drain-timeout-ms", "100")]
    cluster.wait_ready(2)
    body = {"model": "m", "prompt": "In the beginning", "max_tokens": 150, "temperature": 0.8, "seed": 3, "n": 2, "ignore_eos": True, "presence_penalty": 0.3}
    want = {}
    stream(g.url, body, want)
    assert want["done"] and not want.get("errors")

    def end(events):
        if events != 10:
            return
        busy = max(workers, key=lambda w: metric(w.admin, "penstock_worker_running_sequences"))
        if how == "kill":
            busy.kill()
        else:
            busy.popen.send_signal(signal.SIGTERM)

    got = {}
    stream(g.url, body, got, end)
    assert got["done"] and not got.get("errors")
    assert (got[0], got[1]) == (want[0], want[1])
    assert metric(g.admin, "penstock_gateway_requeued_total") >= 1


def test_no_worker_is_503_and_one_that_comes_back_serves(cluster):
    g = cluster.gateway()
    w = cluster.worker()
    cluster.wait_ready()
    w.kill()
    wait_for(lambda: metric(g.admin, "penstock_gateway_worker_deaths_total") == 1, 5)  # until then a request would wait for it
    status, answer, headers = post(g.url + "/v1/completions", {"model": "m", "prompt": "x", "max_tokens": 1})
    assert status == 503 and answer["error"]["code"] == "no_capacity" and headers["Retry-After"]
    assert get(f"http://127.0.0.1:{g.admin}/health/ready")[0] == 503
    cluster.worker()
    cluster.wait_ready()
    assert ask(g.url, "Hello")[0]


def test_a_gateway_that_restarts_is_found_again(cluster):
    g = cluster.gateway()
    w = cluster.worker()
    cluster.wait_ready()
    out = {}

    def cut_off():
        try:
            stream(g.url, {"model": "m", "prompt": "x", "max_tokens": 450, "ignore_eos": True}, out)
        except OSError:
            pass

    t = threading.Thread(target=cut_off)
    t.start()
    wait_for(lambda: metric(w.admin, "penstock_worker_running_sequences") == 1)
    g.kill()
    t.join()
    assert "done" not in out
    wait_for(lambda: metric(w.admin, "penstock_worker_running_sequences") == 0, 5)  # noticed within 3 s
    args = ["--http", f"127.0.0.1:{g.http}", "--admin", f"127.0.0.1:{g.admin}", "--workers", g.workers]
    from conftest import Process
    again = Process("penstock-gateway", args, cluster.folder)
    cluster.processes.append(again)
    wait_for(lambda: metric(g.admin, "penstock_gateway_workers_ready") == 1, 10)
    assert ask(g.url, "Hello")[0]


def test_gateway_drains(cluster):
    g = cluster.gateway()
    cluster.worker()
    cluster.wait_ready()
    out = {}
    t = threading.Thread(target=stream, args=(g.url, {"model": "m", "prompt": "x", "max_tokens": 120, "ignore_eos": True}, out))
    t.start()
    wait_for(lambda: out.get("events", 0) > 3)
    g.popen.send_signal(signal.SIGTERM)
    t.join()
    assert out["done"] and not out.get("errors")
    assert g.popen.wait(10 * PATIENCE) == 0


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_another_protocol_version_is_refused(cluster):
    """A hand-made ZMTP 3.0 greeting, so that no ZeroMQ binding is needed."""
    g = cluster.gateway()
    port = int(g.workers.rsplit(":", 1)[1])
    wait_for(lambda: metric(g.admin, "penstock_gateway_workers_ready") == 0)
    ready = b"\x05READY\x0bSocket-Type" + struct.pack(">I", 6) + b"DEALER" + b"\x08Identity" + struct.pack(">I", 16) + b"A" * 16
    frame = b"PSTK" + struct.pack("<HHII", 99, 1, 0, crc32c(b""))

    def refused():
        """A step at a time, since libzmq closes on who speaks ahead; whatever goes wrong on the way is tried again."""
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=10) as s:
                s.settimeout(0.3)
                for part in (b"\xff" + b"\0" * 8 + b"\x7f", b"\x03\x00NULL" + b"\0" * 16 + b"\0" + b"\0" * 31, b"\x04" + bytes([len(ready)]) + ready):
                    s.sendall(part)
                    try:
                        s.recv(1000)
                    except socket.timeout:
                        pass  # it came together with what was before
                s.sendall(b"\x00" + bytes([len(frame)]) + frame)
                time.sleep(0.3)
        except OSError:
            pass
        return "version 99" in g.log() and "version 1" in g.log()

    wait_for(refused, 20)


def run(name, *args):
    p = subprocess.run([os.path.join(BIN, name), *args], capture_output=True, text=True, timeout=60 * PATIENCE)
    return p.returncode, p.stderr


def test_mistakes_of_an_operator_get_a_sentence(tmp_path, tiny):
    code, text = run("penstock-worker", "--modle", tiny)
    assert code == 2 and "did you mean --model" in text
    code, text = run("penstock-gateway", "--thread", "2")
    assert code == 2 and "did you mean --threads" in text
    code, text = run("penstock-worker", "--model", str(tmp_path / "none.gguf"))
    assert code == 1 and "none.gguf" in text and len(text.strip().splitlines()) == 1
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(open(tiny, "rb").read()[:-5000])
    code, text = run("penstock-worker", "--model", str(damaged))
    assert code == 1 and "tensor" in text and len(text.strip().splitlines()) == 1
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        port = s.getsockname()[1]
        code, text = run("penstock-gateway", "--http", f"127.0.0.1:{port}", "--admin", f"127.0.0.1:{free_port()}", "--workers", f"tcp://127.0.0.1:{free_port()}")
    assert code == 1 and str(port) in text and "in use" in text


@pytest.mark.slow
def test_the_default_model_answers_sensibly(tmp_path):
    model = os.environ.get("PENSTOCK_SMOLLM2")
    if not model or SANITIZED:
        pytest.skip("no PENSTOCK_SMOLLM2")
    from conftest import Cluster
    c = Cluster(tmp_path, model)
    g = c.gateway()
    c.worker()
    c.wait_ready()
    status, answer, _ = post(g.url + "/v1/chat/completions", {"model": "m", "temperature": 0, "max_tokens": 60,
                                                             "messages": [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}]})
    assert status == 200 and "Paris" in answer["choices"][0]["message"]["content"]
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert not c.stop()
