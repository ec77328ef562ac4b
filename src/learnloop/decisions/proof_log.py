"""The log of a policy as a proof needs it: what is learned from and judged on, what is missing, what belongs together.

Every proof from a log reads it here: ``prove``, ``evaluate`` and the learner of the decision service.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np

from learnloop.core.clock import now
from learnloop.core.errors import UsageError
from learnloop.core.protocols import Sample
from learnloop.core.records import Decision, Episode
from learnloop.decisions.log import LogFilter, Logged, counted, logged_decisions, newest_decisions
from learnloop.decisions.service.settings import EPISODE
from learnloop.evaluation.context_model import ContextModel
from learnloop.evaluation.logged import LoggedDecisions
from learnloop.evaluation.splitting import HELD_OUT_SHARE, split_by_unit
from learnloop.store import Store
from learnloop.store.queries.waiting import reward_waits, waiting_decisions

TASK: Final = "task"
"""Decisions of episodes of one task belong together."""
DELAY_QUANTILE, DELAY_FACTOR = 0.9, 3.0
"""A reward may still come until three times the time within which 9 of 10 known ones came: a few that were added much
later, such as a correction, do not keep what is missing pending."""
MAX_PENDING = 0.01
"""If more of the log is pending, all of its newest part is left out: what is answered early is not like the rest."""
MAX_COPIES = 10
"""More decisions than these at one time are no copies of one: the clock is coarse."""


class ProofLog(NamedTuple):
    """Decisions of a policy that count, each once: in the order of their ids, or of time where only some are read."""

    samples: list[Sample]
    """Those whose reward is known."""
    decisions: list[Decision]
    """The decisions that ``samples`` are of, in the same order."""
    missing: list[Sample]
    """Those whose reward is missing and may not come any more; it is NaN."""
    num_pending: int
    """Decisions whose reward may still come."""
    num_recent: int
    """Decisions with a reward that are left out since too many others of their time are pending."""
    num_copies: int
    """Decisions that were left out since another one says the same: the same time, context, actions and action."""

    @property
    def num_decisions(self) -> int:
        """How many decisions count, each once."""
        return len(self.samples) + len(self.missing) + self.num_pending + self.num_recent

    @property
    def notes(self) -> list[str]:
        """What is to be told beside the reasons of a verdict."""
        found = []
        if self.num_copies:
            found.append(
                f"{self.num_copies} decisions are in the log twice (same time, context and action); each counts once"
            )
        if self.num_recent:
            found.append(
                f"{self.num_recent} newest decisions were left out: the rewards of {self.num_pending} others of their "
                "time may still come, and what is answered early is not like the rest. Ask again later"
            )
        return found


class HeldOutSplit(NamedTuple):
    """A log divided into what is learned from and what is judged on."""

    train: list[Sample]
    held_out: LoggedDecisions
    num_without_propensity: int
    """Held-out decisions that were left out, and with them those that share their reward."""


def read_log(
    store: Store,
    agent_id: str,
    policy: str,
    *,
    unit: str = EPISODE,
    newest: int | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> ProofLog:
    """Returns the log of a policy.

    Args:
        store: where it lies.
        agent_id: whose policy.
        policy: which policy.
        unit: what is independent of each other: ``episode``, ``task``, or the name of a feature of contexts or a key
            of the episodes' metadata, such as ``user`` or ``session``. Decisions of one episode are never apart.
        newest: only so many rewarded decisions, the newest, and what is missing since the oldest of them.
        since: only decisions made at this time or later.
        until: only decisions made before this time. Where decisions share a reward all of them are there, or none.

    Raises:
        UsageError: decisions do not say which unit they are of; the message has the count.
    """
    chosen = LogFilter(rewarded=False, since=since, until=until)
    if newest:
        found = _newest(store, agent_id, policy, newest, chosen)
    else:
        found = list(logged_decisions(store, agent_id, policy, chosen))
    if newest or since or until:
        found = _without_cut_episodes(store, agent_id, policy, found)
    single, num_copies = without_copies(found)
    pending = _pending(store, agent_id, policy, single)
    units = units_of(store, single, unit)
    samples, decisions, missing, num_recent = [], [], [], 0
    shares = sum(each.is_shared for each in single) * 2 > sum(each.reward is not None for each in single)
    for each in single:
        name = units[each.decision.decision_id]
        if each.decision.created_at > pending.since:
            num_recent += each.reward is not None
        elif each.reward is not None:
            samples.append(each.sample(each.reward)._replace(unit=name))
            decisions.append(each.decision)
        elif each.decision.decision_id not in pending.decision_ids:
            shared = each.decision.episode_id if shares else None
            missing.append(each.sample(math.nan)._replace(unit=name, shared=shared))
    num_pending = len(single) - len(samples) - len(missing) - num_recent
    return ProofLog(samples, decisions, missing, num_pending, num_recent, num_copies)


def split_log(log: ProofLog, share: float = HELD_OUT_SHARE, *, by_context: bool = True) -> HeldOutSplit:
    """Returns a log divided by unit; the reward model of what is held out is made of what is learned from.

    Args:
        log: all of it.
        share: of the units that are held out.
        by_context: False: the model is the mean, as in proofs of before there was one of contexts.
    """
    split = split_by_unit(log.samples, share)
    usable = _with_propensities(split.held_out)
    missing = _with_propensities(split_by_unit(log.missing, share).held_out)
    model = ContextModel(split.train)
    held_out = LoggedDecisions(usable, model if by_context else model.mean, missing)
    return HeldOutSplit(split.train, held_out, len(split.held_out) - len(usable))


def without_copies(found: Sequence[Logged]) -> tuple[list[Logged], int]:
    """Returns each decision once, and how many were left out: the same episode, time, context and action twice.

    Outside of episodes they must have earned the same, and it is asked only where times tell decisions apart: where
    ones that differ have the same time, or many have one, the clock of the log is too coarse.
    """
    contents: dict[datetime, list[tuple[Any, ...]]] = {}
    for each in found:
        contents.setdefault(each.decision.created_at, []).append(_content(each))
    num_unclear = sum(len(each) for each in contents.values() if len(set(each)) > 1 or len(each) > MAX_COPIES)
    is_fine = num_unclear <= 0.01 * len(found)
    keys = [
        (each.decision.created_at, *_content(each), each.decision.episode_id or ("" if is_fine else each.unit))
        for each in found
    ]
    rewarded = {key for each, key in zip(found, keys, strict=True) if each.reward is not None}
    seen: set[tuple[Any, ...]] = set()
    kept = []
    for each, key in zip(found, keys, strict=True):
        is_unrewarded_copy = each.reward is None and key in rewarded
        whole = (key, None if each.decision.episode_id else each.reward)
        if whole not in seen and not is_unrewarded_copy:
            seen.add(whole)
            kept.append(each)
    return kept, len(found) - len(kept)


def units_of(store: Store, found: Sequence[Logged], unit: str) -> Mapping[str, str]:
    """Returns the unit of each decision by its id.

    Raises:
        UsageError: decisions do not say which unit they are of; the message has the count.
    """
    if unit == EPISODE:
        return {each.decision.decision_id: each.unit for each in found}
    ids = {each.decision.episode_id for each in found} - {None}
    episodes = {each.episode_id: each for each in store.iterate(Episode, where={"episode_id": ids})} if ids else {}
    names = {each.decision.decision_id: _named_unit(each, episodes, unit) for each in found}
    of_episode: dict[str, str | None] = {}
    for each in found:
        decision = each.decision
        if decision.episode_id is not None:
            names[decision.decision_id] = of_episode.setdefault(decision.episode_id, names[decision.decision_id])
    num_unknown = sum(name is None for name in names.values())
    if num_unknown:
        raise UsageError(
            f"{num_unknown} of {len(names)} decisions do not say which {unit} they are of; allowed units are "
            f"{EPISODE}, {TASK}, and features of contexts or keys of episodes' metadata that each of them has"
        )
    return {decision_id: f"{unit}={name}" for decision_id, name in names.items()}


def _named_unit(logged: Logged, episodes: Mapping[str, Episode], unit: str) -> str | None:
    episode = episodes.get(logged.decision.episode_id or "")
    if unit == TASK:
        return None if episode is None else episode.task_id
    value = logged.decision.context.get(unit)
    if value is None and episode is not None:
        value = episode.metadata.get(unit)
    return None if value is None else str(value)


def _newest(store: Store, agent_id: str, policy: str, newest: int, chosen: LogFilter) -> list[Logged]:
    """Returns the newest rewarded decisions, and those without a reward that were made since the oldest of them."""
    rewarded = newest_decisions(store, agent_id, policy, newest, msgspec.structs.replace(chosen, rewarded=True))
    since = min((each.decision.created_at for each in rewarded), default=chosen.since)
    known = {each.decision.decision_id for each in rewarded}
    others = logged_decisions(store, agent_id, policy, msgspec.structs.replace(chosen, since=since))
    return [*(each for each in others if each.reward is None and each.decision.decision_id not in known), *rewarded]


def _without_cut_episodes(store: Store, agent_id: str, policy: str, found: list[Logged]) -> list[Logged]:
    """Returns those whose reward is their own, or is shared with others that are all there."""
    shared = {each.decision.episode_id for each in found if each.is_shared}
    of_shared = {each.decision.decision_id for each in found if each.decision.episode_id in shared}
    mine = {"agent_id": agent_id, "policy": policy, "episode_id": shared}
    if not shared or store.count(Decision, where=mine) == len(of_shared):
        return found
    others = [each for each in store.iterate(Decision, where=mine) if each.decision_id not in of_shared]
    cut = {each.decision.episode_id for each in counted(store, others, LogFilter()) if each.is_shared}
    return [each for each in found if each.decision.episode_id not in cut]


class _Pending(NamedTuple):
    """What rewards may still come."""

    decision_ids: set[str]
    since: datetime
    """Decisions made after this time are left out; the end of time where few are pending."""


def _pending(store: Store, agent_id: str, policy: str, found: Sequence[Logged]) -> _Pending:
    """Returns what is waited for: as long as the settings say, else as long as others took.

    Imported decisions had their own time; what they do not say is missing. Where more than ``MAX_PENDING`` of the log
    is pending, nothing is taken of the time in which it is: which rewards are there already depends on how fast they
    come, and so on what was done.
    """
    nothing = _Pending(set(), datetime.max.replace(tzinfo=UTC))
    unknown = [each for each in found if each.reward is None and each.decision.settings_version is not None]
    if not unknown:
        return nothing
    moment = now()
    wait = store.read(reward_waits).get((agent_id, policy))
    if wait is not None:
        awaited = store.read(waiting_decisions, moment, [each.decision.decision_id for each in unknown])
    else:
        delays = [each.delay_seconds for each in found if each.delay_seconds is not None]
        if not delays:
            return nothing
        wait = timedelta(seconds=max(0.0, DELAY_FACTOR * float(np.quantile(delays, DELAY_QUANTILE))))
        awaited = {each.decision.decision_id for each in unknown if moment - each.decision.created_at <= wait}
    is_much = len(awaited) > MAX_PENDING * len(found)
    return _Pending(awaited, moment - wait if is_much else nothing.since)


def _with_propensities(samples: Iterable[Sample]) -> list[Sample]:
    """Returns the samples with a propensity whose partners in a shared reward have one too."""
    found = list(samples)
    lacking = {each.shared for each in found if each.propensity is None} - {None}
    return [each for each in found if each.propensity is not None and each.shared not in lacking]


def _content(logged: Logged) -> tuple[Any, ...]:
    decision = logged.decision
    asked = (repr(decision.context), repr(decision.action_features), decision.vector, tuple(decision.actions))
    return (*asked, decision.action, decision.slot)
