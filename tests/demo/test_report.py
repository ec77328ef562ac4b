"""learnloop.demo.report: a graph that shows what the rewards were."""

from __future__ import annotations

import numpy as np
import pytest

from learnloop.demo.report import reward_graph


def test_a_rising_reward_rises() -> None:
    lines = reward_graph(list(np.linspace(0, 1, 300)), width=20, height=4)
    assert lines[0] == "Reward while learning (mean of the last 150 files):"
    top, bottom = lines[1], lines[4]
    assert top.startswith("  0.751 │") or top.startswith("  0.750 │")
    assert bottom.startswith("  0.249 │") or bottom.startswith("  0.250 │")
    heights = [sum(row[9 + column] != " " for row in lines[1:5]) for column in range(20)]
    assert heights == sorted(heights)
    assert (heights[0], heights[-1]) == (1, 4)
    assert lines[-1].split() == ["file", "150", "file", "300"]


@pytest.mark.parametrize("rewards", [[0.5], [0.5] * 40, list(range(200))])
def test_any_number_of_rewards(rewards: list[float]) -> None:
    assert len(reward_graph(rewards)) == 11
