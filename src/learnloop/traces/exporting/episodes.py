"""Reads whole episodes from a store, one at a time, and names their files."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import NamedTuple

from learnloop.core.records import Episode, Reward, Span
from learnloop.store import Store
from learnloop.store.queries.records import all_records

_PAGE = 250
_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,79}")


class EpisodeRecords(NamedTuple):
    """An episode and what belongs to it."""

    episode: Episode
    spans: list[Span]
    rewards: list[Reward]
    """In the order in which they came: the last of a name counts. Those of decisions are left out."""


def episode_records(store: Store, agent_id: str | None = None) -> Iterator[EpisodeRecords]:
    """Yields each episode of a store, or of one agent, with its spans and its rewards."""
    where = {} if agent_id is None else {"agent_id": agent_id}
    for episode in store.iterate(Episode, where=where, page=_PAGE):
        mine = {"episode_id": episode.episode_id}
        spans = store.read(all_records, Span, mine)
        rewards = store.read(all_records, Reward, {**mine, "decision_id": None}, order="sequence")
        yield EpisodeRecords(episode, spans, rewards)


def file_name(known: str, suffix: str = ".json") -> str:
    """Returns a file's name for an id, whatever is in it: it has no folder, and no two ids share one.

    An id of letters, digits, ``-`` and ``_`` is its own name; of another one the name has what may stay and a hash.
    """
    if _SAFE.fullmatch(known):
        return known + suffix
    kept = re.sub(r"[^A-Za-z0-9_-]+", "_", known).strip("_-")[:48] or "trace"
    return f"{kept}-{hashlib.sha256(known.encode('utf-8', 'replace')).hexdigest()[:16]}{suffix}"
