"""Trains in the tool-use environment and says what share of the optimum comes of it."""

from __future__ import annotations

from typing import Any

from learnloop.algorithms import build_algorithm, configure
from learnloop.envs import ToolUse, make_stream, resolve_env
from learnloop.evaluation.returns import evaluate_returns
from learnloop.training.presets import find_preset

NUM_EPISODES = 500
LEARNED = 0.9
ALGORITHMS = ("ppo", "dqn")


def learned_share(name: str, seed: int, world_seed: int = 0, **options: Any) -> float:
    """Returns what is earned on held-out episodes after the training, in shares of the optimum."""
    kwargs = {"world_seed": world_seed}
    preset = find_preset(name, resolve_env("tool-use"), None)
    lanes, steps = preset.n_envs, preset.steps
    stream = make_stream("tool-use", lanes, env_kwargs=kwargs)
    config = configure(name, {**preset.options, **options})
    algorithm = build_algorithm(config, stream.spaces, num_envs=lanes, seed=seed)
    observations, masks = stream.reset(seed)
    while algorithm.num_steps < steps:
        step = stream.step(algorithm.choose(observations, masks))
        algorithm.record(step)
        observations, masks = step.observations, step.masks
        algorithm.set_progress(algorithm.num_steps / steps)
        algorithm.learn()
    stream.close()
    policy = algorithm.policy()
    found = evaluate_returns(policy, "tool-use", num_episodes=NUM_EPISODES, seed=seed, env_kwargs=kwargs)
    return found.mean / ToolUse(**kwargs).world.optimum()
