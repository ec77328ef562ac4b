"""Estimates of what a policy earns on logged tasks, against known truth."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop.core.errors import RewardError, UsageError
from learnloop.core.protocols import Context, Sample
from learnloop.evaluation.logged import LoggedDecisions, LoggedEpisodes, LoggedHeldOut, MatchedDecisions
from learnloop.evaluation.policies import FixedPolicy, FrequentPolicy, UniformPolicy

ACTIONS = ("a", "b", "c")


class Logging:
    """A known behaviour policy on one binary feature."""

    SHARES = ((0.6, 0.3, 0.1), (0.2, 0.3, 0.5))

    def probabilities(self, context: Context, actions: object, mask: object = None) -> np.ndarray:
        return np.array(self.SHARES[int(context["x"])])


class Target:
    SHARES = ((0.1, 0.1, 0.8), (0.7, 0.2, 0.1))

    def probabilities(self, context: Context, actions: object, mask: object = None) -> np.ndarray:
        return np.array(self.SHARES[int(context["x"])])


TRUE_MEANS = np.array([[1.0, 2.0, 3.0], [-1.0, 0.5, 4.0]])


def log(num_samples: int, seed: int, samples_per_unit: int = 1) -> list[Sample]:
    rng = np.random.default_rng(seed)
    rows = []
    for index in range(num_samples):
        x = int(rng.integers(2))
        action = int(rng.choice(3, p=Logging.SHARES[x]))
        reward = float(TRUE_MEANS[x, action] + rng.normal())
        unit = f"u{index // samples_per_unit}"
        rows.append(Sample(unit, {"x": x}, ACTIONS, None, ACTIONS[action], Logging.SHARES[x][action], reward))
    return rows


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=20), st.floats(-1e6, 1e6), st.sampled_from([0.25, 0.5, 1.0]))
def test_policy_equal_to_the_log_earns_the_sample_mean(rewards: list[float], model: float, share: float) -> None:
    class Same:
        def probabilities(self, context: Context, actions: object, mask: object = None) -> np.ndarray:
            return np.array([share, 1 - share])

    samples = [Sample(f"u{i}", {}, ["a", "b"], None, "a", share, reward) for i, reward in enumerate(rewards)]
    values = LoggedDecisions(samples, model).rewards(Same())
    np.testing.assert_allclose(values, rewards, rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("model", [0.0, 1.5, -20.0])
def test_estimate_is_unbiased_for_any_constant_model(model: float) -> None:
    truth = float(np.mean(np.sum(np.array(Target.SHARES) * TRUE_MEANS, axis=1)))
    samples = log(40_000, seed=4)
    held_out = LoggedDecisions(samples, model)
    assert isinstance(held_out, LoggedHeldOut)
    values = held_out.rewards(Target())
    assert abs(values.mean() - truth) < 4 * values.std() / math.sqrt(len(samples))


def test_a_good_constant_model_is_less_noisy_than_none() -> None:
    samples = log(5000, seed=5)
    shifted = [sample._replace(reward=sample.reward + 10) for sample in samples]
    assert (
        LoggedDecisions(shifted, 11.5).rewards(Target()).std()
        < 0.5 * LoggedDecisions(shifted, 0).rewards(Target()).std()
    )


def test_values_are_averaged_within_units() -> None:
    samples = log(9, seed=1, samples_per_unit=3)
    held_out = LoggedDecisions(samples, 0.3)
    assert list(held_out.units) == ["u0", "u1", "u2"]
    single = LoggedDecisions([sample._replace(unit=f"s{row}") for row, sample in enumerate(samples)], 0.3)
    np.testing.assert_allclose(held_out.rewards(Target()), single.rewards(Target()).reshape(3, 3).mean(axis=1))


def test_overlap_figures() -> None:
    samples = [Sample(f"u{i}", {}, ["a", "b"], None, "ab"[i % 2], 0.5, 0.0) for i in range(10)]
    held_out = LoggedDecisions(samples, 0.0)
    fixed = held_out.overlap(FixedPolicy("a"))  # weights 2 and 0 in turn
    assert (fixed.effective_sample_size, fixed.mean_weight, fixed.max_weight) == pytest.approx((5, 1, 2))
    assert fixed.mean_weight_z == pytest.approx(0)
    same = held_out.overlap(UniformPolicy())
    assert (same.num_samples, same.effective_sample_size, same.mean_weight_z) == (10, 10, 0.0)
    only_b = LoggedDecisions([sample._replace(action="b") for sample in samples], 0.0).overlap(FixedPolicy("a"))
    assert (only_b.effective_sample_size, only_b.mean_weight, only_b.mean_weight_z) == (0, 0, None)
    empty = LoggedDecisions([], 0.0)
    assert (list(empty.units), empty.overlap(UniformPolicy()).num_samples) == ([], 0)


def test_wrong_propensities_show_in_the_mean_weight() -> None:
    wrong = [sample._replace(propensity=1 / 3) for sample in log(2000, seed=6)]
    distance = LoggedDecisions(wrong, 0.0).overlap(Target()).mean_weight_z
    assert distance is not None
    assert abs(distance) > 4
    right = LoggedDecisions(log(2000, seed=6), 0.0).overlap(Target()).mean_weight_z
    assert right is not None
    assert abs(right) < 4


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"propensity": None}, UsageError, "of 9 decisions 3 have no propensity and 0"),
        ({"propensity": 0.0}, UsageError, "of 9 decisions 0 have no propensity and 3"),
        ({"propensity": 1.01}, UsageError, "of 9 decisions 0 have no propensity and 3"),
        ({"propensity": math.nan}, UsageError, "of 9 decisions 0 have no propensity and 3"),
        ({"reward": None}, RewardError, "3 of 9 samples have no finite reward"),
        ({"reward": math.nan}, RewardError, "3 of 9 samples have no finite reward"),
        ({"action": "z"}, UsageError, "3 of 9 samples took an action that was not offered"),
    ],
)
def test_bad_logs_are_refused_with_the_number_of_rows(change: dict, error: type[Exception], message: str) -> None:
    samples = log(9, seed=2)
    samples[:3] = [sample._replace(**change) for sample in samples[:3]]
    with pytest.raises(error, match=message):
        LoggedDecisions(samples, 0.0)
    with pytest.raises(error, match=message):
        LoggedEpisodes(samples, [0.0])


def test_model_must_be_finite() -> None:
    with pytest.raises(UsageError, match="reward_model is nan"):
        LoggedDecisions(log(3, seed=0), math.nan)


def test_what_a_policy_earns_is_how_surely_it_agrees() -> None:
    samples = [Sample(unit, {}, ["left", "right"], None, "left", 1.0, 0.0) for unit in ("e", "e", "other")]
    held_out = MatchedDecisions(samples, ["left", "right", "left"])
    assert held_out.units == ("e", "other")
    assert held_out.rewards(UniformPolicy()).tolist() == [0.5, 0.5]
    assert held_out.rewards(FrequentPolicy({"left": 3, "right": 1})).tolist() == [0.5, 1.0]
