"""P13: what credits the worker passes; what splits, swaps or invents credit does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from learnloop.core.errors import UsageError
from learnloop.testing.credit_probe import check_credit, team_rounds
from learnloop.testing.probes import ProbeError


def by_difference(actions: Any, rewards: Any) -> Any:
    """What each agent's action is worth on the average, less what the other one would be: half the main effect."""
    credits = np.zeros(actions.shape)
    for agent in (0, 1):
        means = [rewards[actions[:, agent] == action].mean() for action in (0, 1)]
        credits[:, agent] = np.where(actions[:, agent] == 1, 1, -1) * (means[1] - means[0]) / 2
    return credits


def test_the_rounds_are_the_environment() -> None:
    actions, rewards = team_rounds(500)
    np.testing.assert_array_equal(rewards, actions[:, 0])
    assert 200 < actions[:, 1].sum() < 300
    np.testing.assert_array_equal(actions, team_rounds(500)[0])


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_credit_by_marginal_effects_passes(seed: int) -> None:
    check_credit(by_difference, seed=seed)
    check_credit(lambda actions, rewards: np.stack([rewards, 0 * rewards], axis=1), seed=seed)


WRONG: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "equal shares": (lambda a, r: np.stack([r / 2, r / 2], axis=1), "bystander's credit for action 0 is 0.252"),
    "all to each": (lambda a, r: np.stack([r, r], axis=1), "the bystander's credit"),
    "swapped": (lambda a, r: by_difference(a, r)[:, ::-1], "the worker's credit is"),
    "nothing": (lambda a, r: np.zeros(a.shape), "the worker's credit is 0.000 for its right action and 0.000"),
    "nothing known": (lambda a, r: np.full(a.shape, np.nan), "the bystander's credit for action 0 is nan"),
    "opposite": (lambda a, r: -by_difference(a, r), "the worker's credit"),
    "one action of the bystander": (
        lambda a, r: np.stack([r, 0.2 * a[:, 1]], axis=1),
        "the bystander's credit for action 1 is 0.200, wanted 0",
    ),
    "cancels out": (
        lambda a, r: np.stack([r, 0.4 * a[:, 1] - 0.2], axis=1),
        "action 0 is -0.200, wanted 0; the bystander's credit for action 1 is 0.200",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_credit_is_refused(name: str) -> None:
    assign, message = WRONG[name]
    with pytest.raises(ProbeError, match=message):
        check_credit(assign)


def test_credit_of_another_shape_is_refused() -> None:
    with pytest.raises(UsageError, match=r"shape \(4000,\); \(4000, 2\) is needed"):
        check_credit(lambda actions, rewards: rewards)
