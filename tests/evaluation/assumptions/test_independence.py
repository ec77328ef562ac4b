"""Units that depend on each other are found; independent ones, and units that are named, pass.

On sound logs the check may be wrong in 1 %: of 100 logs more than 5 happen with probability .0005 (binomial).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

from learnloop.core.protocols import Sample
from learnloop.evaluation.assumptions.assumption import AssumptionState
from learnloop.evaluation.assumptions.independence import MIN_PAIRS, check_independence, num_equal
from learnloop.evaluation.assumptions.log_table import LogTable
from tests.evaluation.assumptions.logs import GROUPS, START, drawn, make_log, rows_of

NUM_SOUND, MAX_FALSE = 100, 5


def finding_of(log: list[Sample]) -> AssumptionState:
    return check_independence(LogTable(log)).finding


def num_broken(make: Callable[[np.random.Generator], list[Sample]], number: int) -> int:
    return sum(finding_of(make(np.random.default_rng(seed))) is AssumptionState.BROKEN for seed in range(number))


def pairs(num_alike: int, number: int = 100, **changes: object) -> list[Sample]:
    """Returns pairs of decisions in one context without a time, actions at .5 each, ``num_alike`` pairs of one action.

    Those pairs have a and b in turns, so that each was taken about as often as it should be.
    """
    row = Sample("", {"k": 1}, ["a", "b"], None, "a", 0.5, 0.0)._replace(**changes)
    taken = [("ab"[pair % 2], "ab"[pair % 2] if pair < num_alike else "ba"[pair % 2]) for pair in range(number)]
    return [row._replace(unit=f"u{i}", action=action) for i, action in enumerate(itertools.chain(*taken))]


def apart(log: list[Sample]) -> list[Sample]:
    """Returns a log whose rows are taken for units of their own."""
    return [row._replace(unit=f"row{i}") for i, row in enumerate(log)]


# --- by hand ---


def test_alike_pairs_are_counted_against_unlike_ones() -> None:
    """A pair of one action has +1, another -1: of 100 pairs z = (alike - unlike) / 10, and 2.326 is the limit."""
    found = check_independence(LogTable(pairs(62)))
    assert found.finding is AssumptionState.BROKEN
    assert "units in equal contexts chose the same more often than their propensities say (2.4 standard" in found.detail
    assert "200 units are fewer than they seem" in found.detail
    assert finding_of(pairs(61)) is AssumptionState.HOLDS


def test_where_the_later_could_not_choose_alike_nothing_is_said() -> None:
    """100 more pairs, in which the first took b and the second was not offered it, change nothing."""
    closed = [
        row._replace(unit=f"m{i}", **({"action": "b"} if i % 2 == 0 else {"mask": [True, False], "propensity": 1.0}))
        for i, row in enumerate(pairs(0, context={"k": 2}))
    ]
    closed[1::2] = [row._replace(action="a") for row in closed[1::2]]
    assert finding_of([*pairs(62), *closed]) is AssumptionState.BROKEN
    assert finding_of([*pairs(61), *closed]) is AssumptionState.HOLDS


def test_choosing_differently_more_often_than_by_chance_is_no_fault() -> None:
    """It makes tests wider than they need be, and never a false proof."""
    assert finding_of(pairs(0)) is AssumptionState.HOLDS


def test_of_few_pairs_nothing_is_said() -> None:
    assert finding_of(pairs(MIN_PAIRS, MIN_PAIRS)) is AssumptionState.BROKEN
    assert finding_of(pairs(MIN_PAIRS - 1, MIN_PAIRS - 1)) is AssumptionState.HOLDS


def test_rows_of_one_unit_are_not_compared() -> None:
    log = [row._replace(unit=f"u{i // 2}") for i, row in enumerate(pairs(100))]
    assert finding_of(log) is AssumptionState.HOLDS


def test_without_a_log_nothing_is_known() -> None:
    assert finding_of([]) is AssumptionState.UNKNOWN
    assert finding_of(pairs(100, propensity=None)) is AssumptionState.UNKNOWN


def test_equal_rows_of_other_units_are_counted_and_shown() -> None:
    row = Sample("u", {"k": 1}, ["a", "b"], None, "a", 0.5, 1.0)
    rows = [
        row,
        row,  # of the same unit
        row._replace(unit="v"),  # equal
        row._replace(unit="w", reward=0.0),
        row._replace(unit="w", action="b"),
        row._replace(unit="w", context={"k": 2}),
        row._replace(unit="w", actions=["a", "b", "c"]),
        row._replace(unit="x", propensity=0.3, made_at=1.0),  # equal in what was asked, done and earned
    ]
    assert num_equal(rows) == 2
    assert (
        "4 units with 8 decisions, 2 of them equal to one of another unit" in check_independence(LogTable(rows)).detail
    )


# --- sound logs ---


def in_turns(rng: np.random.Generator) -> list[Sample]:
    """Half of the rows in equal contexts, propensities by context."""
    group = rng.integers(8, size=500)
    contexts = [{"group": GROUPS[each]} if each < 4 else {"x": float(rng.random())} for each in group]
    first = np.array([0.9, 0.7, 0.5, 0.2, 0.5, 0.5, 0.5, 0.5])[group]
    shares = np.stack([first, 0.8 * (1 - first), 0.2 * (1 - first)], axis=1)
    return make_log(shares, shares, rng, contexts=contexts)


def drifting(rng: np.random.Generator) -> list[Sample]:
    """One context and a policy that moves from one action to the other: neighbours are alike, and it is known why."""
    first = np.linspace(0.05, 0.95, 500)
    shares = np.stack([first, 1 - first], axis=1)
    return make_log(shares, shares, rng, contexts=[{}] * 500)


def learning(rng: np.random.Generator) -> list[Sample]:
    """Each propensity follows the draws before it."""
    shares, taken = [], []
    for _ in range(400):
        share = 0.5 if not taken else 0.85 - 0.7 * float(np.mean(taken[-10:]))
        shares.append([share, 1 - share])
        taken.append(int(rng.random() >= share))
    return make_log(np.array(shares), np.array(shares), rng, contexts=[{}] * 400, taken=np.array(taken))


def named_users(rng: np.random.Generator) -> list[Sample]:
    """150 users who keep the arm that was drawn for them, eight rows each, in one of four contexts."""
    first, group = np.repeat(drawn(rows_of([0.5, 0.5], 150), rng), 8), np.repeat(rng.integers(4, size=150), 8)
    contexts = [{"group": GROUPS[each]} for each in group]
    units = [f"user{row // 8}" for row in range(1_200)]
    half = rows_of([0.5, 0.5], 1_200)
    return make_log(half, half, rng, taken=first, contexts=contexts, units=units)


@pytest.mark.parametrize("make", [in_turns, drifting, learning, named_users])
def test_independent_units_are_rarely_called_dependent(make: Callable[[np.random.Generator], list[Sample]]) -> None:
    assert num_broken(make, NUM_SOUND) <= MAX_FALSE


def test_an_action_that_is_never_tried_somewhere_makes_nobody_dependent() -> None:
    """A quarter of the log has propensity 1, and in another context c is never tried beside a and b."""

    def make(rng: np.random.Generator) -> list[Sample]:
        group = rng.integers(4, size=800)
        shares = np.array([[1.0, 0.0, 0.0], [0.6, 0.4, 0.0], [0.3, 0.3, 0.4], [0.3, 0.3, 0.4]])[group]
        return make_log(shares, shares, rng, contexts=[{"group": GROUPS[each]} for each in group])

    assert num_broken(make, NUM_SOUND) <= MAX_FALSE


def test_a_policy_that_repeats_what_it_did_with_propensities_that_say_so_is_no_dependence() -> None:
    """Each draw takes the last action again in 90 %; its propensities know it, so units are independent given them."""

    def make(rng: np.random.Generator) -> list[Sample]:
        shares, taken = [[0.5, 0.5]], [0]
        for _ in range(499):
            shares.append([0.9, 0.1] if taken[-1] == 0 else [0.1, 0.9])
            taken.append(int(rng.random() >= shares[-1][0]))
        logged = np.array(shares)
        return make_log(logged, logged, rng, contexts=[{}] * 500, taken=np.array(taken))

    assert num_broken(make, NUM_SOUND) <= MAX_FALSE


# --- dependent ones ---


def test_users_who_keep_an_arm_are_found_in_equal_contexts() -> None:
    assert num_broken(lambda rng: apart(named_users(rng)), 30) == 30


def test_users_who_keep_an_arm_are_found_by_what_only_they_have_in_their_context() -> None:
    """Rows of 150 users, mixed in time: none follows another of its user, but their contexts are the user's own."""

    def make(rng: np.random.Generator) -> list[Sample]:
        log = apart(named_users(rng))
        rows = [log[at]._replace(context={"user": int(at) // 8}) for at in rng.permutation(len(log))]
        return [row._replace(made_at=START + i) for i, row in enumerate(rows)]

    assert num_broken(make, 30) == 30


def test_copies_under_two_ids_are_found_next_to_each_other() -> None:
    """One decision in five is written twice, with a context that no other has."""

    def make(rng: np.random.Generator) -> list[Sample]:
        log = make_log(rows_of([0.5, 0.3, 0.2], 800), rows_of([0.5, 0.3, 0.2], 800), rng)
        copies = [row._replace(made_at=(row.made_at or 0) + 0.01) for row in log[::5]]
        return apart([*log, *copies])

    assert num_broken(make, 30) == 30


def test_copies_are_found_by_their_time_where_contexts_differ() -> None:
    """A retry that was chosen anew with the same random numbers, and has another number of seconds in its context."""

    def make(rng: np.random.Generator) -> list[Sample]:
        log = make_log(rows_of([0.5, 0.5], 800), rows_of([0.5, 0.5], 800), rng)
        copies = [row._replace(made_at=(row.made_at or 0) + 0.01, context={"x": float(rng.random())}) for row in log]
        return apart([*log, *copies[::5]])

    assert num_broken(make, 30) >= 29


def test_dependence_in_time_is_not_looked_for_without_times() -> None:
    log = make_log(rows_of([0.5, 0.5], 800), rows_of([0.5, 0.5], 800), np.random.default_rng(0))
    doubled = apart([log[row // 2]._replace(context={"n": row}) for row in range(1_600)])
    timed = [row._replace(made_at=START + i) for i, row in enumerate(doubled)]
    assert finding_of(timed) is AssumptionState.BROKEN
    assert finding_of([row._replace(made_at=None) for row in doubled]) is AssumptionState.HOLDS


def test_a_user_who_keeps_an_arm_is_found_whatever_else_a_context_holds() -> None:
    """100 users of ten decisions, mixed in time; the context has their name and a number that never comes again."""
    rng = np.random.default_rng(0)
    arms = rng.integers(2, size=100)
    for kept in (True, False):
        log = []
        for row, user in enumerate(rng.permutation(np.repeat(np.arange(100), 10)).tolist()):
            at = int(arms[user] if kept else rng.integers(2))
            context = {"user": f"user{user}", "x": float(rng.normal())}
            log.append(Sample(f"u{row}", context, ["a", "b"], None, "ab"[at], 0.5, 0.0, made_at=float(row)))
        found = check_independence(LogTable(log))
        assert found.finding is (AssumptionState.BROKEN if kept else AssumptionState.HOLDS), found.detail
        assert not kept or "units with the same user" in found.detail
