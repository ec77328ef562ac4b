"""Removes episodes with all that belongs to them, in steps so short that whoever records meanwhile hardly waits.

An episode goes last, after its spans, decisions, rewards with their shares, and questions for labels: what was
interrupted is finished by removing it again.
SQLite overwrites what is removed, and the full-text index forgets it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from learnloop.core.records import Decision, Episode, Json, LabelRequest, Record, Reward, RewardShare, Span, Task
from learnloop.store import Connection, Store, insert_events
from learnloop.store.full_text import forget_episodes, merge_words
from learnloop.store.queries.belongings import (
    BELONGINGS,
    ORPHANS,
    Orphans,
    Owner,
    num_belonging,
    remove_belonging,
    remove_untried_task,
    rows_belonging,
)
from learnloop.store.queries.episodes import EpisodeQuery, episode_ids
from learnloop.store.queries.records import find_record, remove_records
from learnloop.traces.search import forget_words

_STEP_SECONDS = 0.04
"""How long the store is held at a time, and a little more."""
_ROWS = 100
"""Rows that are removed at once."""
_PAGE = 2_000
"""Rows that are looked for at once."""
_EPISODES = 200
_NAMES: Mapping[type[Record], str] = {
    Episode: "num_episodes",
    Span: "num_spans",
    Decision: "num_decisions",
    Reward: "num_rewards",
    RewardShare: "num_shares",
    LabelRequest: "num_label_requests",
    Task: "num_tasks",
}
"""What reports call the numbers of records; an activation is a part of its decision."""

Counts = Counter[type[Record]]


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


def count_removal(store: Store, which: EpisodeQuery, orphans_before: datetime | None = None) -> Removal:
    """Returns what ``remove_episodes`` would remove; tasks are not counted."""

    def count(connection: Connection) -> Counts:
        kinds: tuple[type[Record], ...] = (Episode, *BELONGINGS)
        found = Counts({kind: num_belonging(connection, kind, which) for kind in kinds})
        if orphans_before is not None:
            found.update({kind: num_belonging(connection, kind, Orphans(orphans_before)) for kind in ORPHANS})
        return found

    return _removal(store.read(count))


def remove_episodes(
    store: Store,
    which: EpisodeQuery,
    *,
    orphans_before: datetime | None = None,
    progress: Callable[[int], None] | None = None,
) -> Removal:
    """Removes the episodes that are meant, with all that belongs to them; returns how many.

    Each is reported as ``episode.removed``. Tasks that no other episode is a try at go too; agents stay.

    Args:
        store: where they lie.
        which: the episodes.
        orphans_before: also remove what belongs to no episode and is older than that.
        progress: told of the number of episodes removed.
    """
    counts = Counts()
    while page := store.read(episode_ids, which, _EPISODES):
        for episode_id in page:
            counts += _remove_one(store, episode_id)
            if progress is not None:
                progress(1)
    if orphans_before is not None:
        counts += _remove_orphans(store, Orphans(orphans_before))
    merge_all(store)
    return _removal(counts, scrubbed=not counts or store.scrub())


def merge_all(store: Store) -> None:
    """Rewrites the full-text index without what was taken out of it, in short steps."""
    more = store.run(merge_words, True)
    while more:
        more = store.run(merge_words, False)


def _removal(counts: Counts, *, scrubbed: bool = True) -> Removal:
    return Removal(**{name: counts[kind] for kind, name in _NAMES.items()}, scrubbed=scrubbed)


def _payload(counts: Counts) -> Json:
    """Returns numbers for the event feed."""
    return {_NAMES[kind]: number for kind, number in counts.items() if kind in _NAMES}


def _remove_one(store: Store, episode_id: str) -> Counts:
    counts = _remove_all(store, BELONGINGS, EpisodeQuery(ids=[episode_id]))

    def finish(connection: Connection) -> Counts:
        episode = find_record(connection, Episode, episode_id)
        if episode is None:  # somebody else removed it
            return Counts()
        remove_records(connection, Episode, {"episode_id": episode_id})
        forget_episodes(connection, [episode_id])
        payload = {"agent_id": episode.agent_id, **_payload(counts)}
        insert_events(connection, [("episode.removed", episode_id, payload)])
        num_tasks = 0 if episode.task_id is None else remove_untried_task(connection, episode.task_id)
        return Counts({Episode: 1, Task: num_tasks})

    return counts + store.run(finish)


def _remove_orphans(store: Store, orphans: Orphans) -> Counts:
    counts = _remove_all(store, ORPHANS, orphans)
    if +counts:
        store.run(insert_events, [("orphans.removed", "", _payload(counts))])
    return counts


def _remove_all(store: Store, kinds: Sequence[type[Record]], owner: Owner) -> Counts:
    """Removes the records that belong to somebody, kind after kind and in steps; returns how many of each.

    They are looked for while others may write, each kind until there are none.
    """
    counts = Counts(dict.fromkeys(kinds, 0))
    while kinds:
        found = store.read(_rows_of_each, kinds, owner)
        kinds = [kind for kind, rows in found.items() if rows]
        for kind in kinds:
            left = found[kind]
            while left:
                left = store.run(_remove_some, kind, owner, left)
            counts[kind] += len(found[kind])
            if len(found[kind]) == _PAGE:
                break  # there may be more of them, and what they are found by goes after all of them
    return counts


def _rows_of_each(connection: Connection, kinds: Sequence[type[Record]], owner: Owner) -> dict[type[Record], list[Any]]:
    return {kind: rows_belonging(connection, kind, owner, _PAGE) for kind in kinds}


def _remove_some(connection: Connection, kind: type[Record], owner: Owner, rows: list[Any]) -> list[Any]:
    """Removes rows by their primary keys for as long as the store may be held; returns the keys that are left."""
    end = time.monotonic() + _STEP_SECONDS
    done = 0
    while done < len(rows) and time.monotonic() < end:
        some = rows[done : done + _ROWS]
        if kind is Span:
            forget_words(connection, some)
        remove_belonging(connection, kind, owner, some)
        done += _ROWS
    return rows[done:]
