"""What must be learned before anything lands; the longer tables are in ``tests/nightly``."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from learnloop.training.options import make_options
from learnloop.training.runs import start_run


@pytest.mark.slow
def test_cartpole_within_100_000_steps(tmp_path: Path) -> None:
    """PPO with rl-zoo's settings: at least 475 on held-out episodes, 2 of 2 seeds; nightly has 5."""
    run = start_run(tmp_path, make_options("ppo", "CartPole-v1", steps=100_000), [0, 1])
    means = run.evaluate(50).means
    assert min(means) >= 475, means


@pytest.mark.slow
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_cartpole_on_a_gpu(tmp_path: Path) -> None:
    """``TorchNetwork`` on CUDA reaches what numpy reaches."""
    run = start_run(tmp_path, make_options("ppo", "CartPole-v1", steps=100_000, device="cuda"), list(range(3)))
    means = run.evaluate(50).means
    assert min(means) >= 475, means
