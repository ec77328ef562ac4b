"""Replay: the newest transitions, drawn uniformly or by priority.

An observation that ends one transition and begins the next is stored once. Of a terminated episode the last
observation is not stored at all: its value is 0 whatever it shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from learnloop.algorithms.observation_ring import Floats, Integers, ObservationRing, Precision
from learnloop.algorithms.replay_files import read_replay, write_replay
from learnloop.algorithms.replay_memory import available_memory, megabytes
from learnloop.algorithms.rollout import action_array
from learnloop.algorithms.sum_tree import SumTree
from learnloop.core.errors import CorruptError, UsageError
from learnloop.core.spaces import ActionSpace, Box, num_choices
from learnloop.core.stepping import Actions, Masks

Flags = NDArray[np.bool_]

MARGIN = 256
"""An observation is looked up for a new transition only among so many of the newest, unless a buffer is told more."""
MAX_SIZES = 4
"""For so many batch sizes the memory of a sample is kept."""


class Entries(NamedTuple):
    """Transitions whose observations the buffer has seen already, known by number. Shapes are ``(batch,)``."""

    first: Integers
    """The observation that the action was chosen on."""
    actions: Actions
    rewards: NDArray[Any]
    """Of one step, or the discounted sum of several."""
    following: Integers
    """The observation that it led to; where ``terminated``, ``first`` again."""
    discounts: NDArray[Any] | float
    """What the value of ``following`` is worth: gamma, or its k-th power after k steps."""
    terminated: Flags
    truncated: Flags

    def rows(self, chosen: Flags | slice) -> Entries:
        """Returns those that are ``chosen``."""
        discounts = self.discounts
        return Entries(
            self.first[chosen],
            self.actions[chosen],
            self.rewards[chosen],
            self.following[chosen],
            discounts if isinstance(discounts, float) else discounts[chosen],
            self.terminated[chosen],
            self.truncated[chosen],
        )


class Transitions(NamedTuple):
    """Transitions with their observations, each of one step, shapes ``(batch, ...)``: such as historical ones."""

    observations: Floats
    """Encoded, shape ``(batch, size)``."""
    actions: Actions
    """Counted from 0 for a discrete space, in the units of the space for a box."""
    rewards: NDArray[Any]
    next_observations: Floats
    """What each action led to; rows where ``terminated`` are not looked at."""
    terminated: Flags
    truncated: Flags
    masks: Masks | None = None
    """Which choices were allowed, shape ``(batch, num_choices)``; None: all."""
    next_masks: Masks | None = None


class Sample(NamedTuple):
    """Transitions that were drawn. Observations are the buffer's, and valid until its next sample of the same size."""

    numbers: Integers
    """Which transitions they are; a number is never used again, so it tells an entry from what overwrites it."""
    following: Integers
    """Which observations they led to; equal numbers are the same observation."""
    observations: Floats
    actions: Actions
    rewards: Floats
    next_observations: Floats
    """Where ``terminated``, ``observations`` again."""
    discounts: Floats
    terminated: Flags
    truncated: Flags
    masks: Masks | None
    next_masks: Masks | None
    weights: Floats | None
    """Importance weights, at most 1; None: all are 1."""

    def rows(self, rows: slice) -> Sample:
        """Returns a part."""
        return Sample(
            self.numbers[rows],
            self.following[rows],
            self.observations[rows],
            self.actions[rows],
            self.rewards[rows],
            self.next_observations[rows],
            self.discounts[rows],
            self.terminated[rows],
            self.truncated[rows],
            None if self.masks is None else self.masks[rows],
            None if self.next_masks is None else self.next_masks[rows],
            None if self.weights is None else self.weights[rows],
        )


class ReplayBuffer:
    """The newest ``capacity`` transitions, preallocated, drawn uniformly with replacement.

    It holds fewer where observations cannot be shared: its room is for one observation a transition and a sixteenth
    more, so that those of frequent truncations, or of single transitions that follow no other, push out the oldest
    early. ``share_observations=False`` makes room for two each.

    Attributes:
        capacity: how many transitions it holds at most.
        num_added: how many came so far; the next one has this number.
        oldest: the number of the oldest one that it holds.
        margin: for ``Entries``, an observation must be one of so many newest.
    """

    def __init__(
        self,
        capacity: int,
        observation_size: int,
        action_space: ActionSpace,
        *,
        dtype: Precision = "float32",
        folder: Path | None = None,
        share_observations: bool = True,
        margin: int = MARGIN,
    ) -> None:
        """Takes the memory.

        Args:
            capacity: how many transitions to hold.
            observation_size: numbers of an encoded observation.
            action_space: of the actions; those of a box are kept as they are given.
            dtype: how observations are kept; ``float16`` halves their memory and ends at 65504.
            folder: where observations lie in a file that goes with the process; None: in memory.
            share_observations: False where most transitions follow no other.
            margin: see the attribute.

        Raises:
            UsageError: it does not fit into the memory that is free.
            StoreError: the folder cannot be written or has too little room.
        """
        if capacity < 1 or margin < 1:
            raise UsageError(f"a replay has the capacity {capacity} and the margin {margin}; at least 1 is needed")
        self.capacity = capacity
        self.margin = margin
        self.num_added = 0
        self.oldest = 0
        self._check_memory(observation_size, action_space, dtype, folder, share_observations)
        ring_capacity = ring_size(capacity, share_observations, margin)
        choices = 0 if isinstance(action_space, Box) else num_choices(action_space)
        self._ring = ObservationRing(ring_capacity, observation_size, choices, dtype=dtype, folder=folder)
        self._observation_size = observation_size
        self._first = np.zeros(capacity, dtype=np.int64)
        self._following = np.zeros(capacity, dtype=np.int64)
        self._actions = action_array(action_space, capacity)
        self._rewards = np.zeros(capacity, dtype=np.float32)
        self._discounts = np.zeros(capacity, dtype=np.float32)
        self._terminated = np.zeros(capacity, dtype=np.bool_)
        self._truncated = np.zeros(capacity, dtype=np.bool_)
        self._buffers: dict[int, tuple[Floats, Floats]] = {}

    @classmethod
    def num_bytes(
        cls,
        capacity: int,
        observation_size: int,
        action_space: ActionSpace,
        *,
        dtype: Precision = "float32",
        share_observations: bool = True,
        margin: int = MARGIN,
    ) -> tuple[int, int]:
        """Returns the bytes of observations (in memory, or on the disk with ``folder``) and of all else, at most."""
        num_kept = ring_size(capacity, share_observations, margin)
        if isinstance(action_space, Box):
            action, mask = 4 * action_space.size, 0
        else:
            action, mask = action_array(action_space, 1).nbytes, num_choices(action_space)
        entry = 8 + 8 + action + 4 + 4 + 1 + 1
        return num_kept * observation_size * np.dtype(dtype).itemsize, num_kept * mask + capacity * entry

    def __len__(self) -> int:
        """Returns how many transitions it holds."""
        return self.num_added - self.oldest

    # Adding ------------------------------------------------------------------------------------------------------

    def see(self, observations: Floats, masks: Masks | None = None) -> int:
        """Keeps observations, shape ``(batch, size)``, batch at most ``margin``; returns the number of the first one.

        Args:
            observations: encoded.
            masks: which choices are allowed in them, shape ``(batch, num_choices)``; None: all. One that allows none,
                as nothing is chosen there, is kept as one that allows all.
        """
        if masks is not None:
            masks = masks | ~masks.any(axis=1, keepdims=True)
        first = self._ring.add(observations, masks)
        lost = self._ring.oldest
        if lost:
            self._evict(lost + self.margin)
        return first

    def is_recent(self, number: int) -> bool:
        """Returns whether a new transition may begin or end with the observation ``number``."""
        return number >= self._ring.num_added - self.margin

    def shows(self, numbers: Integers, observations: Floats) -> bool:
        """Returns whether ``numbers`` are recent, and are of ``observations`` as the buffer keeps them."""
        if not self.is_recent(int(numbers.min())):
            return False
        wanted = observations.astype(np.float16).astype(np.float32) if self._ring.is_half else observations
        return bool(np.array_equal(self._ring.rows(numbers), wanted))

    def add(self, entries: Entries) -> None:
        """Adds transitions, at most ``capacity``; the oldest make room.

        Raises:
            UsageError: an observation is not recent.
        """
        count = len(entries.first)
        if not count:
            return
        if not self.is_recent(int(entries.first[0] if count == 1 else entries.first.min())):
            raise UsageError(
                f"a transition begins with an observation that was followed by more than {self.margin} others; record "
                "it sooner"
            )
        start = self.num_added % self.capacity
        if start + count <= self.capacity:
            self._write(slice(start, start + count), entries)
        else:
            split = self.capacity - start
            self._write(slice(start, None), entries.rows(slice(0, split)))
            self._write(slice(0, count - split), entries.rows(slice(split, count)))
        self.num_added += count
        if self.num_added - self.oldest > self.capacity:
            self.oldest = self.num_added - self.capacity

    def _write(self, target: slice, entries: Entries) -> None:
        self._first[target] = entries.first
        self._following[target] = entries.following
        self._actions[target] = entries.actions
        self._rewards[target] = entries.rewards
        self._discounts[target] = entries.discounts
        self._terminated[target] = entries.terminated
        self._truncated[target] = entries.truncated

    def add_transitions(self, transitions: Transitions, gamma: float) -> None:
        """Adds transitions of one step each with their observations, the newest ones where there is no room for all.

        Raises:
            UsageError: their observations would push them out again.
        """
        size = len(transitions.rewards)
        chained = _chained(transitions)
        needed = size + int(np.count_nonzero(~(chained | transitions.terminated)))
        room = self._ring.capacity - 2 * self.margin
        if size <= self.capacity and needed > room:
            raise UsageError(
                f"{size} transitions have {needed} observations, as few follow each other, and a replay of "
                f"{self.capacity} has room for {room}; give it share_observations=False, or a larger capacity"
            )
        part = max(1, min(self.margin // 2, self.capacity))
        for start in range(0, size, part):
            self._add_part(transitions, chained, slice(start, min(start + part, size)), gamma)

    def _add_part(self, transitions: Transitions, chained: Flags, rows: slice, gamma: float) -> None:
        count = rows.stop - rows.start
        terminated = transitions.terminated[rows]
        follows = chained[rows].copy()
        follows[-1] = False  # its successor belongs to the next part
        own = np.flatnonzero(~(follows | terminated))
        masks, next_masks = transitions.masks, transitions.next_masks
        first = np.arange(count) + self.see(transitions.observations[rows], None if masks is None else masks[rows])
        following = np.where(follows, first + 1, first)
        if len(own):
            ends = None if next_masks is None else next_masks[rows][own]
            following[own] = np.arange(len(own)) + self.see(transitions.next_observations[rows][own], ends)
        self.add(
            Entries(
                first,
                transitions.actions[rows],
                transitions.rewards[rows],
                following,
                gamma,
                terminated,
                transitions.truncated[rows],
            )
        )

    def _evict(self, limit: int) -> None:
        """Forgets the oldest transitions while they begin with an observation before ``limit``.

        None of the rest begins with a lost observation: it began, when it came, with one of the ``margin`` newest, and
        so with none more than ``margin`` older than that of any transition before it.
        """
        while self.oldest < self.num_added and self._first[self.oldest % self.capacity] < limit:
            self.oldest += 1

    # Drawing -----------------------------------------------------------------------------------------------------

    def sample(self, count: int, rng: np.random.Generator) -> Sample:
        """Returns ``count`` transitions, drawn uniformly with replacement.

        Raises:
            UsageError: it is empty.
        """
        self._check_filled()
        return self._gather(rng.integers(self.oldest, self.num_added, size=count), None)

    def _check_filled(self) -> None:
        if self.oldest == self.num_added:
            raise UsageError("the replay holds no transition; add some before a sample is drawn")

    def _gather(self, numbers: Integers, weights: Floats | None) -> Sample:
        rows = numbers % self.capacity
        observations, next_observations = self._rows_for(len(numbers))
        first, following = self._first.take(rows), self._following.take(rows)
        ring = self._ring
        return Sample(
            numbers=numbers,
            following=following,
            observations=ring.rows(first, observations),
            actions=self._actions.take(rows, axis=0),
            rewards=self._rewards.take(rows),
            next_observations=ring.rows(following, next_observations),
            discounts=self._discounts.take(rows),
            terminated=self._terminated.take(rows),
            truncated=self._truncated.take(rows),
            masks=ring.masks(first),
            next_masks=ring.masks(following),
            weights=weights,
        )

    def _rows_for(self, count: int) -> tuple[Floats, Floats]:
        found = self._buffers.get(count)
        if found is None:
            if len(self._buffers) >= MAX_SIZES:
                self._buffers.clear()
            shape = (count, self._observation_size)
            found = self._buffers[count] = (np.empty(shape, dtype=np.float32), np.empty(shape, dtype=np.float32))
        return found

    # Keeping -----------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, NDArray[Any]]:
        """Returns a copy of what it holds, the empty part left out."""
        rows = np.arange(self.oldest, self.num_added) % self.capacity
        oldest_needed = self._ring.num_added - self.margin
        if len(rows):
            oldest_needed = min(oldest_needed, int(self._first[rows].min()))
        found = {name: getattr(self, f"_{name}")[rows] for name in _COLUMNS}
        found["num_added"] = np.array([self.num_added])
        return {**found, **self._ring.state(max(self._ring.oldest, oldest_needed))}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Holds what ``state`` says: draws from then on are those of the buffer that it was taken of, bit for bit.

        Raises:
            CorruptError: it is not the state of such a buffer.
        """
        try:
            self._check_state(state)
            self._ring.restore(state)
            count, num_added = len(state["first"]), int(state["num_added"].item())
            rows = np.arange(num_added - count, num_added) % self.capacity
            for name in _COLUMNS:
                getattr(self, f"_{name}")[rows] = state[name]
            self.num_added, self.oldest = num_added, num_added - count
        except (KeyError, ValueError, TypeError) as error:
            raise CorruptError(f"a stored replay cannot be read: {error}") from error

    def save(self, folder: Path) -> Path:
        """Writes what it holds into a file in ``folder``, in the place of an older one; returns the file.

        Raises:
            StoreError: the disk refuses.
        """
        return write_replay(folder, self.state())

    def load(self, folder: Path) -> None:
        """Holds what ``save`` wrote into ``folder``.

        Raises:
            NotFoundError: nothing is there.
            CorruptError: it is not what was written, or is of a replay of other observations, actions or kind.
        """
        self.restore(read_replay(folder))

    def _check_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        count, num_added = len(state["first"]), int(state["num_added"].item())
        if not 0 <= count <= min(self.capacity, num_added):
            raise ValueError(f"{count} transitions of {num_added} for a capacity of {self.capacity}")
        for name in _COLUMNS:
            own: NDArray[Any] = getattr(self, f"_{name}")
            found = state[name]
            if found.shape != (count, *own.shape[1:]) or found.dtype != own.dtype:
                raise ValueError(f"{name} has shape {found.shape} and type {found.dtype}")
        if not (np.isfinite(state["rewards"]).all() and np.isfinite(state["discounts"]).all()):
            raise ValueError("rewards or discounts are not finite")
        newest = int(state["num_observations"].item())
        for name in ("first", "following"):
            numbers = state[name]
            if count and not newest - len(state["observations"]) <= numbers.min() <= numbers.max() < newest:
                raise ValueError(f"{name} names observations that are not there")

    def _check_memory(
        self, size: int, action_space: ActionSpace, dtype: Precision, folder: Path | None, share_observations: bool
    ) -> None:
        observations, others = self.num_bytes(
            self.capacity,
            size,
            action_space,
            dtype=dtype,
            share_observations=share_observations,
            margin=self.margin,
        )
        wanted = others if folder is not None else observations + others
        free = available_memory()
        if wanted > free:
            raise UsageError(
                f"a replay of {self.capacity} transitions takes {megabytes(wanted)} MB ({megabytes(observations)} MB "
                f"for observations of {size} {dtype} numbers), and {megabytes(free)} MB are free; lower buffer_size, "
                "keep observations as float16 (half as much), or in a folder (a memory-mapped file)"
            )


class PrioritisedReplay(ReplayBuffer):
    """Draws transitions in proportion to the power ``alpha`` of their priority; weights make up for it.

    Source: Schaul et al. 2016, Prioritized Experience Replay, equation 1, section 3.4 (weights) and appendix B.2.1 (one
    draw from each of ``count`` equal parts of the total). The priority of an entry is its absolute error plus
    ``epsilon``; a new one has the largest seen so far. Weights are divided by the largest in the whole buffer, so that
    the weight of an entry does not depend on what else was drawn.

    Attributes:
        num_stale: priorities that came for transitions overwritten since they were drawn, and were dropped.
    """

    def __init__(
        self,
        capacity: int,
        observation_size: int,
        action_space: ActionSpace,
        *,
        alpha: float = 0.6,
        epsilon: float = 1e-6,
        **options: Any,
    ) -> None:
        """Takes the memory; ``options`` are those of ``ReplayBuffer``.

        Args:
            capacity: how many transitions to hold.
            observation_size: numbers of an encoded observation.
            action_space: of the actions.
            alpha: from 0 (uniform) to 1 (in proportion).
            epsilon: added to errors, so that none is never drawn again; above 0.
            options: see ``ReplayBuffer``.
        """
        super().__init__(capacity, observation_size, action_space, **options)
        if not 0 <= alpha <= 1 or not 0 < epsilon < np.inf:
            raise UsageError(f"alpha is {alpha} and epsilon {epsilon}; allowed are 0 to 1, and above 0")
        self.alpha = alpha
        self.epsilon = epsilon
        self.num_stale = 0
        self._tree = SumTree(capacity)
        self._largest = 1.0

    @classmethod
    def num_bytes(
        cls, capacity: int, observation_size: int, action_space: ActionSpace, **options: Any
    ) -> tuple[int, int]:
        """Returns the bytes of observations and of all else, at most, the tree included."""
        observations, others = super().num_bytes(capacity, observation_size, action_space, **options)
        return observations, others + 10 * capacity

    def add(self, entries: Entries) -> None:
        """Adds transitions with the largest priority so far; see ``ReplayBuffer.add``."""
        start = self.num_added
        super().add(entries)
        self._tree.set(np.arange(start, self.num_added) % self.capacity, self._largest)

    def _evict(self, limit: int) -> None:
        before = self.oldest
        super()._evict(limit)
        if self.oldest > before:
            self._tree.set(np.arange(before, self.oldest) % self.capacity, 0.0)

    def sample(self, count: int, rng: np.random.Generator, beta: float = 1.0) -> Sample:
        """Returns ``count`` transitions, drawn by priority, with weights.

        Args:
            count: how many.
            rng: draws them.
            beta: how much the weights make up for the priorities: from 0 (not) to 1 (fully).

        Raises:
            UsageError: it is empty.
        """
        self._check_filled()
        fractions = rng.random(count)
        fractions += np.arange(count)
        fractions /= count
        rows, priorities = self._tree.draw(fractions)
        ratios: Floats = (self._tree.minimum / priorities).astype(np.float32)
        np.power(ratios, np.float32(beta), out=ratios)
        newest = self.num_added - 1
        return self._gather(newest - (newest - rows) % self.capacity, ratios)

    def update_priorities(self, sample: Sample, errors: NDArray[Any]) -> None:
        """Gives the transitions of ``sample`` new priorities; those overwritten since are counted and left alone.

        Args:
            sample: what ``sample`` returned.
            errors: of its transitions, shape ``(batch,)``; their size counts.

        Raises:
            UsageError: an error is not finite; nothing is changed.
        """
        numbers = sample.numbers
        priorities = (np.abs(errors.astype(np.float64)) + self.epsilon) ** self.alpha
        largest = float(priorities.max())
        if not largest < np.inf:  # NaN too
            raise UsageError(f"the errors {errors[~np.isfinite(errors)][:3]} are no priorities; they must be finite")
        if int(numbers.min()) < self.oldest:
            kept = numbers >= self.oldest
            self.num_stale += int(np.count_nonzero(~kept))
            numbers, priorities = numbers[kept], priorities[kept]
            if not len(numbers):
                return
            largest = float(priorities.max())
        self._largest = max(self._largest, largest)
        self._tree.set(numbers % self.capacity, priorities)

    def priorities(self, numbers: Integers) -> NDArray[np.float64]:
        """Returns the priorities of transitions that it holds, to the power ``alpha``, shape ``(batch,)``."""
        return self._tree.get(numbers % self.capacity)

    def state(self) -> dict[str, NDArray[Any]]:
        """Returns a copy of what it holds, with priorities."""
        priorities = self.priorities(np.arange(self.oldest, self.num_added))
        figures = np.array([self._largest, self.num_stale], dtype=np.float64)
        return {**super().state(), "priorities": priorities, "priority_figures": figures}

    def _check_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        super()._check_state(state)
        priorities, figures = state["priorities"], state["priority_figures"]
        if priorities.shape != state["first"].shape or priorities.dtype != np.float64 or figures.shape != (2,):
            raise ValueError(f"priorities have shape {priorities.shape} and type {priorities.dtype}")
        if not (np.isfinite(priorities).all() and (priorities > 0).all() and np.isfinite(figures).all()):
            raise ValueError("priorities are not finite numbers above 0")

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Holds what ``state`` says; see ``ReplayBuffer.restore``."""
        super().restore(state)
        self._tree = SumTree(self.capacity)
        self._tree.set(np.arange(self.oldest, self.num_added) % self.capacity, state["priorities"])
        self._largest = float(state["priority_figures"][0])
        self.num_stale = int(state["priority_figures"][1])


def ring_size(capacity: int, share_observations: bool, margin: int) -> int:
    """Returns how many observations are kept for ``capacity`` transitions."""
    return (capacity + capacity // 16 if share_observations else 2 * capacity) + 2 * margin


def _chained(transitions: Transitions) -> Flags:
    """Returns which transitions end with the observation, and the mask, that the one after them begins with."""
    found = np.zeros(len(transitions.rewards), dtype=np.bool_)
    for start in range(0, len(found) - 1, MARGIN):
        stop = min(start + MARGIN, len(found) - 1)
        following = transitions.observations[start + 1 : stop + 1]
        found[start:stop] = (transitions.next_observations[start:stop] == following).all(axis=1)
    if transitions.next_masks is not None and transitions.masks is not None:
        found[:-1] &= (transitions.next_masks[:-1] == transitions.masks[1:]).all(axis=1)
    return found & ~(transitions.terminated | transitions.truncated)


_COLUMNS = ("first", "following", "actions", "rewards", "discounts", "terminated", "truncated")
