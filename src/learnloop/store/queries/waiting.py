"""What may still be rewarded: decisions whose policy's settings wait for a reward, for as long as they do."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, Connection, and_, exists, func, or_, select

from learnloop.store import schema
from learnloop.store.queries.records import is_one_of


def waiting_decisions(connection: Connection, moment: datetime, decision_ids: Collection[str]) -> set[str]:
    """Returns which of these decisions are waited for at ``moment``."""
    return _waiting(connection, moment, schema.decisions.c.decision_id, decision_ids)


def waiting_episodes(connection: Connection, moment: datetime, episode_ids: Collection[str] | None = None) -> set[str]:
    """Returns which of these episodes, or of all, have a decision that is waited for at ``moment``."""
    return _waiting(connection, moment, schema.decisions.c.episode_id, episode_ids)


def reward_waits(connection: Connection) -> dict[tuple[str, str], timedelta]:
    """Returns how long rewards of each policy are waited for, by agent and policy, as its newest settings say.

    Policies that wait for none are left out.
    """
    table = schema.policy_settings.c
    newest = (
        select(table.agent_id, table.policy, func.max(table.version).label("version"))
        .group_by(table.agent_id, table.policy)
        .subquery()
    )
    same = and_(table.agent_id == newest.c.agent_id, table.policy == newest.c.policy, table.version == newest.c.version)
    query = select(table.agent_id, table.policy, table.settings).join(newest, same)
    waits = {(row[0], row[1]): row[2].get("reward_wait_seconds") for row in connection.execute(query)}
    return {key: timedelta(seconds=seconds) for key, seconds in waits.items() if seconds is not None}


def _waiting(
    connection: Connection, moment: datetime, column: ColumnElement[str], ids: Collection[str] | None
) -> set[str]:
    found: set[str] = set()
    for (agent_id, policy), wait in reward_waits(connection).items() if ids is None or ids else ():
        decisions = schema.decisions.c
        mine = and_(decisions.agent_id == agent_id, decisions.policy == policy, decisions.settings_version.is_not(None))
        query = select(column).where(mine, _is_recent(moment - wait), column.is_not(None)).distinct()
        query = query if ids is None else query.where(is_one_of(connection, column, ids))
        found.update(connection.execute(query).scalars())
    return found


def _is_recent(since: datetime) -> ColumnElement[bool]:
    """Returns whether a decision was made after ``since``; a deferred one counts from when it was activated on."""
    decisions, activations = schema.decisions.c, schema.decision_activations.c
    activated = exists().where(activations.decision_id == decisions.decision_id, activations.created_at > since)
    return or_(and_(~decisions.is_deferred, decisions.created_at > since), and_(decisions.is_deferred, activated))
