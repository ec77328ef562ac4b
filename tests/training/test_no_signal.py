"""P9: where the reward is independent of everything, a training is not said to have learned."""

from __future__ import annotations

from pathlib import Path

import pytest

from learnloop.core.records import Verdict
from learnloop.training.options import make_options
from learnloop.training.runs import start_run


@pytest.mark.slow
def test_nothing_is_learned_from_a_reward_that_depends_on_nothing(tmp_path: Path) -> None:
    """F2.8: weights move, returns differ by chance; the verdict is that there is no signal."""
    options = make_options("ppo", "learnloop/IndependentReward-v0", steps=2_000, n_envs=4, eval_episodes=50)
    run = start_run(tmp_path, options, [0, 1, 2])
    proof = run.best.prove()
    assert proof.verdict is Verdict.NO_SIGNAL, proof
    assert abs(proof.mean) < 0.5
