"""Transitions that clients sent, until they are learned from: each client's episodes apart, none dropped."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from learnloop.algorithms.on_policy.rollout import Steps, last_rows
from learnloop.core.arrays import F32
from learnloop.core.decoding import convert_record
from learnloop.core.errors import CorruptError
from learnloop.system.state_file import State

MAX_RUNNING = 10_000
"""So many episodes may run at once until the sum of rewards of the oldest one is forgotten, not what is to learn."""

Episode = tuple[str | None, str | None]
"""Whose it is, and the client's name of it."""


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
    def episode(self) -> Episode:
        """Which episode it belongs to."""
        return self.client, self.episode_id

    @property
    def is_last(self) -> bool:
        """Whether the episode is over with it."""
        return self.terminated or self.truncated or self.episode == (None, None)


class _Rest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What of a buffer is kept as JSON."""

    episodes: list[Episode]
    returns: list[tuple[str | None, str | None, float]]


class TransitionBuffer:
    """Transitions in the order of their coming. Not safe for several threads by itself.

    Attributes:
        transitions: what waits to be learned from, what is learned from right now first.
        room: how many may wait; twice as many where those of an update that failed wait again.
    """

    def __init__(
        self,
        room: int,
        size: int,
        transitions: Iterable[SentTransition] = (),
        returns: Iterable[tuple[Episode, float]] = (),
    ) -> None:
        self.room = room
        self.transitions = list(transitions)
        self._size = size
        self._num_taken = 0
        """How many are learned from right now."""
        self._returns = OrderedDict(returns)
        """The sum of the rewards of each running episode."""

    def __len__(self) -> int:
        return len(self.transitions) - self._num_taken

    @property
    def is_full(self) -> bool:
        """Whether there is no room for another one."""
        return len(self) >= min(self.room, 2 * self.room - self._num_taken)

    def add(self, transition: SentTransition) -> float | None:
        """Adds the next one; returns the sum of the rewards of its episode where that is over."""
        self.transitions.append(transition)
        total = self._returns.pop(transition.episode, 0.0) + transition.reward
        if transition.is_last:
            return total
        self._returns[transition.episode] = total
        if len(self._returns) > MAX_RUNNING:
            self._returns.popitem(last=False)
        return None

    def take(self) -> list[SentTransition]:
        """Returns all, to be learned from; running episodes go on. ``settle`` follows."""
        self._num_taken = len(self.transitions)
        return list(self.transitions)

    def settle(self, *, learned: bool) -> None:
        """Ends ``take``: what was taken is forgotten where it was learned from, else it waits again."""
        if learned:
            del self.transitions[: self._num_taken]
        self._num_taken = 0

    def copy(self) -> TransitionBuffer:
        """Returns one with the same in it, which stays as it is when this one changes."""
        return TransitionBuffer(self.room, self._size, self.transitions, self._returns.items())

    def state(self) -> State:
        """Returns all that is in it."""
        rest = {
            "episodes": [list(each.episode) for each in self.transitions],
            "returns": [[*episode, total] for episode, total in self._returns.items()],
        }
        return State({name: _column(self.transitions, name, self._size) for name in _TYPES}, rest)

    @classmethod
    def restored(cls, room: int, size: int, arrays: Mapping[str, NDArray[Any]], rest: object) -> TransitionBuffer:
        """Returns a buffer with what ``state`` returned.

        Raises:
            CorruptError: it is something else.
        """
        others = convert_record(rest, "the transitions of the checkpoint cannot be read", _Rest, error=CorruptError)
        count, none = len(others.episodes), {name: _column([], name, size) for name in _TYPES}
        wanted = {name: ((count, *each.shape[1:]), each.dtype) for name, each in none.items()}
        if {name: (value.shape, value.dtype) for name, value in arrays.items()} != wanted or count > 2 * room:
            raise CorruptError(f"the {count} transitions of the checkpoint are not what this server keeps")
        columns = [arrays[name] if len(shape) > 1 else arrays[name].tolist() for name, (shape, _) in wanted.items()]
        rows = zip(*columns, others.episodes, strict=True)
        transitions = [SentTransition(*fields, *episode) for *fields, episode in rows]
        return cls(room, size, transitions, (((client, name), total) for client, name, total in others.returns))


_TYPES: Mapping[str, type[np.generic]] = {
    "observation": np.float32,
    "action": np.int64,
    "reward": np.float64,
    "next_observation": np.float32,
    "terminated": np.bool_,
    "truncated": np.bool_,
    "log_prob": np.float64,
    "value": np.float64,
}
"""The first fields of ``SentTransition``, in their order, as they are kept."""


def _column(transitions: Sequence[SentTransition], name: str, size: int) -> NDArray[Any]:
    """Returns a field of all transitions, shape ``(n,)``, or ``(n, size)`` of observations."""
    found = np.array([getattr(each, name) for each in transitions], dtype=_TYPES[name])
    return found.reshape(len(transitions), size) if name.endswith("observation") else found


def segments_of(transitions: Iterable[SentTransition]) -> list[list[SentTransition]]:
    """Returns the transitions of each episode in their order, the episode that began first before the others.

    Without an ``episode_id`` a client's transitions belong together only as long as each begins where the last one
    led to: two programs with one key do not mix. Without a client either each is an episode of one step.
    """
    segments: list[list[SentTransition]] = []
    running: dict[Episode, list[SentTransition]] = {}
    for each in transitions:
        segment = running.get(each.episode)
        if segment is None or (
            each.episode_id is None and not np.array_equal(segment[-1].next_observation, each.observation)
        ):
            segment = running[each.episode] = []
            segments.append(segment)
        segment.append(each)
        if each.is_last:
            del running[each.episode]
    return segments


def steps_of(segments: Sequence[Sequence[SentTransition]], size: int) -> Steps:
    """Returns segments as arrays. What is not terminated at the end of its segment is bootstrapped."""
    rows = [each for segment in segments for each in segment]
    ended = last_rows([len(segment) for segment in segments])
    cut = [row for row in np.flatnonzero(ended).tolist() if rows[row].truncated or not rows[row].terminated]
    return Steps(
        observations=_column(rows, "observation", size),
        actions=_column(rows, "action", size),
        log_probs=_column(rows, "log_prob", size).astype(np.float32),
        rewards=_column(rows, "reward", size).astype(np.float32),
        ended=ended,
        cut=np.array(cut, dtype=np.intp),
        next_observations=_column([rows[row] for row in cut], "next_observation", size),
        values=_column(rows, "value", size).astype(np.float32),
    )
