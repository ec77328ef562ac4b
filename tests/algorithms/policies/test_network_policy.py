"""Stored policies: what was tampered with, or fits nothing, is refused when it is read."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from learnloop.algorithms.building import build_algorithm, configure
from learnloop.algorithms.policies.network_policy import NetworkPolicy
from learnloop.core.errors import CorruptError, DivergedError
from learnloop.core.protocols import PolicyArtifact
from learnloop.core.spaces import Box, Discrete, MultiDiscrete, Spaces
from learnloop.nn.encoders.normalisation import Normaliser
from learnloop.nn.mlp.network import MLP, Head, MLPConfig
from tests.algorithms.steps import box, drive, spaces

F = np.float32


def stored(algorithm: str = "ppo", action: Any = None, **options: Any) -> PolicyArtifact:
    config = configure(algorithm, {"net_arch": [8], **options})
    return build_algorithm(config, spaces(3, action), num_envs=2).policy().to_artifact()


@pytest.mark.parametrize(
    ("algorithm", "options", "action"),
    [
        ("ppo", {}, None),
        ("ppo", {}, MultiDiscrete(nvec=(2, 3))),
        ("a2c", {}, box(2)),
        ("dqn", {}, None),
        ("dqn", {"duelling": True}, None),
        ("sac", {}, None),
        ("sac", {}, Box(shape=(2,), low=(-1.0, -1.0), high=(1.0, 1.0))),
        ("random", {}, None),
    ],
)
def test_what_was_stored_is_read(algorithm: str, options: dict[str, Any], action: Any) -> None:
    config = configure(algorithm, {"net_arch": [8], **options})
    policy = build_algorithm(config, spaces(3, action), num_envs=2).policy()
    again = NetworkPolicy.from_artifact(policy.to_artifact())
    observations = np.random.default_rng(0).standard_normal((30, 3)).astype(F)
    np.testing.assert_array_equal(again.choose(observations), policy.choose(observations))
    assert (again.learned_by, again.outputs, again.spaces) == (algorithm, policy.outputs, policy.spaces)


def test_running_scales_are_stored() -> None:
    config = configure("ppo", {"n_steps": 8, "batch_size": 8, "normalize_observations": True})
    algorithm = build_algorithm(config, spaces(3), num_envs=2)
    drive(algorithm, 20)
    policy, observation = algorithm.policy(), np.array([5.0, -3.0, 1.0])
    again = NetworkPolicy.from_artifact(policy.to_artifact())
    np.testing.assert_array_equal(again.probabilities(observation), policy.probabilities(observation))


@pytest.mark.parametrize(
    ("tensors", "words"),
    [
        ({"parameters": np.nan}, "a parameter is not finite"),
        ({"normaliser.shift": np.zeros(3, F)}, "one is missing"),
        ({"normaliser.shift": np.zeros(1, F), "normaliser.scale": np.ones(1, F)}, "not 3 finite numbers"),
        ({"normaliser.shift": np.zeros(3, F), "normaliser.scale": np.zeros(3, F)}, "not above 0"),
        ({"normaliser.shift": np.full(3, np.inf, F), "normaliser.scale": np.ones(3, F)}, "not 3 finite numbers"),
    ],
)
def test_tensors_that_fit_nothing_are_refused(tensors: dict[str, Any], words: str) -> None:
    artifact = stored()
    own = artifact.tensors["parameters"].copy()
    if "parameters" in tensors:
        own[3] = np.nan
        tensors = {}
    with pytest.raises(CorruptError, match=words):
        NetworkPolicy.from_artifact(artifact._replace(tensors={"parameters": own, **tensors}))


@pytest.mark.parametrize(
    "config",
    [
        {"spaces": Spaces(observation=box(3), action=Discrete(n=5))},
        {"spaces": Spaces(observation=box(3), action=Discrete(n=1))},
        {"spaces": Spaces(observation=box(2), action=Discrete(n=2))},
        {"spaces": Spaces(observation=box(3), action=box(4))},
        {"outputs": "duelling"},
        {"outputs": "uniform"},
        {"outputs": "squashed"},
        {"network": None},
    ],
)
def test_a_config_that_fits_no_network_is_refused(config: dict[str, Any]) -> None:
    artifact = stored()
    with pytest.raises(CorruptError):
        NetworkPolicy.from_artifact(artifact._replace(config={**artifact.config, **msgspec.to_builtins(config)}))


@pytest.mark.parametrize("outputs", ["distribution", "q_values", "duelling"])
def test_one_observation_is_acted_on_as_in_a_batch(outputs: str) -> None:
    """``act`` without a mask takes a short way."""
    two = Spaces(observation=Box(shape=(3,), low=(None,) * 3, high=(None,) * 3), action=Discrete(n=4, start=10))
    size = 5 if outputs == "duelling" else 4
    network = MLP(MLPConfig(input_size=3, hidden=(8,), heads=(Head(name="policy", size=size),)), seed=1)
    policy = NetworkPolicy(two, network, outputs=outputs, learned_by="test")  # type: ignore[arg-type]
    observations = np.random.default_rng(0).standard_normal((50, 3)).astype(np.float32)
    batch = policy.choose(observations)
    assert len(set(batch.tolist())) > 1
    assert [policy.act(row) for row in observations] == (batch + 10).tolist()
    assert [policy.act(row, [True] * 4) for row in observations] == (batch + 10).tolist()
    network.parameters[:] = np.nan
    with pytest.raises(DivergedError):
        policy.act(observations[0])


def test_a_policy_scales_what_it_sees() -> None:
    """As its network was trained: by the mean and the deviation of all that was seen."""
    network = MLP(MLPConfig(input_size=3, hidden=(8,), heads=(Head(name="policy", size=2),)), seed=1)
    normaliser = Normaliser(np.array([5, -2, 0], F), np.array([0.5, 4, 1], F))
    policy = NetworkPolicy(spaces(3), network, outputs="distribution", learned_by="ppo", normaliser=normaliser)
    observation = np.array([5.3, 3.0, 400.0], F)
    logits = network.predict(np.array([[0.6, 1.25, 10.0]], F))[0].astype(np.float64)
    np.testing.assert_allclose(policy.probabilities(observation), np.exp(logits) / np.exp(logits).sum(), rtol=1e-5)
