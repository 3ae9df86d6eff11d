"""Completions from a server that speaks OpenAI's protocol: vLLM, SGLang, llama.cpp and the like."""

import concurrent.futures
import dataclasses
import http.client
import json
import math
import re
import ssl
import threading
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from grpo_jax.data.stops import before_stop
from grpo_jax.records import Completion, FinishReason
from grpo_jax.rollout.engine import SamplingParams

Api = Literal["completions", "chat"]

RETRIED_STATUS = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
"""Answers of a server that may do better in a moment."""

LONGEST_PAUSE_SECONDS = 60.0
MOST_REPLY_BYTES = 64 << 20
MOST_SHOWN_CHARACTERS = 300

_FINISH = {
    "stop": FinishReason.STOP,
    "length": FinishReason.LENGTH,
    # The rest of the answer is withheld: what there is of it is judged.
    "content_filter": FinishReason.STOP,
}


class EndpointError(RuntimeError):
    """The server cannot be used; the message says what it answered."""

    exit_status = 2


@dataclasses.dataclass(frozen=True)
class EndpointConfig:
    """Which server is asked, and how.

    Attributes:
        url: Such as ``http://host:8000/v1``; without a user, a password or a query.
        model: The model's name there.
        api: ``completions`` sends prompts as they are, ``chat`` sends messages.
        concurrency: Requests at one time.
        timeout_seconds: For one request.
        retries: Further attempts after a fault that may pass.
        key: Sent as a bearer token, and shown nowhere.
        chat_variables: For the server's chat template.
    """

    url: str
    model: str
    api: Api
    concurrency: int = 16
    timeout_seconds: float = 600.0
    retries: int = 5
    key: str | None = dataclasses.field(default=None, repr=False)
    chat_variables: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        parts = urllib.parse.urlsplit(self.url)
        port = parts.netloc.rpartition("@")[2].rpartition("]")[2].partition(":")[2]
        plain = parts.username is None and not parts.query and re.fullmatch(r"\d{0,5}", port)
        if parts.scheme not in ("http", "https") or not parts.hostname or not plain:
            raise EndpointError(
                f"--endpoint: got {parts._replace(netloc=parts.netloc.rpartition('@')[2]).geturl()!r}, wanted "
                "http://HOST:PORT/v1 or https://HOST/v1, without a user and a query. A key comes from the environment."
            )


class _Fault(NamedTuple):
    what: str
    passing: bool
    pause_seconds: float = 0.0


class Endpoint:
    """Asks the server for completions, several at a time.

    Each completion is a request of its own with a seed of its own, so a server that keeps to seeds gives the same ones
    again; it computes a prompt that it has seen only once.
    """

    def __init__(self, config: EndpointConfig, seed: int) -> None:
        """Remembers whom to ask.

        Args:
            config: The server.
            seed: Decides the seeds of the requests.
        """
        self._config, self._seed = config, seed
        self._ended = threading.Event()

    def generate(
        self, prompts: Sequence[Sequence[Mapping[str, str]] | str], sampling: SamplingParams
    ) -> Iterator[tuple[int, list[Completion]]]:
        """Samples every prompt and yields the completions of each as soon as all of them are there.

        Args:
            prompts: Texts, or lists of messages where the ``chat`` interface is used.
            sampling: How to draw; ``top_k`` is an extension that vLLM, SGLang and llama.cpp know.

        Returns:
            The number of a prompt, and its completions.

        Raises:
            EndpointError: if the server refuses a request, or fails at it again and again.
        """
        samples = sampling.completions_per_prompt
        with concurrent.futures.ThreadPoolExecutor(self._config.concurrency) as threads:
            asked = {
                threads.submit(self._complete, self._body(prompt, sampling, index * samples + sample), sampling): index
                for index, prompt in enumerate(prompts)
                for sample in range(samples)
            }
            waiting = dict.fromkeys(range(len(prompts)), samples)
            rows: dict[int, list[concurrent.futures.Future[Completion]]] = {}
            for future, index in asked.items():
                rows.setdefault(index, []).append(future)
            try:
                for future in concurrent.futures.as_completed(asked):
                    future.result()
                    index = asked[future]
                    waiting[index] -= 1
                    if waiting[index] == 0:
                        yield index, [row.result() for row in rows.pop(index)]
            finally:
                self._ended.set()
                threads.shutdown(wait=True, cancel_futures=True)

    def _body(self, prompt: Any, sampling: SamplingParams, number: int) -> bytes:
        config = self._config
        body: dict[str, Any] = {
            "model": config.model,
            "max_tokens": sampling.max_new_tokens,
            "temperature": sampling.temperature,
            "seed": (self._seed * 1_000_003 + number) % 2**31,
        }
        body |= {"prompt": prompt} if config.api == "completions" else {"messages": list(prompt)}
        optional = {
            "top_p": (sampling.top_p, 1.0),
            "top_k": (sampling.top_k, 0),
            "stop": (list(sampling.stop), []),
            "chat_template_kwargs": (dict(config.chat_variables), {}),
        }
        return json.dumps(body | {name: value for name, (value, off) in optional.items() if value != off}).encode()

    def _complete(self, body: bytes, sampling: SamplingParams) -> Completion:
        fault = _Fault("nothing", passing=True)
        for attempt in range(self._config.retries + 1):
            pause = min(LONGEST_PAUSE_SECONDS, max(fault.pause_seconds, 0.5 * 2 ** (attempt - 1))) if attempt else 0.0
            if self._ended.wait(pause):
                raise EndpointError(f"--endpoint: {self._config.url} is asked no more")
            answer = self._ask(body)
            if not isinstance(answer, _Fault):
                return self._read(answer, sampling)
            fault = answer
            if not fault.passing:
                break
        tries = f" {self._config.retries + 1} times" if fault.passing else ""
        raise EndpointError(
            f"--endpoint: {self._config.url} was asked{tries} and gave {fault.what}. {self._remedy(fault)}"
        )

    def _remedy(self, fault: _Fault) -> str:
        if fault.passing:
            return "See that it runs; --endpoint_timeout, --endpoint_retries and --endpoint_concurrency may help."
        return "Check --endpoint, --endpoint_model, --endpoint_api, --endpoint_key_env and the lengths of prompts."

    def _ask(self, body: bytes) -> Any:
        """One request: the decoded answer, or what was wrong."""
        config, parts = self._config, urllib.parse.urlsplit(self._config.url)
        assert parts.hostname is not None, "EndpointConfig looks at it"
        if parts.scheme == "https":
            connection = http.client.HTTPSConnection(
                parts.hostname, parts.port, timeout=config.timeout_seconds, context=ssl.create_default_context()
            )
        else:
            connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=config.timeout_seconds)
        path = parts.path.rstrip("/") + ("/completions" if config.api == "completions" else "/chat/completions")
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        headers |= {"Authorization": f"Bearer {config.key}"} if config.key else {}
        try:
            # Redirects are not followed: the key is for this server alone.
            connection.request("POST", path, body, headers)
            reply = connection.getresponse()
            text = reply.read(MOST_REPLY_BYTES)
        except TimeoutError:
            return _Fault(f"no answer within {config.timeout_seconds:g} seconds", passing=True)
        except (OSError, http.client.HTTPException) as error:
            return _Fault(f"{type(error).__name__}: {error}", passing=True)
        finally:
            connection.close()
        if reply.status != http.client.OK:
            what = f"status {reply.status} {self._shown(text)}"
            return _Fault(what, reply.status in RETRIED_STATUS, _seconds(reply.getheader("Retry-After")))
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            return _Fault(f"no JSON: {self._shown(text)}", passing=False)

    def _shown(self, text: bytes) -> str:
        shown = " ".join(text.decode(errors="replace").split())
        shown = shown.replace(self._config.key, "***") if self._config.key else shown
        return repr(shown[:MOST_SHOWN_CHARACTERS])

    def _read(self, answer: Any, sampling: SamplingParams) -> Completion:
        try:
            [choice] = answer["choices"]
            text = choice["text"] if self._config.api == "completions" else choice["message"]["content"]
            finish, tokens = _FINISH[choice["finish_reason"]], answer["usage"]["completion_tokens"]
            if not isinstance(text, str | None) or type(tokens) is not int:
                raise TypeError("a text and a number of tokens have other types")
        except (KeyError, IndexError, TypeError, ValueError) as error:
            wanted = "one choice with a text, a finish_reason of stop or length, and usage.completion_tokens"
            raise EndpointError(
                f"--endpoint: {self._config.url} answered {self._shown(json.dumps(answer).encode())}, wanted {wanted} "
                f"({type(error).__name__}: {error})."
            ) from error
        # Without content a model has thought up to the limit, or refused.
        return Completion(before_stop(text or "", sampling.stop), tokens, finish)


def _seconds(header: str | None) -> float:
    try:
        seconds = float(header or 0)
    except ValueError:
        # A date is allowed too; the pause then grows by itself.
        return 0.0
    return seconds if math.isfinite(seconds) and seconds > 0 else 0.0
