"""Policies that have learned something, and not all."""

from __future__ import annotations

from collections.abc import Sequence

from learnloop.algorithms.building import build_algorithm, configure
from learnloop.algorithms.policies.network_policy import NetworkPolicy
from learnloop.envs import make_stream, resolve_env
from learnloop.training.presets import find_preset

NUM_LANES = 8


def half_trained(env: str, seed: int, stops: Sequence[int]) -> list[NetworkPolicy]:
    """Returns the policies, with their draws, of one PPO training after so many steps."""
    stream = make_stream(env, NUM_LANES)
    config = configure("ppo", find_preset("ppo", resolve_env(env), None).options)
    algorithm = build_algorithm(config, stream.spaces, num_envs=NUM_LANES, seed=seed)
    observations, masks = stream.reset(seed)
    found = []
    for stop in stops:
        while algorithm.num_steps < stop:
            step = stream.step(algorithm.choose(observations, masks))
            algorithm.record(step)
            observations, masks = step.observations, step.masks
            algorithm.learn()
        found.append(algorithm.policy().sampled)
    stream.close()
    return found
