"""Live episodes by name: which action waits for its reward, and which transition for its next observation."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from learnloop.algorithms.base.chosen import Chosen
from learnloop.core.arrays import F32, Bools
from learnloop.core.errors import RewardError, UsageError, one_of

MAX_EPISODES = 100_000
"""So many episodes may run at once; clients that never end theirs would else fill the memory."""


class LiveStep(NamedTuple):
    """A whole transition of one live episode."""

    observation: F32
    """Encoded, shape ``(size,)``."""
    mask: Bools | None
    """Which choices were allowed, shape ``(num_choices,)``; None: all."""
    chosen: Chosen
    """A batch of one row."""
    reward: float
    next_observation: F32 | None
    """None only where ``terminated``: nothing comes after."""
    next_mask: Bools | None
    terminated: bool
    truncated: bool


@dataclass
class _Open:
    observation: F32
    mask: Bools | None
    chosen: Chosen
    reward: float | None = None


class LiveEpisodes:
    """The last step of each running episode, until it is whole."""

    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}

    def check_free(self, episode: str) -> None:
        """Returns if ``episode`` may act.

        Raises:
            UsageError: it is no text, it waits for a reward, or too many episodes run.
        """
        if not isinstance(episode, str):
            raise UsageError(f"the episode is {episode!r}; the name of one is a text")
        waiting = self._open.get(episode)
        if waiting is not None and waiting.reward is None:
            raise UsageError(
                f"episode {episode!r} waits for the reward of its last action; tell it with observe, or discard the "
                "episode"
            )
        if waiting is None and len(self._open) >= MAX_EPISODES:
            raise UsageError(f"{MAX_EPISODES} episodes run at once; end some with terminated, truncated or discard")

    def begin(self, episode: str, observation: F32, mask: Bools | None, chosen: Chosen) -> Iterator[LiveStep]:
        """Opens a step, and yields the one before it, which now knows its next observation."""
        before = self._open.get(episode)
        self._open[episode] = _Open(observation, mask, chosen)
        if before is not None and before.reward is not None:
            yield LiveStep(
                before.observation,
                before.mask,
                before.chosen,
                before.reward,
                observation,
                mask,
                terminated=False,
                truncated=False,
            )

    def finish(
        self,
        episode: str,
        reward: float,
        next_observation: F32 | None,
        next_mask: Bools | None = None,
        *,
        terminated: bool,
        truncated: bool,
    ) -> LiveStep | None:
        """Closes the open step of ``episode`` and returns it; None while its next observation is not known.

        Raises:
            RewardError: ``reward`` is not a finite number.
            UsageError: no action waits, the last observation of a truncated episode is missing, or a flag is neither
                True nor False.
        """
        step = self._open.get(episode)
        if step is None or step.reward is not None:
            raise UsageError(
                f"no action of episode {episode!r} waits for a reward; running are {one_of(sorted(self._open))}"
            )
        value = _checked_reward(reward, episode)
        _check_flag("terminated", terminated, episode)
        _check_flag("truncated", truncated, episode)
        ended = terminated or truncated
        if truncated and not terminated and next_observation is None:
            raise UsageError(
                f"episode {episode!r} was truncated without next_observation: what it would still have earned is the "
                "value of that observation; give it, or say terminated"
            )
        if not ended:
            step.reward = value  # the next act tells the next observation, and its mask
            return None
        del self._open[episode]
        last, mask = (None, None) if terminated else (next_observation, next_mask)
        return LiveStep(
            step.observation, step.mask, step.chosen, value, last, mask, terminated=terminated, truncated=truncated
        )

    def discard(self, episode: str) -> None:
        """Forgets the open step of ``episode``."""
        self._open.pop(episode, None)


def _check_flag(name: str, value: object, episode: str) -> None:
    if not isinstance(value, bool | np.bool_):
        raise UsageError(f"{name} of episode {episode!r} is {value!r}; True or False is needed")


def _checked_reward(reward: object, episode: str) -> float:
    if isinstance(reward, int | float | np.integer | np.floating) and not isinstance(reward, bool):
        try:
            value = float(reward)
        except OverflowError:  # a whole number of more than 308 digits
            value = math.inf
        if math.isfinite(value):
            return value
    raise RewardError(
        f"the reward of episode {episode!r} is {reward!r}; it must be a finite number. Where it is unknown, discard "
        "the episode: missing is not zero"
    )
