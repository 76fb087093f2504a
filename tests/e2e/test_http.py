"""Raw sockets: what no well-behaved client sends, and how it is answered."""
import json
import socket
import time

import pytest

from conftest import PATIENCE, get, metric, post, wait_for


def talk(port, data, wait=1.0):
    with socket.create_connection(("127.0.0.1", port), timeout=10 * PATIENCE) as s:
        s.sendall(data)
        s.settimeout(wait * PATIENCE)
        out = b""
        try:
            while True:
                more = s.recv(65536)
                if not more:
                    break
                out += more
        except socket.timeout:
            pass
        return out


@pytest.mark.parametrize("request_, status", [
    (b"GET /v1/models HTTP/1.1\r\n\r\n", 400),
    (b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", 400),
    (b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n", 501),
    (b"GET / HTTP/3.0\r\nHost: a\r\n\r\n", 505),
    (b"GET /" + b"a" * 40000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 414),
    (b"GET /v1/models HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 40000 + b"\r\n\r\n", 431),
    (b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999\r\n\r\n", 413),
])
def test_malformed(shared, request_, status):
    answer = talk(shared.gateways[0].http, request_)
    head, body = answer.split(b"\r\n\r\n", 1)
    assert head.startswith(b"HTTP/1.1 %d " % status), head
    assert set(json.loads(body)["error"]) == {"message", "type", "param", "code"}


def test_routes(shared):
    url = shared.gateways[0].url
    assert get(url + "/v1/nothing")[0] == 404
    assert get(url + "/v1/chat/completions")[0] == 405
    assert get(url + "/health")[0] == 200
    assert post(url + "/v1/completions", b"{nonsense")[0] == 400
    assert post(url + "/v1/completions", {"model": "m", "prompt": "x"}, {"Content-Type": "text/plain"})[0] == 415
    assert post(url + "/v1/completions", b'{"model":"m","prompt":"x","prompt":"y"}')[0] == 400
    admin = f"http://127.0.0.1:{shared.gateways[0].admin}"
    assert get(admin + "/health/live")[0] == get(admin + "/health/ready")[0] == 200
    assert "penstock_gateway_requests_total" in get(admin + "/metrics")[1]
    worker = f"http://127.0.0.1:{shared.workers[0].admin}"
    assert get(worker + "/health/live")[0] == get(worker + "/health/ready")[0] == 200
    assert "penstock_worker_steps_total" in get(worker + "/metrics")[1]


def test_request_id(shared):
    url = shared.gateways[0].url + "/v1/completions"
    assert post(url, {"model": "m", "prompt": "x", "max_tokens": 1}, {"x-request-id": "mine-1"})[2]["x-request-id"] == "mine-1"
    assert post(url, {"model": "m", "prompt": "x", "max_tokens": 1}, {"x-request-id": "a b"})[2]["x-request-id"].startswith("req-")


def test_a_leaving_client_frees_the_worker(shared):
    g, w = shared.gateways[0], shared.workers[0]
    body = json.dumps({"model": "m", "prompt": "x", "max_tokens": 400, "ignore_eos": True, "stream": True}).encode()
    s = socket.create_connection(("127.0.0.1", g.http))
    s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    wait_for(lambda: metric(w.admin, "penstock_worker_running_sequences") == 1)
    s.close()
    wait_for(lambda: metric(w.admin, "penstock_worker_running_sequences") == 0, 2)
    wait_for(lambda: metric(g.admin, "penstock_gateway_running_requests") == 0, 2)
    assert metric(g.admin, "penstock_gateway_client_disconnects_total") >= 1


def test_large_bodies_are_prepared_aside(shared):
    text = "word " * 40000
    status, answer, _ = post(shared.gateways[0].url + "/v1/completions", {"model": "m", "prompt": text, "max_tokens": 1})
    assert status == 400 and answer["error"]["code"] == "context_length_exceeded"


def test_pipelined_requests_come_in_order(shared):
    bodies = [json.dumps({"prompt": "a" * n}).encode() for n in (1, 2, 3)]
    data = b"".join(b"POST /tokenize HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(b) + b for b in bodies)
    answer = talk(shared.gateways[0].http, data, 0.5)
    assert answer.count(b"HTTP/1.1 200 OK") == 3


def test_full_queue(cluster):
    g = cluster.gateway("--max-queue-requests", "1")
    cluster.worker("--max-sequences", "1", "--max-waiting", "1")
    cluster.wait_ready()
    body = json.dumps({"model": "m", "prompt": "x", "max_tokens": 300, "ignore_eos": True, "stream": True}).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
    socks = []
    for _ in range(8):
        s = socket.create_connection(("127.0.0.1", g.http))
        s.sendall(head + body)
        socks.append(s)
        time.sleep(0.02)
    status, answer, headers = post(g.url + "/v1/completions", {"model": "m", "prompt": "x", "max_tokens": 1})
    assert status == 429 and answer["error"]["code"] == "rate_limit_exceeded" and int(headers["Retry-After"]) >= 1
    for s in socks:
        s.close()
    wait_for(lambda: metric(g.admin, "penstock_gateway_running_requests") == 0)
