"""What nouns have in common: they are of a workspace, and what they list is a list, rows for tables, and a table."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from operator import attrgetter
from typing import Any, TypeVar

from learnloop.core.checks import check_range
from learnloop.core.errors import UsageError
from learnloop.core.records import Record
from learnloop.loop.workspace.core import WorkspaceCore
from learnloop.store import Store
from learnloop.store.queries.records import newest_records

MAX_PAGE = 1_000
"""Of what is listed, the most on one page."""
_SEQUENCE = re.compile(r"n[1-9][0-9]{0,17}")

T = TypeVar("T")
R = TypeVar("R", bound=Record)
Row = Callable[[T], Mapping[str, Any]]


class Noun:
    """One kind of thing that a workspace keeps, with what can be done with it.

    Args:
        workspace: an open one; it stays its owner's.
    """

    def __init__(self, workspace: WorkspaceCore) -> None:
        self._workspace = workspace


class Listing(list[T]):
    """A list that is a table too: ``pandas.DataFrame(listing.rows())``, ``polars.DataFrame(listing.rows())``.

    Args:
        items: what is listed.
        row: an item as plain values by column; the same columns for each.
    """

    def __init__(self, items: Iterable[T], row: Row[T]) -> None:
        super().__init__(items)
        self.row = row

    def rows(self) -> list[dict[str, Any]]:
        """Returns the items as dicts of plain values, with the same keys in each."""
        return [dict(self.row(item)) for item in self]

    def _repr_html_(self) -> str:
        """Returns the listing as a table, which notebooks show."""
        from learnloop.evaluation.tables import html_table  # and with it numpy, for which listing does not wait

        return html_table(self.rows())


class Page(Listing[T]):
    """A part of a listing that may be long.

    Args:
        items: what is on the page.
        row: as of ``Listing``.
        next_cursor: what to give as ``after`` for the next page; None: there is none.
    """

    def __init__(self, items: Iterable[T], row: Row[T], next_cursor: str | None) -> None:
        super().__init__(items, row)
        self.next_cursor = next_cursor

    def _repr_html_(self) -> str:
        """Returns the page as a table, and how the next one is asked for."""
        more = "" if self.next_cursor is None else f"<p>more with after={html.escape(repr(self.next_cursor))}</p>"
        return super()._repr_html_() + more


def newest_page(
    store: Store, kind: type[R], given: Mapping[str, object], row: Row[R], *, limit: int, after: str | None
) -> Page[R]:
    """Returns a page of records, what became durable last first.

    Args:
        store: where they are.
        kind: which records; they have a sequence.
        given: the value of each column that narrows; None: it does not.
        row: as of ``Listing``.
        limit: the most to list, 1 to ``MAX_PAGE``.
        after: ``next_cursor`` of the page before.

    Raises:
        UsageError: the limit is out of range, or the cursor is not valid.
    """
    check_range("limit", limit, 1, MAX_PAGE)
    if after is not None and not _SEQUENCE.fullmatch(after):
        raise UsageError(f"{after!r} is not a valid cursor; give the one that the page before ended with")
    before = None if after is None else int(after[1:])
    found = store.read(newest_records, kind, _narrowing(given), before, limit + 1)
    cursor = f"n{found[limit - 1][0]}" if len(found) > limit else None
    return Page([record for _, record in found[:limit]], row, cursor)


def keyed_page(
    store: Store, kind: type[R], given: Mapping[str, object], row: Row[R], *, limit: int, after: str | None
) -> Page[R]:
    """Returns a page of records, the highest id first; the arguments are those of ``newest_page``.

    Raises:
        UsageError: the limit is out of range.
    """
    check_range("limit", limit, 1, MAX_PAGE)
    found = store.select(kind, where=_narrowing(given), after=after, limit=limit + 1, descending=True)
    key = kind.__struct_fields__[0]
    return Page(found[:limit], row, getattr(found[limit - 1], key) if len(found) > limit else None)


def _narrowing(given: Mapping[str, object]) -> dict[str, object]:
    return {column: value for column, value in given.items() if value is not None}


def columns(*names: str) -> Row[Any]:
    """Returns what makes a row of an item's attributes; ``episode.task_id`` is the column ``task_id``."""
    readers = [(name.rpartition(".")[2], attrgetter(name)) for name in names]

    def row(item: object) -> dict[str, Any]:
        found = {name: read(item) for name, read in readers}
        return {name: value.value if isinstance(value, Enum) else value for name, value in found.items()}

    return row
