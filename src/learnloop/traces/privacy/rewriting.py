"""Takes out of stored records what a redactor finds, in short steps; the old bytes are overwritten."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, select, update

from learnloop.core.records import Episode, LabelRequest, Record, Reward, RewardShare, Span, Task
from learnloop.store import Store, insert_events, schema
from learnloop.store.mapping import key_column, record_columns, table_of, to_record
from learnloop.store.words import queue_episodes
from learnloop.traces.privacy.redaction import Redactor
from learnloop.traces.privacy.removal import merge_all
from learnloop.traces.search import forget_words

_NAMES = {RewardShare: "share", LabelRequest: "label_request"}
"""What those types are called that have more than one word."""
_ROWS = 50
_STEP_SECONDS = 0.04


class Rewriting(msgspec.Struct, frozen=True, kw_only=True):
    """What was looked at and changed, or would be."""

    num_records: int
    """Looked at."""
    num_changed: dict[str, int]
    """Records that held something, by type."""
    num_found: dict[str, int]
    """How often each token took the place of something."""
    scrubbed: bool = True
    """Whether the files of the database hold none of it any more; False: a reader is still busy, try again later."""


def redact_stored(
    store: Store,
    redactor: Redactor,
    episodes: ColumnElement[bool] | None,
    *,
    dry_run: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Rewriting:
    """Lets ``redactor`` look through what is stored, and writes what it changed.

    Args:
        store: where the records lie.
        redactor: what takes secrets out of them.
        episodes: a condition on the table of episodes: only these with what belongs to them; None: all.
        dry_run: only look.
        progress: told of the number of records looked at.
    """
    num_records = 0
    changed: dict[str, int] = {}
    for kind, condition in _kinds(episodes):
        after: Any = None
        while True:
            step = _step(kind, condition, after, redactor, dry_run)
            after, looked_at, number = store.read(step) if dry_run else store.run(step)
            num_records += looked_at
            if number:
                name = _NAMES.get(kind, kind.__name__.lower())
                changed[name] = changed.get(name, 0) + number
            if progress is not None:
                progress(looked_at)
            if after is None:
                break
    scrubbed = True
    if changed and not dry_run:
        payload = {"num_changed": changed}
        store.run(lambda connection: insert_events(connection, [("records.redacted", "", payload)]))
        merge_all(store)
        scrubbed = store.scrub()
    found = {token: number for token, number in redactor.found.items() if number}
    return Rewriting(num_records=num_records, num_changed=changed, num_found=found, scrubbed=scrubbed)


def _kinds(episodes: ColumnElement[bool] | None) -> list[tuple[type[Record], ColumnElement[bool] | None]]:
    """Returns the kinds of record that are looked at, each with which of them."""
    if episodes is None:
        return [(kind, None) for kind in (Task, Episode, Span, Reward, RewardShare, LabelRequest)]
    chosen = schema.episodes.c
    ids = select(chosen.episode_id).where(episodes)
    decisions = select(schema.decisions.c.decision_id).where(schema.decisions.c.episode_id.in_(ids))
    of_decisions = schema.rewards.c.decision_id.in_(decisions)
    return [
        (Task, schema.tasks.c.task_id.in_(select(chosen.task_id).where(episodes))),
        (Episode, episodes),
        (Span, schema.spans.c.episode_id.in_(ids)),
        (Reward, schema.rewards.c.episode_id.in_(ids) | of_decisions),
        (RewardShare, schema.reward_history.c.episode_id.in_(ids)),
        (LabelRequest, schema.label_requests.c.episode_id.in_(ids)),
    ]


def _step(
    kind: type[Record], condition: ColumnElement[bool] | None, after: Any, redactor: Redactor, dry_run: bool
) -> Callable[[Connection], tuple[Any, int, int]]:
    """Returns what looks at the next records: it gives the last one's key (None: all done) and two counts."""
    key = key_column(kind)

    def step(connection: Connection) -> tuple[Any, int, int]:
        end = time.monotonic() + _STEP_SECONDS
        last, looked_at, number = after, 0, 0
        while time.monotonic() < end:
            query = select(*record_columns(kind)).order_by(key).limit(_ROWS)
            query = query if condition is None else query.where(condition)
            query = query if last is None else query.where(key > last)
            before = [to_record(kind, row) for row in connection.execute(query)]
            pairs = [(old, new) for old in before if (new := redactor(old)) is not old]
            if pairs and not dry_run:
                _write(connection, kind, pairs)
            looked_at += len(before)
            number += len(pairs)
            if len(before) < _ROWS:
                return None, looked_at, number
            last = getattr(before[-1], key.name)
        return last, looked_at, number

    return step


def _write(connection: Connection, kind: type[Record], pairs: Sequence[tuple[Record, Record]]) -> None:
    if kind is Span:
        episodes = forget_words(connection, [old.span_id for old, _ in pairs if isinstance(old, Span)])
        queue_episodes(connection, episodes)  # they wait for their new words
    table, key = table_of(kind), key_column(kind)
    for old, new in pairs:
        names = [name for name in kind.__struct_fields__ if getattr(old, name) != getattr(new, name)]
        values = {name: getattr(new, name) for name in names}
        connection.execute(update(table).where(key == getattr(old, key.name)).values(**values))
