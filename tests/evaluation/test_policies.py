"""The random and the fixed policy, and the check of what a policy returns."""

import numpy as np
import pytest

from learnloop.core.errors import ActionError, UsageError
from learnloop.core.protocols import Policy, Sample
from learnloop.evaluation.policies import (
    DecisionPoint,
    FixedPolicy,
    FrequentPolicy,
    UniformPolicy,
    distributions,
    logged_probabilities,
)


class Canned:
    def __init__(self, values: object) -> None:
        self.values = values

    def probabilities(self, context: object, actions: object, mask: object = None) -> object:
        return self.values


def test_uniform_spreads_over_what_is_allowed() -> None:
    policy = UniformPolicy()
    assert isinstance(policy, Policy)
    np.testing.assert_array_equal(policy.probabilities({}, ["a", "b", "c", "d"]), [0.25] * 4)
    np.testing.assert_array_equal(policy.probabilities({}, ["a", "b", "c"], [True, False, True]), [0.5, 0, 0.5])
    with pytest.raises(ActionError, match="none of the 2"):
        policy.probabilities({}, ["a", "b"], [False, False])


def test_fixed_takes_its_action_and_no_other() -> None:
    policy = FixedPolicy("b")
    np.testing.assert_array_equal(policy.probabilities({}, ["a", "b"]), [0, 1])
    with pytest.raises(ActionError, match="'b' is not an action here; allowed are 'a', 'c'"):
        policy.probabilities({}, ["a", "c"])
    with pytest.raises(ActionError, match="not allowed by the mask"):
        policy.probabilities({}, ["a", "b"], [True, False])


def test_the_most_frequent_of_those_that_are_allowed() -> None:
    policy = FrequentPolicy({"a": 5, "b": 3})
    assert policy.probabilities({}, ["a", "b", "c"]).tolist() == [1, 0, 0]
    assert policy.probabilities({}, ["a", "b", "c"], [False, True, True]).tolist() == [0, 1, 0]
    assert np.allclose(policy.probabilities({}, ["x", "y"]), [0.5, 0.5])


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ([0.5, 0.5, 0.0], "shape"),
        ([np.nan, 1.0], "not finite"),
        ([0.4, 0.4], "sum to 1"),
        ([1.5, -0.5], "negative"),
        ([0.5, 0.5], "mask forbids"),
    ],
)
def test_what_is_no_distribution_is_refused_with_policy_and_unit(values: list[float], fault: str) -> None:
    with pytest.raises(UsageError, match=fault) as caught:
        distributions(Canned(values), [DecisionPoint("task-7", {}, ["a", "b"], [True, False])])  # type: ignore[arg-type]
    assert "Canned" in str(caught.value)
    assert "'task-7'" in str(caught.value)


def test_float32_rounding_is_accepted() -> None:
    values = np.array([1 / 3, 2 / 3], dtype=np.float32)
    (row,) = distributions(Canned(values), [DecisionPoint("u", {}, ["a", "b"], None)])  # type: ignore[arg-type]
    assert row.dtype == np.float64


def test_choices_may_differ_in_their_actions() -> None:
    choices = [DecisionPoint("u", {}, ["a", "b"], None), DecisionPoint("v", {}, ["a", "b", "c"], [True, True, False])]
    assert [row.tolist() for row in distributions(UniformPolicy(), choices)] == [[0.5, 0.5], [0.5, 0.5, 0.0]]
    assert distributions(UniformPolicy(), []) == []


def test_logged_probabilities_are_those_of_the_logged_actions() -> None:
    samples = [
        Sample("u", {}, ["a", "b"], None, "b", 0.5, 1.0),
        Sample("v", {}, ["b", "a", "c"], [True, True, False], "a", 0.5, 1.0),
    ]
    assert logged_probabilities(FixedPolicy("a"), samples).tolist() == [0.0, 1.0]
    assert logged_probabilities(UniformPolicy(), samples).tolist() == [0.5, 0.5]


def test_a_policy_is_asked_once_about_the_same_objects() -> None:
    asked: list[object] = []

    class Counting(UniformPolicy):
        def probabilities(self, context: object, actions: object, mask: object = None) -> np.ndarray:
            asked.append(context)
            return super().probabilities(context, actions, mask)  # type: ignore[arg-type]

    first, second, actions = {"x": 1}, {"x": 1}, ["a", "b"]
    choices = [
        DecisionPoint(unit, context, actions, None) for unit, context in (("u", first), ("v", first), ("w", second))
    ]
    assert [row.tolist() for row in distributions(Counting(), choices)] == [[0.5, 0.5]] * 3
    assert len(asked) == 2
