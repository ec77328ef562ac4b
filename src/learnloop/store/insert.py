"""Writing records inside a transaction: implied agents and tasks, conflicts, and the events that report what is new."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Connection, select, update

from learnloop.core.clock import now
from learnloop.core.errors import UsageError
from learnloop.core.lifecycles import EPISODE_TRANSITIONS, REOPENED_SOURCES
from learnloop.core.records import (
    Agent,
    AliasMove,
    Decision,
    Episode,
    EpisodeStatus,
    Event,
    Json,
    LearningUpdate,
    ModelCheckpoint,
    PolicySettings,
    PolicyVersion,
    Record,
    Reward,
    Span,
    Task,
)
from learnloop.store import schema
from learnloop.store.engine import KNOWN_AGENTS, TRANSFORM
from learnloop.store.full_text import queue_episodes
from learnloop.store.mapping import (
    EPISODE_CHANGES,
    execute_sqlite,
    fields_of,
    insert_rows,
    insert_values,
    json_rows,
    key_column,
    table_of,
    to_rows,
)
from learnloop.store.queries.episodes import episode_states
from learnloop.store.queries.records import count_records
from learnloop.store.schema import TABLES

WRITE_LOCK = 0x6C6561726E
"""The key of PostgreSQL's advisory lock that gives sequences in the order of commits."""
CHANNEL = "learnloop_events"
"""The channel on which PostgreSQL tells that events were written."""


class Report(NamedTuple):
    """The event that reports a new record."""

    kind: str
    fields: tuple[str, ...]
    """Of the record, in the payload."""


REPORTS: Mapping[type[Record], Report] = {
    Episode: Report("episode.started", ("agent_id", "task_id", "status")),
    Decision: Report("decision.made", ("agent_id", "policy", "episode_id", "action")),
    Reward: Report("reward.recorded", ("name", "value", "weight", "episode_id", "decision_id")),
    PolicyVersion: Report("policy.registered", ("policy", "version", "algorithm")),
    AliasMove: Report("alias.moved", ("policy", "alias", "policy_version_id", "actor", "is_removal")),
    ModelCheckpoint: Report("checkpoint.saved", ("agent_id", "policy", "training_iteration")),
    PolicySettings: Report("settings.changed", ("agent_id", "policy", "version", "author")),
    LearningUpdate: Report("learning.updated", ("agent_id", "policy", "verdict", "policy_version_id", "error")),
}
"""How new records of each kind are reported; an episode is also when it ends."""
_CHUNK = 500
_RANK = {kind: rank for rank, kind in enumerate(TABLES)}

EventParts = tuple[str, str, Json]
"""Kind, subject and payload."""
Replacement = Callable[[Connection, Sequence[Record]], Sequence[Record]]
"""Returns what is written in the place of records, by a connection that sees what is there already."""


def insert_records(connection: Connection, records: Sequence[Record]) -> None:
    """Writes records in the transaction of ``connection``; what is there already stays, running episodes change.

    Each becomes what the store's ``transform`` makes of it, whoever writes it. Agents and tasks that an episode or a
    decision names are made where they are missing. Events are written for what is new or changed.

    Raises:
        UsageError: a record cannot be stored.
    """
    transform = connection.get_execution_options().get(TRANSFORM)
    if transform is not None:
        records = [transform(record) for record in records]
    groups: dict[type[Record], list[Record]] = {}
    for record in records:
        groups.setdefault(type(record), []).append(record)
    for kind in groups:
        table_of(kind)
    if Event in groups:
        raise UsageError("events are written by the store itself; use insert_events inside Store.run")
    reports = not REPORTS.keys().isdisjoint(groups)
    if reports:
        take_write_lock(connection)
    moment = now()
    _insert_implied(connection, groups, moment)
    fresh: dict[type[Record], set[str]] = {}
    ended: set[str] = set()
    for kind in sorted(groups, key=_RANK.__getitem__):
        if kind is Episode:
            fresh[kind], ended = _insert_episodes(connection, groups[kind])
        elif kind in REPORTS:
            fresh[kind] = _insert_new(connection, kind, groups[kind])
        else:
            insert_rows(connection, kind, to_rows(kind, groups[kind], connection.dialect.name))
    queue_episodes(connection, {span.episode_id for span in groups.get(Span, ()) if isinstance(span, Span)})
    if reports:
        insert_events(connection, list(_report(records, fresh, ended)), moment)


def insert_new(connection: Connection, records: Sequence[Record], place: Replacement | None = None) -> int:
    """Writes records as ``insert_records`` does and returns how many of them were not there.

    Args:
        connection: in a transaction.
        records: what is written.
        place: what they become; None: they are written as they are.
    """
    keys: dict[type[Record], set[str]] = {}
    for record in records:
        keys.setdefault(type(record), set()).add(_key(record))
    present = sum(count_records(connection, kind, {fields_of(kind)[0]: wanted}) for kind, wanted in keys.items())
    insert_records(connection, records if place is None else place(connection, records))
    return sum(map(len, keys.values())) - present


def reopen_episodes(connection: Connection, episode_ids: Collection[str]) -> None:
    """Makes those of the episodes run again that ended and are of a source whose spans may come late.

    Each is reported as ``episode.reopened``; it ends once more by a later record of it.

    Args:
        connection: one that holds the write lock (see ``take_write_lock``).
        episode_ids: whose late spans are written in the same transaction.
    """
    table = schema.episodes
    for chunk in _chunks(episode_ids):
        ended = table.c.episode_id.in_(chunk) & (table.c.status != EpisodeStatus.RUNNING.value)
        query = select(table.c.episode_id, table.c.agent_id, table.c.task_id)
        found = connection.execute(query.where(ended & table.c.source.in_(REOPENED_SOURCES))).all()
        if not found:
            continue
        again = {"status": EpisodeStatus.RUNNING.value, "terminated": False, "truncated": False}
        ids = [row[0] for row in found]
        connection.execute(update(table).where(table.c.episode_id.in_(ids)).values(**again, error=None, ended_at=None))
        status = EpisodeStatus.RUNNING
        payloads = [(row[0], {"agent_id": row[1], "task_id": row[2], "status": status}) for row in found]
        insert_events(connection, [("episode.reopened", key, payload) for key, payload in payloads])


def take_write_lock(connection: Connection) -> None:
    """Waits until no other transaction writes what has a sequence; SQLite's transaction holds such a lock anyway."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({WRITE_LOCK})")


def insert_events(connection: Connection, events: Sequence[EventParts], moment: datetime | None = None) -> None:
    """Appends to the event feed in the transaction of ``connection`` and wakes those who wait for it.

    Args:
        connection: one that holds the write lock (see ``take_write_lock``).
        events: kind, subject and payload of each.
        moment: when; None: now.
    """
    if not events:
        return
    created_at = moment or now()
    rows = to_rows(Event, [_event(parts, created_at) for parts in events], connection.dialect.name)
    without_sequence = [row[1:] for row in rows]
    if connection.dialect.name == "sqlite":
        statement = "INSERT INTO events (kind, subject, payload, created_at) VALUES {rows}"
        insert_values(connection, statement, without_sequence)
        return
    connection.exec_driver_sql(
        "INSERT INTO events (kind, subject, payload, created_at) SELECT kind, subject, payload, created_at "
        "FROM ROWS FROM (json_to_recordset(%s::json) "
        "AS (kind text, subject text, payload jsonb, created_at timestamptz)) "
        "WITH ORDINALITY AS given (kind, subject, payload, created_at, place) ORDER BY place",
        (json_rows(("kind", "subject", "payload", "created_at"), without_sequence),),
    )
    connection.exec_driver_sql(f"SELECT pg_notify('{CHANNEL}', '')")


def _event(parts: EventParts, created_at: datetime) -> Event:
    kind, subject, payload = parts
    return Event(sequence=0, kind=kind, subject=subject, payload=payload, created_at=created_at)


def _insert_implied(connection: Connection, groups: dict[type[Record], list[Record]], moment: datetime) -> None:
    """Writes the agents and tasks that are named but may be missing; those of the batch itself go first."""
    agent_ids: dict[str, None] = {}
    task_ids: dict[str, None] = {}
    for record in (*groups.get(Episode, ()), *groups.get(Decision, ())):
        if isinstance(record, Episode | Decision):
            agent_ids[record.agent_id] = None
        if isinstance(record, Episode) and record.task_id is not None:
            task_ids[record.task_id] = None
    known: set[str] = connection.info.setdefault(KNOWN_AGENTS, set())
    fresh = agent_ids.keys() - known
    agents: list[Record] = [*groups.pop(Agent, ()), *(Agent(agent_id=name, created_at=moment) for name in fresh)]
    tasks: list[Record] = [*groups.pop(Task, ()), *(Task(task_id=name, created_at=moment) for name in task_ids)]
    insert_rows(connection, Agent, to_rows(Agent, agents, connection.dialect.name))
    known |= fresh
    insert_rows(connection, Task, to_rows(Task, tasks, connection.dialect.name))


def _key(record: Record) -> str:
    key: str = getattr(record, fields_of(type(record))[0])
    return key


def _chunks(keys: Collection[str]) -> Iterator[list[str]]:
    listed = list(keys)
    for start in range(0, len(listed), _CHUNK):
        yield listed[start : start + _CHUNK]


def _insert_new(connection: Connection, kind: type[Record], records: Iterable[Record]) -> set[str]:
    """Writes those records whose key is not there yet and returns their keys."""
    by_key: dict[str, Record] = {}
    for record in records:
        by_key.setdefault(_key(record), record)
    for chunk in _chunks(by_key):
        for key in _existing(connection, kind, chunk):
            del by_key[key]
    insert_rows(connection, kind, to_rows(kind, by_key.values(), connection.dialect.name))
    return set(by_key)


def _existing(connection: Connection, kind: type[Record], keys: Sequence[str]) -> list[str]:
    """Returns those of ``keys`` that records of ``kind`` have already."""
    column = key_column(kind)
    if connection.dialect.name != "sqlite":
        return list(connection.execute(select(column).where(column.in_(keys))).scalars())
    marks = ", ".join("?" * len(keys))
    query = f"SELECT {column.name} FROM {column.table.name} WHERE {column.name} IN ({marks})"
    return [row[0] for row in execute_sqlite(connection, query, keys)]


def _insert_episodes(connection: Connection, records: Iterable[Record]) -> tuple[set[str], set[str]]:
    """Writes episodes; returns the ids that started and the ids that ended with this."""
    folded: dict[str, Episode] = {}
    listed = [record for record in records if isinstance(record, Episode)]
    states = episode_states(connection, {record.episode_id for record in listed})
    started: set[str] = set()
    ended: set[str] = set()
    for record in listed:
        key = record.episode_id
        if key not in states:
            started.add(key)
        elif _is_final(states[key]):
            continue
        earlier = folded.get(key)
        folded[key] = record if earlier is None else _fold(earlier, record)
        states[key] = record.status
        if _is_final(record.status):
            ended.add(key)
    insert_rows(connection, Episode, to_rows(Episode, folded.values(), connection.dialect.name))
    return started, ended


def _is_final(status: EpisodeStatus) -> bool:
    return not EPISODE_TRANSITIONS[status]


def _fold(earlier: Episode, later: Episode) -> Episode:
    changes: dict[str, Any] = {name: getattr(later, name) for name in EPISODE_CHANGES}
    return msgspec.structs.replace(earlier, **changes)


def _report(records: Iterable[Record], fresh: dict[type[Record], set[str]], ended: set[str]) -> Iterator[EventParts]:
    """Yields an event for each record that was new or ended an episode, in the order of the records."""
    for record in records:
        kind = type(record)
        new_keys = fresh.get(kind)
        if new_keys is None:
            continue
        key = _key(record)
        if key in new_keys:
            new_keys.discard(key)
            yield REPORTS[kind].kind, key, _payload(record)
        if key in ended and isinstance(record, Episode) and _is_final(record.status):
            ended.discard(key)
            yield "episode.ended", key, _payload(record)


def _payload(record: Record) -> Json:
    return {name: getattr(record, name) for name in REPORTS[type(record)].fields}
