"""Champions that are served: which there are, and what they decided."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import NamedTuple

from sqlalchemy import Connection, func, select

from learnloop.core.records import AliasMove, ChampionTest, Decision, DecisionMode
from learnloop.store import schema
from learnloop.store.insert import insert_records
from learnloop.store.queries.records import change_records, fetch, fetch_numbered, find_record, is_one_of, query_of


class ServedChampion(NamedTuple):
    """A version that is served, and whose decisions it makes."""

    move: AliasMove
    """By which it became the champion."""
    agent_id: str
    policy: str


def served_champions(connection: Connection, alias: str) -> list[ServedChampion]:
    """Returns the versions to which ``alias`` points and that have decided something, each with whose policy it is."""
    moves, decisions = schema.policy_aliases.c, schema.decisions.c
    newest = select(func.max(moves.alias_move_id)).where(moves.alias == alias).group_by(moves.policy)
    query = query_of(AliasMove).where(moves.alias_move_id.in_(newest), ~moves.is_removal).order_by(moves.policy)
    found = []
    for move in fetch(connection, AliasMove, query):
        mine = select(decisions.agent_id, decisions.policy).where(decisions.policy_version_id == move.policy_version_id)
        row = connection.execute(mine.limit(1)).first()
        if row is not None:
            found.append(ServedChampion(move, row[0], row[1]))
    return found


def decisions_of_champion(
    connection: Connection, champion: ServedChampion, after: int, limit: int
) -> list[tuple[int, Decision]]:
    """Returns a page of what a champion decided since it is one, each with its sequence, oldest first.

    What it chose in mode ``learning`` counts alone: in others it is not what the policy drew, or nothing is to change.
    """
    table = schema.decisions.c
    query = query_of(Decision).where(
        table.policy_version_id == champion.move.policy_version_id,
        table.sequence > after,
        table.agent_id == champion.agent_id,
        table.policy == champion.policy,
        table.mode == DecisionMode.LEARNING.value,
        table.created_at >= champion.move.created_at,
    )
    return fetch_numbered(connection, Decision, query.order_by(table.sequence).limit(limit))


def first_decisions(connection: Connection, agent_id: str, policy: str, episode_ids: Collection[str]) -> set[str]:
    """Returns the ids of the decisions that are a policy's first of these episodes in the log."""
    table = schema.decisions.c
    mine = (table.agent_id == agent_id, table.policy == policy)
    first = select(func.min(table.sequence)).where(*mine, is_one_of(connection, table.episode_id, episode_ids))
    query = select(table.decision_id).where(table.sequence.in_(first.group_by(table.episode_id)))
    return set(connection.execute(query).scalars()) if episode_ids else set()


def keep_test(connection: Connection, test: ChampionTest) -> None:
    """Writes how far a test has come, unless another process came further or has found it worse."""
    held = find_record(connection, ChampionTest, test.champion_test_id)
    if held is None:
        insert_records(connection, [test])
    elif held.put_out_at is None and held.decision_sequence <= test.decision_sequence:
        changes = {name: getattr(test, name) for name in _CHANGES}
        change_records(connection, ChampionTest, {"champion_test_id": test.champion_test_id}, changes)


_CHANGES = (
    "decision_sequence", "num_decisions", "num_others", "num_missing", "num_untested", "evidence", "state", "reason",
    "put_out_at", "updated_at",
)  # fmt: skip


def newest_put_out(connection: Connection, agent_id: str, policy: str) -> datetime | None:
    """Returns when a champion of a policy was last found to be worse; None: none was."""
    table = schema.champion_tests.c
    query = select(func.max(table.put_out_at)).where(table.agent_id == agent_id, table.policy == policy)
    found: datetime | None = connection.execute(query).scalar_one()
    return found


def put_out_versions(connection: Connection, agent_id: str, policy: str) -> set[str]:
    """Returns the ids of the versions of a policy that were ever found to be worse while they were served."""
    table = schema.champion_tests.c
    query = select(table.policy_version_id).where(
        table.agent_id == agent_id, table.policy == policy, table.put_out_at.is_not(None)
    )
    return set(connection.execute(query).scalars())
