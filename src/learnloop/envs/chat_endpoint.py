"""Asks any OpenAI-compatible endpoint for chat completions: bounded retries, a budget, errors instead of guesses."""

from __future__ import annotations

import hashlib
import http.client
import os
import tempfile
import time
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import NoReturn
from urllib.parse import SplitResult, urlsplit

import msgspec

from learnloop.core.errors import AuthError, ConflictError, LearnloopError, NotFoundError, UnreachableError, UsageError

MAX_ANSWER_BYTES = 16 * 1024 * 1024
MAX_WAIT_SECONDS = 60.0
"""An endpoint that asks to be left alone for longer is given up."""
_CHUNK = 65_536
_PASSING = frozenset({408, 409, 425, 429})
"""What may be another answer next time, beside 500 and above."""
_SHOWN = 200


class EndpointConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a model is, and how it is asked."""

    base_url: str
    """Such as ``http://127.0.0.1:8080/v1``; ``/chat/completions`` is added."""
    model: str
    max_tokens: int = 256
    temperature: float = 0.0
    timeout_seconds: float = 60.0
    """For one request, from the connection to the last byte."""
    api_key_env: str | None = None
    """The environment variable that holds the key; None: no key is sent."""
    max_requests: int | None = None
    """Requests of this client, repeated ones included, those answered from ``cache`` not; None: any number."""
    max_retries: int = 4
    """How often a request is repeated after a failure that may pass."""
    backoff_seconds: float = 0.5
    """The wait before the first repetition; it doubles with each. ``Retry-After`` wins."""
    cache: str | None = None
    """A folder where answers are kept; a request that was answered before is not sent again."""

    def __post_init__(self) -> None:
        """Refuses values without a meaning."""
        for name, value in (("model", self.model), ("api_key_env", self.api_key_env), ("cache", self.cache)):
            if value == "":
                raise UsageError(f"{name} is empty; give a name, or leave it out where there is none")
        checks = {
            "max_tokens": self.max_tokens >= 1,
            "temperature": 0.0 <= self.temperature < float("inf"),
            "timeout_seconds": 0.0 < self.timeout_seconds < float("inf"),
            "max_requests": self.max_requests is None or self.max_requests >= 1,
            "max_retries": self.max_retries >= 0,
            "backoff_seconds": 0.0 <= self.backoff_seconds <= MAX_WAIT_SECONDS,
        }
        for name, is_fine in checks.items():
            if not is_fine:
                raise UsageError(f"{name} is {getattr(self, name)}, which has no meaning; see EndpointConfig")


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """An answer."""

    text: str
    num_tokens: int | None
    """That the endpoint counted, of prompt and answer together; None: it did not say."""


class _Function(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    message: _Function


class _Usage(msgspec.Struct):
    total_tokens: int | None = None


class _Answer(msgspec.Struct):
    choices: list[_Choice]
    usage: _Usage | None = None


class _Retry(Exception):
    """A failure that may pass."""

    def __init__(self, reason: str, wait_seconds: float | None = None) -> None:
        super().__init__(reason)
        self.wait_seconds = wait_seconds


class ChatEndpoint:
    """A client of one model. Not for several threads at once.

    Attributes:
        num_requests: requests sent so far, repeated ones included.
        num_cached: questions that were answered from the cache.
    """

    def __init__(self, config: EndpointConfig) -> None:
        """Connects to nothing yet.

        Raises:
            UsageError: the address is none, or the variable with the key is not set.
        """
        self._config = config
        self._url = _checked_url(config.base_url)
        self._path = f"{self._url.path.rstrip('/')}/chat/completions"
        # Without user and password, which may stand in the address and are nobody's business in a message.
        self.name = f"{self._url.scheme}://{self._url.netloc.rpartition('@')[2]}{self._path}"
        self._headers = {"Content-Type": "application/json", "Accept": "application/json", **_key(config.api_key_env)}
        self._connection: http.client.HTTPConnection | None = None
        self.num_requests = 0
        self.num_cached = 0

    def complete(self, prompt: str) -> Completion:
        """Returns what the model answers to ``prompt``.

        Raises:
            AuthError: the endpoint refuses the key (401, 403).
            NotFoundError: it has no such model or path (404).
            UsageError: it refuses the request, or answers something that is no chat completion.
            UnreachableError: it does not answer, or not usefully, after all repetitions.
            ConflictError: ``max_requests`` are used up.
        """
        config = self._config
        body = msgspec.json.encode(
            {
                "model": config.model,
                "messages": [{"role": "user", "content": prompt}],
                "max_tokens": config.max_tokens,
                "temperature": config.temperature,
            }
        )
        kept = self._kept(body)
        if kept is not None and kept.is_file():
            self.num_cached += 1
            return self._read(kept.read_bytes(), f"the kept answer {kept}")
        answer = self._ask(body)
        completion = self._read(answer, self.name)
        if kept is not None:
            _keep(kept, answer)
        return completion

    def close(self) -> None:
        """Closes the connection; the next question opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self, body: bytes) -> bytes:
        """Returns the answer to one question, asked again while the failure may pass."""
        config = self._config
        wait = config.backoff_seconds
        for attempt in range(config.max_retries + 1):
            try:
                return self._send(body)
            except _Retry as failure:
                reason, pause = str(failure), wait if failure.wait_seconds is None else failure.wait_seconds
                if pause > MAX_WAIT_SECONDS:
                    raise UnreachableError(
                        f"{self.name} {reason} and asks to wait {pause:g} s; at most {MAX_WAIT_SECONDS:g} s are waited"
                    ) from failure
                if attempt == config.max_retries:
                    raise UnreachableError(
                        f"{self.name} {reason}; it was asked {attempt + 1} times. Nothing was scored"
                    ) from failure
            time.sleep(pause)
            wait = min(2 * wait, MAX_WAIT_SECONDS)
        raise UnreachableError(f"{self.name} was not asked: max_retries is {config.max_retries}")

    def _send(self, body: bytes) -> bytes:
        """Returns the body of one answer with the status 200, if it is JSON."""
        config = self._config
        if config.max_requests is not None and self.num_requests >= config.max_requests:
            raise ConflictError(
                f"the {config.max_requests} requests that {self.name} may be sent (max_requests) are used up; raise "
                "it, or keep answers in a cache"
            )
        self.num_requests += 1
        deadline = time.monotonic() + config.timeout_seconds
        try:
            connection = self._connected()
            connection.request("POST", self._path, body, self._headers)
            response = connection.getresponse()
            data = self._body(response, connection, deadline)
        except TimeoutError as error:
            self.close()
            raise _Retry(f"did not answer within {config.timeout_seconds:g} s") from error
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise _Retry(f"cannot be reached ({type(error).__name__}: {error})") from error
        if response.will_close:
            self.close()
        if response.status != 200:
            self._refuse(response, data)
        try:
            msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _Retry(f"answered 200 with something that is not JSON ({_short(data)})") from error
        return data

    def _connected(self) -> http.client.HTTPConnection:
        if self._connection is None:
            kind = http.client.HTTPSConnection if self._url.scheme == "https" else http.client.HTTPConnection
            self._connection = kind(self._url.hostname or "", self._url.port, timeout=self._config.timeout_seconds)
        elif self._connection.sock is not None:
            self._connection.sock.settimeout(self._config.timeout_seconds)
        return self._connection

    def _body(
        self, response: http.client.HTTPResponse, connection: http.client.HTTPConnection, deadline: float
    ) -> bytes:
        """Returns the bytes of an answer; one that drips in does not outlast the deadline."""
        parts: list[bytes] = []
        size = 0
        while part := response.read1(_CHUNK):
            parts.append(part)
            size += len(part)
            left = deadline - time.monotonic()
            if size > MAX_ANSWER_BYTES:
                self.close()
                raise UsageError(f"{self.name} answers with more than {MAX_ANSWER_BYTES:,} bytes; is it a chat model?")
            if left <= 0:
                raise TimeoutError
            if connection.sock is not None:
                connection.sock.settimeout(left)
        if response.length:
            raise http.client.IncompleteRead(b"".join(parts), response.length)
        if not response.isclosed():
            response.read()  # nothing is left, but only now may the connection take the next question
        return b"".join(parts)

    def _refuse(self, response: http.client.HTTPResponse, data: bytes) -> NoReturn:
        status = response.status
        said = f"answered {status} {response.reason}: {_short(data)}"
        if status in _PASSING or status >= 500:
            raise _Retry(said, _retry_after(response.getheader("Retry-After")))
        kind: type[LearnloopError] = UsageError
        advice = "the request is refused"
        if status in (401, 403):
            kind = AuthError
            advice = f"put a key that it takes into the variable {self._config.api_key_env or 'that api_key_env names'}"
        elif status == 404:
            kind, advice = NotFoundError, f"is base_url right, and the model {self._config.model!r}?"
        elif 300 <= status < 400:
            advice = f"it has moved to {response.getheader('Location')}; give that as base_url"
        raise kind(f"{self.name} {said}; {advice}")

    def _read(self, data: bytes, where: str) -> Completion:
        try:
            answer = msgspec.json.decode(data, type=_Answer)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise UsageError(f"{where} is no chat completion ({error}): {_short(data)}") from error
        text = answer.choices[0].message.content if answer.choices else None
        if text is None:
            raise UsageError(f"{where} is a chat completion without a text: {_short(data)}")
        return Completion(text=text, num_tokens=None if answer.usage is None else answer.usage.total_tokens)

    def _kept(self, body: bytes) -> Path | None:
        """Returns where the answer to a request is kept: a file for each address and request."""
        if self._config.cache is None:
            return None
        digest = hashlib.sha256(self.name.encode() + b"\n" + body).hexdigest()
        return Path(self._config.cache) / f"{digest}.json"


def _checked_url(base_url: str) -> SplitResult:
    try:
        url = urlsplit(base_url)
        is_fine = url.scheme in ("http", "https") and bool(url.hostname) and (url.port or 1) > 0
    except ValueError as error:  # a port that is none, brackets that do not close
        raise UsageError(f"base_url {base_url!r} is no address: {error}") from error
    if not is_fine or url.query or url.fragment:
        raise UsageError(f"base_url is {base_url!r}; an address such as 'http://127.0.0.1:8080/v1' is needed")
    return url


def _key(variable: str | None) -> dict[str, str]:
    if variable is None:
        return {}
    key = os.environ.get(variable, "").strip()
    if not key:
        raise UsageError(f"the environment variable {variable} (api_key_env) is not set; put the key into it")
    if not key.isascii() or not key.isprintable():
        raise UsageError(f"the environment variable {variable} (api_key_env) holds characters that no header can carry")
    return {"Authorization": f"Bearer {key}"}


def _retry_after(header: str | None) -> float | None:
    """Returns the seconds that an endpoint asks to wait; None where it does not say, or not readably."""
    if header is None:
        return None
    if header.strip().isdecimal():
        return float(header)
    try:
        moment = parsedate_to_datetime(header)
    except ValueError:
        return None
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return max(0.0, (aware - datetime.now(UTC)).total_seconds())


def _keep(path: Path, answer: bytes) -> None:
    """Writes an answer whole or not at all; other processes may write the same one."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, suffix=".part", delete=False) as file:
            file.write(answer)
        os.replace(file.name, path)
    except OSError as error:
        raise UsageError(f"the cache {path.parent} cannot be written ({error.strerror or error})") from error


def _short(data: bytes) -> str:
    text = " ".join(data[: 4 * _SHOWN].decode("utf-8", "replace").split())
    return text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
