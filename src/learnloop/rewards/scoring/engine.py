"""What attempts are worth in all: named reward functions, weighted, over what applies."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from learnloop.core.attempts import Attempt, Score, Scorer
from learnloop.core.checks import check_number
from learnloop.core.clock import now
from learnloop.core.errors import UsageError
from learnloop.core.extensions import POINTS
from learnloop.core.ids import new_id
from learnloop.core.records import TOTAL, Record, Reward
from learnloop.core.rewards import COMPUTED
from learnloop.rewards.functions.built_in import BUILT_IN
from learnloop.rewards.scoring.function import Function, RewardFunction, as_reward_function

DEFAULT_WEIGHTS: Mapping[str, float] = {
    "correctness": 1.0,
    "task_completion": 0.2,
    "tool_success": 0.1,
    "format_compliance": 0.1,
    "syntax_validation": 0.1,
    "efficiency": 0.1,
}
_SUCCESS = 0.5
"""An attempt with an outcome below this is known to be wrong."""


class Scored(Record, frozen=True, kw_only=True):
    """What an engine found of one attempt."""

    total: float | None
    """The weighted mean, from 0 to 1; None: it is not known, see ``reason``."""
    reason: str | None = None
    """Why ``total`` is None."""
    scores: dict[str, Score]
    """What each function found, not applicable ones included."""
    shares: dict[str, float]
    """The share of each function that applies, 1 in all; ``total`` is the sum of value x share."""

    def rewards(self, episode_id: str, *, source: str = COMPUTED) -> list[Reward]:
        """Returns the records of an episode: its ``total``, which is learned from, and each part as a metric.

        Functions that do not apply leave none. Where ``total`` is None the reward has no value and says why.
        """
        created_at = now()

        def record(name: str, value: float | None, weight: float, reason: str | None) -> Reward:
            return Reward(
                reward_id=new_id(),
                episode_id=episode_id,
                name=name,
                value=value,
                weight=weight,
                source=source,
                reason=reason,
                created_at=created_at,
            )

        applying = [(name, score) for name, score in self.scores.items() if score.is_applicable]
        parts = [record(name, score.value, 0.0, score.reason) for name, score in applying]
        return [record(TOTAL, self.total, 1.0, self.reason), *parts]


class RewardEngine:
    """Scores attempts with several reward functions.

    The total is the mean of the scores, weighted by the weights of the functions that apply. It is None

    - where a function that applies could not score (the mean of the rest would be another quantity),
    - where none applies,
    - where the engine has functions that look at the outcome, and none of them applies: how an attempt was made does
    not
      tell whether it was right.

    A function with ``needs_success`` gives 0 where the outcome is known to be wrong.
    """

    def __init__(
        self,
        weights: Mapping[str, float] | None = None,
        functions: Mapping[str, RewardFunction | Function | Scorer] | Iterable[RewardFunction] = (),
        timeout_seconds: float | None = None,
    ) -> None:
        """Finds the functions.

        Args:
            weights: above 0, by the names of functions; None: ``DEFAULT_WEIGHTS`` and 1 for each of ``functions``.
            functions: the caller's own, beside learnloop's and those registered by name.
            timeout_seconds: for one call of a function that is not learnloop's own; None: what each was made with.

        Raises:
            UsageError: a weight is not a finite number above 0, or there are none.
            NotFoundError: no function has such a name; the nearest names are said.
        """
        given = _by_name(functions)
        if weights is None:
            weights = {**DEFAULT_WEIGHTS, **dict.fromkeys(given, 1.0)}
        if not weights:
            raise UsageError("weights is empty; give at least one reward function with its weight")
        if TOTAL in weights:
            raise UsageError(f"a reward function is called {TOTAL!r}, which is the total's name; choose another one")
        self.weights = {
            name: check_number(f"the weight of {name}", weight, above=0) for name, weight in weights.items()
        }
        self.functions = {name: given[name] if name in given else _find(name, given) for name in self.weights}
        self._timeout_seconds = (
            None if timeout_seconds is None else check_number("timeout_seconds", timeout_seconds, above=0)
        )
        outcomes = [name for name, each in self.functions.items() if each.is_outcome]
        self._outcomes = frozenset(outcomes)
        self._order = [*outcomes, *(name for name in self.weights if name not in self._outcomes)]

    def score(self, attempt: Attempt) -> Scored:
        """Returns what an attempt is worth; it raises nothing because of the attempt or a function."""
        scores: dict[str, Score] = {}
        for name in self._order:
            function = self.functions[name]
            if function.needs_success and self._is_wrong(scores):
                scores[name] = Score.of(0.0, "the outcome is wrong")
            else:
                scores[name] = function.score(attempt, self._timeout_seconds)
        return self._combined({name: scores[name] for name in self.weights})

    def score_many(self, attempts: Iterable[Attempt]) -> list[Scored]:
        """Returns what each attempt is worth, in their order."""
        return [self.score(attempt) for attempt in attempts]

    def _is_wrong(self, scores: Mapping[str, Score]) -> bool:
        values = [scores[name].value for name in self._outcomes if scores[name].value is not None]
        return any(value < _SUCCESS for value in values if value is not None)

    def _combined(self, scores: dict[str, Score]) -> Scored:
        applying = [name for name, score in scores.items() if score.is_applicable]
        if not applying:
            reasons = _reasons(scores, list(scores))
            return Scored(total=None, reason=f"no reward function applies: {reasons}", scores=scores, shares={})
        reason = None
        unknown = [name for name in applying if scores[name].value is None]
        if unknown:
            reason = _reasons(scores, unknown)
        elif self._outcomes.isdisjoint(applying) and self._outcomes:
            outcomes = [name for name in scores if name in self._outcomes]
            reason = f"nothing tells whether it is right: {_reasons(scores, outcomes)}"
            applying += outcomes
        whole = math.fsum(self.weights[name] for name in applying)
        shares = {name: self.weights[name] / whole for name in applying}
        if reason is not None:
            return Scored(total=None, reason=reason, scores=scores, shares=shares)
        total = math.fsum((scores[name].value or 0.0) * share for name, share in shares.items())
        return Scored(total=min(total, 1.0), scores=scores, shares=shares)


def _by_name(
    functions: Mapping[str, RewardFunction | Function | Scorer] | Iterable[RewardFunction],
) -> dict[str, RewardFunction]:
    if isinstance(functions, Mapping):
        return {name: as_reward_function(name, each) for name, each in functions.items()}
    found: dict[str, RewardFunction] = {}
    for each in functions:
        if not isinstance(each, RewardFunction):
            raise UsageError(f"functions has {each!r}; decorate it with reward_function, or give a mapping of names")
        if each.name in found:
            raise UsageError(f"functions has two that are called {each.name!r}; names must differ")
        found[each.name] = each
    return found


def _find(name: str, given: Mapping[str, RewardFunction]) -> RewardFunction:
    if name in BUILT_IN:
        return BUILT_IN[name]
    return as_reward_function(name, POINTS["reward"].get(name, [*BUILT_IN, *given]))


def _reasons(scores: Mapping[str, Score], names: list[str]) -> str:
    return "; ".join(f"{name}: {scores[name].reason}" for name in names)
