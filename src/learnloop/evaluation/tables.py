"""Results as notebooks show them."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

from learnloop.evaluation.intervals import Interval


def html_table(rows: Sequence[Mapping[str, Any]], title: str | None = None) -> str:
    """Returns rows as an HTML table, below a title where there is one; whatever is said in them stays text.

    Args:
        rows: values by column; the columns are those of the first row.
        title: what stands above it.
    """
    head = "" if title is None else f"<p>{html.escape(title)}</p>"
    if not rows:
        return f"{head}<p>nothing yet</p>"
    names = "".join(f"<th>{html.escape(str(name))}</th>" for name in rows[0])
    body = "".join(f"<tr>{''.join(f'<td>{_shown(row[name])}</td>' for name in rows[0])}</tr>" for row in rows)
    return f"{head}<table><thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>"


def ends_of(interval: Interval | None) -> dict[str, float | None]:
    """Returns an interval as two columns of a table; empty ones where there is none."""
    return {"from": None, "to": None} if interval is None else {"from": interval.low, "to": interval.high}


def _shown(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, list):
        return html.escape(", ".join(map(str, value)))
    return html.escape(str(value))
