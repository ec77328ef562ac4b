"""What listings have in common: a list of records, the same as flat rows for tables, and a table for notebooks."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


class Listing(list[T]):
    """A list that is a table too: ``pandas.DataFrame(listing.rows())``, ``polars.DataFrame(listing.rows())``.

    Args:
        items: what is listed.
        row: an item as plain values by column; the same columns for each.
    """

    def __init__(self, items: Iterable[T], row: Callable[[T], Mapping[str, Any]]) -> None:
        super().__init__(items)
        self._row = row

    def rows(self) -> list[dict[str, Any]]:
        """Returns the items as dicts of plain values, with the same keys in each."""
        return [dict(self._row(item)) for item in self]

    def _repr_html_(self) -> str:
        """Returns the listing as a table, which notebooks show."""
        return html_table(self.rows())


class Page(Listing[T]):
    """A part of a listing that may be long.

    Args:
        items: what is on the page.
        row: as of ``Listing``.
        next_cursor: what to give as ``after`` for the next page; None: there is none.
    """

    def __init__(self, items: Iterable[T], row: Callable[[T], Mapping[str, Any]], next_cursor: str | None) -> None:
        super().__init__(items, row)
        self.next_cursor = next_cursor


def html_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Returns rows as an HTML table; the columns are those of the first, and whatever is said in them stays text."""
    if not rows:
        return "<p>nothing yet</p>"
    head = "".join(f"<th>{html.escape(str(name))}</th>" for name in rows[0])
    body = "".join(f"<tr>{''.join(f'<td>{_shown(row[name])}</td>' for name in rows[0])}</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _shown(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return html.escape(", ".join(map(str, value)))
    return html.escape(str(value))
