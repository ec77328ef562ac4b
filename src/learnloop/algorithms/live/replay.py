"""From the steps of live episodes to transitions in a replay; episodes never mix."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from learnloop.algorithms.live.episodes import LiveStep
from learnloop.algorithms.replay.n_step import NStepEpisode
from learnloop.algorithms.replay.prioritised import Entries, ReplayBuffer
from learnloop.core.arrays import F32, Bools
from learnloop.core.stepping import Actions


class _Seen(NamedTuple):
    """An observation of a live episode, and its number in the replay."""

    number: int
    observation: F32
    mask: Bools | None


class LiveReplay:
    """Writes live episodes into ``replay``, with returns of ``n_steps`` steps."""

    def __init__(self, replay: ReplayBuffer, n_steps: int, gamma: float) -> None:
        self._replay = replay
        self._n_steps = n_steps
        self._gamma = gamma
        self._windows: dict[str, NStepEpisode] = {}
        self._last: dict[str, _Seen] = {}

    def record(self, episode: str, step: LiveStep, action: Actions) -> None:
        """Takes a whole step, with its action as the replay keeps it."""
        last = self._last.get(episode)
        if last is not None and last.observation is step.observation:
            first = last
        else:
            first = _Seen(self._see(step.observation, step.mask), step.observation, step.mask)
        following = first
        if step.next_observation is not None and not step.terminated:
            number = self._see(step.next_observation, step.next_mask)
            following = _Seen(number, step.next_observation, step.next_mask)
        window = self._windows.get(episode)
        if window is None:
            window = self._windows[episode] = NStepEpisode(self._n_steps, self._gamma)
        ended = step.terminated or step.truncated
        for seen, chosen, total, count in window.push(first, action, step.reward, ended=ended):
            self._add(seen, chosen, total, self._gamma**count, following, step)
        if ended:
            self.discard(episode)
        else:
            self._last[episode] = following

    def discard(self, episode: str) -> None:
        """Forgets the steps of ``episode`` that are in no transition yet."""
        self._windows.pop(episode, None)
        self._last.pop(episode, None)

    def clear(self) -> None:
        """Forgets all running episodes."""
        self._windows.clear()
        self._last.clear()

    def _add(
        self, seen: _Seen, action: Actions, total: float, discount: float, following: _Seen, step: LiveStep
    ) -> None:
        first = self._recent(seen)
        last = first if step.terminated else self._recent(following)
        self._replay.add(
            Entries(
                np.array([first]),
                np.asarray(action)[None],
                np.array([total]),
                np.array([last]),
                discount,
                np.array([step.terminated]),
                np.array([step.truncated and not step.terminated]),
            )
        )

    def _recent(self, seen: _Seen) -> int:
        """Returns a number of the observation that is recent: that of an episode that waited long is not any more."""
        return seen.number if self._replay.is_recent(seen.number) else self._see(seen.observation, seen.mask)

    def _see(self, observation: F32, mask: Bools | None) -> int:
        return self._replay.see(observation[None], None if mask is None else mask[None])
