"""Right propensities pass, wrong ones are found: by time, by context, by group, and where units have many rows.

On sound logs the check may be wrong in 1 %: of 100 logs more than 5 happen with probability .0005 (binomial).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist

import numpy as np
import pytest

from learnloop.core.arrays import F64
from learnloop.core.protocols import Sample
from learnloop.evaluation.assumptions.assumption import Assumption, AssumptionState
from learnloop.evaluation.assumptions.log_table import LogTable
from learnloop.evaluation.assumptions.propensities import check_propensities
from tests.evaluation.assumptions.logs import GROUPS, drawn, make_log, rows_of

NUM_SOUND, MAX_FALSE = 100, 5
NUM_WRONG, MIN_FOUND = 20, 19


def check(log: list[Sample]) -> Assumption:
    return check_propensities(LogTable(log))


def num_broken(make: Callable[[np.random.Generator], list[Sample]], number: int) -> int:
    return sum(check(make(np.random.default_rng(seed))).finding is AssumptionState.BROKEN for seed in range(number))


def plain(num_first: int, size: int = 100, **changes: object) -> list[Sample]:
    """Returns a log without contexts or times: actions a and b at .5 each, of which a was taken ``num_first`` times."""
    row = Sample("", {}, ["a", "b"], None, "a", 0.5, 0.0)._replace(**changes)
    return [row._replace(unit=f"u{i}", action="a" if i < num_first else "b") for i in range(size)]


# --- by hand ---


def test_the_p_value_is_that_of_the_formula() -> None:
    """80 of 100: T = 80 * (2 - 1) - 20 = 60, V = 100 and each term is at most 1."""
    found = check(plain(80))
    p_value = 1 - NormalDist().cdf(60 / math.sqrt(100 + 60 / 3))
    assert found.finding is AssumptionState.BROKEN
    assert f"action 'a' was taken 1.6 times as often as its propensities say (p = {p_value:.2g})" in found.detail


def test_the_limit_is_shared_by_all_comparisons() -> None:
    """Two actions share .005: z must be 2.807. 65 of 100 give 30 / sqrt(110) = 2.86, and 64 give 28 / sqrt(109.3)."""
    assert check(plain(65)).finding is AssumptionState.BROKEN
    assert check(plain(64)).finding is AssumptionState.HOLDS
    assert check(plain(35)).finding is AssumptionState.BROKEN  # then b was taken too often
    assert check(plain(36)).finding is AssumptionState.HOLDS


def test_rows_of_one_unit_are_one_piece_of_evidence() -> None:
    """50 pairs of equal rows, 33 of a: T = 32, V = 50 * 2^2 = 200, and z = 32 / sqrt(200 + 2 * 32 / 3) = 2.15."""
    pairs = [row._replace(unit=f"u{i // 2}") for i, row in enumerate(plain(66))]
    assert check(plain(66)).finding is AssumptionState.BROKEN
    assert check(pairs).finding is AssumptionState.HOLDS


def test_where_an_action_was_not_offered_it_was_not_due() -> None:
    """100 more rows without b, with propensity 1, take nothing from the 65 of 100 in which b was taken."""
    closed = [row._replace(propensity=1.0, mask=[True, False], unit=f"m{i}") for i, row in enumerate(plain(100))]
    assert check([*plain(35), *closed]).finding is AssumptionState.BROKEN
    assert check([*plain(36), *closed]).finding is AssumptionState.HOLDS


@pytest.mark.parametrize("propensity", [1.0, None, 0.0, math.nan])
def test_of_a_log_that_tried_nothing_nothing_is_known(propensity: float | None) -> None:
    assert check(plain(100, propensity=propensity)).finding is AssumptionState.UNKNOWN
    assert check([]).finding is AssumptionState.UNKNOWN


# --- sound logs ---


def halves(rng: np.random.Generator) -> list[Sample]:
    return make_log(rows_of([0.5, 0.5], 500), rows_of([0.5, 0.5], 500), rng)


def rare_actions(rng: np.random.Generator) -> list[Sample]:
    return make_log(rows_of([0.93, 0.05, 0.02], 1_000), rows_of([0.93, 0.05, 0.02], 1_000), rng)


def by_context(rng: np.random.Generator) -> list[Sample]:
    """By a number and a group, with propensities from .02 to .98."""
    x, group = rng.random(800), rng.integers(4, size=800)
    first = 1 / (1 + np.exp(-(6 * x - 3 + 0.3 * group)))
    shares = np.stack([first, 1 - first], axis=1)
    contexts = [{"x": float(x[i]), "group": GROUPS[group[i]]} for i in range(x.size)]
    return make_log(shares, shares, rng, contexts=contexts)


def adaptive(rng: np.random.Generator) -> list[Sample]:
    """Each draw depends on all draws before it."""
    taken, shares, share = [], [], 0.5
    for _ in range(500):
        shares.append([share, 1 - share])
        taken.append(int(rng.random() >= share))
        share = min(max(share + (0.02 if taken[-1] == 0 else -0.02), 0.1), 0.9)
    logged = np.array(shares)
    return make_log(logged, logged, rng, taken=np.array(taken))


def users_with_a_habit(rng: np.random.Generator) -> list[Sample]:
    """120 users of one group each, ten rows after each other; each keeps the action that was drawn first."""
    first = np.repeat(drawn(rows_of([0.4, 0.6], 120), rng), 10)
    groups = np.repeat(rng.integers(4, size=120), 10)
    contexts = [{"group": GROUPS[group]} for group in groups]
    logged = rows_of([0.4, 0.6], 1_200)
    units = [f"user{row // 10}" for row in range(1_200)]
    return make_log(logged, logged, rng, taken=first, contexts=contexts, units=units)


@pytest.mark.parametrize("make", [halves, rare_actions, by_context, adaptive, users_with_a_habit])
def test_right_propensities_are_rarely_called_wrong(make: Callable[[np.random.Generator], list[Sample]]) -> None:
    assert num_broken(make, NUM_SOUND) <= MAX_FALSE


def test_rows_of_a_user_that_are_taken_for_units_are_found_out() -> None:
    """What ``users_with_a_habit`` would be without its units: the check is wide there because it knows them."""

    def apart(rng: np.random.Generator) -> list[Sample]:
        return [row._replace(unit=f"u{i}") for i, row in enumerate(users_with_a_habit(rng))]

    assert num_broken(apart, 20) >= 15


def test_an_action_that_was_never_tried_somewhere_is_no_wrong_propensity() -> None:
    """Propensities know it: there the other action has 1. That is a matter of support."""

    def make(rng: np.random.Generator) -> list[Sample]:
        grey = rng.integers(4, size=1_000) == 3
        shares = np.where(grey[:, None], [1.0, 0.0], [0.6, 0.4])
        contexts = [{"group": "grey" if each else "red"} for each in grey]
        return make_log(shares, shares, rng, contexts=contexts)

    assert num_broken(make, NUM_SOUND) <= MAX_FALSE


# --- wrong ones, all but the first with right marginals ---


def shares_of(first: F64) -> F64:
    return np.stack([first, 1 - first], axis=1)


def wrong_share(rng: np.random.Generator) -> list[Sample]:
    return make_log(rows_of([0.6, 0.4], 1_000), rows_of([0.5, 0.5], 1_000), rng)


def wrong_by_half(rng: np.random.Generator) -> list[Sample]:
    true = shares_of(np.repeat([0.65, 0.35], 500))
    return make_log(true, rows_of([0.5, 0.5], 1_000), rng)


def wrong_by_hour(rng: np.random.Generator) -> list[Sample]:
    """In turns, over 32 stretches: halves, quarters and eighths of the log are right."""
    true = shares_of(np.repeat(np.tile([0.75, 0.25], 16), 50))
    return make_log(true, rows_of([0.5, 0.5], 1_600), rng)


def wrong_by_group(rng: np.random.Generator) -> list[Sample]:
    group = rng.integers(4, size=1_000)
    true = shares_of(np.array([0.7, 0.3, 0.6, 0.4])[group])
    contexts = [{"x": float(rng.random()), "group": GROUPS[each]} for each in group]
    return make_log(true, rows_of([0.5, 0.5], 1_000), rng, contexts=contexts)


def wrong_by_a_number(rng: np.random.Generator) -> list[Sample]:
    """Where x is in its lowest tenth .9 instead of .5; a little less elsewhere."""
    x = rng.random(1_500)
    true = shares_of(np.where(x < 0.1, 0.9, 0.5 - 0.4 / 9))
    return make_log(true, rows_of([0.5, 0.5], 1_500), rng, contexts=[{"x": float(each)} for each in x])


def wrong_by_a_nested_feature(rng: np.random.Generator) -> list[Sample]:
    group = rng.integers(2, size=1_000)
    true = shares_of(np.array([0.65, 0.35])[group])
    contexts = [{"user": {"is_new": bool(each)}} for each in group]
    return make_log(true, rows_of([0.5, 0.5], 1_000), rng, contexts=contexts)


def wrong_a_little_in_many_places(rng: np.random.Generator) -> list[Sample]:
    """30 cities of about 130 rows, each off by .07 either way: no city alone is 4 standard errors off."""
    city = rng.integers(30, size=4_000)
    true = shares_of(0.5 + 0.07 * (-1.0) ** city)
    contexts = [{"city": f"c{each}"} for each in city]
    return make_log(true, rows_of([0.5, 0.5], 4_000), rng, contexts=contexts)


def wrong_with_many_rows_of_each_unit(rng: np.random.Generator) -> list[Sample]:
    """200 users with 5 rows and one group each."""
    group = np.repeat(rng.integers(2, size=200), 5)
    true = shares_of(np.array([0.65, 0.35])[group])
    contexts = [{"group": GROUPS[each]} for each in group]
    units = [f"user{row // 5}" for row in range(1_000)]
    return make_log(true, rows_of([0.5, 0.5], 1_000), rng, contexts=contexts, units=units)


@pytest.mark.parametrize(
    ("make", "where"),
    [
        (wrong_share, "times as often as"),
        (wrong_by_half, "where time is part"),
        (wrong_by_hour, "where time is part"),
        (wrong_by_group, "where group is '"),
        (wrong_by_a_number, "where x is below"),
        (wrong_by_a_nested_feature, "where user.is_new is"),
        (wrong_a_little_in_many_places, "over slices of city"),
        (wrong_with_many_rows_of_each_unit, "where group is '"),
    ],
)
def test_wrong_propensities_are_found(make: Callable[[np.random.Generator], list[Sample]], where: str) -> None:
    found = [check(make(np.random.default_rng(1_000 + seed))) for seed in range(NUM_WRONG)]
    broken = [each for each in found if each.finding is AssumptionState.BROKEN]
    assert len(broken) >= MIN_FOUND
    assert sum(where in each.detail for each in broken) >= 0.8 * len(broken)
    assert all("the share of decisions in which an action was seen is no propensity" in each.detail for each in broken)


def test_a_log_with_right_marginals_has_right_mean_weights() -> None:
    """Why a test of the mean weight alone is none: over the whole log each action is taken as often as it should."""
    log = wrong_by_half(np.random.default_rng(1_000))
    assert np.mean([each.action == "a" for each in log]) == pytest.approx(0.5, abs=0.04)
    whole = [each._replace(made_at=None, context={}) for each in log]
    assert check(whole).finding is AssumptionState.HOLDS
