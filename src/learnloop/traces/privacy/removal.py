"""Removes episodes with all that belongs to them, in steps so short that whoever records meanwhile hardly waits.

An episode goes last, after its spans, decisions, rewards with their shares, and questions for labels: what was
interrupted is finished by removing it again.
SQLite overwrites what is removed, and the index of words forgets it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any

import msgspec
from sqlalchemy import Column, ColumnElement, Connection, Table, and_, delete, exists, func, or_, select

from learnloop.core.records import EpisodeStatus, Json
from learnloop.store import Store, insert_events, schema
from learnloop.store.words import forget_episodes, merge_words
from learnloop.traces.search import forget_words

_STEP_SECONDS = 0.04
"""How long the store is held at a time, and a little more."""
_ROWS = 100
"""Rows that are removed at once."""
_PAGE = 2_000
"""Rows that are looked for at once."""
_EPISODES = 200


class Removal(msgspec.Struct, frozen=True, kw_only=True):
    """How much was removed, or would be."""

    num_episodes: int
    num_spans: int
    num_decisions: int
    num_rewards: int
    num_shares: int
    """Shares of rewards (table ``reward_history``)."""
    num_label_requests: int
    num_tasks: int
    """Those that no episode is a try at any more."""
    scrubbed: bool = True
    """Whether the files of the database hold none of it any more; False: a reader is still busy, try again later."""


def expired(before: datetime, agent_id: str | None = None) -> ColumnElement[bool]:
    """Returns the condition of episodes that ended before a moment; those that run stay."""
    table = schema.episodes.c
    old = and_(table.status != EpisodeStatus.RUNNING.value, func.coalesce(table.ended_at, table.started_at) < before)
    return old if agent_id is None else and_(old, table.agent_id == agent_id)


def count_removal(store: Store, which: ColumnElement[bool], orphans_before: datetime | None = None) -> Removal:
    """Returns what ``remove_episodes`` would remove; tasks are not counted."""
    chosen = select(schema.episodes.c.episode_id).where(which)

    def count(connection: Connection) -> dict[str, int]:
        conditions: dict[str, tuple[Table, ColumnElement[bool]]] = {"episodes": (schema.episodes, which)}
        for table, condition in _belongings(chosen):
            conditions[table.name] = (table, condition)
        for table, condition in _orphans(orphans_before):
            conditions[table.name] = (table, or_(conditions[table.name][1], condition))
        return {
            name: connection.execute(select(func.count()).select_from(table).where(condition)).scalar_one()
            for name, (table, condition) in conditions.items()
        }

    return _removal(store.read(count))


def remove_episodes(
    store: Store,
    which: ColumnElement[bool],
    *,
    orphans_before: datetime | None = None,
    progress: Callable[[int], None] | None = None,
) -> Removal:
    """Removes the episodes that fulfil a condition, with all that belongs to them; returns how many.

    Each is reported as ``episode.removed``. Tasks that no other episode is a try at go too; agents stay.

    Args:
        store: where they lie.
        which: a condition on the table of episodes.
        orphans_before: also remove what belongs to no episode and is older than that.
        progress: told of the number of episodes removed.
    """
    counts: Counter[str] = Counter()
    ids = schema.episodes.c.episode_id
    while page := store.read(lambda connection: connection.execute(select(ids).where(which).limit(_EPISODES)).all()):
        for row in page:
            counts += _remove_one(store, row[0])
            if progress is not None:
                progress(1)
    counts += _remove_orphans(store, orphans_before)
    merge_all(store)
    return _removal(counts, scrubbed=not counts or store.scrub())


def merge_all(store: Store) -> None:
    """Rewrites the index of words without what was taken out of it, in short steps."""
    more = store.run(lambda connection: merge_words(connection, first=True))
    while more:
        more = store.run(lambda connection: merge_words(connection, first=False))


def _removal(counts: Json, *, scrubbed: bool = True) -> Removal:
    names = ("episodes", "spans", "decisions", "rewards", "reward_history", "label_requests", "tasks")
    return Removal(**_named({name: counts.get(name, 0) for name in names}), scrubbed=scrubbed)


def _named(counts: Mapping[str, int]) -> dict[str, int]:
    """Returns numbers by table as reports call them; an activation is a part of its decision."""
    names = {"reward_history": "shares"}
    return {f"num_{names.get(name, name)}": number for name, number in counts.items() if name != "decision_activations"}


def _belongings(episode_ids: Any) -> list[tuple[Table, ColumnElement[bool]]]:
    """Returns what belongs to episodes, in the order in which it goes: what others are found by goes later."""
    rewards, decisions, spans = schema.rewards.c, schema.decisions.c, schema.spans.c
    of_decisions = select(decisions.decision_id).where(decisions.episode_id.in_(episode_ids))
    traces = select(schema.episodes.c.trace_id).where(schema.episodes.c.episode_id.in_(episode_ids))
    loose = and_(spans.episode_id.is_(None), spans.trace_id.in_(traces))
    return [
        (schema.label_requests, schema.label_requests.c.episode_id.in_(episode_ids)),
        (schema.reward_history, schema.reward_history.c.episode_id.in_(episode_ids)),
        (schema.rewards, or_(rewards.episode_id.in_(episode_ids), rewards.decision_id.in_(of_decisions))),
        (schema.decision_activations, schema.decision_activations.c.decision_id.in_(of_decisions)),
        (schema.decisions, decisions.episode_id.in_(episode_ids)),
        (schema.spans, or_(spans.episode_id.in_(episode_ids), loose)),
    ]


def _orphans(before: datetime | None) -> list[tuple[Table, ColumnElement[bool]]]:
    """Returns what belongs to no episode and is older than ``before``; nothing where that is None."""
    if before is None:
        return []
    rewards, decisions, spans, episodes = schema.rewards.c, schema.decisions.c, schema.spans.c, schema.episodes.c
    shares, requests = schema.reward_history.c, schema.label_requests.c
    activations = schema.decision_activations.c

    def lost(key: Column[Any]) -> ColumnElement[bool]:
        return ~exists().where(episodes.episode_id == key)

    kept = or_(decisions.created_at >= before, exists().where(episodes.episode_id == decisions.episode_id))
    decided = exists().where(decisions.decision_id == rewards.decision_id, kept)
    activated = exists().where(decisions.decision_id == activations.decision_id)
    in_trace = exists().where(episodes.trace_id == spans.trace_id)
    return [
        (schema.label_requests, and_(requests.created_at < before, lost(requests.episode_id))),
        (schema.reward_history, and_(shares.created_at < before, lost(shares.episode_id))),
        (schema.rewards, and_(rewards.created_at < before, lost(rewards.episode_id), ~decided)),
        (schema.decisions, and_(decisions.created_at < before, lost(decisions.episode_id))),
        (schema.decision_activations, and_(activations.created_at < before, ~activated)),
        (schema.spans, and_(spans.ended_at < before, lost(spans.episode_id), ~in_trace)),
    ]


def _remove_one(store: Store, episode_id: str) -> Counter[str]:
    counts: Counter[str] = Counter()
    for table, condition in _belongings([episode_id]):
        counts[table.name] += _remove_rows(store, table, condition)

    def finish(connection: Connection) -> Counter[str]:
        episodes = schema.episodes.c
        query = select(episodes.agent_id, episodes.task_id).where(episodes.episode_id == episode_id)
        found = connection.execute(query).first()
        if found is None:  # somebody else removed it
            return Counter()
        agent_id, task_id = found
        connection.execute(delete(schema.episodes).where(episodes.episode_id == episode_id))
        forget_episodes(connection, [episode_id])
        payload = {"agent_id": agent_id, **_named(counts)}
        insert_events(connection, [("episode.removed", episode_id, payload)])
        return Counter(episodes=1, tasks=_remove_task(connection, task_id))

    return counts + store.run(finish)


def _remove_task(connection: Connection, task_id: str | None) -> int:
    """Removes a task that nothing refers to; returns how many that were."""
    tasks = schema.tasks.c
    tried = exists().where(schema.episodes.c.task_id == tasks.task_id)
    shared = exists().where(schema.reward_history.c.task_id == tasks.task_id)
    return connection.execute(delete(schema.tasks).where(tasks.task_id == task_id, ~tried, ~shared)).rowcount


def _remove_orphans(store: Store, before: datetime | None) -> Counter[str]:
    counts: Counter[str] = Counter()
    for table, condition in _orphans(before):
        counts[table.name] += _remove_rows(store, table, condition)
    if +counts:
        payload = _named(counts)
        store.run(lambda connection: insert_events(connection, [("orphans.removed", "", payload)]))
    return counts


def _remove_rows(store: Store, table: Table, condition: ColumnElement[bool]) -> int:
    """Removes the rows of a table that fulfil a condition, in steps; returns how many.

    They are looked for while others may write.
    """
    key = next(iter(table.primary_key.columns))
    query = select(key).where(condition).limit(_PAGE)
    number = 0
    while keys := store.read(lambda connection: list(connection.execute(query).scalars())):
        number += len(keys)
        while keys:
            keys = store.run(partial(_remove_some, table, key, condition, keys))
    return number


def _remove_some(
    table: Table, key: Column[Any], condition: ColumnElement[bool], keys: list[Any], connection: Connection
) -> list[Any]:
    """Removes rows by their keys for as long as the store may be held; returns the keys that are left."""
    end = time.monotonic() + _STEP_SECONDS
    done = 0
    while done < len(keys) and time.monotonic() < end:
        some = keys[done : done + _ROWS]
        if table is schema.spans:
            forget_words(connection, some)
        connection.execute(delete(table).where(key.in_(some), condition))
        done += _ROWS
    return keys[done:]
