"""Learning in our own environments: more worlds, seeds and algorithms than the tests of each change have time for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from learnloop.core.records import Verdict
from learnloop.training.options import make_options
from learnloop.training.runs import start_run
from tests.nightly.progress import FIGURES
from tests.training.tool_use_runs import ALGORITHMS, LEARNED, learned_share

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(3600)]


@pytest.mark.parametrize("world_seed", [0, 1, 2])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_tool_use(name: str, world_seed: int, record_property: Callable[[str, object], None]) -> None:
    """At least 90 % of the optimum, 5 of 5 seeds; a bandit has at most 29 % of it."""
    shares = [learned_share(name, seed, world_seed) for seed in range(5)]
    record_property(FIGURES, {"shares of the optimum": shares})
    assert min(shares) >= LEARNED, shares


@pytest.mark.parametrize("algorithm", ["ppo", "a2c", "dqn", "sac"])
def test_no_signal(algorithm: str, tmp_path: Path) -> None:
    """P9: no training is said to have learned from a reward that depends on nothing."""
    options = make_options(algorithm, "learnloop/IndependentReward-v0", steps=2_000, n_envs=4, eval_episodes=50)
    proof = start_run(tmp_path, options, [0, 1, 2]).best.prove()
    assert proof.verdict is Verdict.NO_SIGNAL, proof
