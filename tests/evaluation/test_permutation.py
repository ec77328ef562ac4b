"""Tests of mean differences and Holm against brute force and hand computation."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop.core.errors import UsageError
from learnloop.evaluation.permutation import (
    holm,
    rare_loss_p_value,
    sign_flip_p_value,
    two_sample_p_value,
    units_needed,
)

small_integers = st.lists(st.integers(-5, 5), min_size=1, max_size=9)


@given(small_integers)
def test_exact_p_value_is_the_share_of_sign_patterns_with_at_least_the_observed_sum(values: list[int]) -> None:
    sums = [
        sum(s * v for s, v in zip(signs, values, strict=True))
        for signs in itertools.product((1, -1), repeat=len(values))
    ]
    expected = Fraction(sum(total >= sum(values) for total in sums), len(sums))
    # Tenths do not add up exactly in binary: ties have to be seen all the same.
    assert sign_flip_p_value([value / 10 for value in values]) == float(expected)


def test_smallest_exact_p_value_is_one_pattern_in_all() -> None:
    assert sign_flip_p_value([1.0] * 5) == 1 / 32
    assert sign_flip_p_value([-1.0] * 5) == 1.0
    assert sign_flip_p_value([0.0] * 5) == 1.0


def test_monte_carlo_is_near_the_exact_value() -> None:
    rng = np.random.default_rng(3)
    for shift in (0.0, 0.2, 0.4):
        values = rng.normal(shift, 1, size=16)
        flips = np.array(list(itertools.product((1, -1), repeat=16)))
        exact = float(np.mean(flips @ values >= values.sum() - 1e-12))
        drawn = sign_flip_p_value(values, seed=1, num_permutations=20_000)
        assert abs(drawn - exact) < 4 * math.sqrt(exact * (1 - exact) / 20_000) + 1 / 20_000


def test_monte_carlo_is_never_zero_repeats_and_depends_on_the_seed() -> None:
    assert sign_flip_p_value([1.0] * 100, num_permutations=99) == 1 / 100
    values = np.random.default_rng(0).normal(size=50)
    assert sign_flip_p_value(values, seed=5) == sign_flip_p_value(values, seed=5)
    assert len({sign_flip_p_value(values, seed=seed) for seed in range(5)}) > 1


def test_chunks_cover_all_permutations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("learnloop.evaluation.permutation._CHUNK_CELLS", 70)
    assert sign_flip_p_value([0.0] * 30, num_permutations=101) == 1.0
    assert sign_flip_p_value([1.0] * 30, num_permutations=101) == 1 / 102


def test_p_values_are_uniform_under_the_null() -> None:
    rng = np.random.default_rng(8)
    p_values = [sign_flip_p_value(rng.normal(size=20), seed=i, num_permutations=999) for i in range(600)]
    for level in (0.05, 0.2, 0.5):
        assert abs(np.mean(np.array(p_values) <= level) - level) < 4 * math.sqrt(level * (1 - level) / 600)


@given(small_integers, st.integers(1, 100))
def test_scaling_changes_nothing(values: list[int], factor: int) -> None:
    assert sign_flip_p_value(values) == sign_flip_p_value([value * factor for value in values])


@given(st.permutations([1.0, 2.0, -3.0, 0.5, 0.25]))
def test_order_of_units_changes_nothing(values: list[float]) -> None:
    assert sign_flip_p_value(values) == sign_flip_p_value(sorted(values))


@pytest.mark.parametrize("values", [[], [[1.0]], [math.nan, 1.0], [math.inf]])
def test_bad_differences_are_refused(values: list[float]) -> None:
    with pytest.raises(UsageError):
        sign_flip_p_value(values)


def test_no_permutations_are_refused() -> None:
    with pytest.raises(UsageError, match="num_permutations is 0"):
        sign_flip_p_value([1.0], num_permutations=0)


def test_two_sample_is_near_the_share_of_all_splits() -> None:
    first, second = [0.3, 0.9, 0.4], [0.1, 0.2, 0.35, 0.3]
    splits = [sum(split) for split in itertools.combinations([*first, *second], 3)]
    exact = float(np.mean(np.array(splits) >= sum(first) - 1e-12))
    drawn = two_sample_p_value(first, second, seed=2, num_permutations=20_000)
    assert abs(drawn - exact) < 4 * math.sqrt(exact * (1 - exact) / 20_000)
    assert two_sample_p_value([0.1] * 3, [0.1] * 9) == 1.0
    assert two_sample_p_value([1.0] * 10, [0.0] * 20, num_permutations=99) == 1 / 100


def test_holm_against_a_hand_computed_example() -> None:
    # Sorted .005 .01 .03 .04, times 4 3 2 1: .02 .03 .06 .04, made monotone: .02 .03 .06 .06.
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_lies_between_no_adjustment_and_bonferroni(p_values: list[float]) -> None:
    adjusted = holm(p_values)
    for p_value, value in zip(p_values, adjusted, strict=True):
        assert p_value <= value <= min(1.0, p_value * len(p_values)) + 1e-12 or value == max(adjusted)
    order = np.argsort(p_values, kind="stable")
    assert np.all(np.diff(np.array(adjusted)[order]) >= 0)
    assert adjusted[order[0]] == pytest.approx(min(1.0, min(p_values) * len(p_values)))


@pytest.mark.parametrize("p_values", [[1.1], [-0.1], [math.nan]])
def test_holm_refuses_what_is_no_p_value(p_values: list[float]) -> None:
    with pytest.raises(UsageError, match="between 0 and 1"):
        holm(p_values)


# --- losses that are too rare to be seen ---


def binomial_tail(successes: int, number: int, share: float) -> float:
    """Returns P(at most ``successes`` of ``number``)."""
    return sum(math.comb(number, k) * share**k * (1 - share) ** (number - k) for k in range(successes + 1))


@pytest.mark.parametrize(("losses", "number", "gain"), [(0, 100, 0.01), (0, 300, 0.01), (1, 60, 0.1), (4, 200, 0.05)])
def test_with_two_values_it_is_the_binomial_test(losses: int, number: int, gain: float) -> None:
    """A loss of 1 against gains of ``gain``: the mean is 0 where a share gain / (1 + gain) of units loses."""
    values = [gain] * (number - losses) + [-1.0] * losses
    exact = binomial_tail(losses, number, gain / (1 + gain))
    drawn = rare_loss_p_value(values, 1.0, seed=1, num_permutations=40_000)
    assert abs(drawn - exact) < 4 * math.sqrt(exact * (1 - exact) / 40_000) + 1 / 40_000


@pytest.mark.parametrize("number", [20, 60, 100, 400])
@pytest.mark.parametrize("gain", [0.005, 0.02, 0.1, 1.0])
def test_a_rare_loss_does_not_fool_it_and_fools_sign_flips(number: int, gain: float) -> None:
    """The mean is exactly 0, so each sample that a test calls better is an error, and errors may be 5 %."""
    share = gain / (1 + gain)
    wrong = {"rare": 0.0, "flips": 0.0}
    for losses in range(number + 1):
        chance = binomial_tail(losses, number, share) - (binomial_tail(losses - 1, number, share) if losses else 0.0)
        if chance < 1e-4:
            continue
        values = [gain] * (number - losses) + [-1.0] * losses
        wrong["rare"] += chance * (rare_loss_p_value(values, 1.0, num_permutations=2_000) <= 0.05)
        wrong["flips"] += chance * (sign_flip_p_value(values, num_permutations=2_000) <= 0.05)
    assert wrong["rare"] <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / 2_000)  # so far off are the draws
    if gain < 0.05 and number <= 100:
        assert wrong["flips"] > 0.12


def test_it_is_as_sharp_as_sign_flips_where_nothing_can_be_lost() -> None:
    values = np.random.default_rng(0).normal(0.3, 1.0, size=200)
    assert rare_loss_p_value(values, 0.0) == pytest.approx(sign_flip_p_value(values), abs=0.002)
    assert rare_loss_p_value([0.5] * 30, 0.0) == 1 / 10_001
    assert rare_loss_p_value([0.0] * 30, 1.0) == rare_loss_p_value([-1.0] * 30, 1.0) == 1.0


def test_units_without_a_difference_add_nothing_and_worse_losses_make_it_less_sure() -> None:
    values = [0.1] * 40 + [-0.2] * 3
    assert rare_loss_p_value(values + [0.0] * 50, 1.0) == rare_loss_p_value(values, 1.0)
    rising = [rare_loss_p_value(values, loss, seed=2) for loss in (0.2, 0.5, 1.0, 2.0)]
    assert rising == sorted(rising)
    assert len(set(rising)) == 4


@pytest.mark.parametrize("loss", [-0.1, math.nan, math.inf])
def test_a_loss_is_a_finite_number(loss: float) -> None:
    with pytest.raises(UsageError, match=f"worst_loss is {loss}"):
        rare_loss_p_value([1.0], loss)


@pytest.mark.parametrize(("spread", "loss"), [(0.0, 1.0), (0.3, 1.0), (0.3, 0.0)])
def test_so_many_units_as_are_said_to_be_needed_are_enough(spread: float, loss: float) -> None:
    values = np.concatenate([np.full(25, 0.05 - spread), np.full(25, 0.05 + spread)])
    needed = units_needed(values, loss, 0.05)
    if spread == 0:
        assert needed == pytest.approx(-math.log(0.05) * loss / 0.05)
    enough, too_few = (np.resize(values.reshape(2, -1).T.ravel(), 2 * int(share * needed / 2)) for share in (1.1, 0.7))
    assert rare_loss_p_value(enough, loss) <= 0.05 < rare_loss_p_value(too_few, loss)
    assert units_needed([-1.0, 0.5], 1.0, 0.05) == math.inf
