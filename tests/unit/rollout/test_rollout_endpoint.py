"""The client against a server of this process that speaks the protocol, well and badly."""

import contextlib
import http.server
import json
import threading
import time

import pytest

from grpo_jax.records import Completion, FinishReason
from grpo_jax.rollout.endpoint import Endpoint, EndpointConfig, EndpointError
from grpo_jax.rollout.engine import SamplingParams

KEY = "sk-very-secret"


def choice(text, chat=False, finish="stop", tokens=3):
    content = {"message": {"content": text}} if chat else {"text": text}
    return 200, {"choices": [content | {"finish_reason": finish}], "usage": {"completion_tokens": tokens}}


@contextlib.contextmanager
def server(answer):
    """Serves ``answer(number, path, body) -> (status, JSON value or bytes, *headers)``.

    Yields the address, the requests that came, and the most that were at work at one time.
    """
    seen, at_work, most = [], [0], [0]
    lock = threading.Lock()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                seen.append((self.path, body, dict(self.headers)))
                at_work[0] += 1
                most[0] = max(most[0], at_work[0])
                number = len(seen)
            status, value, *more = answer(number, self.path, body)
            with lock:
                at_work[0] -= 1
            payload = value if isinstance(value, bytes) else json.dumps(value).encode()
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                self.send_response(status)
                self.send_header("Content-Length", str(len(payload)))
                for header in more:
                    self.send_header(*header)
                self.end_headers()
                self.wfile.write(payload)

        def log_message(self, *_):
            pass

    serving = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=serving.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{serving.server_port}/v1", seen, most
    finally:
        serving.shutdown()
        serving.server_close()
        thread.join()


def ask(url, prompts, sampling=None, *, seed=0, **changes):
    settings = {"model": "m", "api": "completions", "retries": 2, "timeout_seconds": 10.0} | changes
    found = Endpoint(EndpointConfig(url, **settings), seed).generate(prompts, sampling or SamplingParams(1, 8))
    return dict(found)


def test_texts_are_completed_with_the_sampling_that_was_asked_for():
    with server(lambda _, __, body: choice(f"{body['prompt']}!# rest", finish="length", tokens=8)) as (url, seen, _):
        sampling = SamplingParams(2, 8, 0.7, 5, 0.9, ("#",))
        found = ask(url, ["a", "b"], sampling)
        again = ask(url, ["a", "b"], sampling)
        other = ask(url, ["a"], sampling, seed=1)
    wanted = {0: [Completion("a!", 8, FinishReason.LENGTH)] * 2, 1: [Completion("b!", 8, FinishReason.LENGTH)] * 2}
    assert found == again == wanted
    assert len(other) == 1
    paths, bodies, headers = zip(*seen, strict=True)
    assert set(paths) == {"/v1/completions"}
    assert all("Authorization" not in sent for sent in headers)
    seeds = [body.pop("seed") for body in bodies]
    settings = {"model": "m", "max_tokens": 8, "temperature": 0.7, "top_p": 0.9, "top_k": 5, "stop": ["#"]}
    assert all({**body, "prompt": ""} == {**settings, "prompt": ""} for body in bodies)
    assert len(set(seeds[:4])) == 4
    assert set(seeds[:4]) == set(seeds[4:8])
    assert not set(seeds[8:]) & set(seeds[:8])


def test_a_chat_is_sent_as_messages_with_the_key_and_the_variables():
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    with server(lambda *_: choice("yes", chat=True)) as (url, seen, _):
        found = ask(url, [messages], api="chat", key=KEY, chat_variables={"enable_thinking": False})
    [(path, body, headers)] = seen
    assert found == {0: [Completion("yes", 3, FinishReason.STOP)]}
    assert path == "/v1/chat/completions"
    assert body["messages"] == messages
    assert body["chat_template_kwargs"] == {"enable_thinking": False}
    assert not {"top_p", "top_k", "stop", "prompt"} & body.keys()
    assert headers["Authorization"] == f"Bearer {KEY}"


def test_a_message_without_content_is_an_empty_completion():
    with server(lambda *_: choice(None, chat=True, finish="length")) as (url, *_):
        assert ask(url, [[]], api="chat")[0] == [Completion("", 3, FinishReason.LENGTH)]


def test_a_busy_server_is_asked_again():
    def answer(number, *_):
        return (503, {"error": "busy"}, ("Retry-After", "0.01")) if number < 3 else choice("late")

    with server(answer) as (url, seen, _):
        assert ask(url, ["a"])[0][0].text == "late"
    assert len(seen) == 3
    assert len({json.dumps(body) for _, body, _ in seen}) == 1


def test_no_more_requests_at_one_time_than_allowed():
    def answer(*_):
        time.sleep(0.02)
        return choice("x")

    with server(answer) as (url, seen, most):
        ask(url, list("abcdefgh"), concurrency=2)
    assert len(seen) == 8
    assert most[0] <= 2


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((400, {"error": f"prompt too long {KEY}"}), r"gave status 400 .*prompt too long \*\*\*.*Check --endpoint"),
        ((401, {"error": "no"}), r"status 401"),
        ((302, {"error": "elsewhere"}, ("Location", "http://127.0.0.1:1/")), r"status 302"),
        ((500, {"error": "down"}), r"was asked 2 times and gave status 500"),
        ((200, b"<html>"), r"gave no JSON: '<html>'"),
        ((200, {"choices": []}), r"wanted one choice with a text"),
        ((200, {"choices": [{"text": "x", "finish_reason": "stop"}]}), r"usage\.completion_tokens \(KeyError: 'usage'"),
        (choice("x", finish="tool_calls"), r"finish_reason of stop or length"),
        (choice(7), r"other types"),
        ((200, [KEY]), r"answered '\[\"\*\*\*\"\]'"),
    ],
)
def test_a_server_that_cannot_be_used_is_told_with_its_answer_and_without_the_key(answer, message):
    with server(lambda *_: answer) as (url, *_), pytest.raises(EndpointError, match=message) as raised:
        ask(url, ["a"], key=KEY, retries=1)
    assert KEY not in str(raised.value)
    assert KEY not in repr(EndpointConfig(url, "m", "chat", key=KEY))


def test_a_server_that_hangs_or_is_absent():
    with (
        server(lambda *_: (time.sleep(0.5), choice("x"))[1]) as (url, *_),
        pytest.raises(EndpointError, match=r"gave no answer within 0\.1 seconds\. See that it runs"),
    ):
        ask(url, ["a"], timeout_seconds=0.1, retries=0)
    with pytest.raises(EndpointError, match=r"gave ConnectionRefusedError"):
        ask(url, ["a"], retries=0)


def test_one_refusal_ends_the_others():
    def answer(_, __, body):
        return (400, {"error": "no"}) if body["prompt"] == "0" else (503, {}, ("Retry-After", "60"))

    began = time.monotonic()
    with server(answer) as (url, *_), pytest.raises(EndpointError, match="status 400"):
        ask(url, [str(index) for index in range(50)], retries=5)
    assert time.monotonic() - began < 30


@pytest.mark.parametrize(
    "url", ["ftp://h/v1", "h:8000", "http://user:pw@h/v1", "http://h/v1?key=1", "http:///v1", "http://h:port/v1"]
)
def test_addresses_that_are_none_are_refused_without_their_password(url):
    with pytest.raises(EndpointError, match=r"--endpoint: got .*, wanted http://HOST:PORT/v1") as raised:
        EndpointConfig(url, "m", "chat")
    assert "pw" not in str(raised.value)
