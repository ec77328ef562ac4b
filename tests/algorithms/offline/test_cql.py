"""CQL: its targets and loss against torch, the values of a chain, its conservatism."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from learnloop.algorithms.offline.cql import CQL, CQLConfig
from learnloop.core.errors import UsageError
from learnloop.core.spaces import Box, MultiDiscrete
from tests.algorithms.logged_chains import (
    GAMMA,
    chain,
    chain_values,
    descents_of,
    make,
    observed,
    random_dataset,
)
from tests.algorithms.steps import spaces


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("alpha", [0.0, 2.5])
@pytest.mark.parametrize("interval", [1, 50])
def test_targets_loss_and_gradient_are_those_of_the_paper(masked: bool, alpha: float, interval: int) -> None:
    """Double DQN's targets, equation 4's loss; with the target network asked row by row, and once for all rows."""
    algorithm = make("cql", random_dataset(masked=masked), alpha=alpha, target_update_interval=interval)
    algorithm.update(7)
    algorithm.target.parameters[:] *= np.float32(0.7)
    algorithm.target.refresh()
    algorithm._forget_derived()
    minibatch = algorithm._steps.draw(np.random.default_rng(1))
    arrived = minibatch.next_observations
    judged = torch.tensor(algorithm.network.predict(arrived))
    if masked:
        judged = judged.masked_fill(~torch.tensor(minibatch.next_masks), -math.inf)
    best = judged.argmax(dim=1, keepdim=True)
    worth = torch.tensor(algorithm.target.predict(arrived)).gather(1, best)[:, 0]
    terminated = torch.tensor(algorithm._steps.dataset.terminated[minibatch.rows])
    targets = torch.tensor(minibatch.rewards) + GAMMA * torch.where(terminated, 0.0, worth)
    outputs = torch.tensor(algorithm.network.predict(minibatch.observations), requires_grad=True)
    chosen = outputs.gather(1, torch.tensor(minibatch.actions)[:, None])[:, 0]
    allowed = outputs.masked_fill(~torch.tensor(minibatch.masks), -math.inf) if masked else outputs
    conservative = (torch.logsumexp(allowed, dim=1) - chosen).mean()
    loss = alpha * conservative + 0.5 * ((chosen - targets) ** 2).mean()
    loss.backward()  # type: ignore[no-untyped-call]
    found = descents_of(algorithm, minibatch)[""]
    assert terminated.any()
    assert found.loss == pytest.approx(loss.item(), rel=1e-4)
    np.testing.assert_allclose(found.gradient, outputs.grad, rtol=1e-3, atol=1e-6)


def test_without_conservatism_it_finds_the_best_values_of_a_random_log() -> None:
    """Q* by value iteration; a log that is cut after 3 steps must be bootstrapped there."""
    expected = chain_values(lambda state, values: values.max())
    algorithm = make("cql", chain(cut_after=3), alpha=0.0, net_arch=(), batch_size=256, target_update_interval=20)
    algorithm.update(2000)
    np.testing.assert_allclose(algorithm.action_values(observed()), expected, atol=0.03)
    assert algorithm.policy().choose(observed()).tolist() == [1, 1, 1]


def test_what_was_not_logged_is_worth_less() -> None:
    """In a state where action 1 was hardly taken, alpha pushes its value down, and the policy away from it."""
    data = chain(4000, chances=(0.05, 0.5, 0.5))
    free, careful = (
        make("cql", data, alpha=each, net_arch=(), batch_size=256, target_update_interval=20) for each in (0.0, 0.5)
    )
    for each in (free, careful):
        each.update(2000)
    assert free.policy().choose(observed())[0] == 1
    assert careful.policy().choose(observed())[0] == 0
    gaps = [np.diff(each.action_values(observed())[0])[0] for each in (free, careful)]
    assert gaps[1] < gaps[0] - 0.5


@pytest.mark.parametrize(("tau", "interval"), [(1.0, 10), (0.3, 3), (0.01, 1)])
def test_the_target_network_follows_by_gradient_steps(tau: float, interval: int) -> None:
    algorithm = make("cql", random_dataset(), tau=tau, target_update_interval=interval)
    expected = algorithm.target.parameters.astype(np.float64)
    for number in range(1, 31):
        algorithm.update()
        if number % interval == 0:
            expected = (1 - tau) * expected + tau * algorithm.network.parameters
        np.testing.assert_allclose(algorithm.target.parameters, expected, rtol=1e-4, atol=1e-6)


def test_a_small_data_set_is_judged_once_for_each_target() -> None:
    algorithm = make("cql", random_dataset(num_steps=300), target_update_interval=10)
    looks: list[int] = []
    predict = algorithm.target.predict

    def spy(inputs: Any, masks: Any = None) -> Any:
        looks.append(len(inputs))
        return predict(inputs, masks)

    algorithm.target.predict = spy
    algorithm.update(35)
    assert looks == [300] * 4


def test_acting_is_greedy() -> None:
    algorithm = make("cql", random_dataset())
    algorithm.update(50)
    observations = np.random.default_rng(0).standard_normal((1, 4)).astype(np.float32)
    best = algorithm.action_values(observations).argmax()
    assert {int(algorithm.choose(observations)[0]) for _ in range(20)} == {best}
    others = np.arange(3) != best
    assert algorithm.choose(observations, others[None])[0] != best


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": -1.0}, "alpha is -1.0"),
        ({"target_update_interval": 0}, "target_update_interval is 0"),
        ({"tau": 1.5}, "tau is 1.5"),
    ],
)
def test_settings_without_a_meaning_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        CQLConfig(**options)


@pytest.mark.parametrize("space", [MultiDiscrete(nvec=(2, 2)), Box(shape=(1,), low=(0.0,), high=(1.0,))])
def test_other_actions_are_refused(space: Any) -> None:
    with pytest.raises(UsageError, match=r"cql needs a discrete action space.*bc takes all"):
        CQL(CQLConfig(), spaces(3, space))
