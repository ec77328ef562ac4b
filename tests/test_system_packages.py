"""The programs that the tests need are there; a missing one fails here, by name, instead of skipping its tests."""

from __future__ import annotations

from tests.system_packages import missing_packages


def test_nothing_is_missing() -> None:
    assert missing_packages() == [], "run: make system"
