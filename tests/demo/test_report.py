"""learnloop.demo.report: a graph that shows what the rewards were."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from learnloop.core.records import Verdict
from learnloop.demo.job import BEST_FIXED, DemoResult
from learnloop.demo.packing import SECONDS_PRICE
from learnloop.demo.report import print_report, reward_graph


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


class Figures:
    """Stands for an arm, a test or a verification: what the report reads of it."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


def report(width: int, best_fixed: str = "gzip-9") -> list[str]:
    interval = Figures(low=-0.0123, high=0.0456)
    arm = Figures(mean=0.4321, interval=interval)
    verification: Any = Figures(
        verdict=Verdict.INCONCLUSIVE,
        reasons=["too few"],
        arms={"trained": arm, "random": arm, BEST_FIXED: arm},
        tests=[Figures(against=BEST_FIXED, difference=0.0123, interval=interval, p_value=0.0312)],
    )
    result = DemoResult(verification, None, [0.5] * 200, best_fixed, 0.5, {"text": 1_234}, 12.0)
    target = io.StringIO()
    print_report(result, Console(file=target, width=width, force_terminal=True, no_color=True, highlight=False))
    return target.getvalue().replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines()


@pytest.mark.parametrize("width", [80, 40, 4096])
def test_no_column_of_the_table_is_lost(width: int) -> None:
    lines = report(width)
    assert any(line.split()[-6:] == ["-0.0123", "to", "+0.0456", "p", "=", "0.0312"] for line in lines)
    assert any("best fixed (gzip-9)" in line and "86.4%" in line for line in lines)
    assert not any("…" in line for line in lines)
    if width >= 80:
        assert max(map(len, lines)) <= 80


def test_the_reward_is_explained() -> None:
    assert f"Reward = share of bytes saved - {SECONDS_PRICE} x CPU seconds per MB." in report(80)
