"""An AI judge that compares attempts at one task by pairs, and ranks a group of them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from learnloop.core.arrays import F64
from learnloop.core.attempts import Attempt, Score
from learnloop.core.errors import DivergedError, UsageError
from learnloop.core.records import Record
from learnloop.core.seeding import generator
from learnloop.rewards.judge.client import Failure, Judge, JudgeClient, JudgeQuestion, Votes, read_vote
from learnloop.rewards.judge.config import JudgeConfig
from learnloop.rewards.judge.prompts import (
    is_blank,
    pairwise_messages,
    pairwise_schema,
    parts_of_pair,
    read_winner,
    texts_of,
)
from learnloop.rewards.learned.logistic import sigmoid

Sides = tuple[str, str]
"""Which attempt won, ``first``, ``second`` or ``tie``, when the first was shown first, and when it was shown second."""
_SWAPPED = {"first": "second", "second": "first", "tie": "tie"}
MAX_ROUNDS = 1_000
_TOLERANCE = 1e-10
_MAX_STEP = 1.0
"""Of one round, in logarithms: further away the likelihood is not the parabola that Newton's method takes it for."""


class PairComparison(Record, frozen=True, kw_only=True):
    """What votes on two attempts came to; each vote asked in both orders."""

    win_probability: float | None
    """Of the first, a tie as half; None: no majority of the votes counts."""
    reason: str | None = None
    """Why it is None, or why nobody needed to be asked."""
    num_votes: int = 0
    """0: nobody was asked."""
    num_valid: int = 0
    num_wins: int = 0
    """Of the first: it won in both orders."""
    num_losses: int = 0
    num_front: int = 0
    """Votes for whatever was shown first, in both orders: a tie, and position bias."""
    num_back: int = 0
    """Votes for whatever was shown second, in both orders."""
    failures: dict[str, int] = msgspec.field(default_factory=dict)
    """Votes that do not count, by kind."""

    @property
    def num_ties(self) -> int:
        """Valid votes that neither won in both orders."""
        return self.num_valid - self.num_wins - self.num_losses


class Ranking(Record, frozen=True, kw_only=True):
    """A group of attempts at one task, compared by pairs."""

    scores: list[Score]
    """In the order of the attempts: the probability to beat an average answer, by the Bradley-Terry model."""
    pairs: list[tuple[int, int]]
    """Which were compared, by their places."""
    comparisons: list[PairComparison]
    """One for each pair."""


class PairwiseJudge(Judge):
    """Compares attempts by asking a model which of two is better. For any number of threads.

    Attributes:
        fingerprint: the content hash of its settings and its rubric.
    """

    def __init__(self, config: JudgeConfig, client: JudgeClient | None = None, folder: Path | None = None) -> None:
        """Connects to nothing yet; arguments and errors are those of ``Judge``."""
        super().__init__(config, client, folder)
        self._plain = ["pairwise", msgspec.to_builtins(self.rubric)]
        self._schema = pairwise_schema()
        self.fingerprint = self.client.fingerprint([*self._plain, config.max_pairs, config.prior])

    def compare(self, first: Attempt, second: Attempt) -> PairComparison:
        """Returns how often the first is better.

        Each vote asks twice, with each of them shown first; a vote that is not the same both times is a tie.

        Raises:
            UsageError: they are attempts at different tasks.
        """
        _check_task([first, second])
        if first.output is None or second.output is None:
            return PairComparison(win_probability=None, reason="an attempt has no recorded output")
        try:
            known = self._without_asking(first, second)
            if known is not None:
                return known
            questions = (self._question(first, second), self._question(second, first))
        except UsageError as error:
            return PairComparison(win_probability=None, reason=str(error))
        deadline = time.monotonic() + self._config.deadline_seconds

        def ask(number: int) -> Sides | Failure:
            winners = []
            for question in questions:
                winner = read_vote(self.client.ask(question, number, deadline), read_winner)
                if isinstance(winner, Failure):
                    return winner
                winners.append(winner)
            return winners[0], _SWAPPED[winners[1]]

        return self._result(Votes[Sides](self._config.votes).collect(ask))

    def rank(self, attempts: Sequence[Attempt]) -> Ranking:
        """Returns a score for each attempt of a group, such as GRPO's, from comparisons by pairs.

        All pairs are compared where they are at most ``max_pairs``; else each attempt has about as many opponents as
        the others. At most ``2 x votes x max_pairs`` questions are asked. An empty answer loses and has the score 0.

        Raises:
            UsageError: they are attempts at different tasks, or more than ``max_pairs`` can connect.
        """
        _check_task(attempts)
        pairs = pairs_of(len(attempts), self._config.max_pairs, self._config.seed)
        comparisons = self.client.map(lambda pair: self.compare(attempts[pair[0]], attempts[pair[1]]), pairs)
        num = len(attempts)
        wins, games = np.zeros((num, num)), np.zeros(num, dtype=int)
        for (i, j), comparison in zip(pairs, comparisons, strict=True):
            if comparison.win_probability is not None:
                wins[i, j] += comparison.win_probability
                wins[j, i] += 1.0 - comparison.win_probability
                games[[i, j]] += 1
        strengths = bradley_terry(wins, self._config.prior)
        reasons = _reasons(num, pairs, comparisons)
        scores = [
            self._score(attempt, float(strengths[place]), int(games[place]), reasons[place])
            for place, attempt in enumerate(attempts)
        ]
        return Ranking(scores=scores, pairs=pairs, comparisons=comparisons)

    def _score(self, attempt: Attempt, strength: float, num_games: int, reason: str | None) -> Score:
        if attempt.output is None:
            return Score.unknown("the attempt has no recorded output")
        if is_blank(attempt, self.rubric):
            return Score.of(0.0, "the answer is empty; the judge was not asked")
        details = {"judge": self.fingerprint, "num_comparisons": num_games, "num_characters": len(attempt.output)}
        if num_games == 0:
            return Score.unknown(reason or "there is nothing to compare the attempt with", **details)
        return Score.of(strength / (1.0 + strength), None, strength=strength, **details)

    def _question(self, first: Attempt, second: Attempt) -> JudgeQuestion:
        parts = parts_of_pair(first, second, self.rubric, self._config.max_part_characters)
        return JudgeQuestion(
            parts, self._plain, lambda boundary: pairwise_messages(self.rubric, parts, boundary), self._schema
        )

    def _without_asking(self, first: Attempt, second: Attempt) -> PairComparison | None:
        blanks = (is_blank(first, self.rubric), is_blank(second, self.rubric))
        if all(blanks):
            return PairComparison(win_probability=0.5, reason="both answers are empty")
        if blanks[0] != blanks[1]:
            return PairComparison(win_probability=float(blanks[1]), reason="one of the answers is empty")
        if texts_of(first, self.rubric) == texts_of(second, self.rubric):
            return PairComparison(win_probability=0.5, reason="the answers are the same")
        return None

    def _result(self, votes: Votes[Sides]) -> PairComparison:
        counts = Counter(votes.valid)
        num_wins, num_losses = counts["first", "first"], counts["second", "second"]
        num_valid = len(votes.valid)
        probability = (num_wins + (num_valid - num_wins - num_losses) / 2) / num_valid if votes.can_count else None
        return PairComparison(
            win_probability=probability,
            reason=None if votes.can_count else votes.reason,
            num_votes=self._config.votes,
            num_valid=num_valid,
            num_wins=num_wins,
            num_losses=num_losses,
            num_front=counts["first", "second"],
            num_back=counts["second", "first"],
            failures=dict(votes.failures),
        )


def pairs_of(num: int, max_pairs: int, seed: int) -> list[tuple[int, int]]:
    """Returns which of ``num`` attempts are compared: all pairs, or ``max_pairs`` that connect them evenly.

    They stand in a circle in random order; neighbours are compared first, then those two places apart, and so on.

    Raises:
        UsageError: ``max_pairs`` are too few to connect them.
    """
    if num - 1 > max_pairs:
        raise UsageError(f"{num} attempts need {num - 1} pairs to be ranked; raise max_pairs ({max_pairs})")
    circle = generator(seed, "pairs", num).permutation(num).tolist()
    found: dict[tuple[int, int], None] = {}
    for distance in range(1, num // 2 + 1):
        for place in range(num):
            one, other = circle[place], circle[(place + distance) % num]
            found[min(one, other), max(one, other)] = None
    return sorted(list(found)[:max_pairs])


def _check_task(attempts: Sequence[Attempt]) -> None:
    for name in ("task_id", "prompt"):
        values = {getattr(attempt, name) for attempt in attempts}
        if len(values) > 1:
            raise UsageError(f"attempts with {len(values)} different values of {name} cannot be compared")


def _reasons(num: int, pairs: list[tuple[int, int]], comparisons: list[PairComparison]) -> list[str | None]:
    """Returns for each attempt why the first of its comparisons that failed did; None where none did."""
    found: list[str | None] = [None] * num
    for pair, comparison in zip(pairs, comparisons, strict=True):
        if comparison.win_probability is None:
            for place in pair:
                found[place] = found[place] or comparison.reason
    return found


def bradley_terry(wins: F64, prior: float) -> F64:
    """Returns the strengths ``(n,)`` by which i beats j with the probability ``s[i] / (s[i] + s[j])``.

    A tie is half a win of each. Each player also plays ``prior`` games against one of strength 1, of which half are
    won. Without such games the strength of who always wins is infinite, and groups that never met cannot be compared;
    with them there is exactly one answer, whatever was played.

    Source: Hunter 2004, "MM algorithms for generalized Bradley-Terry models", section 2: the likelihood of equation
    (1), with the games of the prior among the others. It is strictly concave in the logarithms of the strengths, and
    found by Newton's method.

    Args:
        wins: ``(n, n)``, how often i beat j.
        prior: how many games, above 0.

    Raises:
        UsageError: ``wins`` is not square, has negative numbers or games of somebody with himself, or ``prior`` is not
            above 0.
        DivergedError: the strengths do not settle.
    """
    if wins.ndim != 2 or wins.shape[0] != wins.shape[1] or not np.isfinite(wins).all() or (wins < 0).any():
        raise UsageError(f"wins has the shape {wins.shape}; a square of finite numbers from 0 up is needed")
    if wins.diagonal().any() or not 0.0 < prior < np.inf:
        raise UsageError(f"nobody plays against himself, and prior ({prior}) must be above 0")
    games = wins + wins.T
    won = wins.sum(axis=1) + prior / 2
    logs: F64 = np.zeros(len(wins))
    for _ in range(MAX_ROUNDS):
        chances = sigmoid(logs[:, None] - logs)
        against_prior = sigmoid(logs)
        spread = games * chances * (1.0 - chances)
        slope = won - (games * chances).sum(axis=1) - prior * against_prior
        curvature = np.diag(spread.sum(axis=1) + prior * against_prior * (1.0 - against_prior)) - spread
        step = np.linalg.solve(curvature, slope)
        widest = float(np.abs(step).max(initial=0.0))
        logs = logs + step * min(1.0, _MAX_STEP / max(widest, _TOLERANCE))
        if widest < _TOLERANCE:
            return np.exp(logs)
    raise DivergedError(f"the strengths did not settle in {MAX_ROUNDS} rounds; is the prior ({prior}) very small?")
