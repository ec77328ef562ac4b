"""Finds episodes by the beginnings of their ids, and puts spans below their parents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

from learnloop.core.errors import NotFoundError, UsageError, one_of
from learnloop.core.records import Span
from learnloop.loop.workspace.core import WorkspaceCore
from learnloop.store.queries.episodes import episode_ids_like
from learnloop.store.queries.spans import SpanOutline

AnySpan = TypeVar("AnySpan", Span, SpanOutline)


def resolve_episode(workspace: WorkspaceCore, text: str) -> str:
    """Returns the id of the episode whose id is ``text``, or alone begins with it.

    Raises:
        NotFoundError: no id begins with it.
        UsageError: several do.
    """
    found = workspace.store.read(episode_ids_like, text, 4) if text else []
    if text in found or len(found) == 1:
        return found[0]
    if found:
        raise UsageError(f"the ids {one_of(found)} and maybe others begin with {text!r}; give more of it")
    raise NotFoundError(f"there is no Episode whose episode_id is {text!r} or begins with it")


def span_tree(spans: Sequence[AnySpan]) -> Iterator[tuple[int, AnySpan]]:
    """Yields spans below their parents, earlier ones first, each with its depth; one without its parent is a root."""
    known = {span.span_id for span in spans}
    children: dict[str | None, list[AnySpan]] = {}
    for span in sorted(spans, key=lambda span: (span.started_at, span.span_id)):
        children.setdefault(span.parent_id if span.parent_id in known else None, []).append(span)
    waiting = [(0, span) for span in reversed(children.get(None, []))]
    while waiting:
        depth, span = waiting.pop()
        yield depth, span
        waiting.extend((depth + 1, child) for child in reversed(children.get(span.span_id, [])))
