"""Prints what a demo run found."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from rich.measure import Measurement
from rich.table import Table

from learnloop.demo.job import BEST_FIXED, DemoResult
from learnloop.demo.packing import SECONDS_PRICE

if TYPE_CHECKING:
    from rich.console import Console

_WIDE = 4096
"""Columns that no table needs."""
_WIDTH = 60
_HEIGHT = 8
_WINDOW = 150
_LEVELS = " ▁▂▃▄▅▆▇█"


def print_report(result: DemoResult, console: Console) -> None:
    """Prints the table, the reward graph, the verdict with its reasons, the version and what to type next."""
    counts = ", ".join(f"{count:,} {kind}" for kind, count in result.num_files.items())
    console.print(f"Files of this machine: {counts}.")
    console.print(f"Reward = share of bytes saved - {SECONDS_PRICE} x CPU seconds per MB.\n")
    table = _table(result)
    table.width = Measurement.get(console, console.options.update(max_width=_WIDE), table).maximum  # never cut
    console.print(table, soft_wrap=True)
    console.print()
    for line in reward_graph(result.training_rewards):
        console.print(line, markup=False)
    verification = result.verification
    console.print(f"\nVerdict: [bold]{verification.verdict.value}[/bold], in {result.seconds:.1f} s")
    for reason in verification.reasons:
        console.print(f"  {reason}", markup=False)
    if result.version is None:
        console.print("Nothing was registered: only what is proven to have learned becomes a version.")
        return
    label = f"{result.version.policy}@{result.version.version}"
    console.print(f"Registered: [bold]{label}[/bold], {result.version.content_hash[:12]}\n\nNext:")
    for command in (
        f"policies show {label}",
        f"policies evaluate {label} --baseline best-fixed",
        "traces list --limit 5",
        "doctor",
    ):
        console.print(f"  learnloop {command}", markup=False)


def reward_graph(rewards: Sequence[float], width: int = _WIDTH, height: int = _HEIGHT) -> list[str]:
    """Returns the lines of a bar graph of the mean reward of the last ``_WINDOW`` files, from left to right.

    The first column is where the first ``_WINDOW`` files are packed. Files differ far more than choices do, hence
    the mean over so many.
    """
    sums = np.cumsum(np.concatenate([[0.0], rewards]))
    window = min(_WINDOW, len(rewards))
    ends = np.unique(np.linspace(window, len(rewards), width).astype(int))
    means = (sums[ends] - sums[ends - window]) / window
    low, high = float(means.min()), float(means.max())
    eighths = 1 + np.rint((means - low) / ((high - low) or 1.0) * (8 * height - 1)).astype(int)
    lines = [f"Reward while learning (mean of the last {window} files):"]
    for row in reversed(range(height)):
        label = high if row == height - 1 else low if row == 0 else None
        cells = "".join(_LEVELS[min(8, max(0, int(level) - 8 * row))] for level in eighths)
        lines.append(f"{'' if label is None else f'{label:.3f}':>7} │{cells}")
    first, last = f"file {window}", f"file {len(rewards):,}"
    return [*lines, f"{'':>7} └{'─' * len(means)}", f"{'':>8} {first}{last:>{max(1, len(means) - len(first))}}"]


def _table(result: DemoResult) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for column in ("on held-out files", "mean reward", "95 % interval", "of optimum"):
        table.add_column(column, justify="left" if column == "on held-out files" else "right", no_wrap=True)
    names = {"trained": "learned policy", BEST_FIXED: f"best fixed ({result.best_fixed})", "random": "random"}
    for name, label in names.items():
        arm = result.verification.arms.get(name)
        if arm is not None:
            interval = "-" if arm.interval is None else f"{arm.interval.low:.3f} to {arm.interval.high:.3f}"
            table.add_row(label, f"{arm.mean:.4f}", interval, f"{arm.mean / result.optimum_reward:.1%}")
    table.add_row("optimum, file by file", f"{result.optimum_reward:.4f}", "", "100.0%")
    for test in result.verification.tests:
        if test.against == BEST_FIXED and test.interval is not None:
            table.add_row(
                "learned - best fixed",
                f"{test.difference:+.4f}",
                f"{test.interval.low:+.4f} to {test.interval.high:+.4f}",
                f"p = {test.p_value:.4f}",
            )
    return table
