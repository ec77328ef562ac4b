"""Apprentice mode: a policy learns to choose what the caller's own logic chooses, before it may choose itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from learnloop.core.arrays import F64
from learnloop.core.checks import check_range
from learnloop.core.protocols import Context, Policy, Sample
from learnloop.core.records import DecisionMode, Record
from learnloop.decisions.learning.bandit_candidates import RememberingTrainer, shared_questions, trainer_of
from learnloop.decisions.learning.candidates import Candidate
from learnloop.decisions.log import LogFilter, Logged, newest_decisions
from learnloop.decisions.service.settings import DecisionSettings
from learnloop.evaluation import Interval, UniformPolicy
from learnloop.evaluation.intervals import wilson_interval
from learnloop.evaluation.policies import Choice, distributions
from learnloop.evaluation.splitting import is_held_out
from learnloop.store import Store
from learnloop.store.queries.decisions import num_matched


class MatchRate(Record, frozen=True, kw_only=True):
    """How often the policy would have chosen what the caller's own logic chose."""

    num_decisions: int
    """Decisions of which both are known."""
    num_matched: int
    share: float | None
    """None: there is no such decision."""
    interval: Interval | None
    """Wilson's, of the share; None: there is no such decision."""


def match_rate(
    store: Store, agent_id: str, policy: str, *, newest: int | None = None, level: float = 0.95
) -> MatchRate:
    """Returns how often the policy's greedy choice, logged at the time, was the caller's own.

    Args:
        store: the log.
        agent_id: whose policy.
        policy: which one.
        newest: of so many decisions of which both are known, the newest; None: of all.
        level: of the interval.

    Raises:
        UsageError: ``newest`` is below 1, or ``level`` not between 0 and 1.
    """
    if newest is not None:
        check_range("newest", newest, 1)
    number, matched = store.read(num_matched, agent_id, policy, newest)
    return MatchRate(
        num_decisions=number,
        num_matched=matched,
        share=matched / number if number else None,
        interval=wilson_interval(matched, number, level) if number else None,
    )


class MatchedDecisions:
    """Held-out decisions of which the caller's own choice is known: what a policy earns is how surely it makes it."""

    def __init__(self, decisions: Sequence[Logged]) -> None:
        samples = shared_questions(each.sample(1.0) for each in decisions)
        self._choices = [Choice(each.unit, each.context, each.actions, each.mask) for each in samples]
        self._positions = [each.decision.actions.index(each.decision.baseline_action or "") for each in decisions]
        rows = {unit: row for row, unit in enumerate(dict.fromkeys(each.unit for each in samples))}
        self._units = tuple(rows)
        self._rows = np.array([rows[each.unit] for each in samples], dtype=np.intp)

    @property
    def units(self) -> Sequence[str]:
        """The episodes, in the order of their first decision."""
        return self._units

    def rewards(self, policy: Policy) -> F64:
        """Returns the probability of the caller's choice, averaged within each unit, shape ``(num_units,)``."""
        rows = distributions(policy, self._choices)
        matched = np.array([row[at] for row, at in zip(rows, self._positions, strict=True)], dtype=np.float64)
        size = len(self._units)
        return np.bincount(self._rows, matched, minlength=size) / np.bincount(self._rows, minlength=size)


class FrequentPolicy:
    """Chooses the allowed action that was chosen most often; uniform where none of them ever was."""

    def __init__(self, counts: Mapping[str, int]) -> None:
        self._counts = counts

    def probabilities(self, context: Context, actions: Sequence[str], mask: Sequence[bool] | None = None) -> F64:
        """Returns the probability of each action, ties shared, shape ``(len(actions),)``."""
        uniform = UniformPolicy().probabilities(context, actions, mask)
        counts = np.array([self._counts.get(action, 0) for action in actions]) * (uniform > 0)
        best = ((counts == counts.max()) & (uniform > 0)).astype(np.float64)
        shared: F64 = best / best.sum()
        return shared


class ApprenticeCandidates:
    """Makes candidates from the choices of the caller's own logic: full information, whichever action was taken."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def make(self, agent_id: str, policy: str, settings: DecisionSettings, log_sequence: int) -> Candidate:
        """Returns the candidate of the newest decisions in apprentice mode, rewarded or not."""
        learning = settings.learning
        chosen = LogFilter(modes=frozenset({DecisionMode.APPRENTICE}), rewarded=False)
        found = [
            each
            for each in newest_decisions(self._store, agent_id, policy, learning.window, chosen)
            if each.decision.baseline_action in each.decision.actions
        ]
        parts = _Parts([], [])
        for each in found:
            (parts.held_out if is_held_out(each.unit, learning.held_out_share) else parts.train).append(each)
        counts = Counter(each.decision.baseline_action or "" for each in parts.train)
        return Candidate(
            trainer=RememberingTrainer(trainer_of(settings)),
            train=shared_questions(imitation_samples(parts.train)),
            held_out=MatchedDecisions(parts.held_out),
            num_held_out=len(parts.held_out),
            num_trained=len(parts.train),
            baselines={"most_frequent": FrequentPolicy(counts)},
            metrics={"log/num_baseline": float(len(found))},
            lineage={"window": learning.window, "held_out": {"kind": "baseline", "share": learning.held_out_share}},
        )


class _Parts(NamedTuple):
    train: list[Logged]
    held_out: list[Logged]


def imitation_samples(decisions: Collection[Logged]) -> list[Sample]:
    """Returns one sample for each allowed action of each decision: 1 for the caller's own choice, else 0."""
    samples = []
    for each in decisions:
        decision = each.decision
        allowed = decision.mask or [True] * len(decision.actions)
        plain = each.sample(0.0)._replace(propensity=1.0)  # nothing was drawn: all of them are seen
        for action, is_allowed in zip(decision.actions, allowed, strict=True):
            if is_allowed:
                samples.append(plain._replace(action=action, reward=float(action == decision.baseline_action)))
    return samples
