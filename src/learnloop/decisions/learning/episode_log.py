"""Logged decisions as steps of episodes: what each led to, and what it earned by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from learnloop.algorithms.on_policy.episode_trainer import Situation
from learnloop.core.protocols import Sample
from learnloop.core.records import Decision, Episode
from learnloop.core.rewards import RewardParts, total_of
from learnloop.decisions.log import LogFilter, newest_decisions, rewards_of
from learnloop.store import Store

Fits = Callable[[Decision], bool]


class EpisodeLog(NamedTuple):
    """What a log says of a policy's episodes."""

    samples: list[Sample]
    """Steps whose reward is known, episode by episode, oldest first; their contexts are ``Situation``."""
    num_unknown: int
    """Decisions that were left out: their reward is not known, or what they led to, or they do not fit."""
    cut: set[str]
    """Episodes of which other steps than the last one were left out: what a policy earns in them cannot be told."""


def has_vector(decision: Decision) -> bool:
    """Returns whether a decision has a vector."""
    return decision.vector is not None


def read_episodes(
    store: Store, agent_id: str, policy: str, newest: int, log_sequence: int, fits: Fits = has_vector
) -> EpisodeLog:
    """Returns the steps of the newest ``newest`` decisions, with rewards up to ``log_sequence`` of the log.

    Decisions that do not fit, such as those made before the network was chosen, are left out as those without a vector.
    """
    found = [each.decision for each in newest_decisions(store, agent_id, policy, newest, LogFilter(rewarded=False))]
    parts = rewards_of(store, found, before=log_sequence + 1)
    by_episode: dict[str, list[Decision]] = {}
    for decision in found:
        by_episode.setdefault(decision.episode_id or decision.decision_id, []).append(decision)
    records = _records(store, [name for name, steps in by_episode.items() if steps[0].episode_id is not None])
    log = EpisodeLog([], 0, set())
    if len(found) == newest:  # the oldest one may have begun before
        log.cut.add(next(iter(by_episode)))
    for name, steps in by_episode.items():
        is_whole = steps[0].episode_id is None or _has_ended(records.get(name), parts[steps[-1].decision_id])
        samples = list(_samples(name, steps, parts, fits, is_whole=is_whole))
        log.samples.extend(samples)
        if len(samples) < len(steps) - (not is_whole):
            log.cut.add(name)
    return log._replace(num_unknown=len(found) - len(log.samples))


def _records(store: Store, episode_ids: Sequence[str]) -> dict[str, Episode]:
    found: dict[str, Episode] = {}
    for start in range(0, len(episode_ids), 500):
        page = store.iterate(Episode, where={"episode_id": list(episode_ids[start : start + 500])})
        found |= {each.episode_id: each for each in page}
    return found


def _has_ended(episode: Episode | None, last: RewardParts) -> bool:
    """Returns whether an episode came to an end of its own.

    Clients of the decision service name episodes that no record is kept of. Nothing tells of their end but that the
    last decision has its reward: one that still runs then counts as ended, until its next decision is in the log.
    """
    if episode is None:
        return bool(last.own)
    return episode.ended_at is not None and not episode.truncated


def _samples(
    unit: str, steps: Sequence[Decision], parts: Mapping[str, RewardParts], fits: Fits, *, is_whole: bool
) -> Iterator[Sample]:
    """Yields the steps of one episode that can be learned from.

    A reward for the whole episode counts once, with its last step, and then a step without a reward of its own earned
    nothing else. Otherwise a step without a reward is left out, and the steps before it end with the value of what it
    saw. So does an episode that has not ended: what its last decision led to is not known.
    """
    vectors = [np.frombuffer(each.vector or b"", dtype="<f4") if fits(each) else None for each in steps]
    whole = total_of(parts[steps[-1].decision_id].episode) if is_whole else None
    rewards = [parts[each.decision_id].own_total for each in steps]
    if whole is not None:
        rewards = [0.0 if each is None else each for each in rewards]
        rewards[-1] = (rewards[-1] or 0.0) + whole
    last = len(steps) - 1
    is_known = [
        reward is not None and vector is not None and (index < last or is_whole)
        for index, (reward, vector) in enumerate(zip(rewards, vectors, strict=True))
    ]
    for index, decision in enumerate(steps):
        following = vectors[index + 1] if index < last else None
        reward = rewards[index]
        if not is_known[index] or reward is None or (index < last and following is None):
            continue
        situation = Situation(decision.context, decision.action_features, vectors[index])
        situation.is_last = index == last or not is_known[index + 1]
        situation.next_vector = following if situation.is_last else None
        yield Sample(
            unit=unit,
            context=situation,
            actions=decision.actions,
            mask=decision.mask,
            action=decision.action,
            propensity=decision.propensity,
            reward=reward,
        )
