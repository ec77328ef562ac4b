"""Times as people write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from learnloop.core.clock import now
from learnloop.core.errors import UsageError

_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_AGE = re.compile(r"([0-9]{1,5})([mhdw])")


def parse_age(text: str) -> timedelta:
    """Returns the span of time written as ``90m``, ``12h``, ``30d`` or ``4w``.

    Raises:
        UsageError: it is written otherwise.
    """
    match = _AGE.fullmatch(text.strip().lower())
    if match is None:
        raise UsageError(f"{text!r} is not a span of time; write a number and m, h, d or w, such as 30d")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


def parse_moment(text: str) -> datetime:
    """Returns the moment written as RFC 3339, as a date, or as the time since then, such as ``2h``; without offset UTC.

    Raises:
        UsageError: it is written otherwise.
    """
    if _AGE.fullmatch(text.strip().lower()):
        return now() - parse_age(text)
    try:
        moment = datetime.fromisoformat(text.strip())
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise UsageError(
            f"{text!r} is not a time; write 2026-01-31, 2026-01-31T12:00:00Z or how long ago, such as 2h or 7d"
        ) from error
