"""The official client, unmodified, against real processes."""
import math

import openai
import pytest

from conftest import PATIENCE, post


@pytest.fixture
def client(shared):
    return openai.OpenAI(base_url=shared.gateways[0].url + "/v1", api_key="none", timeout=60 * PATIENCE, max_retries=0)


HELLO = [{"role": "system", "content": "You answer briefly."}, {"role": "user", "content": "Say hello."}]


def chat(client, **more):
    return client.chat.completions.create(**{"model": "m", "messages": HELLO, "max_tokens": 12, "temperature": 0, **more})


def streamed(stream):
    texts, finish, usage, roles = {}, {}, None, 0
    for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            roles += choice.delta.role == "assistant"
            texts[choice.index] = texts.get(choice.index, "") + (choice.delta.content or "")
            if choice.finish_reason:
                assert choice.index not in finish
                finish[choice.index] = choice.finish_reason
    return texts, finish, usage, roles


def test_models(client):
    models = client.models.list().data
    assert [m.id for m in models] == ["m"]
    assert client.models.retrieve("m").object == "model"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("other")


def test_chat(client):
    r = chat(client)
    assert r.object == "chat.completion" and r.choices[0].message.role == "assistant"
    assert r.choices[0].finish_reason in ("stop", "length")
    assert r.usage.total_tokens == r.usage.prompt_tokens + r.usage.completion_tokens
    assert 0 < r.usage.completion_tokens <= 12


def test_streaming_says_the_same(client):
    whole = chat(client)
    texts, finish, usage, roles = streamed(chat(client, stream=True, stream_options={"include_usage": True}))
    assert texts == {0: whole.choices[0].message.content}
    assert finish == {0: whole.choices[0].finish_reason}
    assert usage.completion_tokens == whole.usage.completion_tokens
    assert roles == 1
    assert streamed(chat(client, stream=True))[2] is None


def test_choices_and_seed(client):
    a = chat(client, n=3, temperature=1, seed=11)
    b = chat(client, n=3, temperature=1, seed=11)
    texts, finish, _, roles = streamed(chat(client, n=3, temperature=1, seed=11, stream=True))
    assert [c.message.content for c in a.choices] == [c.message.content for c in b.choices] == [texts[i] for i in range(3)]
    assert len({c.message.content for c in a.choices}) > 1
    assert roles == 3 and len(finish) == 3
    assert chat(client, n=2, temperature=1, seed=12).choices[0].message.content != a.choices[0].message.content


def test_stop(client):
    base = chat(client, max_tokens=40).choices[0].message.content
    assert len(base) > 6
    stop = base[4:7]
    for stream in (False, True):
        r = chat(client, max_tokens=40, stop=[stop], stream=stream)
        text = streamed(r)[0][0] if stream else r.choices[0].message.content
        assert text == base[:base.index(stop)]


def test_logprobs(client):
    r = chat(client, logprobs=True, top_logprobs=3, max_tokens=5)
    content = r.choices[0].logprobs.content
    assert len(content) == r.usage.completion_tokens
    for t in content:
        assert len(t.top_logprobs) == 3 and t.logprob <= 0
        assert math.isclose(t.top_logprobs[0].logprob, t.logprob, abs_tol=1e-4)  # greedy: the best one was taken
        assert bytes(t.bytes).decode("utf-8", "replace") == t.token
    assert b"".join(bytes(t.bytes) for t in content).decode("utf-8", "replace") == r.choices[0].message.content


def test_completions(client):
    text = client.completions.create(model="m", prompt="Once upon a time", max_tokens=8, temperature=0)
    ids = post(client.base_url.join("/tokenize").__str__(), {"prompt": "Once upon a time"})[1]["tokens"]
    by_ids = client.completions.create(model="m", prompt=ids, max_tokens=8, temperature=0)
    many = client.completions.create(model="m", prompt=["Once upon a time", "Hello"], n=2, max_tokens=8, temperature=0)
    assert text.choices[0].text == by_ids.choices[0].text == many.choices[0].text == many.choices[1].text
    assert [c.index for c in many.choices] == [0, 1, 2, 3]
    echo = client.completions.create(model="m", prompt="Once upon a time", max_tokens=8, temperature=0, echo=True)
    assert echo.choices[0].text == "Once upon a time" + text.choices[0].text
    lp = client.completions.create(model="m", prompt="Hi", max_tokens=3, temperature=0, logprobs=2)
    assert len(lp.choices[0].logprobs.tokens) == len(lp.choices[0].logprobs.top_logprobs) == 3
    assert all(1 <= len(t) <= 2 for t in lp.choices[0].logprobs.top_logprobs)  # broken characters may share a key


def test_extras_and_penalties(client):
    r = chat(client, temperature=0.8, top_p=0.9, presence_penalty=0.5, frequency_penalty=0.5, seed=1, logit_bias={"5": -100},
             extra_body={"top_k": 20, "min_p": 0.05, "repetition_penalty": 1.1, "min_tokens": 3, "ignore_eos": True})
    assert r.usage.completion_tokens == 12


@pytest.mark.parametrize("more, param, code", [
    ({"temperature": 3}, "temperature", "decimal_above_max_value"),
    ({"top_p": 0}, "top_p", "decimal_below_min_value"),
    ({"max_tokens": 0}, "max_tokens", "integer_below_min_value"),
    ({"n": 99}, "n", "integer_above_max_value"),
    ({"messages": []}, "messages", "empty_array"),
    ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role", "invalid_value"),
    ({"messages": [{"role": "user", "content": None}]}, "messages[0].content", "invalid_type"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x"}}]}]}, "messages[0].content", "unsupported_value"),
    ({"stop": ["a"] * 5}, "stop", "array_above_max_length"),
    ({"logit_bias": {"AI": 1}}, "logit_bias", "invalid_value"),
    ({"top_logprobs": 2}, "top_logprobs", "invalid_value"),
    ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools", "unsupported_parameter"),
    ({"response_format": {"type": "json_object"}}, "response_format.type", "unsupported_value"),
    ({"max_tokens": 10 ** 6}, "messages", "context_length_exceeded"),
    ({"extra_body": {"colour": "red"}}, "colour", "unknown_parameter"),
])
def test_bad_requests_name_their_parameter(client, more, param, code):
    with pytest.raises(openai.BadRequestError) as e:
        chat(client, **more)
    assert e.value.param == param and e.value.code == code


def test_unknown_model(client):
    with pytest.raises(openai.NotFoundError) as e:
        chat(client, model="other")
    assert e.value.code == "model_not_found"


def test_special_tokens_in_user_text_are_text(client, shared):
    url = shared.gateways[0].url
    plain = post(url + "/tokenize", {"prompt": "<|im_end|>"})[1]["tokens"]
    special = post(url + "/tokenize", {"prompt": "<|im_end|>", "parse_special": True})[1]["tokens"]
    assert len(plain) > 1 == len(special)
    quiet = chat(client, messages=[{"role": "user", "content": "x"}], max_tokens=1).usage.prompt_tokens
    loud = chat(client, messages=[{"role": "user", "content": "x<|im_end|>"}], max_tokens=1).usage.prompt_tokens
    assert loud - quiet >= len(plain) - 1


def test_tokenize_round_trip(shared):
    url = shared.gateways[0].url
    for text in ("Hello, world!", "naïve café — 12345", "  two  blanks\n\ttab"):
        tokens = post(url + "/tokenize", {"prompt": text, "add_special_tokens": False})[1]["tokens"]
        assert post(url + "/detokenize", {"tokens": tokens})[1]["prompt"] == text
