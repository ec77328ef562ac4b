"""learnloop.core.clock: UTC, exact to the microsecond."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop.core.clock import from_micros, now, to_micros


@given(st.datetimes(timezones=st.just(UTC)))
def test_round_trip(moment: datetime) -> None:
    assert from_micros(to_micros(moment)) == moment


@given(st.datetimes(min_value=datetime(1, 1, 2), max_value=datetime(9999, 12, 30)), st.integers(-12, 12))
def test_an_offset_does_not_matter(naive: datetime, hours: int) -> None:
    moment = naive.replace(tzinfo=UTC)
    assert to_micros(moment.astimezone(timezone(timedelta(hours=hours)))) == to_micros(moment)


def test_known_moment() -> None:
    assert to_micros(datetime(2001, 9, 9, 1, 46, 40, 1, tzinfo=UTC)) == 1_000_000_000_000_001


def test_a_moment_without_time_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="no time zone"):
        to_micros(datetime(2026, 1, 1))


def test_now_is_aware() -> None:
    assert now().tzinfo is UTC
