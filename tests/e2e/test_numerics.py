"""penstock-model logits says the same bits at every chunk size and number of threads, and --reference agrees with the fast path."""
import json
import os
import subprocess

from conftest import BIN


def logits(model, *args):
    question = json.dumps({"ids": [(i * 37 + 11) % 400 for i in range(150)], "top": 3, "greedy": 12, "full": True}) + "\n"
    p = subprocess.run([os.path.join(BIN, "penstock-model"), "logits", model, *args], input=question, capture_output=True, text=True, check=True)
    return json.loads(p.stdout)


def test_chunks_and_threads_change_nothing(model):
    want = logits(model, "--threads", "1", "--chunk", "512")
    for threads in ("1", "2"):
        for chunk in ("1", "7", "16", "64"):
            assert logits(model, "--threads", threads, "--chunk", chunk) == want


def test_the_reference_is_near(model):
    fast, slow = logits(model), logits(model, "--reference")
    assert max(abs(a - b) for a, b in zip(fast["logits"], slow["logits"])) < 3
    assert fast["logits"] != slow["logits"]


def test_a_bad_line_gives_an_error_and_the_next_is_answered(tiny):
    p = subprocess.run([os.path.join(BIN, "penstock-model"), "logits", tiny], input='{"ids": [99999]}\nnonsense\n{"ids": [1], "top": 1}\n', capture_output=True, text=True, check=True)
    a, b, c = map(json.loads, p.stdout.splitlines())
    assert "99999" in a["error"] or "0 to 511" in a["error"]
    assert "error" in b and len(c["top"]) == 1
