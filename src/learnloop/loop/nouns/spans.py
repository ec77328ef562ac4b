"""``ws.spans``: what happened in episodes, call by call."""

from __future__ import annotations

from learnloop.core.records import Episode, Json, Span
from learnloop.loop.nouns.listing import Listing, Noun, Page, columns, keyed_page
from learnloop.store.queries.spans import SpanOutline, span_outlines, span_usage
from learnloop.traces.conversation.steps import MODEL_OPERATIONS

_OUTLINE = ("span_id", "parent_id", "operation", "name", "status", "error", "started_at", "ended_at")


class Spans(Noun):
    """The spans of a workspace."""

    def list(
        self,
        *,
        episode: str | None = None,
        operation: str | None = None,
        name: str | None = None,
        status: str | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> Page[Span]:
        """Returns spans, the highest id first: of those that were recorded here, what started last.

        Args:
            episode: only of the episode with this id.
            operation: only of this kind, such as ``chat`` or ``execute_tool``.
            name: only those that are called so, such as a tool.
            status: only ``ok`` or ``error``.
            limit: the most to list.
            after: ``next_cursor`` of the page before.

        Raises:
            UsageError: the limit is out of range.
        """
        given = {"episode_id": episode, "operation": operation, "name": name, "status": status}
        row = columns("episode_id", *_OUTLINE)
        return keyed_page(self._workspace.store, Span, given, row, limit=limit, after=after)

    def show(self, span_id: str) -> Span:
        """Returns a span with all that was recorded of it.

        Raises:
            NotFoundError: there is no such span.
        """
        return self._workspace.store.get(Span, span_id)

    def outline(self, episode_id: str) -> Listing[SpanOutline]:
        """Returns all spans of an episode without their attributes, in the order in which they started.

        Raises:
            NotFoundError: there is no such episode.
        """
        self._workspace.store.get(Episode, episode_id)
        return Listing(self._workspace.store.read(span_outlines, episode_id), columns(*_OUTLINE))

    def usage(self, episode_id: str) -> dict[str, Json]:
        """Returns what is known of the tokens of an episode's calls of models, by the id of the span."""
        return self._workspace.store.read(span_usage, episode_id, MODEL_OPERATIONS)
