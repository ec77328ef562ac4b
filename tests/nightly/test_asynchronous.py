"""A3C learns CartPole as A2C does: two workers, twenty seeds each, the least that an interval is given for.

``make nightly PART=asynchronous`` runs it and keeps the figures of each seed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from learnloop.evaluation.seeds import probability_of_improvement, summarise_seeds
from learnloop.training.options import make_options
from learnloop.training.run_files import read_metrics
from learnloop.training.runs import late_return, start_run
from tests.nightly.progress import FIGURES

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(7200)]

NUM_SEEDS = 20
STEPS = 100_000


def test_it_learns_cartpole_as_a2c(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    """S0.13: mean returns of the last quarter of the evaluations, by rl-zoo's settings for A2C."""
    late: dict[str, list[float]] = {}
    stale: list[float] = []
    for algorithm in ("a2c", "a3c"):
        run = start_run(tmp_path, make_options(algorithm, "CartPole-v1", steps=STEPS), list(range(NUM_SEEDS)))
        late[algorithm] = [late_return(result) for result in run.record.results]
        figures = [line for path in run.folder.glob("seed-*/metrics.jsonl") for line in read_metrics(path)]
        stale += [line["train/staleness_mean"] for line in figures if "train/staleness_mean" in line]
    found = probability_of_improvement(late["a3c"], late["a2c"], level=0.99)
    figures: dict[str, object] = {
        "probability that a3c is better": found.probability,
        "interval": str(found.interval),
        "staleness": float(np.mean(stale)),
    }
    for algorithm, values in late.items():
        summary = summarise_seeds(values)
        figures[algorithm] = {"mean": summary.mean, "interval": str(summary.mean_interval), "seeds": values}
    record_property(FIGURES, figures)
    assert found.interval is not None
    assert found.interval.low <= 0.5 <= found.interval.high
    spread = np.hypot(np.std(late["a2c"], ddof=1), np.std(late["a3c"], ddof=1)) / np.sqrt(NUM_SEEDS)
    assert abs(np.mean(late["a3c"]) - np.mean(late["a2c"])) < 3 * spread
    assert np.mean(stale) > 0.2
