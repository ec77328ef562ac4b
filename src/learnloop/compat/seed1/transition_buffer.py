"""Transitions that clients sent, until they are learned from: each client's episodes apart, none dropped."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from learnloop.algorithms.on_policy.rollout import Steps, last_rows
from learnloop.core.arrays import F32
from learnloop.core.errors import CorruptError

MAX_RUNNING = 10_000
"""So many episodes may run at once until the sum of rewards of the oldest one is forgotten, not what is to learn."""


class SentTransition(NamedTuple):
    """One transition as a client tells it."""

    observation: F32
    """Shape ``(size,)``."""
    action: int
    reward: float
    next_observation: F32
    terminated: bool
    """The episode came to its end."""
    truncated: bool
    """It was cut from outside: what would have come is worth the value of ``next_observation``."""
    log_prob: float
    """Of the action, as the choice was answered."""
    value: float
    """Of the observation, as the choice was answered."""
    client: str | None = None
    """Who sent it; None: nobody knows."""
    episode_id: str | None = None
    """Which of the client's episodes; None: the one that it runs, if the client is known."""

    @property
    def is_last(self) -> bool:
        """Whether the episode is over with it."""
        return self.terminated or self.truncated or (self.client is None and self.episode_id is None)


Episode = tuple[str | None, str | None]


class TransitionBuffer:
    """Transitions in the order of their coming. Not safe for several threads by itself.

    Attributes:
        transitions: what waits to be learned from.
        room: how many there may be; twice as many where those of an update that failed come back.
    """

    def __init__(self, room: int, size: int) -> None:
        self.room = room
        self._num_taken = 0
        """How many may come back."""
        self.transitions: list[SentTransition] = []
        self._size = size
        self._returns: OrderedDict[Episode, float] = OrderedDict()
        """The sum of the rewards of each running episode."""

    def __len__(self) -> int:
        return len(self.transitions)

    @property
    def is_full(self) -> bool:
        """Whether there is no room for another one."""
        return len(self.transitions) >= min(self.room, 2 * self.room - self._num_taken)

    def add(self, transition: SentTransition) -> float | None:
        """Adds the next one; returns the sum of the rewards of its episode where that is over."""
        self.transitions.append(transition)
        episode = (transition.client, transition.episode_id)
        total = self._returns.pop(episode, 0.0) + transition.reward
        if transition.is_last:
            return total
        self._returns[episode] = total
        if len(self._returns) > MAX_RUNNING:
            self._returns.popitem(last=False)
        return None

    def take(self) -> list[SentTransition]:
        """Returns all, and is empty; running episodes go on. ``put_back`` or ``forget`` follows."""
        taken, self.transitions = self.transitions, []
        self._num_taken = len(taken)
        return taken

    def put_back(self, taken: list[SentTransition]) -> None:
        """Undoes ``take``: they come first again."""
        self.transitions = taken + self.transitions
        self._num_taken = 0

    def forget(self) -> None:
        """Ends ``take``: what was taken does not come back."""
        self._num_taken = 0

    def copy(self) -> TransitionBuffer:
        """Returns one with the same in it, which stays as it is when this one changes."""
        copied = TransitionBuffer(self.room, self._size)
        copied.transitions = list(self.transitions)
        copied._returns = OrderedDict(self._returns)
        return copied

    def state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Returns its arrays, and what else is in it as JSON."""
        found = self.transitions
        arrays = {name: _column(found, name, dtype) for name, dtype in _COLUMNS.items()}
        arrays |= {name: _rows(found, name, self._size) for name in ("observation", "next_observation")}
        rest = {
            "episodes": [[each.client, each.episode_id] for each in found],
            "returns": [[*episode, total] for episode, total in self._returns.items()],
        }
        return arrays, rest

    def restore(self, arrays: Mapping[str, NDArray[Any]], rest: object) -> None:
        """Holds what ``state`` returned.

        Raises:
            CorruptError: it is something else; nothing was changed.
        """
        try:
            others = msgspec.convert(rest, _Rest)
        except msgspec.ValidationError as error:
            raise CorruptError(f"the transitions of the checkpoint cannot be read: {error}") from error
        count = len(others.episodes)
        wanted: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {
            name: ((count,), np.dtype(dtype)) for name, dtype in _COLUMNS.items()
        }
        wanted |= {name: ((count, self._size), np.dtype(np.float32)) for name in ("observation", "next_observation")}
        if {name: (value.shape, value.dtype) for name, value in arrays.items()} != wanted or count > 2 * self.room:
            raise CorruptError(f"the {count} transitions of the checkpoint are not what this server keeps")
        columns = {name: arrays[name].tolist() for name in _COLUMNS}
        self.transitions = [
            SentTransition(
                observation=arrays["observation"][row],
                next_observation=arrays["next_observation"][row],
                client=client,
                episode_id=episode_id,
                **{name: values[row] for name, values in columns.items()},
            )
            for row, (client, episode_id) in enumerate(others.episodes)
        ]
        self._returns = OrderedDict(((client, episode_id), total) for client, episode_id, total in others.returns)


class _Rest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    episodes: list[tuple[str | None, str | None]]
    returns: list[tuple[str | None, str | None, float]]


_COLUMNS: Mapping[str, Any] = {
    "action": np.int64,
    "reward": np.float64,
    "terminated": np.bool_,
    "truncated": np.bool_,
    "log_prob": np.float64,
    "value": np.float64,
}


def _column(found: Sequence[SentTransition], name: str, dtype: Any) -> NDArray[Any]:
    return np.array([getattr(each, name) for each in found], dtype=dtype)


def _rows(found: Sequence[SentTransition], name: str, size: int) -> F32:
    return np.array([getattr(each, name) for each in found], dtype=np.float32).reshape(len(found), size)


def segments_of(transitions: Sequence[SentTransition]) -> list[list[SentTransition]]:
    """Returns the transitions of each episode in their order, the episode that began first before the others.

    Without an ``episode_id`` a client's transitions belong together only as long as each begins where the last one
    led to: two programs with one key do not mix. Without a client either each is an episode of one step.
    """
    segments: list[list[SentTransition]] = []
    running: dict[Episode, list[SentTransition]] = {}
    for each in transitions:
        episode = (each.client, each.episode_id)
        segment = running.get(episode)
        if segment is None or (
            each.episode_id is None and not np.array_equal(segment[-1].next_observation, each.observation)
        ):
            segment = []
            segments.append(segment)
            running[episode] = segment
        segment.append(each)
        if each.is_last:
            del running[episode]
    return segments


def steps_of(segments: Sequence[Sequence[SentTransition]], size: int) -> Steps:
    """Returns segments as arrays. What is not terminated at the end of its segment is bootstrapped."""
    rows = [each for segment in segments for each in segment]
    ended = last_rows([len(segment) for segment in segments])
    last = np.flatnonzero(ended)
    cut = np.array([row for row in last.tolist() if rows[row].truncated or not rows[row].terminated], dtype=np.intp)
    return Steps(
        observations=_rows(rows, "observation", size),
        actions=_column(rows, "action", np.int64),
        log_probs=_column(rows, "log_prob", np.float32),
        values=_column(rows, "value", np.float32),
        rewards=_column(rows, "reward", np.float32),
        ended=ended,
        cut=cut,
        next_observations=_rows([rows[row] for row in cut.tolist()], "next_observation", size),
    )
