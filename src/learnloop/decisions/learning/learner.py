"""Makes better versions of the policies of the service from the log, and lets those be served that are proven.

One update: make a candidate, train it with its shuffled controls and replicas, judge it on held-out decisions against
chance and against what is served, and only if it has ``learned`` register it and move the alias ``champion``. Each
update leaves a record, whatever came of it.

The level: ``learned`` needs every test at ``alpha``, so one update lets a candidate that is not better through with
probability ``alpha`` at the most, and since it has to be better than random, its shuffled controls and the champion at
once, far less often. Updates that follow each other share held-out decisions, so their errors are not independent; each
keeps its own level.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping, Sequence
from datetime import timedelta

import msgspec
import numpy as np

from learnloop.core.clock import now
from learnloop.core.errors import UsageError
from learnloop.core.ids import new_id
from learnloop.core.protocols import Policy, Sample, SavedPolicy, Trainer
from learnloop.core.records import Decision, DecisionMode, LearningUpdate, PolicyVersion, Reward, Verdict
from learnloop.core.seeding import derive_seed
from learnloop.decisions.learning.apprentice import apprentice_candidate
from learnloop.decisions.learning.candidates import Candidate, bandit_candidate
from learnloop.decisions.learning.champion_watch import DECISION_SEQUENCE
from learnloop.decisions.learning.episode_candidates import episode_candidate
from learnloop.decisions.log import LogFilter, newest_decisions
from learnloop.decisions.service.champions import champion_of
from learnloop.decisions.service.settings import MIN_WINDOW, DecisionSettings, VersionedSettings
from learnloop.evaluation import Verification, VerificationOptions, verify_learning
from learnloop.evaluation.controls import RANDOM, TRAINED
from learnloop.registry import Alias, Registry
from learnloop.registry.references import CHAMPION
from learnloop.store import Store
from learnloop.store.queries.champions import newest_put_out
from learnloop.store.queries.news import num_imitated_since, num_rewarded_since

ACTOR = "learner"
"""Who moves the alias."""
NUM_REPLICAS = 9
MIN_CONTROLS = 39
MAX_CONTROLS = 399
"""Each shuffled control is a training: a smaller ``alpha`` than these can show is refused."""

_log = logging.getLogger(__name__)


class Learner:
    """Updates policies; one at a time.

    Args:
        store: the log.
        registry: where versions are made.
    """

    def __init__(self, store: Store, registry: Registry) -> None:
        self._store = store
        self._registry = registry

    def num_new(self, agent_id: str, policy: str, settings: DecisionSettings) -> int:
        """Returns how many decisions have news since the last update, counted only as far as an update needs."""
        mine = {"agent_id": agent_id, "policy": policy}
        last = next(iter(self._store.select(LearningUpdate, where=mine, limit=1, descending=True)), None)
        limit = settings.learning.min_new_rewards
        if settings.mode is DecisionMode.APPRENTICE:
            since = 0 if last is None else int(last.metrics.get(DECISION_SEQUENCE, 0))
            return self._store.read(num_imitated_since, agent_id, policy, since, limit)
        since = 0 if last is None else last.reward_sequence
        return self._store.read(num_rewarded_since, agent_id, policy, since, limit)

    def candidate(self, agent_id: str, policy: str, settings: DecisionSettings, log_sequence: int) -> Candidate:
        """Returns what could be served, made of the rewards with a sequence up to ``log_sequence``.

        None of it is older than the last champion's failure.
        """
        if settings.mode is DecisionMode.APPRENTICE:
            return apprentice_candidate(self._store, agent_id, policy, settings)
        if settings.network is None:
            since = self._store.read(newest_put_out, agent_id, policy)
            return bandit_candidate(self._store, agent_id, policy, settings, since)
        return episode_candidate(self._store, self._registry, agent_id, policy, settings, log_sequence)

    def update(self, agent_id: str, policy: str, settings: VersionedSettings) -> LearningUpdate | None:
        """Tries to make a better version of a policy; returns the record, durable, or None: there is too little new.

        A policy in frozen mode is never updated; neither is one that learns online, but in apprentice mode.

        Raises:
            StoreError, UnreachableError: the store refuses; nothing was recorded, and the next call tries again.
        """
        chosen = settings.settings
        if chosen.mode is DecisionMode.FROZEN or not learns_in_updates(chosen):
            return None
        if self.num_new(agent_id, policy, chosen) < chosen.learning.min_new_rewards:
            return None
        newer = self._newer(agent_id, policy, chosen)
        if newer is None:
            return None
        chosen = newer
        started, clock = now(), time.perf_counter()
        record = LearningUpdate(
            learning_update_id=new_id(),
            agent_id=agent_id,
            policy=policy,
            settings_version=settings.version,
            reward_sequence=self._store.last_sequence(Reward),
            num_samples=0,
            num_held_out=0,
            verdict=None,
            reasons=[],
            metrics={DECISION_SEQUENCE: self._store.last_sequence(Decision)},
            started_at=started,
            ended_at=started,
        )
        try:
            record = self._make_version(record, chosen)
        except Exception as error:  # noqa: BLE001 - whatever fails is told in the record; serving goes on as it was
            _log.warning("the update of %s.%s failed", agent_id, policy, exc_info=True)
            record = msgspec.structs.replace(record, error=f"{type(error).__name__}: {error}")
        metrics = {**record.metrics, "seconds/total": time.perf_counter() - clock}
        record = msgspec.structs.replace(record, metrics=metrics, ended_at=now())
        self._store.write([record])
        return record

    def _newer(self, agent_id: str, policy: str, settings: DecisionSettings) -> DecisionSettings | None:
        """Returns settings by which nothing is learned or judged that is older than the last champion's failure.

        What put it out is newer than what it was proven on, so that must not prove it again. None: too little has come
        since. An apprentice learns from no rewards, and does not ask.
        """
        since = self._store.read(newest_put_out, agent_id, policy)
        if since is None or settings.mode is DecisionMode.APPRENTICE:
            return settings
        learning = settings.learning
        wait = settings.reward_wait_seconds
        until = None if wait is None else now() - timedelta(seconds=wait)
        chosen = LogFilter(since=since, until=until)
        number = len(newest_decisions(self._store, agent_id, policy, learning.window, chosen))
        if number < max(learning.min_new_rewards, MIN_WINDOW):
            return None
        return msgspec.structs.replace(settings, learning=msgspec.structs.replace(learning, window=number))

    def _make_version(self, begun: LearningUpdate, settings: DecisionSettings) -> LearningUpdate:
        """Makes a candidate, judges it, has it served if it is proven, and returns the record with what came of it."""
        name = f"{begun.agent_id}.{begun.policy}"
        candidate = self.candidate(begun.agent_id, begun.policy, settings, begun.reward_sequence)
        champion, served = champion_of(self._registry, name, settings)
        baselines = dict(candidate.baselines)
        if served is not None:
            baselines[CHAMPION] = served
        trainer = _ObservedTrainer(candidate.trainer)
        options = _options(settings.learning.alpha, derive_seed(0, name, begun.reward_sequence), baselines)
        verification = verify_learning(trainer, candidate.train, candidate.held_out, options=options)
        verification = msgspec.structs.replace(verification, reasons=[*verification.reasons, *candidate.notes])
        num_samples = len(candidate.train) if candidate.num_trained is None else candidate.num_trained
        version = None
        if verification.verdict is Verdict.LEARNED:
            lineage = {
                "kind": "decisions",
                "agent": begun.agent_id,
                "policy": begun.policy,
                "settings_version": begun.settings_version,
                "reward_sequence": begun.reward_sequence,
                "learning_update": begun.learning_update_id,
                "num_samples": num_samples,
                **candidate.lineage,
            }
            version = self._serve(name, verification, lineage, champion)
        return msgspec.structs.replace(
            begun,
            num_samples=num_samples,
            num_held_out=candidate.num_held_out,
            verdict=verification.verdict,
            reasons=verification.reasons,
            metrics={**begun.metrics, **candidate.metrics, **trainer.diagnostics, **_figures(verification)},
            policy_version_id=None if version is None else version.policy_version_id,
            parent_version_id=None if champion is None else champion.policy_version_id,
        )

    def _serve(
        self, name: str, verification: Verification, lineage: Mapping[str, object], champion: PolicyVersion | None
    ) -> PolicyVersion:
        """Registers what has learned and has it served, unless another version has become the champion meanwhile."""
        parent_id = None if champion is None else champion.policy_version_id
        reason = f"learning update {lineage['learning_update']}: better than what was served on held-out decisions"
        alias = Alias(CHAMPION, ACTOR, reason, expected=parent_id)
        return self._registry.register_proven(
            name, verification.policy, verification, lineage=lineage, alias=alias, parent_id=parent_id
        )


def learns_in_updates(settings: DecisionSettings) -> bool:
    """Returns whether a policy is made better by updates; what learns online does so only where it imitates."""
    return settings.online is None or settings.mode is DecisionMode.APPRENTICE


class _ObservedTrainer:
    """A trainer that keeps what its first training said of itself: the later ones are shuffled controls."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._diagnostics: dict[str, float] | None = None

    def train(self, samples: Sequence[Sample], seed: int) -> Policy:
        """Returns the policy of the trainer."""
        started = time.perf_counter()
        policy = self._trainer.train(samples, seed)
        if self._diagnostics is None:
            told: Mapping[str, float] = getattr(self._trainer, "diagnostics", {})
            self._diagnostics = {**told, "seconds/training": time.perf_counter() - started, **_norms(policy)}
        return policy

    @property
    def diagnostics(self) -> dict[str, float]:
        """What the first training said; empty where there was none. What is no finite number is left out."""
        return {name: float(value) for name, value in (self._diagnostics or {}).items() if math.isfinite(value)}


def _norms(policy: Policy) -> dict[str, float]:
    """Returns the Euclidean norm of each tensor of real numbers."""
    if not isinstance(policy, SavedPolicy):
        return {}
    tensors = policy.to_artifact().tensors
    return {
        f"norm/{name}": float(np.linalg.norm(tensor.astype(np.float64)))
        for name, tensor in tensors.items()
        if tensor.dtype.kind == "f"
    }


def _options(alpha: float, seed: int, baselines: Mapping[str, Policy]) -> VerificationOptions:
    num_controls = max(MIN_CONTROLS, math.ceil(2 / alpha - 1e-9) - 1)
    if num_controls > MAX_CONTROLS:
        raise UsageError(
            f"learning.alpha is {alpha:g}: it would take {num_controls:,} shuffled controls, each a training, to show "
            f"that; give at least {2 / (MAX_CONTROLS + 1):g}"
        )
    return VerificationOptions(
        seed=seed, alpha=alpha, num_controls=num_controls, num_replicas=NUM_REPLICAS, baselines=baselines
    )


def _figures(verification: Verification) -> dict[str, float]:
    """Returns what each arm earned on held-out decisions, each test, and how much the log says."""
    figures: dict[str, float] = {}
    for name, arm in verification.arms.items():
        shown = "held_out/candidate" if name == TRAINED else f"held_out/{name}"
        figures[shown] = arm.mean
        if arm.interval is not None:
            figures |= {f"{shown}/low": arm.interval.low, f"{shown}/high": arm.interval.high}
    for test in verification.tests:
        figures[f"p/{test.name}/{test.against}"] = test.p_value
    overlap = verification.overlap.get(TRAINED)
    if overlap is not None:
        figures |= {
            "overlap/effective_sample_size": overlap.effective_sample_size,
            "overlap/mean_weight": overlap.mean_weight,
            "overlap/max_weight": overlap.max_weight,
        }
    if RANDOM in verification.arms and TRAINED in verification.arms:
        figures["held_out/gain"] = verification.arms[TRAINED].mean - verification.arms[RANDOM].mean
    return {name: value for name, value in figures.items() if math.isfinite(value)}
