"""Takes out of stored records what a redactor finds, in short steps; the old bytes are overwritten."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec

from learnloop.core.records import Episode, LabelRequest, Record, Reward, RewardShare, Span, Task
from learnloop.store import Connection, Store, insert_events
from learnloop.store.full_text import queue_episodes
from learnloop.store.queries.belongings import records_belonging
from learnloop.store.queries.episodes import EpisodeQuery
from learnloop.store.queries.records import change_records, select_records
from learnloop.traces.privacy.redaction import Redactor
from learnloop.traces.privacy.removal import merge_all
from learnloop.traces.search import forget_words

_NAMES = {RewardShare: "share", LabelRequest: "label_request"}
"""What those types are called that have more than one word."""
_KINDS: tuple[type[Record], ...] = (Task, Episode, Span, Reward, RewardShare, LabelRequest)
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
    episodes: EpisodeQuery | None,
    *,
    dry_run: bool = False,
    progress: Callable[[int], None] | None = None,
) -> Rewriting:
    """Lets ``redactor`` look through what is stored, and writes what it changed.

    Args:
        store: where the records lie.
        redactor: what takes secrets out of them.
        episodes: only these, with what belongs to them; None: all that is stored.
        dry_run: only look.
        progress: told of the number of records looked at.
    """
    num_records = 0
    changed: dict[str, int] = {}
    for kind in _KINDS:
        after: str | None = None
        while True:
            given = (kind, episodes, after, redactor, dry_run)
            after, looked_at, number = store.read(_step, *given) if dry_run else store.run(_step, *given)
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
        store.run(insert_events, [("records.redacted", "", payload)])
        merge_all(store)
        scrubbed = store.scrub()
    found = {token: number for token, number in redactor.found.items() if number}
    return Rewriting(num_records=num_records, num_changed=changed, num_found=found, scrubbed=scrubbed)


def _step(
    connection: Connection,
    kind: type[Record],
    episodes: EpisodeQuery | None,
    after: str | None,
    redactor: Redactor,
    dry_run: bool,
) -> tuple[str | None, int, int]:
    """Looks at the next records; returns the key of the last one (None: all done), how many there were and changed."""
    end = time.monotonic() + _STEP_SECONDS
    looked_at, number = 0, 0
    while time.monotonic() < end:
        if episodes is None:
            before = select_records(connection, kind, {}, after, _ROWS, False)
        else:
            before = records_belonging(connection, kind, episodes, after, _ROWS)
        pairs = [(old, new) for old in before if (new := redactor(old)) is not old]
        if pairs and not dry_run:
            _write(connection, kind, pairs)
        looked_at += len(before)
        number += len(pairs)
        if len(before) < _ROWS:
            return None, looked_at, number
        after = getattr(before[-1], kind.__struct_fields__[0])
    return after, looked_at, number


def _write(connection: Connection, kind: type[Record], pairs: Sequence[tuple[Record, Record]]) -> None:
    if kind is Span:
        episodes = forget_words(connection, [old.span_id for old, _ in pairs if isinstance(old, Span)])
        queue_episodes(connection, episodes)  # they wait for their new words
    key, *names = kind.__struct_fields__
    for old, new in pairs:
        changes = {name: value for name in names if (value := getattr(new, name)) != getattr(old, name)}
        change_records(connection, kind, {key: getattr(old, key)}, changes)
