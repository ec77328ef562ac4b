"""Asks a judge for votes: kept ones first, within budget and deadlines; what fails becomes a reason, not an error."""

from __future__ import annotations

import hashlib
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, Self, TypeVar

import msgspec

from learnloop.core.errors import AuthError, ConflictError, NotFoundError, UnreachableError, UsageError
from learnloop.models import ChatEndpoint, ChatRequest, Message
from learnloop.rewards.judge.answers import MAX_ANSWER_CHARACTERS
from learnloop.rewards.judge.budget import JudgeBudget
from learnloop.rewards.judge.config import JudgeConfig
from learnloop.rewards.judge.prompts import PROMPT_VERSION, Shown, draw_boundary
from learnloop.rewards.judge.votes import KeptVote, VoteCache

T = TypeVar("T")
R = TypeVar("R")


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


class JudgeClient:
    """One judge: a model, its budget and the votes that it gave. For any number of threads.

    Attributes:
        config: how it is set up.
        budget: what it spent.
        cache_error: why a vote could not be written to the folder, the last time; None: that never happened.
    """

    def __init__(self, config: JudgeConfig) -> None:
        """Connects to nothing yet.

        Raises:
            UsageError: the address is none, or the variable with the key is not set.
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

    def __enter__(self) -> Self:
        """Returns itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Closes it."""
        self.close()

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
