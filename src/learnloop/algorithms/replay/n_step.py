"""Returns of several steps: what an action earned until n steps later, or until its episode ended.

Source: Sutton and Barto 2018, Reinforcement Learning, equation 7.1: G = r_1 + gamma r_2 + ... + gamma^(k-1) r_k +
gamma^k V(s_k), where k is n, or less where the episode ended: a truncated one has a V at its end, a terminated none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learnloop.algorithms.base.states import put_array
from learnloop.algorithms.on_policy.rollout import action_array
from learnloop.algorithms.replay.prioritised import Entries
from learnloop.core.arrays import I64, Bools
from learnloop.core.spaces import ActionSpace
from learnloop.core.stepping import Actions


class NStepEnvs:
    """The last ``num_steps`` transitions of each env, until their returns are whole. Envs step together.

    Attributes:
        num_steps: n.
    """

    def __init__(self, num_steps: int, num_envs: int, gamma: float, action_space: ActionSpace) -> None:
        shape = (num_steps, num_envs)
        self.num_steps = num_steps
        self._gamma = gamma
        self._time = 0
        self._first = np.zeros(shape, dtype=np.int64)
        self._actions = action_array(action_space, *shape)
        self._returns = np.zeros(shape)
        self._ages = np.zeros(shape, dtype=np.int64)
        """How many rewards are in each return."""
        self._waiting = np.zeros(shape, dtype=np.bool_)
        self._powers = gamma ** np.arange(num_steps + 1)

    def push(self, entries: Entries, valid: Bools | None) -> Entries | None:
        """Takes one step of each env; returns the transitions that it completes, in the order of time; None: none.

        Args:
            entries: of one step, shape ``(num_envs,)``.
            valid: which envs made a step; None: all.
        """
        slot = self._time % self.num_steps
        self._time += 1
        self._first[slot] = entries.first
        self._actions[slot] = entries.actions
        self._returns[slot] = 0
        self._ages[slot] = 0
        self._waiting[slot] = True if valid is None else valid
        waiting = self._waiting if valid is None else self._waiting & valid
        self._returns += np.where(waiting, self._powers[self._ages] * entries.rewards, 0)
        self._ages += waiting
        ended = entries.terminated | entries.truncated
        return self._release(
            self._waiting & (ended | (self._ages == self.num_steps)),
            entries.following,
            entries.terminated,
            entries.truncated,
        )

    def cut(self, following: I64) -> Entries | None:
        """Returns all that waits, as truncated; ``following`` are the observations that the envs are at."""
        nothing = np.zeros(len(following), dtype=np.bool_)
        return self._release(self._waiting.copy(), following, nothing, ~nothing)

    def _release(self, chosen: Bools, following: I64, terminated: Bools, truncated: Bools) -> Entries | None:
        if not chosen.any():
            return None
        order = (self._time + np.arange(self.num_steps)) % self.num_steps  # the oldest first
        times, env_indices = np.nonzero(chosen[order])
        slots = order[times]
        self._waiting &= ~chosen
        first, ends = self._first[slots, env_indices], terminated[env_indices]
        return Entries(
            first,
            self._actions[slots, env_indices],
            self._returns[slots, env_indices],
            np.where(ends, first, following[env_indices]),
            self._powers[self._ages[slots, env_indices]],
            ends,
            truncated[env_indices],
        )

    def state(self) -> dict[str, NDArray[Any]]:
        """Returns a copy of what waits."""
        found = {name: getattr(self, f"_{name}").copy() for name in _ARRAYS}
        return {**found, "time": np.array([self._time])}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Goes on from ``state``.

        Raises:
            ValueError: it does not fit.
        """
        for name in _ARRAYS:
            put_array(f"what waits ({name})", getattr(self, f"_{name}"), state[name])
        self._time = int(state["time"].item())


class NStepEpisode:
    """The last transitions of one live episode, until their returns are whole.

    An action lies beside the observation that it was chosen on, by whatever ``first`` the caller knows it.
    """

    def __init__(self, num_steps: int, gamma: float) -> None:
        self._num_steps = num_steps
        self._gamma = gamma
        self._steps: list[tuple[Any, Actions, float]] = []

    def push(self, first: Any, action: Actions, reward: float, *, ended: bool) -> list[tuple[Any, Actions, float, int]]:
        """Takes a step; returns the transitions that it completes, in the order of time.

        Returns:
            ``first`` and the action, the return, and how many rewards are in it.
        """
        self._steps.append((first, action, reward))
        count = len(self._steps) if ended else int(len(self._steps) == self._num_steps)
        released = [self._return(start) for start in range(count)]
        del self._steps[:count]
        return released

    def _return(self, start: int) -> tuple[Any, Actions, float, int]:
        first, action, _ = self._steps[start]
        rewards = [step[2] for step in self._steps[start:]]
        total = sum(self._gamma**age * reward for age, reward in enumerate(rewards))
        return first, action, total, len(rewards)


_ARRAYS = ("first", "actions", "returns", "ages", "waiting")
