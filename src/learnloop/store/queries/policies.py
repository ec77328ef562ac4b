"""Policies: their settings, and their versions."""

from __future__ import annotations

from sqlalchemy import Connection, select

from learnloop.core.records import PolicySettings
from learnloop.store import schema
from learnloop.store.queries.records import fetch, query_of


def settings_versions(
    connection: Connection, agent_id: str, policy: str, *, before: int | None = None, limit: int | None = None
) -> list[PolicySettings]:
    """Returns the versions of a policy's settings, the newest first.

    Args:
        connection: in a transaction.
        agent_id: whose policy.
        policy: which policy.
        before: only versions with a lower number.
        limit: the most to return; None: all.
    """
    table = schema.policy_settings.c
    query = query_of(PolicySettings).where(table.agent_id == agent_id, table.policy == policy)
    if before is not None:
        query = query.where(table.version < before)
    return fetch(connection, PolicySettings, query.order_by(table.version.desc()).limit(limit))


def policies_with_settings(connection: Connection, limit: int) -> list[tuple[str, str]]:
    """Returns the agent and the name of policies that somebody set up, at the most so many."""
    table = schema.policy_settings.c
    query = select(table.agent_id, table.policy).distinct().limit(limit)
    return [(row[0], row[1]) for row in connection.execute(query)]
