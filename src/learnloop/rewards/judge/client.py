"""Asks a judge for votes: kept ones first, within budget and deadlines; what fails becomes a reason, not an error."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import msgspec

from learnloop.core.decoding import decode_json
from learnloop.core.errors import AuthError, ConflictError, NotFoundError, UnreachableError, UsageError
from learnloop.core.lifecycles import Closing
from learnloop.core.records import Record
from learnloop.models import Budget, ChatEndpoint, ChatRequest, Completion, Message
from learnloop.models.answer_cache import AnswerCache
from learnloop.rewards.judge.config import JudgeConfig
from learnloop.rewards.judge.prompts import MAX_ANSWER_CHARACTERS, PROMPT_VERSION, Shown, draw_boundary

T = TypeVar("T")
R = TypeVar("R")

MAX_IN_MEMORY = 10_000
"""Votes; the oldest go first."""
_BYTES_PER_TOKEN = 4
"""By which the client turns the bytes of a question into the tokens that it reserves."""
_MILLION = 1_000_000


class JudgeQuestion(msgspec.Struct, frozen=True):
    """A question to a judge."""

    parts: Sequence[Shown]
    """What it is shown of attempts."""
    rubric: Any
    """The rubric as plain values: part of what votes are kept by."""
    messages: Callable[[str], list[Message]]
    """The conversation, for a boundary."""
    schema: dict[str, Any]
    """Of the answer."""


class Failure(msgspec.Struct, frozen=True):
    """Why a vote does not count."""

    kind: str
    """``no answer``, ``unusable answer``, ``refused``, ``budget``, ``deadline`` or ``invalid``."""
    reason: str


class Votes(Generic[T]):
    """What several votes came to.

    Attributes:
        valid: those that count.
        failures: the others, by kind.
    """

    def __init__(self, num_votes: int) -> None:
        """Nobody has voted yet."""
        self._num_votes = num_votes
        self.valid: list[T] = []
        self.failures: Counter[str] = Counter()
        self._first: str | None = None

    def collect(self, ask: Callable[[int], T | Failure]) -> Self:
        """Asks for each vote by its number, until all have voted or no majority of valid ones can be had any more."""
        for number in range(self._num_votes):
            if not self.can_count:
                break
            vote = ask(number)
            if isinstance(vote, Failure):
                self.failures[vote.kind] += 1
                self._first = self._first or vote.reason
            else:
                self.valid.append(vote)
        return self

    @property
    def can_count(self) -> bool:
        """Whether more than half of the votes are, or may still become, valid."""
        return 2 * (self._num_votes - self.failures.total()) > self._num_votes

    @property
    def reason(self) -> str:
        """Why there is no majority."""
        counts = ", ".join(f"{number} x {kind}" for kind, number in sorted(self.failures.items()))
        return f"{self.failures.total()} of {self._num_votes} votes do not count ({counts}); the first: {self._first}"


class JudgeBudget(Budget):
    """Requests, tokens and US dollars of several threads; a request that may pass a limit is not sent.

    Before a request the most that it can cost is taken: each byte of it may be a token, and the answer may be as long
    as ``max_tokens`` allows. When the answer comes, its price takes that place. What was asked and never answered stays
    in full, since it may have been billed; what the endpoint refused costs nothing.
    """

    def __init__(self, name: str, config: JudgeConfig) -> None:
        """``name`` tells in messages whose budget this is."""
        super().__init__(name, config.endpoint.max_requests, config.endpoint.max_total_tokens)
        self._owner = name
        self._max_usd = config.max_usd
        self._is_priced = config.input_usd_per_million is not None and config.output_usd_per_million is not None
        self._input_price = (config.input_usd_per_million or 0.0) / _MILLION
        self._output_price = (config.output_usd_per_million or 0.0) / _MILLION
        self._max_output = config.endpoint.max_tokens
        self._usd_lock = threading.Lock()
        self._usd = 0.0

    @property
    def spent_usd(self) -> float | None:
        """Spent or reserved so far; None where no prices are set."""
        with self._usd_lock:
            return self._usd if self._is_priced else None

    def reserve(self, num_tokens: int) -> None:
        """Takes one request, so many tokens and their price.

        Raises:
            ConflictError: too little is left; nothing was taken.
        """
        price = self._bound(num_tokens)
        with self._usd_lock:
            if self._max_usd is not None and self._usd + price > self._max_usd:
                raise ConflictError(
                    f"of the {self._max_usd:g} USD of {self._owner} (max_usd) {self._usd:.4g} are spent or reserved, "
                    f"and this request may cost {price:.4g}; raise the limit, or lower max_tokens or votes"
                )
            super().reserve(num_tokens)
            self._usd += price

    def settle(self, reserved: int, used: int) -> None:
        """Puts the most that ``used`` tokens can cost in the place of what was reserved; see ``pay``."""
        super().settle(reserved, max(0, used))
        with self._usd_lock:
            self._usd += self._most(used) - self._bound(reserved)

    def pay(self, answer: Completion) -> None:
        """Puts the price of an answer, where its tokens are told, in the place of what ``settle`` took."""
        if answer.num_tokens is None or answer.num_prompt_tokens is None or answer.num_completion_tokens is None:
            return
        price = max(0, answer.num_prompt_tokens) * self._input_price
        price += max(0, answer.num_completion_tokens) * self._output_price
        with self._usd_lock:
            self._usd += price - self._most(answer.num_tokens)

    def _bound(self, num_tokens: int) -> float:
        num_bytes = _BYTES_PER_TOKEN * (num_tokens - self._max_output + 1)
        return num_bytes * self._input_price + self._max_output * self._output_price

    def _most(self, num_tokens: int) -> float:
        return max(0, num_tokens) * max(self._input_price, self._output_price)


class KeptVote(Record, frozen=True, kw_only=True):
    """What a judge said once, before anybody reads it."""

    text: str | None
    """None: it answered with something else than a text."""
    finish_reason: str | None = None
    model: str | None = None
    """As the endpoint names what answered."""


class _Flight:
    """A question that somebody asks at the moment, and those who wait for its answer."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.num_threads = 0


class VoteCache:
    """Votes under their keys, in memory and, where a folder is given, there. For any number of threads.

    Processes may share the folder; two of them may ask the same question at the same time.
    """

    def __init__(self, folder: str | None) -> None:
        """Makes nothing yet."""
        self._files = None if folder is None else AnswerCache(folder)
        self._lock = threading.Lock()
        self._kept: dict[str, KeptVote] = {}
        self._flights: dict[str, _Flight] = {}

    @contextmanager
    def claim(self, key: str, deadline: float) -> Iterator[bool]:
        """Holds a key until the end of the ``with``, so that a question is asked once.

        Gives False where others held it until ``deadline``, which is a reading of ``time.monotonic``.
        """
        with self._lock:
            flight = self._flights.setdefault(key, _Flight())
            flight.num_threads += 1
        is_ours = False
        try:
            is_ours = flight.lock.acquire(timeout=max(0.0, deadline - time.monotonic()))
            yield is_ours
        finally:
            if is_ours:
                flight.lock.release()
            with self._lock:
                flight.num_threads -= 1
                if flight.num_threads == 0:
                    del self._flights[key]

    def get(self, key: str) -> KeptVote | None:
        """Returns a vote; None where none is kept.

        Raises:
            UsageError: there is a file that cannot be read, or holds something else.
        """
        with self._lock:
            kept = self._kept.get(key)
        if kept is not None or self._files is None:
            return kept
        path = self._files.path("judge", key.encode())
        data = self._files.get(path)
        if data is None:
            return None
        kept = decode_json(data, f"the kept vote {path} is damaged", KeptVote, hint="; remove it to ask again")
        self._remember(key, kept)
        return kept

    def put(self, key: str, vote: KeptVote) -> str | None:
        """Keeps a vote; returns why it could not be kept in the folder, or None. It is in memory in any case."""
        self._remember(key, vote)
        if self._files is None:
            return None
        try:
            self._files.put(self._files.path("judge", key.encode()), msgspec.json.encode(vote))
        except UsageError as error:  # the answer is paid for and counts; only the next process asks again
            return str(error)
        return None

    def _remember(self, key: str, vote: KeptVote) -> None:
        with self._lock:
            self._kept[key] = vote
            while len(self._kept) > MAX_IN_MEMORY:
                del self._kept[next(iter(self._kept))]


class JudgeClient(Closing):
    """One judge: a model, its budget and the votes that it gave. For any number of threads.

    Attributes:
        config: how it is set up.
        budget: what it spent.
        cache_error: why a vote could not be written to the folder, the last time; None: that never happened.
    """

    def __init__(self, config: JudgeConfig) -> None:
        """Connects to nothing yet.

        Raises:
            UsageError: the address is not valid, or the variable with the key is not set.
        """
        self.config = config
        self.cache_error: str | None = None
        endpoint = msgspec.structs.replace(config.endpoint, cache=None)  # each request has a boundary of its own
        self.budget = JudgeBudget(f"the judge {endpoint.model}", config)
        self._endpoint = ChatEndpoint(endpoint, self.budget)
        self._cache = VoteCache(config.endpoint.cache)
        self._settings = {
            "prompt_version": PROMPT_VERSION,
            "address": self._endpoint.name,
            "model": endpoint.model,
            "temperature": endpoint.temperature if config.temperature is None else config.temperature,
            "max_tokens": endpoint.max_tokens,
            "extra_body": endpoint.extra_body,
            "answer_format": config.answer_format,
        }

    def close(self) -> None:
        """Closes connections that are not in use."""
        self._endpoint.close()

    def fingerprint(self, rubric: Any) -> str:
        """Returns the content hash of all that makes this judge judge as it does, but for the model itself."""
        config = self.config
        votes = [config.votes, config.combine, config.seed, config.max_part_characters]
        return _digest([self._settings, votes, rubric])

    def ask(self, question: JudgeQuestion, number: int, deadline: float) -> KeptVote | Failure:
        """Returns the vote of that number, which is kept; or why there is none.

        Args:
            question: what is asked.
            number: of the vote, which gives its seed.
            deadline: a reading of ``time.monotonic``.
        """
        seed = self.config.seed + number
        key = _digest([self._settings, question.rubric, msgspec.to_builtins(list(question.parts)), seed])
        try:
            with self._cache.claim(key, deadline) as is_ours:
                kept = self._cache.get(key)
                if kept is not None:
                    return kept
                left = deadline - time.monotonic()
                if not is_ours or left <= 0:
                    return self._late()
                return self._send(question, seed, key, left)
        except UnreachableError as error:
            return self._late() if time.monotonic() >= deadline else Failure("no answer", str(error))
        except ConflictError as error:
            return Failure("budget", str(error))
        except (AuthError, NotFoundError) as error:
            return Failure("refused", str(error))
        except UsageError as error:
            return Failure("unusable answer", str(error))

    def map(self, function: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """Returns the results in the order of the items; as many threads work as requests may be on their way."""
        with ThreadPoolExecutor(self.config.endpoint.max_in_flight, thread_name_prefix="learnloop-judge") as threads:
            return list(threads.map(function, items))

    def _send(self, question: JudgeQuestion, seed: int, key: str, left: float) -> KeptVote:
        request = ChatRequest(
            messages=question.messages(draw_boundary(question.parts)),
            response_format=self._response_format(question),
            temperature=self.config.temperature,
            seed=seed,
        )
        answer = self._endpoint.complete(request, left)
        self.budget.pay(answer)
        text = None if answer.content is None else answer.content[: MAX_ANSWER_CHARACTERS + 1]
        vote = KeptVote(text=text, finish_reason=answer.finish_reason, model=answer.model)
        self.cache_error = self._cache.put(key, vote) or self.cache_error
        return vote

    def _response_format(self, question: JudgeQuestion) -> dict[str, Any] | None:
        wanted = self.config.answer_format
        if wanted == "text":
            return None
        if wanted == "json_object":
            return {"type": wanted}
        return {"type": wanted, "json_schema": {"name": "judgement", "strict": True, "schema": question.schema}}

    def _late(self) -> Failure:
        return Failure("deadline", f"deadline_seconds ({self.config.deadline_seconds:g} s) of the judge were over")


class Judge(Closing):
    """What all judges are: a rubric, and a client that asks a model for votes.

    Attributes:
        rubric: by what is judged.
        client: the model that it asks, with what was spent.
    """

    def __init__(self, config: JudgeConfig, client: JudgeClient | None = None, folder: Path | None = None) -> None:
        """Connects to nothing yet.

        Args:
            config: how it is set up.
            client: to share a budget and votes with another judge of the same configuration; None: one of its own.
            folder: where a relative ``rubric_file`` starts; this folder where None.

        Raises:
            NotFoundError: there is no such rubric file.
            UsageError: the rubric or the address is not valid, or the variable with the key is not set.
        """
        self._config = config
        self.rubric = config.read_rubric(folder)
        self.client = JudgeClient(config) if client is None else client

    def close(self) -> None:
        """Closes its client."""
        self.client.close()


def read_vote(vote: KeptVote | Failure, read: Callable[[str], T]) -> T | Failure:
    """Returns what ``read`` makes of a vote's text; a failure where it raises ``UsageError``."""
    if isinstance(vote, Failure):
        return vote
    if vote.text is None:
        return Failure("invalid", "the judge called a tool and said nothing")
    try:
        return read(vote.text)
    except UsageError as error:
        hint = "; it was cut, raise max_tokens" if vote.finish_reason == "length" else ""
        return Failure("invalid", f"{error}{hint}")


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()
