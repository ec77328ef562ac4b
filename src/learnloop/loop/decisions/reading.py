"""Decisions and updates of the decision service, to look at: page by page, and one with all that is known of it."""

from __future__ import annotations

import re
from datetime import datetime

import msgspec
from sqlalchemy import select

from learnloop.core.errors import UsageError
from learnloop.core.records import Decision, DecisionActivation, LearningUpdate, Reward
from learnloop.decisions.log import RewardParts, reward_total, rewards_of
from learnloop.loop.workspace.workspace import Workspace
from learnloop.store import schema
from learnloop.store.mapping import record_columns, to_record

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
    activated_at: datetime | None
    """When a deferred decision was activated; None: it was not, or need not be."""


class UpdatePage(msgspec.Struct, frozen=True, kw_only=True):
    """Some updates, the newest first, and where the next ones begin."""

    rows: list[LearningUpdate]
    next_cursor: str | None


def list_decisions(
    workspace: Workspace,
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
    _check_limit(limit)
    table = schema.decisions.c
    query = select(*record_columns(Decision), table.sequence)
    for column, value in ((table.agent_id, agent), (table.policy, policy), (table.episode_id, episode)):
        if value is not None:
            query = query.where(column == value)
    if after is not None:
        query = query.where(table.sequence < _read_cursor(after))
    ordered = query.order_by(table.sequence.desc()).limit(limit + 1)
    found = workspace.store.read(lambda connection: connection.execute(ordered).all())
    rows = [to_record(Decision, row[:-1]) for row in found[:limit]]
    return DecisionPage(rows=rows, next_cursor=f"d{found[limit - 1][-1]}" if len(found) > limit else None)


def show_decision(workspace: Workspace, decision_id: str) -> DecisionDetail:
    """Returns a decision with its rewards.

    Raises:
        NotFoundError: there is none of this id.
    """
    store = workspace.store
    decision = store.get(Decision, decision_id)
    rewards = schema.rewards.c
    mine = rewards.decision_id == decision_id
    if decision.episode_id is not None:
        mine |= rewards.decision_id.is_(None) & (rewards.episode_id == decision.episode_id)
    query = select(*record_columns(Reward)).where(mine).order_by(rewards.sequence)
    found = store.read(lambda connection: [to_record(Reward, row) for row in connection.execute(query)])
    parts = rewards_of(store, [decision]).get(decision_id, RewardParts({}, {}))
    activation = store.find(DecisionActivation, decision_id)
    return DecisionDetail(
        decision=decision,
        rewards=found,
        reward=reward_total(parts),
        activated_at=None if activation is None else activation.created_at,
    )


def list_updates(
    workspace: Workspace, agent_id: str, policy: str, *, limit: int = 50, after: str | None = None
) -> UpdatePage:
    """Returns a page of what the learner tried for a policy.

    Raises:
        UsageError: the limit is out of range.
    """
    _check_limit(limit)
    mine = {"agent_id": agent_id, "policy": policy}
    found = workspace.store.select(LearningUpdate, where=mine, after=after, limit=limit + 1, descending=True)
    cursor = found[limit - 1].learning_update_id if len(found) > limit else None
    return UpdatePage(rows=found[:limit], next_cursor=cursor)


def _check_limit(limit: int) -> None:
    if not 0 < limit <= MAX_PAGE:
        raise UsageError(f"limit is {limit}; allowed are 1 to {MAX_PAGE:,}")


def _read_cursor(cursor: str) -> int:
    found = _CURSOR.fullmatch(cursor)
    if found is None:
        raise UsageError(f"{cursor!r} is no cursor; give the one that the page before ended with")
    return int(found[1])
