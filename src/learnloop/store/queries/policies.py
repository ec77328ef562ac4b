"""Policies: their settings, and their versions."""

from __future__ import annotations

from sqlalchemy import Connection, exists, func, select

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


def last_version_number(connection: Connection, policy: str) -> int:
    """Returns the highest number that a version of a policy has; 0 where there is none."""
    table = schema.policy_versions.c
    query = select(func.coalesce(func.max(table.version), 0)).where(table.policy == policy)
    return int(connection.execute(query).scalar_one())


def referred_versions(connection: Connection, policy: str) -> set[str]:
    """Returns the ids of the versions to which an alias points or once pointed, and of those a decision names.

    Those that decisions name are looked for among the versions of ``policy`` alone.
    """
    aliases, decisions, versions = schema.policy_aliases.c, schema.decisions.c, schema.policy_versions.c
    pointed = select(aliases.policy_version_id).distinct()
    used = exists().where(decisions.policy_version_id == versions.policy_version_id)  # one look in the index for each
    named = select(versions.policy_version_id).where(versions.policy == policy, used)
    return {*connection.execute(pointed).scalars(), *connection.execute(named).scalars()}
