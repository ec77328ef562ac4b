"""Pages of lists: what a client asks for them by."""

from __future__ import annotations

import re
from typing import Annotated

from fastapi import Query

from learnloop.core.errors import UsageError

MAX_LIMIT = 200
"""The most rows of a page."""
Limit = Annotated[int, Query(ge=1, le=MAX_LIMIT)]
Text = Annotated[str | None, Query(max_length=500)]
"""What a list is narrowed by, or the cursor after which it goes on."""

_ID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def check_id_cursor(after: str | None) -> None:
    """Refuses what no page gave as its ``next_cursor``: it would be answered with a page of anything.

    Raises:
        UsageError: ``after`` is no id of learnloop.
    """
    if after is not None and not _ID.fullmatch(after):
        raise UsageError("after is no cursor; take next_cursor of the page before as it is")
