"""Replays logged episodes as an environment: what was seen, what was done, what it earned, and nothing else.

What another action would have brought is not in a log. So the mask allows the logged action alone, and another one is
refused instead of being answered with what the logged one earned. A policy can be walked through its agent's history in
this way; what learns from such history which action is better are the offline algorithms.
"""

from __future__ import annotations

from typing import Any, NoReturn

import gymnasium
import numpy as np

from learnloop.core.arrays import F32
from learnloop.core.datasets import Dataset
from learnloop.core.errors import ActionError, UsageError
from learnloop.core.spaces import Discrete
from learnloop.envs.spaces import refuse_step
from learnloop.envs.streams.masks import KEY

_LABEL = "trace-replay"


class TraceReplay(gymnasium.Env[F32, int]):
    """The episodes of a data set, one an episode, each as likely; steps in their order.

    Shows the encoded observations of the data set, float32 of shape ``(size,)``. ``info`` has the ``action_mask``,
    which allows the logged action, the ``goal``, and the number of the ``episode`` in the data set.
    """

    def __init__(self, dataset: Dataset) -> None:
        """Takes the episodes.

        Raises:
            UsageError: the actions of ``dataset`` are not discrete, so that none of them could be masked.
        """
        space = dataset.spaces.action
        if not isinstance(space, Discrete):
            raise UsageError(
                f"{_LABEL} is given a data set with the actions {space}; discrete ones are needed, since it allows the "
                "logged action alone. Learn from this data set with bc, iql or awac"
            )
        size = dataset.observations.shape[1]
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (size,), np.float32)
        self.action_space: Any = gymnasium.spaces.Discrete(space.n)
        self._dataset = dataset
        self._starts = np.flatnonzero(np.diff(dataset.episodes, prepend=-1))
        self._names = dataset.action_names or [str(number) for number in range(space.n)]
        self._row: int | None = None

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[F32, dict[str, Any]]:
        """Begins one of the logged episodes."""
        super().reset(seed=seed)
        self._row = row = int(self._starts[self.np_random.integers(len(self._starts))])
        return self._dataset.observations[row].copy(), self._info(row, row)

    def step(self, action: int) -> tuple[F32, float, bool, bool, dict[str, Any]]:
        """Goes on to the next logged step.

        Raises:
            ActionError: ``action`` is not the logged one.
            UsageError: no episode runs.
        """
        row, dataset = self._row, self._dataset
        if row is None:
            raise refuse_step(_LABEL)
        if int(action) != dataset.actions[row]:
            self._refuse(int(action), row)
        terminated = bool(dataset.terminated[row])
        truncated = bool(dataset.truncated[row]) and not terminated
        self._row = None if terminated or truncated else row + 1
        observation = dataset.next_observations[row].copy()
        return observation, float(dataset.rewards[row]), terminated, truncated, self._info(row, self._row)

    def _info(self, row: int, coming: int | None) -> dict[str, Any]:
        """Returns what is said beside an observation; after an end nothing is chosen, so nothing is forbidden."""
        mask = np.full(len(self._names), coming is None)
        if coming is not None:
            mask[self._dataset.actions[coming]] = True
        episode = int(self._dataset.episodes[row])
        return {KEY: mask, "goal": self._dataset.goals[episode], "episode": episode}

    def _refuse(self, action: int, row: int) -> NoReturn:
        logged = int(self._dataset.actions[row])
        name = f"{self._names[action]!r}" if 0 <= action < len(self._names) else "which there is not"
        raise ActionError(
            f"{_LABEL}: action {action} ({name}) was chosen where the log of {self._dataset.source} has {logged} "
            f'({self._names[logged]!r}); what another action would have brought is not in a log. Keep to info["{KEY}"]'
            ", and learn from logs with bc, cql, iql or awac"
        )
