"""The one way in which what somebody says of a run, a decision or a span becomes its reward."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from learnloop.core.errors import NotFoundError, UsageError
from learnloop.core.records import Decision, Episode, Record, Reward, Span
from learnloop.core.rewards import RewardTarget, new_rewards
from learnloop.loop.workspace.core import WorkspaceCore

RecordType = TypeVar("RecordType", bound=Record)


def record_rewards(
    workspace: WorkspaceCore,
    target: RewardTarget,
    values: Mapping[str, object],
    *,
    is_queued: bool = False,
    **fields: Any,
) -> list[Reward]:
    """Writes the parts of a reward and returns them: one set of rules for Python, HTTP and the command line.

    Args:
        workspace: where.
        target: the decision that it is for, or the episode, or a span of that.
        values: the parts by name; None: could not be computed.
        is_queued: this process recorded the target: it is not looked up, and the rewards wait in the queue behind it,
            where they are dropped and counted if that is full. Otherwise they are durable when this returns.
        fields: ``weights``, ``source``, ``author``, ``reason`` and ``key`` of ``new_rewards``.

    Raises:
        UsageError, RewardError: as ``new_rewards``.
        NotFoundError: there is no such target.
        StoreError: the store refuses.
    """
    rewards = new_rewards(target, values, **fields)
    if is_queued:
        for reward in rewards:
            workspace.store.offer(reward)
        return rewards
    episode_id = find_target(workspace, target).episode_id
    rewards = [msgspec.structs.replace(each, episode_id=episode_id) for each in rewards]
    workspace.store.write(rewards)
    return rewards


def find_target(workspace: WorkspaceCore, target: RewardTarget) -> RewardTarget:
    """Returns what a reward is for, a decision with its episode, if it is stored or on its way there.

    Raises:
        UsageError: both or neither of decision and episode is named.
        NotFoundError: there is no such decision, episode or span.
    """
    episode_id, decision_id, span_id = target
    if (decision_id is None) == (episode_id is None):
        raise UsageError(
            f"decision_id is {decision_id!r} and episode_id {episode_id!r}; name the one that the reward is for"
        )
    if decision_id is not None:
        decision = find_queued(workspace, Decision, decision_id)
        if decision is None:
            raise NotFoundError(f"there is no decision {decision_id!r}; a reward needs one that was made or imported")
        return RewardTarget(decision.episode_id, decision_id)
    if find_queued(workspace, Episode, episode_id or "") is None:
        raise NotFoundError(f"there is no episode {episode_id!r}; record or import it first")
    if span_id is not None:
        span = find_queued(workspace, Span, span_id)
        if span is None or span.episode_id != episode_id:
            raise NotFoundError(
                f"the episode {episode_id} has no span {span_id!r}; learnloop traces show --json lists them"
            )
    return target


def find_queued(workspace: WorkspaceCore, kind: type[RecordType], key: str) -> RecordType | None:
    """Returns a record that may have been made a moment ago and still be queued; None where there is none."""
    found = workspace.store.find(kind, key)
    if found is None:
        workspace.store.write([])  # waits for what is queued
        found = workspace.store.find(kind, key)
    return found
