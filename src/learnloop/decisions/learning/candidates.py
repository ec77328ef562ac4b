"""Candidates; of one-step policies: how much of the past to learn from, found without a look at what judges."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec
import numpy as np

from learnloop.algorithms import BanditTrainer, HashedConfig, OnlineConfig
from learnloop.algorithms.hashed.trainer import HashedTrainer
from learnloop.core.clock import now
from learnloop.core.errors import UsageError
from learnloop.core.protocols import Context, HeldOut, Policy, Question, Sample, Trainer
from learnloop.decisions.proof_log import ProofLog, read_log, split_log
from learnloop.decisions.service.settings import DecisionSettings
from learnloop.evaluation import LoggedDecisions, sign_flip_p_value
from learnloop.evaluation.splitting import split_by_unit
from learnloop.store import Store

RECENCIES = (1.0, 1 / 2, 1 / 4, 1 / 8, 1 / 16)
"""Shares of the window, the newest part of it each, that a candidate may be made of."""
MIN_RECENT = 200
"""Of fewer decisions none is made: they would not be enough to judge it either."""
RECENCY_ALPHA = 0.1
"""How sure it must be that the newer part alone is better, for older decisions to be left out."""
_INNER_SHARE = 0.3
_INNER_SALT = "learnloop.recency/v1"


class Candidate(NamedTuple):
    """A policy that could be served, before it is judged.

    It is trained by the judge, with its shuffled controls and replicas, so that all of them are made alike. One that is
    made of a log with too little in it has few samples: the judge says what is missing.
    """

    trainer: Trainer
    """Makes a ``SavedPolicy``; the same samples and seed give the same. Where it has an attribute ``diagnostics``
    (``dict[str, float]``), that is read after the first training."""
    train: Sequence[Sample]
    """What it learns from, oldest first."""
    held_out: HeldOut
    """What it is judged on; no unit of ``train`` is in it."""
    num_held_out: int
    """How many decisions ``held_out`` rests on."""
    num_trained: int | None = None
    """How many decisions ``train`` is made of; None: each sample is one."""
    baselines: Mapping[str, Policy] = {}
    """What it must beat besides chance and the champion, by name."""
    metrics: Mapping[str, float] = {}
    """Figures of how it was made, for the record of the update."""
    lineage: Mapping[str, Any] = {}
    """How it was made, for the version that it may become."""
    notes: Sequence[str] = ()
    """What else is to be told beside the reasons of the verdict, such as decisions that were left out."""


def bandit_candidate(
    store: Store, agent_id: str, policy: str, settings: DecisionSettings, since: datetime | None = None
) -> Candidate:
    """Returns the candidate of the newest rewarded decisions, of those made since ``since`` where that is given.

    The world may have changed within the window. Then what was learned from its newest part is better on the newest
    decisions than what was learned from all of it. Whether it is so is asked on the training part alone, split once
    more; what is held out is asked once, for the one candidate that came of it, so that its level holds. It is judged
    on the same stretch of time as it is made of.

    Where what nobody rewards gets a default, younger decisions than the wait for it are left out: those of them that
    have a reward already are not like the others.
    """
    learning, wait = settings.learning, settings.reward_wait_seconds
    until = None if wait is None else now() - timedelta(seconds=wait)
    log = read_log(store, agent_id, policy, unit=learning.unit, newest=learning.window, since=since, until=until)
    window = shared_questions(of_one_length(log.samples))
    trainer = trainer_of(settings)
    share = choose_recency(window, trainer, learning.held_out_share)
    split = split_log(_newest_part(log, window, share), learning.held_out_share)
    rewards = [sample.reward for sample in split.train]
    notes = log.notes
    if len(window) < len(log.samples):
        num = len(log.samples) - len(window)
        notes.append(f"{num} decisions by a vector of another length than the newest were left out")
    if split.num_without_propensity:
        notes.append(f"{split.num_without_propensity} held-out decisions without a propensity were left out")
    metrics = {"log/num_rewarded": float(len(window)), "log/share": share}
    if rewards:
        metrics |= {"reward/mean": float(np.mean(rewards)), "reward/std": float(np.std(rewards))}
    return Candidate(
        trainer=trainer,
        train=split.train,
        held_out=split.held_out,
        num_held_out=len(split.held_out.samples),
        metrics=metrics,
        lineage={
            "window": learning.window,
            "share": share,
            "held_out": {"kind": "log", "share": learning.held_out_share, "unit": learning.unit},
        },
        notes=notes,
    )


def _newest_part(log: ProofLog, window: Sequence[Sample], share: float) -> ProofLog:
    """Returns the newest ``share`` of ``window``, with the decisions of the same time whose rewards are missing."""
    samples = newest_share(window, share)
    num_sharing = Counter(each.shared for each in log.samples)
    num_left = Counter(each.shared for each in samples)
    whole = {name for name, number in num_left.items() if name is None or number == num_sharing[name]}
    samples = [each for each in samples if each.shared in whole]  # what shares a reward is judged together, or not
    since = min((each.made_at or 0.0 for each in samples), default=0.0)
    missing = [each for each in shared_questions(log.missing) if (each.made_at or 0.0) >= since]
    return log._replace(samples=samples, missing=missing)


def trainer_of(settings: DecisionSettings) -> HashedTrainer | BanditTrainer:
    """Returns what makes a one-step policy of logged decisions, as the settings' model says.

    Raises:
        UsageError: the model learns over episodes.
    """
    if isinstance(settings.model, HashedConfig):
        return HashedTrainer(settings.model)
    if isinstance(settings.model, OnlineConfig):
        return BanditTrainer(settings.model, strict=False)
    raise UsageError("the model is a network, which learns over episodes; episode_candidate makes its candidates")


def shared_questions(samples: Iterable[Sample]) -> list[Sample]:
    """Returns ``samples`` in which equal contexts with equal actions and masks are the same objects.

    Many decisions are made in equal contexts; ``evaluation`` asks a policy about the same objects once.
    """
    known: dict[bytes, Sample] = {}
    shared = []
    for sample in samples:
        context = sample.context
        more = (context.action_features, context.vector) if isinstance(context, Question) else (None, None)
        vector = None if more[1] is None else more[1].tobytes()
        # JSON has integers of any size
        key = msgspec.json.encode((context, more[0], vector, sample.actions, sample.mask))
        first = known.setdefault(key, sample)
        shared.append(sample._replace(context=first.context, actions=first.actions, mask=first.mask))
    return shared


def of_one_length(samples: Sequence[Sample]) -> list[Sample]:
    """Returns those of ``samples`` whose vector is as long as the newest one's; 0 is the length of none."""
    lengths = [_vector_length(sample.context) for sample in samples]
    return [sample for sample, length in zip(samples, lengths, strict=True) if length == lengths[-1]]


def _vector_length(context: Context) -> int:
    vector = context.vector if isinstance(context, Question) else None
    return 0 if vector is None else vector.size


def newest_share(samples: Sequence[Sample], share: float) -> Sequence[Sample]:
    """Returns the newest ``share`` of ``samples``, which are in the order of time."""
    return samples[len(samples) - math.ceil(share * len(samples)) :]


def choose_recency(window: Sequence[Sample], trainer: Trainer, held_out_share: float) -> float:
    """Returns the share of the window that a candidate is made of; looks at no unit that is held out.

    From the whole on, the next smaller share takes over where a policy made of it earns more on newest decisions that
    neither was made of (one-sided sign-flip test at ``RECENCY_ALPHA``).
    """
    chosen = RECENCIES[0]
    for share in RECENCIES[1:]:
        recent = newest_share(window, share)
        if len(recent) < MIN_RECENT:
            break
        validation = split_by_unit(_trained_on(recent, held_out_share), _INNER_SHARE, _INNER_SALT).held_out
        usable = [sample for sample in validation if sample.propensity is not None]
        if not usable:
            break
        held_out = LoggedDecisions(usable, float(np.mean([sample.reward for sample in usable])))
        earned = []
        for each in (share, chosen):
            part = _trained_on(newest_share(window, each), held_out_share)
            inner = split_by_unit(part, _INNER_SHARE, _INNER_SALT).train
            earned.append(held_out.rewards(trainer.train(inner, 0)))
        if sign_flip_p_value(earned[0] - earned[1], num_permutations=1_000) <= RECENCY_ALPHA:
            chosen = share
    return chosen


def _trained_on(samples: Sequence[Sample], held_out_share: float) -> list[Sample]:
    return split_by_unit(samples, held_out_share).train
