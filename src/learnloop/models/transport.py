"""Sends JSON to one endpoint: bounded retries, budget, deadlines and requests in flight; errors instead of guesses."""

from __future__ import annotations

import http.client
import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import NoReturn, TypeVar

import msgspec

from learnloop.core.decoding import NOT_JSON
from learnloop.core.errors import AuthError, LearnloopError, NotFoundError, UnreachableError, UsageError
from learnloop.core.lifecycles import Closing
from learnloop.models.budget import Budget
from learnloop.models.chat_wire import shortened
from learnloop.models.connections import ConnectionPool, Reply
from learnloop.models.endpoint_config import MAX_WAIT_SECONDS, EndpointConfig, checked_url, read_key

_PASSING = frozenset({408, 409, 425, 429})
"""What may be another answer next time, beside 500 and above."""

T = TypeVar("T")


class PassingError(Exception):
    """A failure that may pass."""

    def __init__(self, reason: str, wait_seconds: float | None = None) -> None:
        super().__init__(reason)
        self.wait_seconds = wait_seconds


class Transport:
    """A path of an endpoint. For any number of threads.

    Attributes:
        name: its address, without user and password.
        budget: what was spent.
    """

    def __init__(self, config: EndpointConfig, path: str, budget: Budget | None = None) -> None:
        """Connects to nothing yet; ``budget`` takes the place of the one that the configuration describes.

        Raises:
            UsageError: the address is not a valid one, or the variable with the key is not set.
        """
        url = checked_url(config.base_url)
        self._config = config
        self._path = f"{url.path.rstrip('/')}{path}"
        self.name = f"{url.scheme}://{url.netloc.rpartition('@')[2]}{self._path}"
        self.budget = budget or Budget(self.name, config.max_requests, config.max_total_tokens)
        self._key = read_key(config.api_key_env)
        self._pool = ConnectionPool(url, self.name)
        self._places = threading.BoundedSemaphore(config.max_in_flight)

    def ask(
        self, body: bytes, num_tokens: int, read: Callable[[Exchange], T], deadline_seconds: float | None = None
    ) -> T:
        """Returns what ``read`` makes of the answer; asks again while a failure may pass.

        Args:
            body: the request, as JSON.
            num_tokens: that it may use, for the budget.
            read: is given each answer with the status 200. It closes it, now or later, unless it raises; what
                ``Reply.read`` raises and ``PassingError`` mean that another try is worth it.
            deadline_seconds: for this question, where it is shorter than the configuration's.

        Raises:
            AuthError: the endpoint refuses the key (401, 403).
            NotFoundError: it has no such model or path (404).
            UsageError: it refuses the request.
            UnreachableError: it does not answer, or not usefully, after all repetitions or within the deadline.
            ConflictError: ``max_requests`` or ``max_total_tokens`` are used up.
        """
        config = self._config
        seconds = min(config.deadline_seconds, math.inf if deadline_seconds is None else deadline_seconds)
        deadline = time.monotonic() + seconds
        wait = config.backoff_seconds
        for attempt in range(config.max_retries + 1):
            try:
                return self._send(body, num_tokens, read, deadline)
            except PassingError as failure:
                reason, pause = str(failure), wait if failure.wait_seconds is None else failure.wait_seconds
                if pause > MAX_WAIT_SECONDS:
                    raise UnreachableError(
                        f"{self.name} {reason} and asks to wait {pause:g} s; at most {MAX_WAIT_SECONDS:g} s are waited"
                    ) from failure
                if attempt == config.max_retries:
                    raise UnreachableError(f"{self.name} {reason}; it was asked {attempt + 1} times") from failure
                if time.monotonic() + pause >= deadline:
                    raise UnreachableError(
                        f"{self.name} {reason}; another try is not over within deadline_seconds "
                        f"({seconds:.3g} s). It was asked {attempt + 1} times"
                    ) from failure
            time.sleep(pause)
            wait = min(2 * wait, MAX_WAIT_SECONDS)
        raise UnreachableError(f"{self.name} was not asked: max_retries is {config.max_retries}")

    def close(self) -> None:
        """Closes the connections that are not in use; the next question opens another."""
        self._pool.close()

    def _send(self, body: bytes, num_tokens: int, read: Callable[[Exchange], T], deadline: float) -> T:
        """Returns what ``read`` makes of one answer with the status 200."""
        self._enter(deadline)
        try:
            self.budget.reserve(num_tokens)
            limit = min(self._config.timeout_seconds, deadline - time.monotonic())
            with self.failures(limit):
                reply = self._pool.post(self._path, body, self._headers(), limit)
        except BaseException:
            self._places.release()
            raise
        exchange = Exchange(self.budget, reply, num_tokens, limit, self._places)
        try:
            with self.failures(limit):
                if reply.status != 200:
                    self._refuse(exchange, reply.read())
                return read(exchange)
        except BaseException:
            exchange.close()
            raise

    def _enter(self, deadline: float) -> None:
        """Waits for a place among the requests in flight."""
        left = max(0.0, deadline - time.monotonic())
        if not self._places.acquire(timeout=left):
            raise UnreachableError(
                f"{self.name} was not asked within {left:.3g} s (deadline_seconds): so long were "
                f"{self._config.max_in_flight} other requests (max_in_flight) on their way"
            )

    def _headers(self) -> dict[str, str]:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        return headers if self._key is None else {**headers, "Authorization": f"Bearer {self._key}"}

    @contextmanager
    def failures(self, limit_seconds: float) -> Iterator[None]:
        """Turns what a connection raises into ``PassingError``, which says it in words."""
        try:
            yield
        except TimeoutError as error:
            raise PassingError(f"did not answer within {limit_seconds:.3g} s") from error
        except (OSError, http.client.HTTPException) as error:
            raise PassingError(f"cannot be reached ({type(error).__name__}: {error})") from error

    def _refuse(self, exchange: Exchange, data: bytes) -> NoReturn:
        reply = exchange.reply
        status = reply.status
        said = f"answered {status} {reply.reason}: {self.quoted(data)}"
        exchange.settle(0)
        if status in _PASSING or status >= 500:
            raise PassingError(said, _retry_after(reply.header("Retry-After")))
        kind: type[LearnloopError] = UsageError
        advice = "the request is refused"
        if status in (401, 403):
            kind = AuthError
            advice = f"put a key that it takes into the variable {self._config.api_key_env or 'that api_key_env names'}"
        elif status == 404:
            kind, advice = NotFoundError, f"is base_url right, and the model {self._config.model!r}?"
        elif 300 <= status < 400:
            advice = f"it has moved to {reply.header('Location')}; give that as base_url"
        raise kind(f"{self.name} {said}; {advice}")

    def read_json(self, exchange: Exchange) -> bytes:
        """Returns an answer that comes whole and is JSON.

        Raises:
            PassingError: it is not JSON.
        """
        data = exchange.reply.read()
        try:
            msgspec.json.decode(data)
        except NOT_JSON as error:
            raise PassingError(f"answered 200 with something that is not JSON ({self.quoted(data)})") from error
        return data

    def quoted(self, data: bytes) -> str:
        """Returns the start of an answer for a message; the key, should the endpoint repeat it, is not shown."""
        text = shortened(data)
        return text if self._key is None else text.replace(self._key, "***")


class Exchange:
    """A request whose answer has begun. It holds a place among those in flight until it is closed.

    Attributes:
        reply: the answer, to be read.
        limit_seconds: from the connection to the last byte.
    """

    def __init__(
        self,
        budget: Budget,
        reply: Reply,
        num_tokens: int,
        limit_seconds: float,
        places: threading.BoundedSemaphore,
    ) -> None:
        """For ``Transport``."""
        self.reply = reply
        self.limit_seconds = limit_seconds
        self._budget = budget
        self._reserved = num_tokens
        self._places = places
        self._is_open = True

    def settle(self, num_tokens: int) -> None:
        """Tells the budget what the endpoint counted, in the place of what was reserved."""
        self._budget.settle(self._reserved, num_tokens)
        self._reserved = num_tokens

    def close(self) -> None:
        """Gives the connection back and makes place for another request."""
        if self._is_open:
            self._is_open = False
            self.reply.close()
            self._places.release()


class Client(Closing):
    """What all clients of an endpoint have: what was sent, and an end. A context manager that closes it."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    @property
    def num_requests(self) -> int:
        """Requests sent so far, repeated ones included."""
        return self._transport.budget.num_requests

    @property
    def num_tokens(self) -> int:
        """Tokens used so far as the endpoint counts them; estimated for requests without a count. See ``Budget``."""
        return self._transport.budget.num_tokens

    def close(self) -> None:
        """Closes connections that are not in use; the next call opens others."""
        self._transport.close()


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
