"""Behaviour cloning: its loss against torch, and the logged frequencies that it must give back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from learnloop.algorithms.offline.bc import BC, BCConfig
from learnloop.core.errors import UsageError
from learnloop.core.spaces import Box, Discrete, MultiDiscrete
from tests.algorithms.logged_chains import chain, dataset, descents_of, make, observed, random_dataset

F = np.float32
ACTIONS = {
    "discrete": Discrete(n=3),
    "multi_discrete": MultiDiscrete(nvec=(2, 3)),
    "box": Box(shape=(2,), low=(-1.0, -1.0), high=(1.0, 1.0)),
}


def torch_log_probs(action: Any, outputs: torch.Tensor, minibatch: Any) -> tuple[torch.Tensor, torch.Tensor]:
    chosen = torch.tensor(minibatch.actions)
    if isinstance(action, Box):
        mean, log_std = outputs.chunk(2, dim=1)
        normal = torch.distributions.Normal(mean, log_std.exp())
        return normal.log_prob(chosen).sum(1), normal.entropy().sum(1)
    sizes = list(action.nvec) if isinstance(action, MultiDiscrete) else [action.n]
    if minibatch.masks is not None:
        outputs = outputs.masked_fill(~torch.tensor(minibatch.masks), -1e9)
    parts = [torch.distributions.Categorical(logits=part) for part in outputs.split(sizes, dim=1)]
    chosen = chosen.reshape(len(chosen), -1)
    log_probs = [part.log_prob(chosen[:, at]) for at, part in enumerate(parts)]
    return sum(log_probs), sum(part.entropy() for part in parts)  # type: ignore[return-value]


@pytest.mark.parametrize("name", ACTIONS)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("ent_coef", [0.0, 0.05])
def test_the_loss_and_its_gradient(name: str, masked: bool, ent_coef: float) -> None:
    data = random_dataset(ACTIONS[name], masked=masked)
    algorithm = make("bc", data, ent_coef=ent_coef)
    algorithm.update(20)
    minibatch = algorithm._steps.draw(np.random.default_rng(1))
    found = descents_of(algorithm, minibatch)[""]
    outputs = torch.tensor(algorithm.actor.predict(minibatch.observations), requires_grad=True)
    log_probs, entropies = torch_log_probs(ACTIONS[name], outputs, minibatch)
    loss = -log_probs.mean() - ent_coef * entropies.mean()
    loss.backward()  # type: ignore[no-untyped-call]
    assert found.loss == pytest.approx(loss.item(), rel=1e-4)
    np.testing.assert_allclose(found.gradient, outputs.grad, rtol=1e-3, atol=1e-6)


def test_logged_frequencies_are_reproduced() -> None:
    data = chain(4000, chances=(0.8, 0.3, 0.6))
    algorithm = make("bc", data, net_arch=(), batch_size=256)
    algorithm.update(1500)
    policy = algorithm.policy()
    states = data.observations.argmax(axis=1)
    for state, observation in enumerate(observed()):
        frequency = data.actions[states == state].mean()
        assert policy.probabilities(observation)[1] == pytest.approx(frequency, abs=0.03)


def test_masked_actions_have_no_part_in_the_likelihood() -> None:
    """Where two of three actions are allowed, and one of them was taken three times of four, that is its chance."""
    num_steps = 400
    masks = np.tile([True, False, True], (num_steps, 1))
    flags = np.ones(num_steps, dtype=np.bool_)
    columns = {
        "observations": np.ones((num_steps, 1), dtype=F),
        "actions": np.where(np.arange(num_steps) % 4 == 0, 0, 2),
        "rewards": np.zeros(num_steps),
        "next_observations": np.ones((num_steps, 1), dtype=F),
        "terminated": flags,
        "truncated": ~flags,
    }
    data = dataset(columns, Discrete(n=3), 1, masks=masks, next_masks=masks)
    algorithm = make("bc", data, net_arch=(), batch_size=256)
    algorithm.update(800)
    np.testing.assert_allclose(algorithm.policy().probabilities([1.0], masks[0]), [0.25, 0.0, 0.75], atol=0.03)


def test_continuous_actions_have_the_logged_mean_and_spread() -> None:
    rng = np.random.default_rng(0)
    data = random_dataset(Box(shape=(1,), low=(-9.0,), high=(9.0,)), 4000)
    seen = data.observations
    actions = (0.5 * seen[:, :1] - 1 + 0.3 * rng.standard_normal((len(seen), 1))).astype(F)
    columns = {name: value for name, value in data.arrays().items() if name != "episodes"} | {"actions": actions}
    algorithm = make("bc", dataset(columns, data.spaces.action, 4), net_arch=(), batch_size=256)
    algorithm.update(1500)
    outputs = algorithm.actor.predict(seen[:50])
    np.testing.assert_allclose(outputs[:, 0], 0.5 * seen[:50, 0] - 1, atol=0.1)
    np.testing.assert_allclose(np.exp(outputs[:, 1]), 0.3, atol=0.03)


def test_one_action_can_be_copied() -> None:
    data = chain(200, chances=(1.0, 1.0, 1.0))
    algorithm = make("bc", data)
    algorithm.update(200)
    assert (algorithm.policy().choose(observed()) == 1).all()


def test_a_shuffled_twin_learns_no_more_than_how_often_actions_are_taken() -> None:
    data = chain(4000, chances=(1.0, 0.0, 1.0))
    honest, control = (make("bc", data, net_arch=(), batch_size=256, shuffled=each) for each in (False, True))
    for each in (honest, control):
        each.update(1000)
    assert honest.policy().choose(observed()).tolist() == [1, 0, 1]
    overall = data.actions.mean()
    for observation in observed()[:2]:  # the third state is never seen
        assert control.policy().probabilities(observation)[1] == pytest.approx(overall, abs=0.05)


def test_weights_decay() -> None:
    data = random_dataset()
    free, decayed = (make("bc", data, weight_decay=each) for each in (0.0, 20.0))
    for each in (free, decayed):
        each.update(300)
    assert np.linalg.norm(decayed.actor.parameters) < 0.5 * np.linalg.norm(free.actor.parameters)


@pytest.mark.parametrize(
    ("options", "message"),
    [({"ent_coef": -1.0}, "ent_coef is -1.0"), ({"weight_decay": -1.0}, "weight_decay is -1.0")],
)
def test_settings_without_a_meaning_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        BCConfig(**options)


def test_a_network_of_another_shape_is_refused() -> None:
    data = random_dataset()
    other = make("bc", random_dataset(Discrete(n=5)), load=False).actor
    with pytest.raises(UsageError, match="the actor maps 4 numbers to 5; bc with these spaces needs 4 to 3"):
        BC(BCConfig(), data.spaces, actor=other)
