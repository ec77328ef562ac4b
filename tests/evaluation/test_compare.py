"""Comparisons with named and given baselines."""

import numpy as np
import pytest

from learnloop.core.errors import UsageError
from learnloop.core.protocols import Policy, Sample
from learnloop.evaluation.compare import compare
from learnloop.evaluation.held_out import OutcomeTable
from learnloop.evaluation.logged import LoggedDecisions
from learnloop.evaluation.policies import FixedPolicy, UniformPolicy

REWARDS = np.array([[1.0, 3.0], [2.0, 1.0]] * 15)
TABLE = OutcomeTable([f"h{i}" for i in range(30)], [{}] * 30, ["a", "b"], REWARDS)
LOG = LoggedDecisions(
    [Sample(f"h{i}", {}, ["a", "b"], None, "ab"[i // 2 % 2], 0.5, REWARDS[i, i // 2 % 2]) for i in range(28)],
    1.5,
)


@pytest.mark.parametrize(
    ("baseline", "name", "mean"),
    [("random", "random", 1.75), ("best-fixed", "best-fixed (b)", 2.0), ("optimum", "optimum", 2.5)],
)
def test_named_baselines_of_a_table(baseline: str, name: str, mean: float) -> None:
    result = compare(FixedPolicy("a"), baseline, TABLE)
    assert (result.baseline, result.num_units) == (name, 30)
    assert (result.mean, result.baseline_mean, result.difference) == pytest.approx((1.5, mean, 1.5 - mean))
    assert result.p_value > 0.5
    assert result.interval is not None
    assert result.interval.low <= result.difference <= result.interval.high


def test_a_policy_as_baseline() -> None:
    result = compare(FixedPolicy("b"), UniformPolicy(), TABLE, baseline_name="packer@champion", level=0.9)
    assert result.baseline == "packer@champion"
    assert result.difference == pytest.approx(0.25)
    assert result.interval is not None
    assert result.interval.level == 0.9


def test_a_better_policy_has_a_small_p_value() -> None:
    class Best:
        def probabilities(self, context: dict, actions: object, mask: object = None) -> np.ndarray:
            return np.array([0.0, 1.0]) if context["even"] else np.array([1.0, 0.0])

    contexts = [{"even": i % 2 == 0} for i in range(30)]
    held_out = OutcomeTable(TABLE.units, contexts, ["a", "b"], REWARDS)
    best: Policy = Best()
    result = compare(best, "random", held_out)
    assert (result.mean, result.p_value) == (2.5, pytest.approx(1 / 10_001))
    assert compare(best, "optimum", held_out).difference == 0


def test_named_baselines_of_a_log() -> None:
    assert compare(FixedPolicy("a"), "best-fixed", LOG).baseline == "best-fixed (b)"
    assert compare(UniformPolicy(), "random", LOG).difference == 0
    with pytest.raises(UsageError, match="optimum needs held-out tasks on which every action was tried"):
        compare(UniformPolicy(), "optimum", LOG)


def test_unknown_baselines_and_empty_sets_are_refused() -> None:
    with pytest.raises(UsageError, match="'best' is not a baseline; allowed are 'random', 'best-fixed', 'optimum'"):
        compare(UniformPolicy(), "best", TABLE)
    with pytest.raises(UsageError, match="no held-out units"):
        compare(UniformPolicy(), "random", LoggedDecisions([], 0.0))
