"""How many rewards are missing, and whether they are missing by chance, against shares computed by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from learnloop.core.arrays import Bools
from learnloop.core.protocols import Sample
from learnloop.evaluation.assumptions.assumption import Assumption, AssumptionState
from learnloop.evaluation.assumptions.checks import check_log
from learnloop.evaluation.assumptions.log_table import LogTable
from learnloop.evaluation.assumptions.missing import check_missing
from tests.evaluation.assumptions.logs import make_log, rows_of


def plain(size: int, seed: int = 0) -> list[Sample]:
    shares = rows_of([0.5, 0.5], size)
    return make_log(shares, shares, np.random.default_rng(seed))


def check(log: list[Sample], lost: Bools) -> Assumption:
    """Returns what is found where the rewards of ``lost`` rows are missing."""
    rows = [row._replace(reward=math.nan) if gone else row for row, gone in zip(log, lost, strict=True)]
    return check_missing(int((~lost).sum()), int(lost.sum()), LogTable(rows))


def every(size: int, number: int) -> Bools:
    """Returns ``number`` of ``size`` rows, evenly spread."""
    lost = np.zeros(size, dtype=bool)
    lost[np.linspace(0, size - 1, number).astype(int)] = number > 0
    return lost


def test_up_to_one_in_a_hundred_may_be_missing() -> None:
    log = plain(1_000)
    assert check(log, every(1_000, 0)).finding is AssumptionState.HOLDS
    assert check(log, every(1_000, 0)).detail == "all 1,000 decisions have their reward"
    ten, eleven = (check(log, every(1_000, number)) for number in (10, 11))
    assert (ten.finding, eleven.finding) == (AssumptionState.HOLDS, AssumptionState.BROKEN)
    assert "10 of 1,000 decisions have no reward (1.0%)" in ten.detail
    assert "11 of 1,000 decisions have no reward (1.1%)" in eleven.detail


def test_decisions_without_a_propensity_count_too() -> None:
    """They are in no table, but they have no reward either."""
    log = plain(1_000)
    table = LogTable([row._replace(propensity=None) if i < 50 else row for i, row in enumerate(log)])
    assert check_missing(950, 50, table).finding is AssumptionState.BROKEN


@pytest.mark.parametrize("kind", ["action", "time", "group", "number"])
def test_what_they_are_tied_to_is_named(kind: str) -> None:
    """Where it holds every fifth reward is missing, elsewhere one in a hundred."""
    log = plain(2_000)
    inside = {
        "action": np.array([row.action == "b" for row in log]),
        "time": np.arange(2_000) >= 1_750,
        "group": np.array([row.context["group"] == "green" for row in log]),
        "number": np.array([row.context["x"] < np.quantile([r.context["x"] for r in log], 1 / 8) for row in log]),
    }[kind]
    lost = np.zeros(2_000, dtype=bool)
    lost[np.flatnonzero(inside)[::5]] = True
    lost[np.flatnonzero(~inside)[::100]] = True
    found = check(log, lost)
    label = {
        "action": "action is 'b'",
        "time": "time is part 8 of 8",
        "group": "group is 'green'",
        "number": "x is below",
    }
    here, elsewhere = float(lost[inside].mean()), float(lost[~inside].mean())
    assert f"not by chance: {here:.1%} where {label[kind]}" in found.detail
    assert found.detail.endswith(f"{elsewhere:.1%} elsewhere")
    assert found.finding is AssumptionState.BROKEN


def test_few_that_are_tied_to_an_action_are_told_and_hold() -> None:
    """30 of 3,000, all of them of b: their tie is said, and so few cannot turn a verdict."""
    log = plain(3_000)
    lost = np.zeros(3_000, dtype=bool)
    lost[[i for i, row in enumerate(log) if row.action == "b"][::49][:30]] = True
    found = check(log, lost)
    assert found.finding is AssumptionState.HOLDS
    assert "not by chance" in found.detail
    assert "where action is 'b', 0.0% elsewhere" in found.detail


def test_the_limit_is_that_of_two_shares_for_all_comparisons_together() -> None:
    """Without contexts and times there are two comparisons: z must be 2.576.

    1,000 rows of each action, n of a's and 20 of b's are missing: z = (n - 20) / 1000 / sqrt(q (1 - q) 2 / 1000) with
    q = (n + 20) / 2000, which is 2.51 for n = 39 and 2.62 for n = 40.
    """
    row = Sample("", {}, ["a", "b"], None, "a", 0.5, 0.0)
    log = [row._replace(unit=f"u{i}", action="ab"[i % 2]) for i in range(2_000)]

    def z(number: int) -> float:
        q = (number + 20) / 2_000
        return (number - 20) / 1_000 / math.sqrt(q * (1 - q) * 2 / 1_000)

    def detail(number: int) -> str:
        lost = np.zeros(2_000, dtype=bool)
        lost[np.arange(0, 2 * number, 2)] = True
        lost[np.arange(1, 41, 2)] = True
        return check(log, lost).detail

    assert z(39) < 2.576 < z(40)
    assert "nothing to do with action, context or time" in detail(39)
    assert "4.0% where action is 'a', 2.0% elsewhere" in detail(40)


def test_what_is_missing_by_chance_is_rarely_said_to_be_tied_to_something() -> None:
    """At most 1 %: of 100 logs more than 5 happen with probability .0005 (binomial)."""
    tied = 0
    for seed in range(100):
        lost = np.random.default_rng(10_000 + seed).random(1_000) < 0.05
        tied += "not by chance" in check(plain(1_000, seed), lost).detail
    assert tied <= 5


def test_all_checks_of_a_log() -> None:
    log = plain(200)
    missing = [row._replace(unit=f"m{i}", reward=math.nan) for i, row in enumerate(plain(20, 1))]
    found = {each.name: each for each in check_log(log, missing)}
    assert list(found) == ["propensities", "independence", "missing_rewards", "rewards_of_decisions"]
    assert found["missing_rewards"].finding is AssumptionState.BROKEN
    assert "20 of 220 decisions" in found["missing_rewards"].detail
    assert found["rewards_of_decisions"].finding is AssumptionState.UNKNOWN
    assert "cannot be seen from a log" in found["rewards_of_decisions"].detail


def test_shared_rewards_are_counted_by_decision() -> None:
    rows = [row._replace(shared=f"e{i // 2}" if i < 7 else None) for i, row in enumerate(plain(40))]
    found = {each.name: each for each in check_log(rows)}["rewards_of_decisions"]
    assert found.detail.startswith("6 decisions share a reward")  # e3 has one decision only
    assert found.finding is AssumptionState.UNKNOWN
