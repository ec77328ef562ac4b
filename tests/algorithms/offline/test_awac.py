"""AWAC: its losses against torch, and what it prefers in a chain."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from learnloop.algorithms.off_policy.twin_critic import least_values
from learnloop.algorithms.offline.awac import AWAC, AWACConfig
from learnloop.core.errors import UsageError
from learnloop.core.spaces import MultiDiscrete
from tests.algorithms.logged_chains import GAMMA, chain, chain_values, descents_of, make, observed, random_dataset
from tests.algorithms.steps import spaces


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("max_weight", [1.2, 100.0])
def test_losses_and_gradients_are_those_of_the_paper(masked: bool, max_weight: float) -> None:
    algorithm = make("awac", random_dataset(masked=masked), lam=0.5, max_weight=max_weight)
    algorithm.update(30)
    minibatch = algorithm._steps.draw(np.random.default_rng(1))
    observations, actions = minibatch.observations, torch.tensor(minibatch.actions)[:, None]
    terminated = torch.tensor(algorithm._steps.dataset.terminated[minibatch.rows])

    def log_chances(logits: torch.Tensor, masks: Any) -> torch.Tensor:
        allowed = logits.masked_fill(~torch.tensor(masks), -1e9) if masked else logits
        return torch.log_softmax(allowed, dim=1)

    arrived = minibatch.next_observations
    slow = torch.tensor(algorithm.critic.target.predict(arrived))
    ahead = log_chances(torch.tensor(algorithm.actor.predict(arrived)), minibatch.next_masks).exp()
    following = (ahead * torch.minimum(slow[:, :3], slow[:, 3:])).sum(dim=1)
    targets = torch.tensor(minibatch.rewards) + GAMMA * torch.where(terminated, 0.0, following)
    both = torch.tensor(algorithm.critic.network.predict(observations), requires_grad=True)
    first, second = both[:, :3].gather(1, actions)[:, 0], both[:, 3:].gather(1, actions)[:, 0]
    critic_loss = ((first - targets) ** 2).mean() + ((second - targets) ** 2).mean()
    logits = torch.tensor(algorithm.actor.predict(observations), requires_grad=True)
    log_probs = log_chances(logits, minibatch.masks)
    least = torch.minimum(both[:, :3], both[:, 3:]).detach()
    advantages = least.gather(1, actions)[:, 0] - (log_probs.detach().exp() * least).sum(dim=1)
    weights = (len(advantages) * torch.softmax(advantages / 0.5, dim=0)).clamp(max=max_weight)
    actor_loss = -(weights * log_probs.gather(1, actions)[:, 0]).mean()
    found = descents_of(algorithm, minibatch)
    assert (weights == max_weight).any() == (max_weight < 100)
    for name, loss, leaf in (("critic", critic_loss, both), ("actor", actor_loss, logits)):
        loss.backward()  # type: ignore[no-untyped-call]
        assert found[name].loss == pytest.approx(loss.item(), rel=1e-4), name
        np.testing.assert_allclose(found[name].gradient, leaf.grad, rtol=1e-3, atol=1e-6, err_msg=name)


def test_the_better_action_is_preferred_and_values_are_its_policys() -> None:
    """With a small lambda the policy becomes the best one, and Q the values of it."""
    algorithm = make("awac", chain(), lam=0.05, net_arch=(), batch_size=256, tau=0.05)
    algorithm.update(2500)
    policy = algorithm.policy()
    chances = np.array([policy.probabilities(observation) for observation in observed()])
    assert (chances[:, 1] > 0.85).all(), chances
    expected = chain_values(lambda state, values: float(chances[state] @ values))
    found = least_values(algorithm.critic.network.predict(observed()))
    np.testing.assert_allclose(found, expected, atol=0.04)


def test_a_large_lambda_is_behaviour_cloning() -> None:
    data = chain(4000, chances=(0.8, 0.3, 0.6))
    algorithm = make("awac", data, lam=1e6, net_arch=(), batch_size=256)
    algorithm.update(1500)
    states = data.observations.argmax(axis=1)
    for state, observation in enumerate(observed()):
        frequency = data.actions[states == state].mean()
        assert algorithm.policy().probabilities(observation)[1] == pytest.approx(frequency, abs=0.03)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"lam": 0.0}, "lam is 0.0"), ({"max_weight": 0.5}, "max_weight is 0.5"), ({"tau": -0.5}, "tau is -0.5")],
)
def test_settings_without_a_meaning_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        AWACConfig(**options)


def test_other_actions_are_refused() -> None:
    with pytest.raises(UsageError, match="awac needs a discrete action space"):
        AWAC(AWACConfig(), spaces(3, MultiDiscrete(nvec=(2, 2))))
