"""Algorithms from options: what a named network depends on."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from learnloop.algorithms.on_policy.a3c import A3C
from learnloop.core.extensions import POINTS
from learnloop.core.spaces import Box, Discrete, Spaces
from learnloop.envs import make_stream
from learnloop.nn.torch.named_network import NamedNetwork
from learnloop.training.options import make_options
from learnloop.training.trainers.seed_trainer import assemble
from learnloop.training.workers.actor_slots import ActorSlot
from learnloop.training.workers.actors import ActorTask, _Replica

SPACES = Spaces(observation=Box(shape=(4,), low=(None,) * 4, high=(None,) * 4), action=Discrete(n=2))


class Features(torch.nn.Module):
    """A frozen layer of random features below one that learns."""

    def __init__(self, input_size: int, output_size: int) -> None:
        super().__init__()
        self.frozen = torch.nn.Parameter(torch.randn(8, input_size), requires_grad=False)
        self.outer = torch.nn.Linear(8, output_size)

    def forward(self, inputs: torch.Tensor) -> Any:
        return self.outer(torch.tanh(inputs @ self.frozen.T))


@pytest.fixture(autouse=True)
def _features() -> Iterator[None]:
    POINTS["network"].register("features", Features, ())
    yield
    POINTS["network"].registered.clear()


def frozen(seed: int, network_seed: int | None = None) -> np.ndarray:
    options = make_options("a3c", "CartPole-v1", steps=1_000, network="features")
    network = assemble(options, SPACES, 2, seed, network_seed=network_seed).networks()["network"]
    assert isinstance(network, NamedNetwork)
    return network.state()["towers.tower_policy.frozen"].copy()


def test_a_worker_has_the_frozen_tensors_of_the_learner() -> None:
    """It gets the parameters that learn; what it acts through besides must be the same."""
    options = make_options("a3c", "CartPole-v1", steps=1_000, network="features", n_envs=2)
    stream = make_stream("CartPole-v1", 2)
    learner = assemble(options, stream.spaces, 2, 0)
    stream.close()
    assert isinstance(learner, A3C)
    slot = ActorSlot(learner)
    task = ActorTask(
        options=options,
        env="CartPole-v1",
        is_maker=False,
        seed=0,
        number=1,
        num_steps=512,
        spaces=learner.spaces,
        handle=os.dup(slot.handle),  # each side closes its own
    )
    assert task.algorithm_seed() != 0
    worker = _Replica(task)._algorithm
    networks = [each.networks()["network"] for each in (learner, worker)]
    states = [each.state() for each in networks if isinstance(each, NamedNetwork)]
    for tower in ("policy", "value"):
        name = f"towers.tower_{tower}.frozen"
        np.testing.assert_array_equal(states[1][name], states[0][name])


def test_frozen_tensors_are_those_of_the_networks_seed() -> None:
    learner = frozen(0)
    np.testing.assert_array_equal(frozen(7, network_seed=0), learner)
    assert np.abs(frozen(7) - learner).max() > 0.1
