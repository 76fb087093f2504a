#!/usr/bin/env python3
"""Asks one question and streams the answer, then the time to the first token and tokens per second. Standard library only.
usage: ask.py BASE_URL MODEL QUESTION"""
import http.client
import json
import sys
import time
from urllib.parse import urlparse


def main():
    base, model, question = urlparse(sys.argv[1]), sys.argv[2], sys.argv[3]
    body = {"model": model, "messages": [{"role": "user", "content": question}], "stream": True, "temperature": 0, "max_tokens": 200,
            "stream_options": {"include_usage": True}}
    connection = http.client.HTTPConnection(base.hostname, base.port, timeout=120)
    start = time.monotonic()
    connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
    response = connection.getresponse()
    if response.status != 200:
        sys.exit(f"HTTP {response.status}: {response.read().decode(errors='replace')}")
    first = last = None
    usage, done = {}, False
    for line in response:
        line = line.decode("utf-8").strip()
        if not line.startswith("data: "):
            continue
        if line == "data: [DONE]":
            done = True
            break
        event = json.loads(line[6:])
        if "error" in event:
            sys.exit("\n" + event["error"]["message"])
        usage = event.get("usage") or usage
        for choice in event["choices"]:
            text = choice["delta"].get("content")
            if text:
                last = time.monotonic()
                first = first or last
                print(text, end="", flush=True)
    if not done or first is None:
        sys.exit("\nThe stream ended before its end.")
    tokens = usage.get("completion_tokens", 0)
    rate = f", {(tokens - 1) / (last - first):.0f} tokens/s" if tokens > 1 and last > first else ""
    print(f"\n\n[{tokens} tokens, TTFT {(first - start) * 1000:.0f} ms{rate}]")


main()
