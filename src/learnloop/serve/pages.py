"""Cursors of lists whose cursor is the id of the last row."""

from __future__ import annotations

import re

from learnloop.core.errors import UsageError

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def check_id_cursor(after: str | None) -> None:
    """Refuses what no page gave as its ``next_cursor``: it would be answered with a page of anything.

    Raises:
        UsageError: ``after`` is no id of learnloop.
    """
    if after is not None and not _ID.fullmatch(after):
        raise UsageError("after is no cursor; take next_cursor of the page before as it is")
