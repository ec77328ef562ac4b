"""What decisions earn by context: known functions are found again, and nothing is found where nothing is."""

from __future__ import annotations

import numpy as np
import pytest

from learnloop.core.arrays import F64
from learnloop.core.protocols import Sample
from learnloop.evaluation.context_model import MIN_SAMPLES, ContextModel
from learnloop.evaluation.logged import LoggedDecisions
from learnloop.evaluation.policies import FixedPolicy

CITIES = {"oslo": 1.0, "rome": -0.5, "lima": 0.0}


def additive(size: int, seed: int, noise: float = 0.5) -> tuple[list[Sample], F64]:
    """Returns decisions whose reward is 2 x, a step at z = 0 and something by city, and the mean of each."""
    rng = np.random.default_rng(seed)
    x, z, city = rng.normal(size=size), rng.uniform(-1, 1, size), rng.integers(3, size=size)
    means = 2 * x + 1.5 * (z > 0) + np.array(list(CITIES.values()))[city]
    rewards = means + rng.normal(0, noise, size)
    names = list(CITIES)
    return [
        Sample(
            f"u{i}", {"x": float(x[i]), "deep": {"z": float(z[i])}, "city": names[city[i]]}, ["a", "b"], None,
            "ab"[int(rng.integers(2))], 0.5, float(rewards[i]),
        )
        for i in range(size)
    ], means  # fmt: skip


def test_a_sum_of_functions_of_single_features_is_found_again() -> None:
    """On new contexts; noise has a deviation of .5 and means one of about 2.2, of which at most 2 % is left."""
    model = ContextModel(additive(1_500, 0)[0])
    new, means = additive(1_000, 1)
    left = float(np.mean((model.predict(new) - means) ** 2))
    assert left <= 0.02 * float(means.var())


def test_predictions_are_those_of_a_regression_by_another_hand() -> None:
    """One feature of two values: columns (x, 1 - x), centred, with a penalty of 3: the fit is known in closed form.

    Both columns are c = x - mean(x) and -c; the ridge fit is k c with k = 2 s / (2 q + 3), s = sum(c r), q = sum(c c).
    """
    rng = np.random.default_rng(0)
    x = rng.integers(2, size=400)
    rewards = 3.0 * x + rng.normal(0, 0.1, 400)
    samples = [Sample(f"u{i}", {"x": int(x[i])}, ["a"], None, "a", 1.0, float(rewards[i])) for i in range(400)]
    centred = x - x.mean()
    slope = 2 * float(centred @ rewards) / (2 * float(centred @ centred) + 3)
    expected = rewards.mean() + slope * (np.array([0, 1]) - x.mean())
    found = ContextModel(samples).predict([samples[int(np.argmin(x))], samples[int(np.argmax(x))]])
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_it_follows_the_clock() -> None:
    """Rewards fall by 1 in the time of the log, whatever the context."""
    rng = np.random.default_rng(0)
    samples = [
        Sample(f"u{i}", {"x": float(rng.random())}, ["a"], None, "a", 1.0, float(1 - i / 800 + rng.normal(0, 0.1)),
               made_at=1e9 + i)
        for i in range(800)
    ]  # fmt: skip
    model = ContextModel(samples)
    np.testing.assert_allclose(model.predict([samples[50], samples[750]]), [1 - 50 / 800, 1 - 750 / 800], atol=0.08)


def test_where_nothing_depends_on_contexts_it_is_about_the_mean() -> None:
    """In most logs exactly, and in none is it farther from it than noise that 400 samples cannot tell apart."""
    constant = 0
    for seed in range(20):
        samples, _ = additive(400, seed)
        rewards = np.random.default_rng(100 + seed).normal(size=400)
        model = ContextModel([row._replace(reward=float(r)) for row, r in zip(samples, rewards, strict=True)])
        found = model.predict(additive(200, 200 + seed)[0])
        constant += bool(np.all(found == found[0]))
        assert model.mean == pytest.approx(rewards.mean())
        assert float(np.sqrt(np.mean((found - rewards.mean()) ** 2))) <= 0.2
    assert constant >= 10


def test_few_samples_and_equal_rewards_give_the_mean() -> None:
    samples, _ = additive(MIN_SAMPLES - 1, 0)
    mean = float(np.mean([row.reward for row in samples]))
    np.testing.assert_allclose(ContextModel(samples).predict(samples), mean)
    equal = [row._replace(reward=0.25) for row in additive(100, 0)[0]]
    assert set(ContextModel(equal).predict(equal).tolist()) == {0.25}
    assert ContextModel([]).predict(samples).tolist() == [0.0] * len(samples)
    assert ContextModel(samples).predict([]).tolist() == []


def test_it_never_looks_at_what_was_chosen() -> None:
    """Neither when it is made nor when it is asked: all but context, time and reward may change."""
    samples, _ = additive(400, 0)
    others = [
        row._replace(action="b", propensity=0.01, unit=f"v{i}", mask=[False, True], shared=f"s{i}")
        for i, row in enumerate(samples)
    ]
    for made_of in (samples, others):
        np.testing.assert_array_equal(
            ContextModel(made_of).predict(others[:50]), ContextModel(samples).predict(samples[:50])
        )


def test_features_that_are_new_missing_or_of_another_kind_are_no_error() -> None:
    model = ContextModel(additive(400, 0)[0])
    row = additive(1, 1)[0][0]
    odd = [{}, {"x": "text"}, {"x": None, "city": "atlantis"}, {"x": 1e9, "more": [1]}, {"x": True, "city": 3}]
    found = model.predict([row._replace(context=context) for context in odd])
    assert np.isfinite(found).all()


def test_a_wrong_propensity_by_group_does_no_harm_where_only_the_group_is_rewarded() -> None:
    """Double robustness. Logged .5; b is really taken in 80 % of group 1 and 20 % of group 0. Rewards are the group's.

    Truth for always b: .5. With a constant c = .5 each group g earns c + 2 p(b | g) (g - c) instead of g: .5 + .8 * .5
    in group 1 and .5 - .2 in group 0 on average (1.3 - .5 + .5 - .2 + .5) / 2 = .8.
    """
    rng = np.random.default_rng(0)
    group = rng.integers(2, size=8_000)
    second = rng.random(8_000) < np.where(group == 1, 0.8, 0.2)
    samples = [
        Sample(f"u{i}", {"g": int(group[i])}, ["a", "b"], None, "ab"[int(second[i])], 0.5, float(group[i]))
        for i in range(8_000)
    ]
    train, held_out = samples[:4_000], samples[4_000:]
    always = FixedPolicy("b")
    constant = LoggedDecisions(held_out, 0.5).rewards(always).mean()
    assert constant == pytest.approx(0.8, abs=0.03)
    robust = LoggedDecisions(held_out, ContextModel(train)).rewards(always).mean()
    assert robust == pytest.approx(0.5, abs=0.03)


def test_it_is_less_noisy_than_a_constant_where_rewards_depend_on_contexts() -> None:
    train, held_out = additive(1_500, 0)[0], additive(1_500, 1)[0]
    mean = float(np.mean([row.reward for row in train]))
    spread = [
        float(LoggedDecisions(held_out, model).rewards(FixedPolicy("a")).std()) for model in (mean, ContextModel(train))
    ]
    assert spread[1] == pytest.approx(float(np.std([row.reward for row in held_out])), rel=0.2)  # w = 1 on average
    assert spread[1] < 0.95 * spread[0]
