#!/usr/bin/env python3
"""Our tokenizer next to Hugging Face `tokenizers`, one thread each, on the same vocabularies: speed on a 1 MB mixed
text (in one run, by turns), equality of all ids, and the cost of hostile text per byte.

    pip install tokenizers
    tests/bench/tokenizer.py MODEL.gguf [MORE.gguf.gz ...]
"""
import argparse
import array
import glob
import gzip
import json
import os
import pydoc_data.topics
import struct
import subprocess
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BLANK = "\u2581"
LETTERS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def metadata(data):
    """Key-value pairs of a GGUF file."""
    at = 4

    def number(kind):
        nonlocal at
        (v,) = struct.unpack_from("<" + kind, data, at)
        at += struct.calcsize(kind)
        return v

    def value(kind):
        nonlocal at
        if kind == 8:
            n = number("Q")
            at += n
            return data[at - n:at].decode("utf-8", "replace")
        if kind == 9:
            kind, n = number("I"), number("Q")
            return [value(kind) for _ in range(n)]
        return number({0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}[kind])

    number("I")
    number("Q")
    pairs = {}
    for _ in range(number("Q")):
        key = value(8)
        pairs[key] = value(number("I"))
    return pairs


def byte_level(tokens, types, merges, pre):
    vocab = {t: i for i, t in enumerate(tokens) if types[i] == 1}
    tok = Tokenizer(models.BPE(vocab, [tuple(m.split(" ")) for m in merges], ignore_merges=pre == "llama-bpe"))
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pre in ("smollm", "gpt-2", "default", ""))
    steps = [level]
    if pre == "smollm":
        steps.insert(0, pre_tokenizers.Digits(individual_digits=True))
    elif pre in ("llama-bpe", "qwen2"):
        regex = LETTERS + (r"\p{N}{1,3}" if pre == "llama-bpe" else r"\p{N}") + REST
        steps.insert(0, pre_tokenizers.Split(Regex(regex), behavior="isolated"))
    if pre == "qwen2":
        tok.normalizer = normalizers.NFC()
    tok.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tok.decoder = decoders.ByteLevel()
    return tok


def sentencepiece(tokens, types, scores, unknown):
    vocab = {t: i for i, t in enumerate(tokens)}
    merges = []
    for i, t in enumerate(tokens):
        if types[i] == 1:
            cuts = [(t[:k], t[k:]) for k in range(1, len(t)) if t[:k] in vocab and t[k:] in vocab]
            merges += [(-scores[i], vocab[a], vocab[b], a, b) for a, b in cuts]
    merges.sort()
    tok = Tokenizer(models.BPE(vocab, [m[3:] for m in merges], unk_token=tokens[unknown], fuse_unk=True, byte_fallback=True))
    tok.normalizer = normalizers.Sequence([normalizers.Prepend(BLANK), normalizers.Replace(" ", BLANK)])
    return tok


def hugging_face(path):
    kv = metadata(open(path, "rb").read())
    tokens, types = kv["tokenizer.ggml.tokens"], kv["tokenizer.ggml.token_type"]
    pre = kv.get("tokenizer.ggml.pre", "")
    if kv["tokenizer.ggml.model"] == "llama":
        return "llama-spm", sentencepiece(tokens, types, kv["tokenizer.ggml.scores"], kv["tokenizer.ggml.unknown_token_id"])
    tok = byte_level(tokens, types, kv["tokenizer.ggml.merges"], pre)
    added = [t for i, t in enumerate(tokens) if types[i] == 4]
    return pre, (tok, added, {t: i for i, t in enumerate(tokens)}) if added else tok


def mixed_text():
    """About 1 MB: English prose, this project's code, and the strings of many scripts of the golden data."""
    prose = "\n".join(pydoc_data.topics.topics[k] for k in sorted(pydoc_data.topics.topics))
    code = []
    for pattern in ("*/*.[ch]", "*/*/*.[ch]", "*/*/*.py"):
        code += [open(p, encoding="utf-8").read() for p in sorted(glob.glob(os.path.join(ROOT, pattern)))]
    scripts = []
    for p in sorted(glob.glob(os.path.join(ROOT, "tests/golden/tokenizer/*.jsonl"))):
        lines = map(json.loads, open(p, encoding="utf-8"))
        scripts += [d["text"] for d in lines if "text" in d and d["class"] not in ("special", "user_defined")]
    parts = [("\n".join(scripts), 150_000), ("".join(code), 350_000), (prose, 500_000)]
    return "".join(text.encode()[:size].decode("utf-8", "ignore") for text, size in parts)


def hostile_texts(size=1 << 20):
    state, letters = 1, bytearray()
    for _ in range(size):
        state = (state * 1664525 + 1013904223) & 0xFFFFFFFF
        letters.append(b"etaoinshrdlucmfwygp"[(state >> 16) % 19])
    texts = {"one letter": b"a", "blanks": b" ", "newlines": b"\n", "punctuation": b"!", "digits": b"7",
             "marks": "\u0301\u0323".encode(), "half a control token": b"<|im_end|", "ideographs": "中".encode()}
    texts = {name: unit * (size // len(unit)) for name, unit in texts.items()}
    texts["random letters"] = bytes(letters)
    return texts


def ours(bench, model, text_path, rounds, ids_path):
    out = subprocess.run([bench, model, text_path, str(rounds), ids_path], check=True, capture_output=True, text=True)
    return json.loads(out.stdout)


def theirs(tok, text):
    """The quicker one of their two calls; the second leaves offsets out."""
    best = float("inf")
    for call in (lambda: tok.encode(text, add_special_tokens=False),
                 lambda: tok.encode_batch_fast([text], add_special_tokens=False)[0]):
        start = time.perf_counter()
        ids = call().ids
        best = min(best, time.perf_counter() - start)
    return best, ids


def compare(bench, path, text, tmp):
    if path.endswith(".gz"):
        plain = os.path.join(tmp, os.path.basename(path)[:-3])
        with gzip.open(path) as packed, open(plain, "wb") as out:
            out.write(packed.read())
        path = plain
    name, tok = hugging_face(path)
    if isinstance(tok, tuple):
        tok, added, ids_of = tok
        tok.add_tokens([AddedToken(t, normalized=False) for t in added])
    else:
        ids_of = None
    text_path, ids_path = os.path.join(tmp, "text"), os.path.join(tmp, "ids")
    with open(text_path, "wb") as out:
        out.write(text.encode())
    best_ours, best_theirs = None, float("inf")
    for _ in range(5):  # by turns, so that both see the same machine
        run = ours(bench, path, text_path, 3, ids_path)
        best_ours = run if best_ours is None or run["seconds"] < best_ours["seconds"] else best_ours
        seconds, want = theirs(tok, text)
        best_theirs = min(best_theirs, seconds)
    got = array.array("I", open(ids_path, "rb").read()).tolist()
    if ids_of:
        want = [ids_of[tok.id_to_token(i)] for i in want]
    same = got == want
    n = best_ours["bytes"]
    print(f"{name:10} {n / best_ours['seconds'] / 1e6:8.1f} MB/s  tokenizers {n / best_theirs / 1e6:6.2f} MB/s  "
          f"ratio {best_theirs / best_ours['seconds']:6.1f}  ids {'equal' if same else 'DIFFER'} ({len(got)})  "
          f"load {best_ours['load_seconds'] * 1e3:.0f} ms")
    if not same:
        k = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
        print(f"    first difference at {k}: ours {got[k - 2:k + 6]}, theirs {want[k - 2:k + 6]}: "
              f"{[tok.id_to_token(i) for i in want[k - 2:k + 6]]}")
    per_byte = best_ours["seconds"] / n
    for kind, hostile in hostile_texts().items():
        with open(text_path, "wb") as out:
            out.write(hostile)
        run = ours(bench, path, text_path, 3, ids_path)
        cost = run["seconds"] / run["bytes"]
        print(f"    1 MB of {kind:22} {cost * 1e9:7.1f} ns/byte  {cost / per_byte:5.1f} x mixed text")
    return same and best_theirs >= best_ours["seconds"]


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument("models", nargs="+", metavar="MODEL")
    a.add_argument("--bench", default=os.path.join(ROOT, "build/release/tests/bench_tokenizer"))
    a = a.parse_args()
    text = mixed_text()
    with tempfile.TemporaryDirectory() as tmp:
        good = [compare(a.bench, m, text, tmp) for m in a.models]
    raise SystemExit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
