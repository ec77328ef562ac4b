"""The probes P1 to P8 with each algorithm: what must be learned is known, and another answer fails."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from learnloop.algorithms.algorithm import Algorithm
from learnloop.algorithms.building import build_algorithm, configure
from learnloop.algorithms.dqn import DQN
from learnloop.algorithms.on_policy import OnPolicyAlgorithm
from learnloop.algorithms.sac import SAC
from learnloop.envs import make_stream
from learnloop.testing.probes import GAMMA, PROBES, Judged, check_probe

pytestmark = pytest.mark.slow

ON_POLICY: dict[str, dict[str, Any]] = {
    "ppo": {"n_steps": 16, "batch_size": 64, "n_epochs": 4, "learning_rate": "lin_0.01", "net_arch": (32,)},
    "a2c": {"n_steps": 8, "learning_rate": "lin_0.01", "net_arch": (32,), "use_rms_prop": False},
}


def learn(name: str, env: str, options: dict[str, Any], *, steps: int, lanes: int, seed: int = 0) -> Algorithm:
    """Trains on ``env`` and returns the algorithm."""
    stream = make_stream(env, lanes)
    algorithm = build_algorithm(configure(name, {"gamma": GAMMA, **options}), stream.spaces, num_lanes=lanes, seed=seed)
    observations, masks = stream.reset(seed)
    while algorithm.num_steps < steps:
        step = stream.step(algorithm.choose(observations, masks))
        algorithm.record(step)
        observations, masks = step.observations, step.masks
        algorithm.set_progress(algorithm.num_steps / steps)
        algorithm.learn()
    stream.close()
    return algorithm


def judged_actor_critic(algorithm: Algorithm, *, continuous: bool) -> Judged:
    assert isinstance(algorithm, OnPolicyAlgorithm)
    policy = algorithm.policy()
    return Judged(
        value=lambda observation: float(algorithm.value(observation[None])[0]),
        action_probabilities=None if continuous else policy.probabilities,
        action=policy.act if continuous else None,
    )


@pytest.mark.parametrize("probe", PROBES)
@pytest.mark.parametrize("name", ON_POLICY)
def test_actor_critics_with_discrete_actions(name: str, probe: str) -> None:
    """F0.1, F0.11: P7 fails where a time limit is taken for an end, P6 where credit reaches one step only."""
    env = PROBES[probe].env_id("actor-critic")
    algorithm = learn(name, env, ON_POLICY[name], steps=8_000, lanes=8)
    check_probe(probe, "actor-critic", judged_actor_critic(algorithm, continuous=False))


@pytest.mark.parametrize("probe", ["P4", "P5", "P8"])
@pytest.mark.parametrize("name", ON_POLICY)
def test_actor_critics_with_continuous_actions(name: str, probe: str) -> None:
    """F0.2: what is learned about is what was done."""
    env = PROBES[probe].env_id("actor-critic", continuous=True)
    algorithm = learn(name, env, {**ON_POLICY[name], "log_std_init": -0.5}, steps=24_000, lanes=8)
    check_probe(probe, "actor-critic", judged_actor_critic(algorithm, continuous=True), continuous=True)


OFF_POLICY: dict[str, Any] = {
    "net_arch": (32,),
    "learning_starts": 100,
    "batch_size": 64,
    "buffer_size": 5_000,
    "train_freq": 2,
    "learning_rate": "lin_0.01",
}
DQN_FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "double": {"double": True},
    "duelling": {"duelling": True},
    "prioritised": {"prioritised": True},
}
TEMPERATURE = 0.5
"""High enough for the worse observations to be seen now and then."""
CONTINUOUS_TEMPERATURE = 0.2


@pytest.mark.parametrize("probe", PROBES)
@pytest.mark.parametrize("form", DQN_FORMS)
def test_dqn(form: str, probe: str) -> None:
    """F0.3, F2.2: Q of each action is what is known, in each form."""
    options = {
        **OFF_POLICY,
        **DQN_FORMS[form],
        "target_update_interval": 50,
        "exploration_final_eps": 0.5,
        "exploration_fraction": 0.5,
    }
    algorithm = learn("dqn", PROBES[probe].env_id("q"), options, steps=6_000, lanes=2)
    assert isinstance(algorithm, DQN)
    judged = Judged(action_values=lambda observation: algorithm.action_values(observation[None])[0])
    check_probe(probe, "q", judged)


@pytest.mark.parametrize("probe", PROBES)
def test_sac_with_discrete_actions(probe: str) -> None:
    """F0.3, F2.2: the soft value at its temperature, and the policy that belongs to it."""
    options = {**OFF_POLICY, "ent_coef": TEMPERATURE, "tau": 0.05}
    algorithm = learn("sac", PROBES[probe].env_id("soft-q"), options, steps=6_000, lanes=2)
    assert isinstance(algorithm, SAC)
    judged = Judged(
        value=lambda observation: float(algorithm.value(observation[None])[0]),
        action_values=lambda observation: algorithm.action_values(observation[None])[0],
        action_probabilities=algorithm.policy().probabilities,
    )
    check_probe(probe, "soft-q", judged, temperature=TEMPERATURE)


@pytest.mark.parametrize("probe", PROBES)
def test_sac_with_continuous_actions(probe: str) -> None:
    """F2.2: as above; the policy's mode is the best action."""
    options = {**OFF_POLICY, "ent_coef": CONTINUOUS_TEMPERATURE, "tau": 0.05, "learning_rate": "lin_0.005"}
    env = PROBES[probe].env_id("soft-q", continuous=True)
    algorithm = learn("sac", env, options, steps=8_000, lanes=2)
    assert isinstance(algorithm, SAC)

    def value(observation: Any) -> float:
        return float(np.mean(algorithm.value(np.repeat(observation[None], 2_000, axis=0))))

    judged = Judged(
        value=value,
        action=algorithm.policy().act,
        action_value=lambda observation, action: float(algorithm.action_values(observation[None], action[None])[0]),
    )
    check_probe(probe, "soft-q", judged, temperature=CONTINUOUS_TEMPERATURE, continuous=True)


IDENTITY = [
    ("ppo", "learnloop/Identity-v0", {}, 3_000),
    ("a2c", "learnloop/Identity-v0", {}, 3_000),
    ("ppo", "learnloop/IdentityMultiDiscrete-v0", {}, 6_000),
    ("dqn", "learnloop/Identity-v0", {"target_update_interval": 100, "exploration_fraction": 0.3}, 4_000),
    ("sac", "learnloop/Identity-v0", {"ent_coef": 0.05}, 3_000),
]


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(("name", "env", "options", "steps"), IDENTITY)
def test_the_identity_environment(name: str, env: str, options: dict[str, Any], steps: int, seed: int) -> None:
    """At least 90 of 100 within 3,000 steps: Stable-Baselines3's tests/test_identity.py."""
    from learnloop.evaluation.returns import evaluate_returns

    start = ON_POLICY.get(name, OFF_POLICY)
    algorithm = learn(name, env, {**start, **options}, steps=steps, lanes=8 if name in ON_POLICY else 2, seed=seed)
    found = evaluate_returns(algorithm.policy(), env, num_episodes=20, seed=seed)
    assert found.mean >= 90, found
    assert np.isfinite(found.std)
