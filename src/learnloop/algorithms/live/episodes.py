"""Live episodes by name: which action waits for its reward, and which step for its next observation or an update."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from learnloop.core.arrays import F32, I64, Bools
from learnloop.core.errors import RewardError, UsageError, one_of
from learnloop.core.stepping import Actions

MAX_EPISODES = 100_000
"""So many episodes may run at once; clients that never end theirs would else fill the memory."""


class Chosen(NamedTuple):
    """Actions for a batch of observations, with what the algorithm wants to know of them when their reward comes."""

    actions: Actions
    log_probs: F32 | None = None
    """Of the actions under the policy that chose them, shape ``(batch,)``; None: the algorithm has no use for it."""
    values: F32 | None = None
    """Of the observations, as the algorithm judged them then, shape ``(batch,)``."""
    dropout: I64 | None = None
    """Which dropout mask each row was seen through, shape ``(batch,)``."""
    seen: F32 | None = None
    """The observations as the network saw them, if that is not as they were given."""
    num_updates: int = 0
    """Gradient steps before they were chosen: which policy it was."""


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
    terminated: bool = False
    truncated: bool = False


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
            yield LiveStep(before.observation, before.mask, before.chosen, before.reward, observation, mask)

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


class LiveSegments:
    """The steps of live episodes since the last update, the newest ones where ``room`` is too small for all.

    Attributes:
        num_steps: how many steps wait.
        num_dropped: how many were forgotten to make room, since it was made.
    """

    def __init__(self, room: int) -> None:
        """Keeps at most ``room`` steps."""
        self.num_steps = 0
        self.num_dropped = 0
        self._room = room
        self._num_begun = 0
        self._steps: dict[int, list[LiveStep]] = {}
        """By the number of the segment, so that the one that began first comes first."""
        self._running: dict[str, int] = {}
        """The segment of each running episode."""

    def __len__(self) -> int:
        return len(self._steps)

    def __iter__(self) -> Iterator[list[LiveStep]]:
        """Yields the steps of each episode; an episode that ended is apart from the next one of its name."""
        return iter(self._steps.values())

    def add(self, episode: str, step: LiveStep) -> None:
        """Adds the next step of ``episode``; where there is no room, the first step of the oldest one is forgotten."""
        if self.num_steps >= self._room:
            self._drop()
        number = self._running.get(episode)
        if number is None or number not in self._steps:
            number = self._running[episode] = self._num_begun
            self._steps[number] = []
            self._num_begun += 1
        self._steps[number].append(step)
        self.num_steps += 1
        if step.terminated or step.truncated:  # the name is free again while its steps wait to be learned
            del self._running[episode]

    def _drop(self) -> None:
        number, steps = next(iter(self._steps.items()))
        del steps[0]  # what is left is a segment too
        if not steps:
            del self._steps[number]
        self.num_steps -= 1
        self.num_dropped += 1

    def discard(self, episode: str) -> None:
        """Forgets the steps of the running ``episode``."""
        number = self._running.pop(episode, None)
        if number is not None:
            self.num_steps -= len(self._steps.pop(number, []))

    def clear(self) -> None:
        """Forgets all steps: they are learned, or their clients are gone."""
        self._steps.clear()
        self._running.clear()
        self.num_steps = 0
