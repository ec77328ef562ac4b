"""Does an environment keep gymnasium's rules: a short trial before any training."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from learnloop.core.arrays import Bools
from learnloop.core.errors import UsageError
from learnloop.core.seeding import generator
from learnloop.core.spaces import Spaces
from learnloop.envs.registry import EnvMaker, MadeEnv, label_of, make_env, resolve_env
from learnloop.envs.spaces import random_actions
from learnloop.envs.streams.blocks import StepBlock
from learnloop.envs.streams.lanes import Lanes, short, spaces_of
from learnloop.envs.streams.masks import MaskReader, with_masks

NUM_TRIAL_STEPS = 24


def check_env(
    env: str | EnvMaker | gymnasium.Env[Any, Any], *, env_kwargs: Mapping[str, Any] | None = None, seed: int = 0
) -> list[str]:
    """Tries an environment out for ``NUM_TRIAL_STEPS`` random steps and returns what is odd but no error.

    Args:
        env: an id or alias, a callable that returns an environment, or an environment, which is reset.
        env_kwargs: what it is made with.
        seed: of its episodes and of the actions.

    Raises:
        UsageError: it breaks a rule of gymnasium; the message names the rule and the value.
        ActionError: its action mask does not fit.
        NotFoundError: there is none of this name.
    """
    if isinstance(env, gymnasium.Env):
        return try_out(MadeEnv(with_masks(env), None), label_of(env), spaces_of(env), seed)
    target = resolve_env(env) if isinstance(env, str) else env
    made = make_env(target, env_kwargs)
    try:
        return try_out(made, label_of(target), spaces_of(made.env), seed)
    finally:
        made.env.close()


def try_out(made: MadeEnv, label: str, spaces: Spaces, seed: int) -> list[str]:
    """Does the trial of ``check_env`` with an environment that exists; it must be reset afterwards."""
    watched = _Watched(made.env, label)
    lane = Lanes([MadeEnv(watched, made.max_steps)], label, spaces)
    block = StepBlock(1, lane.encoder.size, MaskReader(spaces.action).num_choices)
    findings = []
    firsts = []
    for _ in range(2):
        lane.reset(block, seed)
        firsts.append(block.observations.copy())
    if not np.array_equal(firsts[0], firsts[1]):
        findings.append(
            f"{label}: two resets with the same seed gave different observations; runs cannot be repeated. Draw from "
            "self.np_random after super().reset(seed=seed)"
        )
    rng = generator(seed, "check")
    masks: Bools = block.masks
    for _ in range(NUM_TRIAL_STEPS):
        ended = lane.advance(block, random_actions(spaces.action, masks if lane.has_masks else None, 1, rng))
        if ended:
            lane.restart(block, ended)
        masks = block.masks if ended else block.final_masks
    return findings + sorted(watched.findings)


class _Watched(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Looks at the types that an environment returns, which the fast loop does not."""

    def __init__(self, env: gymnasium.Env[Any, Any], label: str) -> None:
        super().__init__(env)
        self.findings: set[str] = set()
        self._label = label

    def reset(self, **kwargs: Any) -> Any:
        """Resets the environment."""
        result: object = self.env.reset(**kwargs)
        if isinstance(result, tuple) and len(result) == 2:
            self._look(result[0])
        return result

    def step(self, action: Any) -> Any:
        """Steps the environment."""
        result: object = self.env.step(action)
        if isinstance(result, tuple) and len(result) == 5:
            for name, value in (("terminated", result[2]), ("truncated", result[3])):
                if not isinstance(value, bool | np.bool_):
                    raise UsageError(f"{self._label}: {name} is {short(value)}; gymnasium's rule is True or False")
            self._look(result[0])
        return result

    def _look(self, observation: Any) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # that it casts what is no array: then it is no finding
            is_inside = self.observation_space.contains(observation)
        if not is_inside:
            self.findings.add(
                f"{self._label}: an observation lies outside its space {self.observation_space} (its bounds or its "
                "type of numbers); it is used as it is"
            )
