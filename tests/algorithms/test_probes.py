"""The probes P1 to P10 with each algorithm: what must be learned is known, and another answer fails.

How each is trained is said in ``learnloop.testing.probe_subjects``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from learnloop.algorithms.base.algorithm import Algorithm
from learnloop.testing.probe_subjects import (
    CONTINUOUS_TEMPERATURE,
    OFF_POLICY,
    ON_POLICY,
    TEMPERATURE,
    settings_for,
    subject_of,
)
from learnloop.testing.probes import PROBES, Family, check_probe
from learnloop.testing.probing import family_of, judge, temperature_of, train

pytestmark = pytest.mark.slow


def learned(name: str, probe: str, family: Family, *, continuous: bool = False, **options: Any) -> Algorithm:
    """Returns the algorithm called ``name`` after its training on ``probe``."""
    settings = settings_for(name, probe, continuous=continuous)
    env = PROBES[probe].env_id(family, continuous=continuous)
    return learn(name, env, {**settings.options, **options}, steps=settings.steps, num_envs=settings.num_envs)


def learn(name: str, env: str, options: Any, *, steps: int, num_envs: int, seed: int = 0) -> Algorithm:
    """Returns the algorithm called ``name`` after its training in ``env``."""
    return train(subject_of(name).build(options), env, steps=steps, num_envs=num_envs, seed=seed)


@pytest.mark.parametrize("probe", PROBES)
@pytest.mark.parametrize("name", ON_POLICY)
def test_actor_critics_with_discrete_actions(name: str, probe: str) -> None:
    """F0.1, F0.11: P7 fails where a time limit is taken for an end, P6 where credit reaches one step only."""
    algorithm = learned(name, probe, "actor-critic")
    assert family_of(algorithm) == "actor-critic"
    check_probe(probe, "actor-critic", judge(algorithm, "actor-critic"))


@pytest.mark.parametrize("probe", ["P4", "P5", "P8"])
@pytest.mark.parametrize("name", ON_POLICY)
def test_actor_critics_with_continuous_actions(name: str, probe: str) -> None:
    """F0.2: what is learned about is what was done."""
    algorithm = learned(name, probe, "actor-critic", continuous=True)
    check_probe(probe, "actor-critic", judge(algorithm, "actor-critic", continuous=True), continuous=True)


DQN_FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "double": {"double": True},
    "duelling": {"duelling": True},
    "prioritised": {"prioritised": True},
}


@pytest.mark.parametrize("probe", PROBES)
@pytest.mark.parametrize("form", DQN_FORMS)
def test_dqn(form: str, probe: str) -> None:
    """F0.3, F2.2: Q of each action is what is known, in each form."""
    algorithm = learned("dqn", probe, "q", **DQN_FORMS[form])
    assert family_of(algorithm) == "q"
    check_probe(probe, "q", judge(algorithm, "q"))


@pytest.mark.parametrize("probe", PROBES)
def test_sac_with_discrete_actions(probe: str) -> None:
    """F0.3, F2.2: the soft value at its temperature, and the policy that belongs to it."""
    algorithm = learned("sac", probe, "soft-q")
    assert family_of(algorithm) == "soft-q"
    assert temperature_of(algorithm) == TEMPERATURE
    check_probe(probe, "soft-q", judge(algorithm, "soft-q"), temperature=TEMPERATURE)


@pytest.mark.parametrize("probe", PROBES)
def test_sac_with_continuous_actions(probe: str) -> None:
    """F2.2: as above; the policy's mode is the best action."""
    algorithm = learned("sac", probe, "soft-q", continuous=True)
    judged = judge(algorithm, "soft-q", continuous=True)
    check_probe(probe, "soft-q", judged, temperature=CONTINUOUS_TEMPERATURE, continuous=True)


IDENTITY = [
    ("ppo", "learnloop/Identity-v0", {}, 3_000),
    ("a2c", "learnloop/Identity-v0", {}, 3_000),
    ("a3c", "learnloop/Identity-v0", {}, 3_000),
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
    algorithm = learn(name, env, {**start, **options}, steps=steps, num_envs=8 if name in ON_POLICY else 2, seed=seed)
    found = evaluate_returns(algorithm.policy(), env, num_episodes=20, seed=seed)
    assert found.mean >= 90, found
    assert np.isfinite(found.std)
