"""learnloop.rewards.sharing.shapley: against brute force over permutations, its axioms, and its error bounds."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learnloop.core.errors import RewardError, UsageError
from learnloop.rewards.sharing.shapley import Game, exact_shapley, leave_one_out, sampled_shapley

NAMES = "abcdefghijkl"


class Table:
    """The worth of each coalition, drawn at random."""

    def __init__(self, num_players: int, seed: int, low: float = -3.0, high: float = 5.0) -> None:
        self.players = list(NAMES[:num_players])
        rng = np.random.default_rng(seed)
        self.worths = {
            frozenset(coalition): float(rng.uniform(low, high))
            for size in range(num_players + 1)
            for coalition in itertools.combinations(self.players, size)
        }

    def __call__(self, coalition: frozenset[str]) -> float:
        return self.worths[coalition]

    def game(self) -> Game:
        return Game(self.players, self)


tables = st.builds(Table, st.integers(1, 6), st.integers(0, 2**32))


def by_permutations(players: list[str], value: Any) -> list[float]:
    """Returns the Shapley values by their definition: the mean gain over all orders."""
    gains: dict[str, list[float]] = {player: [] for player in players}
    for order in itertools.permutations(players):
        for place, player in enumerate(order):
            before = frozenset(order[:place])
            gains[player].append(value(before | {player}) - value(before))
    return [math.fsum(gains[player]) / math.factorial(len(players)) for player in players]


@settings(max_examples=60, deadline=None)
@given(table=tables)
def test_exact_values_are_those_of_all_orders(table: Table) -> None:
    game = table.game()
    found = exact_shapley(game)
    assert found == pytest.approx(by_permutations(table.players, table), abs=1e-12)
    everybody = frozenset(table.players)
    assert math.fsum(found) == pytest.approx(table(everybody) - table(frozenset()), abs=1e-12)  # efficiency
    assert game.num_evaluations == 2 ** len(table.players)


@settings(max_examples=60, deadline=None)
@given(table=tables, dummy_worth=st.floats(-2, 2))
def test_a_dummy_gets_exactly_nothing(table: Table, dummy_worth: float) -> None:
    """B6: who changes nothing is credited with 0, wherever he stands; who only adds his own worth gets that."""
    players = [*table.players[:1], "dummy", *table.players[1:]]
    without = Game(players, lambda coalition: table(coalition - {"dummy"}))
    assert exact_shapley(without)[1] == 0.0
    assert leave_one_out(without)[1] == 0.0
    sampled = sampled_shapley(without, value_range=(-3, 5), num_permutations=4, seed=1, delta=0.1)
    assert sampled.values[1] == 0.0
    rest = [value for place, value in enumerate(exact_shapley(without)) if place != 1]
    assert rest == pytest.approx(exact_shapley(table.game()), abs=1e-12)
    adding = Game(players, lambda coalition: table(coalition - {"dummy"}) + dummy_worth * ("dummy" in coalition))
    assert exact_shapley(adding)[1] == pytest.approx(dummy_worth, abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(table=tables, twin=st.integers(0, 5))
def test_twins_get_the_same(table: Table, twin: int) -> None:
    original = table.players[twin % len(table.players)]
    worths = dict(table.worths)

    def value(coalition: frozenset[str]) -> float:
        number = len(coalition & {original, "twin"})
        rest = coalition - {original, "twin"}
        return worths[rest if number == 0 else rest | {original}] + (number == 2) * 0.375

    game = Game([*table.players, "twin"], value)
    for values in (exact_shapley(game), leave_one_out(game)):
        assert values[table.players.index(original)] == values[-1]


@settings(max_examples=60, deadline=None)
@given(number=st.integers(1, 5), seeds=st.tuples(*[st.integers(0, 2**32)] * 2), factor=st.floats(-3, 3))
def test_values_of_a_sum_are_the_sums_of_values(number: int, seeds: tuple[int, int], factor: float) -> None:
    one, two = (Table(number, seed) for seed in seeds)
    both = Game(one.players, lambda coalition: one(coalition) + factor * two(coalition))
    wanted = [x + factor * y for x, y in zip(exact_shapley(one.game()), exact_shapley(two.game()), strict=True)]
    assert exact_shapley(both) == pytest.approx(wanted, abs=1e-12)


def test_a_known_game() -> None:
    """The glove game: one left glove, two right ones; a pair is worth 1 (Shapley values 2/3, 1/6, 1/6)."""
    game = Game(["left", "r1", "r2"], lambda each: float("left" in each and len(each) > 1))
    assert exact_shapley(game) == pytest.approx([2 / 3, 1 / 6, 1 / 6])
    assert leave_one_out(game) == [1.0, 0.0, 0.0]  # nobody misses one of two right gloves


def twelve(coalition: frozenset[str]) -> float:
    """A majority game with weights: worth 1 where at least half of the weight is there; the last one has none."""
    weights = {name: 11 - place for place, name in enumerate(NAMES)}
    return float(2 * sum(weights[name] for name in coalition) >= sum(weights.values()))


def test_estimates_are_within_their_bounds() -> None:
    truth = exact_shapley(Game(list(NAMES), twelve))
    off = []
    for seed in range(20):
        game = Game(list(NAMES), twelve, (0.0, 1.0))
        found = sampled_shapley(game, value_range=(0.0, 1.0), num_permutations=400, seed=seed, delta=0.05)
        errors = [abs(x - y) for x, y in zip(found.values, truth, strict=True)]
        assert math.fsum(found.values) == pytest.approx(1.0, abs=1e-12)  # each order telescopes
        assert found.values[-1] == 0.0
        assert game.num_evaluations <= 400 * len(NAMES)
        off.append(any(error > bound for error, bound in zip(errors, found.error_bounds, strict=True)))
    assert sum(off) <= 1
    assert max(found.error_bounds) < 0.5
    assert found.error_bounds[-1] < 0.3, "nothing varies, so the empirical Bernstein bound is the smaller one"


def test_the_bounds_are_the_formulas() -> None:
    """Two gains alternate, so the variance is known: n = 1 player, worth 0 or 1 by turns."""
    values = itertools.cycle([0.0, 1.0, 0.0, 0.0])

    class Turns(Game):
        def worth(self, coalition: frozenset[str]) -> float:
            return next(values)

    found = sampled_shapley(
        Turns(["a"], lambda _: 0.0), value_range=(0.0, 1.0), num_permutations=2_000, seed=0, delta=0.1
    )
    assert found.values == [0.5]  # each pair: (1 - 0 and 0 - 0) / 2
    logarithm = math.log(2 * 2 * 2 / 0.1)  # two tails, two bounds, both within 0.1; and Bernstein's own 2
    bernstein = 7 * 2 * logarithm / (3 * 999)
    assert found.error_bounds == pytest.approx([min(bernstein, 2 * math.sqrt(math.log(40) / 2000))])


def test_more_orders_lower_the_error_and_seeds_repeat() -> None:
    def estimate(number: int, seed: int = 0) -> Any:
        game = Game(list(NAMES), twelve)
        return sampled_shapley(game, value_range=(0, 1), num_permutations=number, seed=seed, delta=0.05)

    few, many = estimate(40), estimate(2_000)
    assert max(many.error_bounds) < max(few.error_bounds) / 4
    truth = exact_shapley(Game(list(NAMES), twelve))
    assert np.abs(np.subtract(many.values, truth)).max() < np.abs(np.subtract(few.values, truth)).max()
    assert estimate(40) == few
    assert estimate(40, seed=1) != few


def test_a_worth_that_is_not_known_is_never_zero() -> None:
    """F4.8 and "missing is not zero": the coalition is named."""

    def value(coalition: frozenset[str]) -> float | None:
        return None if coalition == {"b", "a"} else 1.0

    for method in (exact_shapley, leave_one_out):
        with pytest.raises(RewardError, match=r"the coalition \{'a', 'b'\} is not known"):
            method(Game(["a", "b", "c"], value))
    for bad in (math.nan, math.inf, "1", True, 1e101):
        with pytest.raises(RewardError, match=r"the coalition \{.*\} is .*finite"):
            exact_shapley(Game(["a"], lambda _, bad=bad: bad))  # type: ignore[misc]
    with pytest.raises(RewardError, match=r"is 1\.0, outside of value_range \(0\.0, 0\.5\)"):
        exact_shapley(Game(["a"], lambda _: 1.0, (0.0, 0.5)))


def test_what_a_value_raises_names_the_coalition() -> None:
    def value(coalition: frozenset[str]) -> float:
        raise OSError("the model is down")

    with pytest.raises(OSError, match="the model is down") as caught:
        leave_one_out(Game(["a"], value))
    assert caught.value.__notes__ == ["while the worth of the coalition {'a'} was asked for"]


def test_players() -> None:
    assert exact_shapley(Game([], lambda _: 1.0)) == []
    with pytest.raises(UsageError, match="each may be there once"):
        Game(["a", "a"], lambda _: 1.0)
    with pytest.raises(UsageError, match="17 players"):
        exact_shapley(Game([str(number) for number in range(17)], lambda _: 1.0))
