"""IQL: its three losses against torch, and the values of a chain under an expectile."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from learnloop.algorithms.off_policy.twin_critic import least_values
from learnloop.algorithms.offline.iql import IQL, IQLConfig
from learnloop.core.errors import UsageError
from learnloop.core.spaces import Box
from tests.algorithms.logged_chains import GAMMA, chain, chain_values, descents_of, make, observed, random_dataset
from tests.algorithms.steps import spaces


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("expectile", [0.5, 0.9])
@pytest.mark.parametrize("max_weight", [1.2, 100.0])
def test_losses_and_gradients_are_those_of_the_paper(masked: bool, expectile: float, max_weight: float) -> None:
    """Equations 5, 6 and 7, with clipped double Q and clipped weights; each with gradients of its own network only."""
    algorithm = make("iql", random_dataset(masked=masked), expectile=expectile, max_weight=max_weight, beta=2.0)
    algorithm.update(30)
    minibatch = algorithm._steps.draw(np.random.default_rng(1))
    observations, actions = minibatch.observations, torch.tensor(minibatch.actions)[:, None]
    terminated = torch.tensor(algorithm._steps.dataset.terminated[minibatch.rows])
    slow = torch.tensor(algorithm.critic.target.predict(observations))
    judged = torch.minimum(slow[:, :3], slow[:, 3:]).gather(1, actions)[:, 0]
    following = torch.tensor(algorithm.value.predict(minibatch.next_observations)[:, 0])
    targets = torch.tensor(minibatch.rewards) + GAMMA * torch.where(terminated, 0.0, following)

    values = torch.tensor(algorithm.value.predict(observations), requires_grad=True)
    gap = judged - values[:, 0]
    value_loss = ((expectile - (gap < 0).float()).abs() * gap**2).mean()
    both = torch.tensor(algorithm.critic.network.predict(observations), requires_grad=True)
    first, second = both[:, :3].gather(1, actions)[:, 0], both[:, 3:].gather(1, actions)[:, 0]
    critic_loss = ((first - targets) ** 2).mean() + ((second - targets) ** 2).mean()
    logits = torch.tensor(algorithm.actor.predict(observations), requires_grad=True)
    allowed = logits.masked_fill(~torch.tensor(minibatch.masks), -1e9) if masked else logits
    weights = (2.0 * gap.detach()).exp().clamp(max=max_weight)
    actor_loss = -(weights * torch.log_softmax(allowed, dim=1).gather(1, actions)[:, 0]).mean()
    found = descents_of(algorithm, minibatch)
    assert (weights == max_weight).any() == (max_weight < 100)
    for name, loss, leaf in (
        ("value", value_loss, values),
        ("critic", critic_loss, both),
        ("actor", actor_loss, logits),
    ):
        loss.backward()  # type: ignore[no-untyped-call]
        assert found[name].loss == pytest.approx(loss.item(), rel=1e-4), name
        np.testing.assert_allclose(found[name].gradient, leaf.grad, rtol=1e-3, atol=1e-6, err_msg=name)


def expectile_of(values: np.ndarray, chances: np.ndarray, expectile: float) -> float:
    """The expectile of a distribution over two values: where the weighted pulls from above and below are equal."""
    low, high = int(values.argmin()), int(values.argmax())
    above, below = expectile * chances[high], (1 - expectile) * chances[low]
    return float((above * values[high] + below * values[low]) / (above + below))


@pytest.mark.parametrize("expectile", [0.5, 0.7, 0.95])
def test_values_are_those_of_the_expectile(expectile: float) -> None:
    """The fixed point of equations 5 and 6 over the logged frequencies; .5 is the value of the policy that logged."""
    data = chain(cut_after=4)
    states = data.observations.argmax(axis=1)
    frequencies = [
        np.bincount(data.actions[states == state], minlength=2) / (states == state).sum() for state in range(3)
    ]
    expected = chain_values(lambda state, values: expectile_of(values, frequencies[state], expectile))
    algorithm = make("iql", data, expectile=expectile, net_arch=(), batch_size=256, tau=0.05)
    algorithm.update(2500)
    found = least_values(algorithm.critic.network.predict(observed()))
    np.testing.assert_allclose(found, expected, atol=0.04)


def test_a_high_expectile_goes_to_the_best_logged_action() -> None:
    algorithm = make("iql", chain(), expectile=0.95, beta=20.0, net_arch=(), batch_size=256, tau=0.05)
    algorithm.update(2500)
    policy = algorithm.policy()
    assert policy.choose(observed()).tolist() == [1, 1, 1]
    assert all(policy.probabilities(observation)[1] > 0.85 for observation in observed())


def test_without_beta_it_is_behaviour_cloning() -> None:
    data = chain(4000, chances=(0.8, 0.3, 0.6))
    algorithm = make("iql", data, beta=0.0, net_arch=(), batch_size=256)
    algorithm.update(1500)
    states = data.observations.argmax(axis=1)
    for state, observation in enumerate(observed()):
        frequency = data.actions[states == state].mean()
        assert algorithm.policy().probabilities(observation)[1] == pytest.approx(frequency, abs=0.03)


def test_the_target_network_follows_each_step() -> None:
    algorithm = make("iql", random_dataset(), tau=0.1)
    expected = algorithm.critic.target.parameters.astype(np.float64)
    for _ in range(20):
        algorithm.update()
        expected = 0.9 * expected + 0.1 * algorithm.critic.network.parameters
        np.testing.assert_allclose(algorithm.critic.target.parameters, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"expectile": 1.0}, "expectile is 1.0"),
        ({"beta": -1.0}, "beta is -1.0"),
        ({"max_weight": 0.0}, "max_weight is 0.0"),
        ({"tau": 1.5}, "tau is 1.5"),
    ],
)
def test_settings_without_a_meaning_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        IQLConfig(**options)


def test_other_actions_are_refused() -> None:
    with pytest.raises(UsageError, match="iql needs a discrete action space"):
        IQL(IQLConfig(), spaces(3, Box(shape=(1,), low=(0.0,), high=(1.0,))))
