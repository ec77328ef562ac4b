"""What is closed at the end of a ``with`` is closed once, after an error too, which comes through."""

from __future__ import annotations

import pytest

from learnloop.core.lifecycles import Closing


class Kept(Closing):
    num_closed = 0

    def close(self) -> None:
        self.num_closed += 1


def test_a_with_gives_it_and_closes_it() -> None:
    kept = Kept()
    with kept as given:
        assert given is kept
        assert kept.num_closed == 0
    assert kept.num_closed == 1


def test_an_error_comes_through_what_is_closed() -> None:
    kept = Kept()
    with pytest.raises(KeyError, match="lost"), kept:
        raise KeyError("lost")
    assert kept.num_closed == 1
