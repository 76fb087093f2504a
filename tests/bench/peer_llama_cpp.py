#!/usr/bin/env python3
"""Speed of llama.cpp on a GGUF file, through llama-cpp-python's low-level calls: the same measurements as
`penstock-model bench`, the same JSON. Greedy argmax is left out on this side (in its favour)."""
import argparse
import ctypes
import json
import statistics
import time

import llama_cpp as L


class Peer:
    def __init__(self, path, threads, streams, context, ubatch):
        L.llama_log_set(self._quiet, ctypes.c_void_p(0))
        L.llama_backend_init()
        params = L.llama_model_default_params()
        params.n_gpu_layers = 0
        self.model = L.llama_model_load_from_file(path.encode(), params)
        if not self.model:
            raise SystemExit(f"llama.cpp cannot load {path}")
        c = L.llama_context_default_params()
        c.n_ctx, c.n_batch, c.n_ubatch = context * streams, max(ubatch, streams), max(ubatch, streams)
        c.n_seq_max, c.n_threads, c.n_threads_batch = streams, threads, threads
        c.kv_unified = False
        c.no_perf = True
        self.ctx = L.llama_init_from_model(self.model, c)
        if not self.ctx:
            raise SystemExit("llama.cpp cannot make a context")
        self.vocab = L.llama_vocab_n_tokens(L.llama_model_get_vocab(self.model))
        self.batch = L.llama_batch_init(max(ubatch, streams), 0, 1)
        self.ubatch = ubatch

    @staticmethod
    @L.llama_log_callback
    def _quiet(level, text, data):
        pass

    def clear(self):
        L.llama_memory_clear(L.llama_get_memory(self.ctx), True)

    def run(self, rows):
        """rows: (token, position, sequence, want logits)"""
        b = self.batch
        for i, (token, position, sequence, logits) in enumerate(rows):
            b.token[i], b.pos[i], b.n_seq_id[i], b.logits[i] = token, position, 1, logits
            b.seq_id[i][0] = sequence
        b.n_tokens = len(rows)
        if L.llama_decode(self.ctx, b) != 0:
            raise SystemExit("llama_decode failed")
        L.llama_synchronize(self.ctx)

    def prompt(self, tokens, sequence):
        for at in range(0, len(tokens), self.ubatch):
            part = tokens[at:at + self.ubatch]
            self.run([(t, at + i, sequence, at + i + 1 == len(tokens)) for i, t in enumerate(part)])


def main():
    a = argparse.ArgumentParser(description=__doc__)
    a.add_argument("model")
    a.add_argument("--prompt", type=int, default=512)
    a.add_argument("--tokens", type=int, default=64)
    a.add_argument("--batch", default="1,8,32")
    a.add_argument("--depth", type=int, default=64)
    a.add_argument("--rounds", type=int, default=5)
    a.add_argument("--threads", type=int, default=2)
    o = a.parse_args()
    batches = [int(x) for x in o.batch.split(",")]
    context = max(o.prompt, o.depth + o.tokens) + 16
    peer = Peer(o.model, o.threads, max(batches), context, 512)
    ids = [(i * 7919 + 13) % min(peer.vocab, 32000) for i in range(o.prompt + o.depth + max(batches))]

    times = []
    for i in range(o.rounds + 1):
        peer.clear()
        start = time.perf_counter()
        peer.prompt(ids[:o.prompt], 0)
        times.append(time.perf_counter() - start)
    prefill = o.prompt / statistics.median(times[1:])

    decode = []
    for streams in batches:
        times = []
        for _ in range(o.rounds):
            peer.clear()
            for s in range(streams):
                peer.prompt(ids[s:s + o.depth], s)
            start = time.perf_counter()
            for step in range(o.tokens):
                peer.run([(ids[(s + step) % len(ids)], o.depth + step, s, True) for s in range(streams)])
            times.append((time.perf_counter() - start) / o.tokens)
        step_s = statistics.median(times)
        decode.append({"streams": streams, "tokens_per_s": round(streams / step_s, 1), "tpot_ms": round(step_s * 1e3, 3)})
    print(json.dumps({"engine": "llama.cpp", "system": L.llama_print_system_info().decode(), "threads": o.threads,
                      "prefill": {"tokens": o.prompt, "tokens_per_s": round(prefill, 1)}, "decode": decode}))


if __name__ == "__main__":
    main()
