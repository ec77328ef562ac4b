"""What a learner judges: a way to train a policy, what it is trained on, and the tasks that it is judged on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from learnloop.core.protocols import HeldOut, Policy, Sample, Trainer
from learnloop.decisions.service.settings import DecisionSettings


class Candidate(NamedTuple):
    """A policy that could be served, before it is judged.

    It is trained by the judge, with its shuffled controls and replicas, so that all of them are made alike.
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


class CandidateMaker(Protocol):
    """Makes candidates from the log, of one kind of policy."""

    def make(self, agent_id: str, policy: str, settings: DecisionSettings, log_sequence: int) -> Candidate:
        """Returns a candidate made of the rewards with a sequence up to ``log_sequence``.

        A log with too little in it gives a candidate with few samples: the judge says what is missing.
        """
        ...
