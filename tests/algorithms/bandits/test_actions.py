"""What actions, masks and rewards may be, and the draw."""

from __future__ import annotations

import math

import numpy as np
import pytest

from learnloop.algorithms import allowed_actions, check_actions, draw
from learnloop.core.errors import ActionError

ACTIONS = ["store", "gzip", "xz"]


def test_good_actions_and_masks_are_accepted() -> None:
    check_actions(ACTIONS)
    check_actions(("one",))
    check_actions(ACTIONS, [False, True, False])
    assert allowed_actions(ACTIONS, None).tolist() == [True, True, True]
    assert allowed_actions(ACTIONS, [False, np.True_, False]).tolist() == [False, True, False]  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("actions", "mask", "message"),
    [
        ([], None, "at least 1 name"),
        ("store", None, "give a list"),
        (["a", "b", "a"], None, "actions 'a' are given more than once"),
        (["a", ""], None, "'' cannot name an action"),
        (["a", 3], None, "3 cannot name an action"),
        (ACTIONS, [True], "mask has 1 entries for 3 actions"),
        (ACTIONS, [True, False, 1], "mask holds 1; allowed are True and False"),
        (ACTIONS, [False, False, False], "allows none of 'store', 'gzip', 'xz'"),
    ],
)
def test_bad_actions_and_masks_are_refused(actions: list[str], mask: list[bool] | None, message: str) -> None:
    with pytest.raises(ActionError, match=message):
        check_actions(actions, mask)


def test_draws_follow_the_probabilities_and_never_hit_a_zero() -> None:
    probabilities = np.array([0.0, 0.3, 0.0, 0.7, 0.0])
    rng = np.random.default_rng(0)
    counts = np.bincount([draw(probabilities, rng) for _ in range(20_000)], minlength=5)
    assert counts[[0, 2, 4]].sum() == 0
    assert abs(counts[1] - 6000) < 5 * math.sqrt(20_000 * 0.3 * 0.7)


def test_a_sum_just_below_one_gives_the_last_possible_action() -> None:
    class AlmostOne:
        def random(self) -> float:
            return math.nextafter(1.0, 0.0)

    probabilities = np.array([0.1] * 10 + [0.0])
    assert sum(probabilities.tolist()) < 1.0
    assert draw(probabilities, AlmostOne()) == 9  # type: ignore[arg-type]
    with pytest.raises(ActionError, match="no action has a probability above 0"):
        draw(np.zeros(3), np.random.default_rng(0))
