"""Real processes on free ports of loopback. PENSTOCK_BIN: folder of binaries; PENSTOCK_SMOLLM2: the default model, else a tiny one
with random weights is made. A process that crashes, or a sanitizer's report in a log, fails the test that used it."""
import json
import os
import re
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

import pytest

BIN = os.environ.get("PENSTOCK_BIN") or os.path.join(os.path.dirname(__file__), "..", "..", "build", "release", "bin")
SANITIZED = any(x in BIN for x in ("asan", "tsan"))
PATIENCE = 10 if SANITIZED else 1


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Process:
    def __init__(self, name, args, folder):
        self.name, self.log_path = name, os.path.join(folder, f"{name}-{time.monotonic_ns()}.log")
        self.expect_kill = False
        self.popen = subprocess.Popen([os.path.join(BIN, name), *args], stdout=subprocess.DEVNULL, stderr=open(self.log_path, "wb"))

    def log(self):
        return open(self.log_path, encoding="utf-8", errors="replace").read()

    def kill(self):
        self.expect_kill = True
        self.popen.kill()
        self.popen.wait()

    def stop(self):
        if self.popen.poll() is None:
            self.popen.send_signal(signal.SIGTERM)
            try:
                self.popen.wait(20 * PATIENCE)
            except subprocess.TimeoutExpired:
                self.popen.kill()
                self.popen.wait()
                return f"{self.name} did not end after SIGTERM"
        text = self.log()
        if re.search(r"ERROR: \w+Sanitizer|WARNING: ThreadSanitizer|runtime error:|ev=check.failed", text):
            return f"{self.name}:\n{text[-6000:]}"
        if self.popen.returncode != 0 and not self.expect_kill:
            return f"{self.name} ended with {self.popen.returncode}:\n{text[-3000:]}"
        return None


class Cluster:
    def __init__(self, folder, model):
        self.folder, self.model, self.processes, self.gateways, self.workers = str(folder), model, [], [], []

    def gateway(self, *args):
        http, admin, port = free_port(), free_port(), free_port()
        g = Process("penstock-gateway", ["--http", f"127.0.0.1:{http}", "--admin", f"127.0.0.1:{admin}", "--workers", f"tcp://127.0.0.1:{port}", *args], self.folder)
        g.http, g.admin, g.workers, g.url = http, admin, f"tcp://127.0.0.1:{port}", f"http://127.0.0.1:{http}"
        self.processes.append(g)
        self.gateways.append(g)
        return g

    def worker(self, *args, model=None):
        admin = free_port()
        w = Process("penstock-worker", ["--model", model or self.model, "--model-name", "m", "--gateway", ",".join(g.workers for g in self.gateways), "--admin", f"127.0.0.1:{admin}",
                                        "--threads", "1", *args], self.folder)
        w.admin = admin
        self.processes.append(w)
        self.workers.append(w)
        return w

    def wait_ready(self, workers=1, seconds=30):
        end = time.monotonic() + seconds * PATIENCE
        for g in self.gateways:
            while metric(g.admin, "penstock_gateway_workers_ready") < workers:
                assert time.monotonic() < end, "not ready:\n" + "\n".join(p.log()[-1500:] for p in self.processes)
                time.sleep(0.05)
        return self

    def stop(self):
        return [x for x in (p.stop() for p in reversed(self.processes)) if x]


def get(url, timeout=10):
    try:
        with urllib.request.urlopen(url, timeout=timeout * PATIENCE) as r:
            return r.status, r.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode()


def post(url, body, headers=None, timeout=60):
    """(status, parsed body, headers)"""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    r = urllib.request.Request(url, data, {"Content-Type": "application/json", **(headers or {})})
    try:
        with urllib.request.urlopen(r, timeout=timeout * PATIENCE) as x:
            return x.status, json.loads(x.read()), x.headers
    except urllib.error.HTTPError as e:
        return e.code, json.loads(e.read()), e.headers


def metric(admin, name):
    try:
        text = get(f"http://127.0.0.1:{admin}/metrics")[1]
    except OSError:
        return -1
    return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if line.split("{")[0].split(" ")[0] == name)


def wait_for(what, seconds=5):
    end = time.monotonic() + seconds * PATIENCE
    while not what():
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.02)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    path = str(tmp_path_factory.mktemp("model") / "tiny.gguf")
    subprocess.run([os.path.join(BIN, "penstock-model"), "synth", path, "--shape", "tiny", "--type", "q4_0"], check=True, capture_output=True)
    return path


@pytest.fixture(scope="session")
def model(tiny):
    real = os.environ.get("PENSTOCK_SMOLLM2")
    return tiny if SANITIZED or not real else real


@pytest.fixture
def cluster(tmp_path, model):
    c = Cluster(tmp_path, model)
    yield c
    faults = c.stop()
    assert not faults, "\n\n".join(faults)


@pytest.fixture(scope="module")
def shared(tmp_path_factory, model):
    """One gateway, one worker, for the tests of a file that leave them as they were."""
    c = Cluster(tmp_path_factory.mktemp("shared"), model)
    c.gateway()
    c.worker("--max-sequences", "32")
    c.wait_ready()
    yield c
    faults = c.stop()
    assert not faults, "\n\n".join(faults)
