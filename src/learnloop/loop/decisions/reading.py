"""Decisions and updates of the decision service, to look at: page by page, and one with all that is known of it."""

from __future__ import annotations

import re
from datetime import datetime

import msgspec

from learnloop.core.checks import check_range
from learnloop.core.clock import now
from learnloop.core.errors import UsageError
from learnloop.core.records import Decision, DecisionActivation, LearningUpdate, Reward
from learnloop.core.rewards import RewardParts, RewardState, state_of
from learnloop.loop.workspace.core import WorkspaceCore
from learnloop.store.queries.decisions import DecisionQuery, newest_decisions
from learnloop.store.queries.rewards import earned_rewards
from learnloop.store.queries.waiting import waiting_decisions

MAX_PAGE = 1_000
_CURSOR = re.compile(r"d([1-9][0-9]{0,17})")


class DecisionPage(msgspec.Struct, frozen=True, kw_only=True):
    """Some decisions, what became durable last first, and where the next ones begin."""

    rows: list[Decision]
    next_cursor: str | None


class DecisionDetail(msgspec.Struct, frozen=True, kw_only=True):
    """A decision with what it earned."""

    decision: Decision
    rewards: list[Reward]
    """Its own, and those of its whole episode, in the order in which they became durable."""
    reward: float | None
    """What it counts as; None: not known."""
    reward_state: RewardState
    """Whether that is known, may still come (``pending``) or is missing."""
    activated_at: datetime | None
    """When a deferred decision was activated; None: it was not, or need not be."""


class UpdatePage(msgspec.Struct, frozen=True, kw_only=True):
    """Some updates, the newest first, and where the next ones begin."""

    rows: list[LearningUpdate]
    next_cursor: str | None


def list_decisions(
    workspace: WorkspaceCore,
    *,
    agent: str | None = None,
    policy: str | None = None,
    episode: str | None = None,
    limit: int = 50,
    after: str | None = None,
) -> DecisionPage:
    """Returns a page of decisions, narrowed by what is not None.

    Raises:
        UsageError: the limit is out of range, or the cursor is none.
    """
    check_range("limit", limit, 1, MAX_PAGE)
    asked = DecisionQuery(agent_id=agent, policy=policy, episode_id=episode)
    before = None if after is None else _read_cursor(after)
    found = workspace.store.read(newest_decisions, asked, before, limit + 1)
    cursor = f"d{found[limit - 1][0]}" if len(found) > limit else None
    return DecisionPage(rows=[decision for _, decision in found[:limit]], next_cursor=cursor)


def show_decision(workspace: WorkspaceCore, decision_id: str) -> DecisionDetail:
    """Returns a decision with its rewards.

    Raises:
        NotFoundError: there is none of this id.
    """
    store = workspace.store
    decision = store.get(Decision, decision_id)
    episodes = [] if decision.episode_id is None else [decision.episode_id]
    rewards = store.read(earned_rewards, [decision_id], episodes)
    parts = RewardParts({}, {})
    for reward in rewards:
        parts.take(reward)
    awaited = store.read(waiting_decisions, now(), [decision_id])
    activation = store.find(DecisionActivation, decision_id)
    return DecisionDetail(
        decision=decision,
        rewards=rewards,
        reward=parts.total,
        reward_state=state_of(parts.total, is_awaited=bool(awaited)),
        activated_at=None if activation is None else activation.created_at,
    )


def list_updates(
    workspace: WorkspaceCore, agent_id: str, policy: str, *, limit: int = 50, after: str | None = None
) -> UpdatePage:
    """Returns a page of what the learner tried for a policy.

    Raises:
        UsageError: the limit is out of range.
    """
    check_range("limit", limit, 1, MAX_PAGE)
    mine = {"agent_id": agent_id, "policy": policy}
    found = workspace.store.select(LearningUpdate, where=mine, after=after, limit=limit + 1, descending=True)
    cursor = found[limit - 1].learning_update_id if len(found) > limit else None
    return UpdatePage(rows=found[:limit], next_cursor=cursor)


def _read_cursor(cursor: str) -> int:
    found = _CURSOR.fullmatch(cursor)
    if found is None:
        raise UsageError(f"{cursor!r} is no cursor; give the one that the page before ended with")
    return int(found[1])
