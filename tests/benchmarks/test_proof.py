"""benchmarks.proof: its nulls are nulls, its peer's power is that of the formula, each of its logs can be judged."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.proof import GRID, judge, z_test_power
from benchmarks.proof_champions import BAD, GOOD, Course, champion_rows, live
from benchmarks.proof_logs import NULLS, NUMBER, better_by

# An action seems better in these, because of what was not reported or of when and to whom it was given.
SEEMING = ("shared_reward", "unreported_failures", "unreported_both", "wrong_by_time", "slightly_wrong_by_time",
           "wrong_by_hour", "wrong_by_group", "slightly_wrong_by_group")  # fmt: skip


def test_the_power_of_the_z_test_is_that_of_simulated_ones() -> None:
    """Two arms of 2,500 decisions each, .525 against .475, 20,000 times; the standard error of the share is .0012."""
    rng = np.random.default_rng(0)
    good, bad = (rng.binomial(2_500, share, 20_000) / 2_500 for share in (0.525, 0.475))
    z = (good - bad) / np.sqrt((good * (1 - good) + bad * (1 - bad)) / 2_500)
    assert z_test_power(0.025, 5_000) == pytest.approx(float(np.mean(z > 1.6448536)), abs=0.006)
    assert all(z_test_power(gain, number) > 0.95 for gain, number in GRID)


@pytest.mark.parametrize("name", NULLS)
def test_logs_have_the_size_that_is_said(name: str) -> None:
    log = NULLS[name](np.random.default_rng(0))
    assert len(log.known) + len(log.missing) == NUMBER
    assert all(math.isnan(each.reward) for each in log.missing)


@pytest.mark.parametrize("name", [name for name in NULLS if name not in SEEMING])
def test_actions_earn_the_same(name: str) -> None:
    """Over 30 logs the mean difference of two actions is 0 within 4.5 standard errors."""
    differences = []
    for seed in range(30):
        by_action: dict[str, list[float]] = {}
        for each in NULLS[name](np.random.default_rng(seed)).known:
            by_action.setdefault(each.action, []).append(each.reward)
        differences.append(float(np.mean(by_action[min(by_action)]) - np.mean(by_action[max(by_action)])))
    assert abs(float(np.mean(differences))) < 4.5 * float(np.std(differences)) / math.sqrt(len(differences) - 1)


def test_what_is_better_is_so_by_as_much_as_is_said() -> None:
    log = better_by(0.1, 20_000)(np.random.default_rng(0)).known
    shares = [float(np.mean([each.reward for each in log if each.action == action])) for action in ("a", "b")]
    assert shares == pytest.approx([0.4, 0.6], abs=4 * 0.5 / math.sqrt(10_000))


def test_logs_are_judged_the_same_each_time() -> None:
    assert judge("written_twice", 3) == judge("written_twice", 3)
    assert not judge("written_twice", 3).is_learned
    assert judge("0.2 600", 1).is_learned


def test_courses_of_champions_are_the_same_each_time_and_counted_from_their_fall() -> None:
    assert live(BAD[0], 1) == live(BAD[0], 1)
    ours = [live(BAD[0], seed).ours for seed in range(12)]
    assert all(each is not None and 0 < each <= BAD[0].number for each in ours)
    short = [course._replace(number=100) for course in GOOD]
    assert all(live(course, 0).ours is None for course in short)


def test_there_is_a_row_for_each_course_of_champions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.proof_champions.GOOD", (Course(0.3, 0.7, 0.7, 0.7, 100),))
    rows = champion_rows(map, 2)
    assert len(rows) == len(BAD) + 1
    assert all(row.holds for row in rows)
