"""Time: always UTC, always aware, microseconds in storage."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def now() -> datetime:
    """Returns the present moment in UTC."""
    return datetime.now(UTC)


def to_micros(moment: datetime) -> int:
    """Returns the microseconds from 1970-01-01 UTC to ``moment``, exactly; a naive moment is refused.

    Raises:
        ValueError: ``moment`` has no time zone.
    """
    if moment.tzinfo is None:
        raise ValueError(f"{moment!r} has no time zone; learnloop stores UTC, so give it one")
    return (moment - _EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    """Returns the moment that lies ``micros`` microseconds after 1970-01-01 UTC."""
    return _EPOCH + timedelta(microseconds=micros)
