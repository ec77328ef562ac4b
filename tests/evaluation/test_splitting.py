"""learnloop.evaluation.splitting: the same units are held out always, and more of them at a larger share."""

from __future__ import annotations

import pytest

from learnloop.core.protocols import Sample
from learnloop.evaluation.splitting import is_held_out, split_by_unit

UNITS = [f"u{number}" for number in range(4_000)]


def test_shares() -> None:
    for share in (0.1, 0.4, 0.9):
        assert sum(is_held_out(unit, share) for unit in UNITS) / 4_000 == pytest.approx(share, abs=0.03)


def test_held_out_at_a_share_is_held_out_at_a_larger_one() -> None:
    assert {unit for unit in UNITS if is_held_out(unit, 0.2)} < {unit for unit in UNITS if is_held_out(unit, 0.3)}


def test_another_salt_draws_independently() -> None:
    both = sum(is_held_out(unit, 0.5) and is_held_out(unit, 0.5, "other") for unit in UNITS)
    assert both / 4_000 == pytest.approx(0.25, abs=0.03)


def test_samples_of_a_unit_stay_together_and_in_order() -> None:
    samples = [Sample(f"u{row % 50}", {}, ["a"], None, "a", 1.0, float(row)) for row in range(200)]
    split = split_by_unit(samples)
    assert not {each.unit for each in split.train} & {each.unit for each in split.held_out}
    for part in split:
        assert [each.reward for each in part] == sorted(each.reward for each in part)
    assert len(split.train) + len(split.held_out) == 200
