"""learnloop.evaluation.rates: the score interval of a share."""

from __future__ import annotations

from math import comb

import pytest

from learnloop.core.errors import UsageError
from learnloop.evaluation.rates import wilson_interval


def test_published_values() -> None:
    """Newcombe 1998, table I, method 3: 81/263, 15/148, 0/20, 1/29."""
    for successes, number, low, high in (
        (81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718),
    ):  # fmt: skip
        found = wilson_interval(successes, number)
        assert (found.low, found.high) == (pytest.approx(low, abs=5e-5), pytest.approx(high, abs=5e-5))


@pytest.mark.parametrize("share", [0.3, 0.5, 0.9])
def test_it_covers_about_as_often_as_it_says(share: float) -> None:
    """Summed over all outcomes of 60 draws."""
    covered = 0.0
    for successes in range(61):
        found = wilson_interval(successes, 60)
        if found.low <= share <= found.high:
            covered += comb(60, successes) * share**successes * (1 - share) ** (60 - successes)
    assert covered == pytest.approx(0.95, abs=0.025)


@pytest.mark.parametrize("wrong", [(1, 0, 0.95), (2, 1, 0.95), (-1, 3, 0.95), (1, 2, 0.0), (1, 2, 1.0)])
def test_what_is_no_share(wrong: tuple[int, int, float]) -> None:
    with pytest.raises(UsageError):
        wilson_interval(*wrong)
