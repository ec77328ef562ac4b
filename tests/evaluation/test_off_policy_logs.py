"""learnloop.evaluation.off_policy on logs as people have them: one reward for several choices, lines left out, gaps."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from learnloop.core.errors import UsageError
from learnloop.core.protocols import Sample
from learnloop.evaluation import FixedPolicy, UniformPolicy
from learnloop.evaluation.compare import compare
from learnloop.evaluation.intervals import paired_interval
from learnloop.evaluation.logged import LoggedDecisions
from learnloop.evaluation.off_policy import EstimateOptions, estimate_value

ACTIONS = ["a", "b"]


def _sample(unit: str, action: str, propensity: float, reward: float, x: float = 0.0, **more: object) -> Sample:
    return Sample(unit, {"x": x}, ACTIONS, None, action, propensity, reward)._replace(**more)


def _pairs(copies: int) -> list[Sample]:
    """Each pair of choices as often as P(a) = .75 makes it likely, in sixteenths; worth 1 if the two differ."""
    samples, number = [], 0
    for first, second in product("ab", repeat=2):
        times = copies * (3 if first == "a" else 1) * (3 if second == "a" else 1)
        for _ in range(times):
            for action in (first, second):
                share = 0.75 if action == "a" else 0.25
                name = f"e{number}"
                samples.append(_sample(name, action, share, float(first != second), shared=name))
            number += 1
    return samples


@pytest.mark.parametrize("name", ["ips", "snips", "dr"])
def test_choices_that_share_a_reward_are_made_together(name: str) -> None:
    """By hand: always ``b`` never differs, so 0; uniform choices differ half of the time.

    One choice at a time would say of ``b`` that it earns .75.
    """
    options = EstimateOptions(estimator=name)  # type: ignore[arg-type]
    samples = _pairs(20)
    assert estimate_value(FixedPolicy("b"), samples, reward_model=0.375, options=options).value == pytest.approx(0.0)
    assert estimate_value(UniformPolicy(), samples, reward_model=0.375, options=options).value == pytest.approx(0.5)


def test_a_model_of_actions_is_one_of_single_decisions() -> None:
    with pytest.raises(UsageError, match="decisions that share a reward"):
        estimate_value(UniformPolicy(), _pairs(1), reward_model=lambda context, actions: np.zeros(len(actions)))


@pytest.mark.parametrize("name", ["ips", "snips", "dr"])
def test_what_was_left_out_of_the_log_is_weighed_back_in(name: str) -> None:
    """The log with 9 of 10 failures left out at random, each kept one standing for 10, says what the whole one does."""
    whole = [_sample(f"u{row}", ACTIONS[row % 2], 0.5, float(row % 20 < 4)) for row in range(2_000)]
    kept, seen = [], [0, 0]
    for each in whole:
        if each.reward:
            kept.append(each)
            continue
        at = ACTIONS.index(each.action)
        seen[at] += 1
        if seen[at] % 10 == 0:
            kept.append(each._replace(importance=10.0))
    options = EstimateOptions(estimator=name)  # type: ignore[arg-type]
    for policy in (FixedPolicy("a"), UniformPolicy()):
        expected = estimate_value(policy, whole, options=options).value
        assert expected == pytest.approx(0.2)
        assert estimate_value(policy, kept, options=options).value == pytest.approx(expected)
    found = estimate_value(UniformPolicy(), kept, options=EstimateOptions(reward_range=(0.0, 1.0)))
    assert found.bounds is None
    assert any("pdrop" in warning for warning in found.warnings)


def test_an_action_that_some_contexts_never_saw_is_warned_of() -> None:
    """``b`` is never tried where x is above 1.4, in 8 % of contexts; elsewhere in half of the cases."""
    rng = np.random.default_rng(0)
    samples = []
    for row in range(3_000):
        x = float(rng.normal())
        share = 0.0 if x > 1.4 else 0.5
        took = bool(rng.random() < share)
        samples.append(_sample(f"u{row}", "b" if took else "a", share if took else 1 - share, 1.0, x))
    found = estimate_value(FixedPolicy("b"), samples)
    true = float(np.mean([each.context["x"] > 1.4 for each in samples]))
    assert found.overlap.unsupported_mass == pytest.approx(true, abs=0.03)
    assert any("never tried in contexts like these" in warning for warning in found.warnings)
    assert estimate_value(FixedPolicy("a"), samples).overlap.unsupported_mass == pytest.approx(0.0, abs=0.005)


def test_few_decisions_that_carry_most_are_warned_of_and_widen_the_interval() -> None:
    rng = np.random.default_rng(2)
    samples = [_sample(f"u{row}", ACTIONS[int(rng.integers(2))], 0.5, float(rng.lognormal(0, 2))) for row in range(600)]
    found = estimate_value(UniformPolicy(), samples)
    assert found.tail_shape is not None
    assert found.tail_shape > 0.5
    assert any("few decisions carry most" in warning for warning in found.warnings)
    assert found.interval is not None
    plain = paired_interval([each.reward for each in samples])
    assert plain is not None
    assert found.interval.high > plain.high
    bounded = [each._replace(reward=min(each.reward, 1.0)) for each in samples]
    assert not estimate_value(UniformPolicy(), bounded).warnings


def test_the_best_of_many_equal_actions_is_not_judged_on_what_chose_it() -> None:
    """20 actions, all worth .5, 40 logs of 800: chosen and judged on the same rows the best seems worth far more."""
    actions = [f"a{number}" for number in range(20)]
    errors = []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        taken = rng.integers(20, size=800)
        log = [
            Sample(f"s{seed}-{row}", {"x": 1.0}, actions, None, actions[at], 1 / 20, float(rng.random() < 0.5))
            for row, at in enumerate(taken.tolist())
        ]
        found = compare(UniformPolicy(), "best-fixed", LoggedDecisions(log, 0.5))
        assert 300 < found.num_units < 500
        errors.append(found.baseline_mean - 0.5)
    # Each estimate has a standard error of about sqrt(.25 (20 - 1) / 400), and the mean of 40 a sixth of it.
    error = (0.25 * 19 / 400) ** 0.5 / 40**0.5
    assert abs(float(np.mean(errors))) < 4 * error


def test_a_reward_that_ten_decisions_share_is_known_once() -> None:
    """The effective size is that of the episodes' weights, as a proof counts it, not ten times as much."""
    rng = np.random.default_rng(3)
    samples = []
    for episode in range(60):
        for _ in range(10):
            took = bool(rng.random() < 0.4)
            share, name = (0.4 if took else 0.6), f"e{episode}"
            samples.append(_sample(name, "b" if took else "a", share, 1.0, shared=name))
    found = estimate_value(UniformPolicy(), samples)
    weights = np.array([np.prod([0.5 / each.propensity for each in samples[at : at + 10]]) for at in range(0, 600, 10)])  # type: ignore[operator]
    assert found.overlap.effective_sample_size == pytest.approx(float(weights.sum() ** 2 / (weights**2).sum()))
    assert found.interval is None
