"""Trainings that cannot have learned: whole ones, each with its choice of the best policy and with its controls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from learnloop.core.records import Verdict
from learnloop.training.options import make_options
from learnloop.training.runs import start_run
from tests.nightly.progress import FIGURES

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(7200)]

NUM_RUNS = 60
SMALL = {"n_steps": 16, "batch_size": 64, "n_epochs": 2, "net_arch": (8,)}


@pytest.mark.parametrize("env", ["CartPole-v1", "learnloop/Identity-v0"])
def test_shuffled_trainings_are_not_learned(
    env: str, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """L3 of the proof: at most 5 % of the known negatives are called learned."""
    fields = {"steps": 1_600, "eval_interval": 320, "eval_episodes": 2, "n_envs": 8, "shuffled": True}
    options = make_options("ppo", env, preset="defaults", options=SMALL, **fields)
    verdicts = [start_run(tmp_path, options, [seed]).best.prove(num_episodes=20).verdict for seed in range(NUM_RUNS)]
    record_property(FIGURES, Counter(verdict.value for verdict in verdicts))
    assert verdicts.count(Verdict.LEARNED) <= 7  # more has probability .01 at 5 % each
