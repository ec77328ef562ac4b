"""An AI judge that scores attempts by a rubric."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from learnloop.core.attempts import Attempt, Score
from learnloop.core.errors import UsageError
from learnloop.rewards.judge.client import Failure, Judge, JudgeClient, JudgeQuestion, Votes, read_vote
from learnloop.rewards.judge.config import JudgeConfig
from learnloop.rewards.judge.prompts import Shown, is_blank, parts_of, read_scores, rubric_messages, rubric_schema


class RubricJudge(Judge):
    """A ``Scorer`` that asks a model for numbers by each criterion, several times. For any number of threads.

    A vote's value is the weighted mean of its numbers, each brought to 0..1 by its scale. The score is the median or
    mean of the valid votes; without a majority of valid ones it is None with the reasons counted. ``details`` tells the
    votes, their spread, the value by criterion, what failed, and what of the attempt was cut.

    Attributes:
        name: how its rewards are called.
        fingerprint: the content hash of its settings and its rubric.
    """

    name = "judge"

    def __init__(self, config: JudgeConfig, client: JudgeClient | None = None, folder: Path | None = None) -> None:
        """Connects to nothing yet; arguments and errors are those of ``Judge``."""
        super().__init__(config, client, folder)
        self._plain = msgspec.to_builtins(self.rubric)
        self._schema = rubric_schema(self.rubric)
        self.fingerprint = self.client.fingerprint(self._plain)

    def __call__(self, attempt: Attempt) -> Score:
        """Returns the score of an attempt; its votes are asked for one after the other."""
        if attempt.output is None:
            return Score.unknown("the attempt has no recorded output")
        if is_blank(attempt, self.rubric):
            return Score.of(0.0, "the answer is empty; the judge was not asked")
        try:
            parts = parts_of(attempt, self.rubric, self._config.max_part_characters)
        except UsageError as error:
            return Score.unknown(str(error))
        deadline = time.monotonic() + self._config.deadline_seconds
        question = JudgeQuestion(
            parts, self._plain, lambda boundary: rubric_messages(self.rubric, parts, boundary), self._schema
        )

        def ask(number: int) -> dict[str, int] | Failure:
            vote = self.client.ask(question, number, deadline)
            return read_vote(vote, lambda text: read_scores(text, self.rubric))

        return self._score(Votes[dict[str, int]](self._config.votes).collect(ask), parts)

    def score_many(self, attempts: Iterable[Attempt]) -> list[Score]:
        """Returns the scores in the order of the attempts; ``endpoint.max_in_flight`` of them are judged at a time."""
        return self.client.map(self, attempts)

    def _score(self, votes: Votes[dict[str, int]], parts: list[Shown]) -> Score:
        details: dict[str, Any] = {
            "judge": self.fingerprint,
            "num_votes": self._config.votes,
            "num_valid": len(votes.valid),
            "failures": dict(votes.failures),
            **_sizes_of(parts),
        }
        if self.client.cache_error is not None:
            details["cache_error"] = self.client.cache_error
        if not votes.can_count:
            return Score.unknown(votes.reason, **details)
        combine = statistics.median if self._config.combine == "median" else statistics.fmean
        values = [self.rubric.value(numbers) for numbers in votes.valid]
        criteria = {
            each.name: combine([each.fraction(numbers[each.name]) for numbers in votes.valid])
            for each in self.rubric.criteria
        }
        spread = max(values) - min(values)
        return Score.of(combine(values), None, votes=values, spread=spread, criteria=criteria, **details)


def _sizes_of(parts: list[Shown]) -> dict[str, int]:
    """Returns what was shown of an attempt: the length of its answer, and what was cut and removed in all."""
    return {
        "num_characters": sum(part.num_characters for part in parts if part.label == "ANSWER"),
        "num_cut": sum(part.num_cut for part in parts),
        "num_removed": sum(part.num_removed for part in parts),
    }
