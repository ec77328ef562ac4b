"""Apprentice mode: a policy learns to choose what the caller's own logic chooses, before it may choose itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from learnloop.core.checks import check_range
from learnloop.core.protocols import Sample
from learnloop.core.records import DecisionMode, Record
from learnloop.decisions.learning.candidates import Candidate, shared_questions, trainer_of
from learnloop.decisions.log import LogFilter, Logged, newest_decisions
from learnloop.decisions.service.settings import DecisionSettings
from learnloop.evaluation import Interval
from learnloop.evaluation.intervals import wilson_interval
from learnloop.evaluation.logged import MatchedDecisions
from learnloop.evaluation.policies import FrequentPolicy
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


def apprentice_candidate(store: Store, agent_id: str, policy: str, settings: DecisionSettings) -> Candidate:
    """Returns the candidate of the choices of the caller's own logic in the newest decisions, rewarded or not.

    They are full information, whichever action was taken.
    """
    learning = settings.learning
    chosen = LogFilter(modes=frozenset({DecisionMode.APPRENTICE}), rewarded=False)
    found = newest_decisions(store, agent_id, policy, learning.window, chosen)
    train: list[Logged] = []
    held_out: list[Logged] = []
    for each in found:
        if each.decision.baseline_action in each.decision.actions:
            (held_out if is_held_out(each.unit, learning.held_out_share) else train).append(each)
    counts = Counter(each.decision.baseline_action or "" for each in train)
    return Candidate(
        trainer=trainer_of(settings),
        train=shared_questions(imitation_samples(train)),
        held_out=MatchedDecisions(
            shared_questions(each.sample(1.0) for each in held_out),
            [each.decision.baseline_action or "" for each in held_out],
        ),
        num_held_out=len(held_out),
        num_trained=len(train),
        baselines={"most_frequent": FrequentPolicy(counts)},
        metrics={"log/num_baseline": float(len(train) + len(held_out))},
        lineage={"window": learning.window, "held_out": {"kind": "baseline", "share": learning.held_out_share}},
    )


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
