"""learnloop.evaluation.off_policy: formulas, what they must not change with (trust.md O3), what is refused (O4)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop.core.errors import RewardError, UsageError
from learnloop.core.protocols import Context, Sample
from learnloop.evaluation import FixedPolicy, UniformPolicy
from learnloop.evaluation.logged import checked_propensities
from learnloop.evaluation.off_policy import (
    ESTIMATORS,
    Estimate,
    EstimateOptions,
    LoggedArrays,
    estimate_arrays,
    estimate_value,
)
from tests.waiting import costs_at_most

ACTIONS = ["a", "b", "c"]


def as_logged(rewards: Sequence[float], weights: Sequence[float]) -> LoggedArrays:
    return LoggedArrays(np.array(rewards), np.array(weights))


class Given:
    """A policy whose distribution depends on the context as told."""

    def __init__(self, rows: dict[int, list[float]]) -> None:
        self.rows = rows

    def probabilities(self, context: Context, actions: Sequence[str], mask: Sequence[bool] | None = None) -> np.ndarray:
        return np.array(self.rows[int(context["x"])])


LOGGING = Given({0: [0.5, 0.3, 0.2], 1: [0.1, 0.1, 0.8]})
TARGET = Given({0: [0.1, 0.8, 0.1], 1: [0.3, 0.4, 0.3]})
MEANS = {0: [0.2, 0.7, 0.5], 1: [0.9, 0.4, 0.1]}


def log_of(number: int, seed: int, per_unit: int = 1) -> list[Sample]:
    rng = np.random.default_rng(seed)
    samples = []
    for row in range(number):
        x = int(rng.integers(2))
        at = int(rng.choice(3, p=LOGGING.rows[x]))
        reward = float(rng.random() < MEANS[x][at])
        samples.append(Sample(f"u{row // per_unit}", {"x": x}, ACTIONS, None, ACTIONS[at], LOGGING.rows[x][at], reward))
    return samples


def estimate(policy: object, samples: Sequence[Sample], name: str, **more: object) -> Estimate:
    model = more.pop("reward_model", 0.5)
    options = EstimateOptions(estimator=name, **more)  # type: ignore[arg-type]
    return estimate_value(policy, samples, reward_model=model, options=options)  # type: ignore[arg-type]


def by_hand(policy: Given, samples: Sequence[Sample], name: str, q: float = 0.5) -> float:
    weights = [policy.rows[int(s.context["x"])][ACTIONS.index(s.action)] / (s.propensity or 0) for s in samples]
    if name == "ips":
        return math.fsum(w * s.reward for w, s in zip(weights, samples, strict=True)) / len(samples)
    if name == "snips":
        return math.fsum(w * s.reward for w, s in zip(weights, samples, strict=True)) / math.fsum(weights)
    return math.fsum(q + w * (s.reward - q) for w, s in zip(weights, samples, strict=True)) / len(samples)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_formulas(name: str) -> None:
    """O1."""
    samples = log_of(500, 1)
    found = estimate(TARGET, samples, name).value
    assert found == pytest.approx(by_hand(TARGET, samples, name), abs=1e-12)


def test_doubly_robust_with_a_model_that_predicts_each_action() -> None:
    samples = log_of(300, 2)
    q = {0: [0.1, 0.6, 0.4], 1: [0.8, 0.5, 0.2]}
    expected = 0.0
    for s in samples:
        x, at = int(s.context["x"]), ACTIONS.index(s.action)
        inside = sum(p * each for p, each in zip(TARGET.rows[x], q[x], strict=True))
        expected += inside + TARGET.rows[x][at] / (s.propensity or 0) * (s.reward - q[x][at])
    found = estimate(TARGET, samples, "dr", reward_model=lambda context, actions: np.array(q[int(context["x"])]))
    assert found.value == pytest.approx(expected / 300, abs=1e-12)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_truth_is_found(name: str) -> None:
    truth = sum(0.5 * sum(p * m for p, m in zip(TARGET.rows[x], MEANS[x], strict=True)) for x in (0, 1))
    found = estimate(TARGET, log_of(40_000, 3), name, reward_range=(0.0, 1.0))
    assert found.value == pytest.approx(truth, abs=0.02)
    assert found.interval is not None
    assert found.bounds is not None
    assert found.bounds.low < found.interval.low < truth < found.interval.high < found.bounds.high
    assert found.overlap.mean_weight_z is not None
    assert abs(found.overlap.mean_weight_z) < 4
    assert found.warnings == []


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_logging_policy_earned_the_sample_mean(name: str) -> None:
    """O3: pi = mu gives the sample mean, exactly."""
    samples = log_of(400, 4)
    found = estimate(LOGGING, samples, name)
    assert found.value == pytest.approx(np.mean([s.reward for s in samples]), abs=1e-12)
    assert found.overlap.effective_sample_size == pytest.approx(400)
    assert found.overlap.mean_weight_z == 0


@given(st.floats(-50, 50), st.integers(0, 50))
def test_a_constant_reward_is_its_own_estimate(constant: float, seed: int) -> None:
    """O3: r = c gives SNIPS = c."""
    samples = [s._replace(reward=constant) for s in log_of(50, seed)]
    assert estimate(TARGET, samples, "snips").value == pytest.approx(constant, abs=1e-9)
    assert estimate(TARGET, samples, "dr", reward_model=constant).value == pytest.approx(constant, abs=1e-9)


@pytest.mark.parametrize("name", ["snips", "dr"])
def test_rewards_on_another_scale(name: str) -> None:
    """O3: r -> 3 r - 2."""
    samples = log_of(400, 5)
    moved = [s._replace(reward=3 * s.reward - 2) for s in samples]
    before, after = estimate(TARGET, samples, name).value, estimate(TARGET, moved, name, reward_model=-0.5).value
    assert before is not None
    assert after == pytest.approx(3 * before - 2, abs=1e-9)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_order_does_not_matter(name: str) -> None:
    samples = log_of(400, 6)
    before, after = estimate(TARGET, samples, name), estimate(TARGET, samples[::-1], name)
    assert after.value == pytest.approx(before.value, abs=1e-12)
    assert after.overlap.mean_weight_z == pytest.approx(before.overlap.mean_weight_z)


def test_two_logs_together() -> None:
    """O3: ips of A and B together is their weighted mean."""
    first, second = log_of(300, 7), [s._replace(unit=f"v{s.unit}") for s in log_of(100, 8)]
    parts = [estimate(TARGET, each, "ips").value for each in (first, second)]
    both = estimate(TARGET, [*first, *second], "ips").value
    assert both == pytest.approx((300 * (parts[0] or 0) + 100 * (parts[1] or 0)) / 400, abs=1e-12)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_intervals_narrow_with_decisions_and_with_the_level(name: str) -> None:
    def width(number: int, level: float, field: str) -> float:
        found = getattr(estimate(TARGET, log_of(number, 9), name, level=level, reward_range=(0.0, 1.0)), field)
        return float(found.high - found.low)

    for field in ("interval", "bounds"):
        assert width(16_000, 0.95, field) < width(2_000, 0.95, field)
        assert width(4_000, 0.8, field) < width(4_000, 0.99, field)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_copies_within_a_unit_say_nothing_new(name: str) -> None:
    """O3: duplicated rows of the same units do not narrow the interval."""
    samples = log_of(1_500, 10)
    copied = [s for s in samples for _ in range(4)]
    once, again = (estimate(TARGET, each, name, reward_range=(0.0, 1.0)) for each in (samples, copied))
    for field in ("interval", "bounds"):
        before, after = getattr(once, field), getattr(again, field)
        assert after.high - after.low == pytest.approx(before.high - before.low, rel=1e-9)
    assert again.overlap.mean_weight_z == pytest.approx(once.overlap.mean_weight_z)
    as_units = [s._replace(unit=str(row)) for row, s in enumerate(copied)]
    alone = estimate(TARGET, as_units, name).interval
    assert alone is not None
    assert once.interval is not None
    assert alone.high - alone.low < 0.7 * (once.interval.high - once.interval.low)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_no_decisions_give_no_value(name: str) -> None:
    """O3: 0 rows -> None, not 0."""
    found = estimate(TARGET, [], name)
    assert (found.value, found.interval, found.overlap.num_samples) == (None, None, 0)
    assert found.warnings


def test_few_effective_decisions_get_no_bootstrap_interval() -> None:
    """O6: bootstrap only with an effective sample size of 200."""
    found = estimate(TARGET, log_of(150, 11), "ips", reward_range=(0.0, 1.0))
    assert found.interval is None
    assert found.bounds is not None
    assert "no approximate interval" in found.warnings[0]


@pytest.mark.parametrize("name", ["ips", "dr"])
def test_a_log_that_says_nothing_of_the_target_has_a_value_but_snips_has_none(name: str) -> None:
    samples = [Sample(f"u{i}", {}, ACTIONS, None, "a", 0.5, 1.0) for i in range(300)]
    found = estimate(FixedPolicy("b"), samples, "snips")
    assert found.value is None
    assert found.overlap.unsupported_mass == 1.0
    assert any("never tried" in warning for warning in found.warnings)
    assert estimate(FixedPolicy("b"), samples, name).value == (0.0 if name == "ips" else 0.5)


def test_wrong_propensities_are_noticed() -> None:
    """Uniform logged, though one arm had half of the draws (trust.md, part 2)."""
    rng = np.random.default_rng(12)
    samples = [
        Sample(f"u{i}", {}, ACTIONS, None, ACTIONS[int(rng.choice(3, p=[0.5, 0.25, 0.25]))], 1 / 3, 1.0)
        for i in range(2_000)
    ]
    found = estimate(FixedPolicy("a"), samples, "ips")
    assert any("propensities are wrong" in warning for warning in found.warnings)


def test_a_log_without_exploration_is_called_no_evidence() -> None:
    samples = [Sample(f"u{i}", {}, ["a"], None, "a", 1.0, 1.0) for i in range(300)]
    assert any("no evidence" in warning for warning in estimate(UniformPolicy(), samples, "ips").warnings)


@pytest.mark.parametrize("bad", [None, 0.0, -0.1, 1.1, math.nan, math.inf])
def test_propensities_that_are_refused(bad: float | None) -> None:
    """O4: the counts are named."""
    samples = log_of(20, 13)
    samples[3:5] = [s._replace(propensity=bad) for s in samples[3:5]]
    counts = "2 have no propensity and 0" if bad is None else "0 have no propensity and 2"
    with pytest.raises(UsageError, match=f"of 20 decisions {counts}"):
        estimate(TARGET, samples, "ips")


def test_missing_rewards() -> None:
    """O4: more than 1 % is refused with the count; fewer are left out and counted, never 0."""
    samples = [s._replace(reward=1.0) for s in log_of(1_000, 14)]
    samples[:10] = [s._replace(reward=math.nan) for s in samples[:10]]
    found = estimate(TARGET, samples, "snips")
    assert (found.num_missing, found.overlap.num_samples, found.value) == (10, 990, pytest.approx(1.0))
    samples[10] = samples[10]._replace(reward=None)  # type: ignore[arg-type]
    with pytest.raises(RewardError, match="11 of 1000 rewards are missing"):
        estimate(TARGET, samples, "snips")


@pytest.mark.parametrize("bad", [1.5, -0.1, math.inf])
def test_rewards_out_of_range(bad: float) -> None:
    samples = log_of(50, 15)
    samples[7] = samples[7]._replace(reward=bad)
    with pytest.raises(RewardError, match="1 of 50 rewards"):
        estimate(TARGET, samples, "ips", reward_range=(0.0, 1.0))


@pytest.mark.parametrize(
    "given",
    [{"estimator": "dm"}, {"level": 1.0}, {"reward_range": (1.0, 0.0)}, {"max_missing": -1}, {"level": math.nan}],
)
def test_options_without_a_meaning(given: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        EstimateOptions(**given)  # type: ignore[arg-type]


def test_arrays_that_do_not_fit() -> None:
    with pytest.raises(UsageError, match="one number a decision"):
        estimate_arrays(as_logged([1.0, 2.0], [1.0]), EstimateOptions(estimator="ips"))
    with pytest.raises(UsageError, match="below 0"):
        estimate_arrays(as_logged([1.0], [-1.0]), EstimateOptions(estimator="ips"))
    with pytest.raises(UsageError, match="reward model"):
        estimate_arrays(as_logged([1.0], [1.0]), EstimateOptions(estimator="dr"))
    with pytest.raises(UsageError, match="of 1 decisions 1 have"):
        checked_propensities([None])


@pytest.mark.parametrize("skew", ["rewards", "costs", "rare"])
def test_bounds_hold_where_a_bootstrap_would_not(skew: str) -> None:
    """O6: at least 95 % of 200 logs with few effective decisions are covered."""
    epsilon, arms, number = 0.05, 20, 1_000
    covered = 0
    for seed in range(200):
        rng = np.random.default_rng(seed)
        is_target = rng.random(number) < epsilon / arms
        if skew == "rewards":
            low, high, truth = 0.0, 1.0, 0.3
            rewards = (rng.random(number) < 0.3).astype(float)
        elif skew == "costs":
            low, high, truth = -1.0, 0.0, -0.7
            rewards = -(rng.random(number) < 0.7).astype(float)
        else:
            low, high, truth = -1.0, 0.0, -0.01
            rewards = -(rng.random(number) < 0.01).astype(float)
        weights = np.where(is_target, arms / epsilon, 0.0)
        options = EstimateOptions(estimator="ips", reward_range=(low, high), seed=seed)
        found = estimate_arrays(LoggedArrays(rewards, weights), options).bounds
        assert found is not None
        covered += found.low <= truth <= found.high
    assert covered >= 190


def test_a_million_decisions_take_less_than_two_seconds() -> None:
    """O9."""
    rng = np.random.default_rng(0)
    rewards, weights = rng.random(1_000_000), rng.exponential(size=1_000_000)
    units = rng.integers(300_000, size=1_000_000)
    units = np.unique(units, return_inverse=True)[1]
    for name in ("ips", "snips"):
        with costs_at_most(2.0):
            found = estimate_arrays(
                LoggedArrays(rewards, weights, units), EstimateOptions(estimator=name, reward_range=(0.0, 1.0))
            )
        assert found.value == pytest.approx(0.5, abs=0.01)


def test_large_rewards_do_not_overflow() -> None:
    found = estimate_arrays(as_logged([1e100] * 400, [2.0, 0.0] * 200), EstimateOptions(estimator="snips"))
    assert found.value == pytest.approx(1e100)
