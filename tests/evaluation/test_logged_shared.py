"""Logs whose decisions share rewards, lack rewards or stand for others, against enumeration of all that can happen."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from learnloop.core.arrays import F64
from learnloop.core.protocols import Context, Policy, Sample
from learnloop.evaluation.context_model import ContextModel
from learnloop.evaluation.logged import LoggedDecisions
from learnloop.evaluation.policies import FixedPolicy, UniformPolicy

NAMES = ["a", "b"]
LOGGED = {0: 0.7, 1: 0.4, 2: 0.9}
"""The probability with which the log took a, by the feature ``at``."""
TARGET = {0: 0.2, 1: 0.5, 2: 0.3}
REWARDS = {"aa": 1.0, "ab": -2.0, "ba": 5.0, "bb": 0.5}


class ByPlace:
    """Takes a with a probability that depends on the feature ``at``."""

    def __init__(self, shares: dict[int, float]) -> None:
        self.shares = shares

    def probabilities(self, context: Context, actions: Sequence[str], mask: object = None) -> F64:
        share = self.shares[int(context["at"])]
        return np.array([share, 1 - share])


def probability(shares: dict[int, float], at: int, action: str) -> float:
    return shares[at] if action == "a" else 1 - shares[at]


def episode(first: str, second: str, unit: str = "e", shared: str | None = "e") -> list[Sample]:
    """Returns two decisions that share a reward; the context of the second depends on what the first was."""
    places = (0, 1 if first == "a" else 2)
    return [
        Sample(
            unit=unit, context={"at": at}, actions=NAMES, mask=None, action=action,
            propensity=probability(LOGGED, at, action), reward=REWARDS[first + second], shared=shared,
        )
        for at, action in zip(places, (first, second), strict=True)
    ]  # fmt: skip


def chance(shares: dict[int, float], first: str, second: str) -> float:
    return probability(shares, 0, first) * probability(shares, 1 if first == "a" else 2, second)


def expectation(model: float | ContextModel, shared: str | None = "e") -> float:
    """Returns the mean of the estimate over all that the log may have come to, each with its probability."""
    outcomes = itertools.product(NAMES, repeat=2)
    return sum(
        chance(LOGGED, *taken)
        * float(LoggedDecisions(episode(*taken, shared=shared), model).rewards(ByPlace(TARGET))[0])
        for taken in outcomes
    )


TRUTH = sum(chance(TARGET, first, second) * REWARDS[first + second] for first in NAMES for second in NAMES)


def model_by_place() -> ContextModel:
    """Returns a model that depends on the place, and so on what the first decision was."""
    samples = [
        Sample(f"t{i}", {"at": i % 3}, NAMES, None, "a", 0.5, float(4 * (i % 3))) for i in range(300)
    ]  # fmt: skip
    model = ContextModel(samples)
    assert len(set(np.round(model.predict(samples[:3]), 3).tolist())) == 3
    return model


@pytest.mark.parametrize("model", [0.0, 3.0, -20.0, None])
def test_the_mean_over_all_outcomes_is_what_a_policy_earns_that_makes_both_decisions(model: float | None) -> None:
    """Unbiased for any constant, and for a model of contexts that is asked before anything was chosen."""
    assert expectation(model_by_place() if model is None else model) == pytest.approx(TRUTH, abs=1e-12)


def test_as_if_each_decision_had_a_reward_of_its_own_it_is_something_else() -> None:
    """That is the fault: each decision would be changed alone, with the other as it was logged."""
    assert abs(expectation(0.0, shared=None) - TRUTH) > 0.1


def test_always_b_in_a_log_where_differing_pays_is_worth_nothing() -> None:
    """Two choices, reward 1 if they differ, a logged with .7. One by one, b seems worth .7; both b earn 0."""
    found, wrong = 0.0, 0.0
    for taken in itertools.product(NAMES, repeat=2):
        share = np.prod([0.7 if action == "a" else 0.3 for action in taken])
        row = Sample("e", {}, NAMES, None, "a", 0.7, float(taken[0] != taken[1]), shared="e")
        rows = [row._replace(action=action, propensity=0.7 if action == "a" else 0.3) for action in taken]
        found += share * LoggedDecisions(rows, 0.5).rewards(FixedPolicy("b"))[0]
        alone = [each._replace(shared=None) for each in rows]
        wrong += share * LoggedDecisions(alone, 0.5).rewards(FixedPolicy("b"))[0]
    assert found == pytest.approx(0, abs=1e-12)
    assert wrong == pytest.approx(0.7)


def test_three_decisions_of_two_rewards_in_one_unit() -> None:
    """By hand: a session with one rewarded pair (weights 2 * 4 = 8) and one single decision (weight 2), model 1.

    Pair: 1 + 8 (3 - 1) = 17, for both of its decisions; single: 1 + 2 (0 - 1) = -1; their mean is 11.
    """
    row = Sample("s", {}, NAMES, None, "a", 0.5, 3.0, shared="pair")
    rows = [row, row._replace(propensity=0.25), row._replace(shared=None, reward=0.0)]
    held_out = LoggedDecisions(rows, 1.0)
    assert held_out.num_shared == 2
    assert held_out.rewards(FixedPolicy("a")).tolist() == [pytest.approx((17 + 17 - 1) / 3)]
    assert LoggedDecisions(rows[2:], 1.0).num_shared == 0
    assert LoggedDecisions(rows[1:], 1.0).num_shared == 0  # a name that only one has


def test_overlap_counts_what_shares_a_reward_once_with_its_product() -> None:
    """By hand: of four pairs at .5 and .5 one is all a (weight 4), three are not (weight 0)."""
    rows = []
    for number, taken in enumerate(itertools.product(NAMES, repeat=2)):
        row = Sample(f"u{number}", {}, NAMES, None, "a", 0.5, 0.0, shared=f"u{number}")
        rows += [row._replace(action=action) for action in taken]
    found = LoggedDecisions(rows, 0.0).overlap(FixedPolicy("a"))
    assert (found.num_samples, found.effective_sample_size, found.max_weight) == (4, 1, 4)
    assert found.mean_weight == pytest.approx(1)
    assert found.mean_weight_z == pytest.approx(0)
    same = LoggedDecisions(rows, 0.0).overlap(UniformPolicy())
    assert (same.effective_sample_size, same.max_weight) == (4, 1)


# --- rewards that are missing ---


def filled(
    known: Sequence[Sample], missing: Sequence[Sample], model: float, policies: tuple[Policy, Policy], *ends: float
) -> F64:
    """Returns the difference of each unit for all ways to fill in missing rewards, shape ``(num_ways, num_units)``.

    Rewards that are shared are filled in alike.
    """
    keys = [row if each.shared is None else each.shared for row, each in enumerate(missing)]
    names = list(dict.fromkeys(keys))
    found = []
    for filling in itertools.product(ends, repeat=len(names)):
        chosen = dict(zip(names, filling, strict=True))
        given = [each._replace(reward=chosen[key]) for each, key in zip(missing, keys, strict=True)]
        held_out = LoggedDecisions([*known, *given], model)
        found.append(held_out.rewards(policies[0]) - held_out.rewards(policies[1]))
    return np.array(found)


def some_log(seed: int, importance: float = 1.0) -> tuple[list[Sample], list[Sample]]:
    """Returns known and missing decisions: alone, in units that have both, shared; some have an importance."""
    rng = np.random.default_rng(seed)

    def row(unit: str, shared: str | None = None, importance: float = 1.0) -> Sample:
        at, action = int(rng.integers(3)), NAMES[int(rng.integers(2))]
        return Sample(
            unit, {"at": at}, NAMES, None, action, probability(LOGGED, at, action), float(rng.normal()),
            shared=shared, importance=importance,
        )  # fmt: skip

    known = [row("k1"), row("both"), row("both", importance=importance), row("k2", importance=importance)]
    pair = [row("pair", "pair"), row("pair", "pair")]
    known += [each._replace(reward=pair[0].reward) for each in pair]
    missing = [row("m1"), row("both"), row("m2", importance=importance), row("m3", "x"), row("m3", "x"), row("m3")]
    return known, missing


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("model", [0.0, 0.4])
def test_the_least_difference_is_that_of_the_worst_filling(seed: int, model: float) -> None:
    known, missing = some_log(seed)
    policies = ByPlace(TARGET), ByPlace({0: 0.9, 1: 0.1, 2: 0.6})
    found = LoggedDecisions(known, model, missing).least_differences(*policies, (-1.0, 2.0))
    assert found.shape == (7,)
    np.testing.assert_allclose(found, filled(known, missing, model, policies, -1.0, 2.0).min(axis=0), atol=1e-12)
    assert (found <= filled(known, missing, model, policies, -0.5, 0.3, 1.0) + 1e-12).all()


@pytest.mark.parametrize("seed", range(3))
def test_with_importances_their_mean_is_that_of_the_worst_filling(seed: int) -> None:
    known, missing = some_log(seed, importance=3.0)
    policies = ByPlace(TARGET), UniformPolicy()
    found = LoggedDecisions(known, 0.4, missing).least_differences(*policies, (-1.0, 2.0))
    means = filled(known, missing, 0.4, policies, -1.0, 2.0).mean(axis=1)
    assert found.mean() == pytest.approx(means.min(), abs=1e-12)


def test_without_missing_rewards_the_least_difference_is_the_difference() -> None:
    known, _ = some_log(0)
    held_out, policies = LoggedDecisions(known, 0.3), (FixedPolicy("a"), UniformPolicy())
    np.testing.assert_allclose(
        held_out.least_differences(*policies, (0.0, 1.0)), held_out.rewards(policies[0]) - held_out.rewards(policies[1])
    )


def test_what_missing_rewards_say_they_earned_is_not_read() -> None:
    known, missing = some_log(1)
    policies = FixedPolicy("a"), UniformPolicy()
    given = LoggedDecisions(known, 0.0, missing).least_differences(*policies, (0.0, 1.0))
    lost = [each._replace(reward=float("nan")) for each in missing]
    np.testing.assert_array_equal(given, LoggedDecisions(known, 0.0, lost).least_differences(*policies, (0.0, 1.0)))
    assert len(LoggedDecisions(known, 0.0, lost).units) == 4


# --- decisions that stand for others ---


def whole_log(size: int, seed: int) -> list[Sample]:
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(size):
        at = int(rng.integers(3))
        action = "a" if rng.random() < LOGGED[at] else "b"
        reward = float(rng.random() < 0.3)
        rows.append(
            Sample(f"u{number}", {"at": at}, NAMES, None, action, probability(LOGGED, at, action), reward)
        )  # fmt: skip
    return rows


def test_a_decision_that_stands_for_four_counts_as_four_equal_ones_do() -> None:
    """Where lines without a reward were kept in one of four (pdrop .75), the kept ones are put back four times."""
    rows = whole_log(400, 0)
    kept = [each._replace(importance=4.0 if each.reward == 0 else 1.0) for each in rows]
    put_back = [
        each._replace(unit=f"{each.unit}.{copy}", importance=1.0)
        for each in kept
        for copy in range(int(each.importance))
    ]
    for policy in (ByPlace(TARGET), FixedPolicy("a"), UniformPolicy()):
        thinned, whole = LoggedDecisions(kept, 0.2), LoggedDecisions(put_back, 0.2)
        assert thinned.rewards(policy).mean() == pytest.approx(whole.rewards(policy).mean(), abs=1e-12)
        assert thinned.overlap(policy).mean_weight == pytest.approx(whole.overlap(policy).mean_weight)


def test_weighing_by_importance_has_the_spread_of_a_weighted_mean() -> None:
    """Over 400 logs the standard error that follows from the values is that of their mean, within 20 %.

    A deviation from 400 draws is off by 3.5 % (one standard error). The truth is .3, whatever is chosen.
    """
    means, errors = [], []
    for seed in range(400):
        rng = np.random.default_rng(seed)
        rows = [
            each._replace(importance=4.0 if each.reward == 0 else 1.0)
            for each in whole_log(240, seed)
            if each.reward == 1 or rng.random() < 0.25
        ]
        values = LoggedDecisions(rows, 0.2).rewards(UniformPolicy())
        means.append(float(values.mean()))
        errors.append(float(values.std() / np.sqrt(values.size)))
    assert np.mean(errors) == pytest.approx(np.std(means), rel=0.2)
    assert abs(np.mean(means) - 0.3) <= 4 * np.std(means) / np.sqrt(400)


def test_within_a_unit_a_decision_that_stands_for_four_counts_as_four() -> None:
    rows = [each._replace(unit=f"e{number // 4}") for number, each in enumerate(whole_log(40, 1))]
    kept = [each._replace(importance=4.0 if number % 4 == 0 else 1.0) for number, each in enumerate(rows)]
    put_back = [each._replace(importance=1.0) for each in kept for _ in range(int(each.importance))]
    policy = ByPlace(TARGET)
    np.testing.assert_allclose(
        LoggedDecisions(kept, 0.2).rewards(policy), LoggedDecisions(put_back, 0.2).rewards(policy), atol=1e-12
    )
