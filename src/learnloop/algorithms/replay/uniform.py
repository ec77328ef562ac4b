"""The uniform replay: the newest transitions.

An observation that ends one transition and begins the next is stored once. Of a terminated episode the last
observation is not stored at all: its value is 0 whatever it shows.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from numpy.typing import NDArray

from learnloop.algorithms.on_policy.rollout import action_array
from learnloop.algorithms.replay.observation_ring import ObservationRing, Precision
from learnloop.algorithms.replay.transitions import Entries, ReplaySample, Transitions, chained
from learnloop.core.arrays import F32, I64, Bools
from learnloop.core.errors import CorruptError, NotFoundError, UsageError
from learnloop.core.spaces import ActionSpace
from learnloop.core.stepping import Masks
from learnloop.nn.encoders.action_codec import mask_width
from learnloop.system.state_file import State, read_state, write_state

MARGIN = 256
"""An observation is looked up for a new transition only among so many of the newest, unless a buffer is told more."""
MAX_SIZES = 4
"""For so many batch sizes the memory of a sample is kept."""
FILE = "replay.safetensors"
FORMAT = "learnloop.replay/v2"
FIRST_FORMAT = "learnloop.replay/v1"
_GROUP = Path("/sys/fs/cgroup")


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
        kinds: dict[str, Any] = {"dtype": dtype, "share_observations": share_observations, "margin": margin}
        observations, others = self.num_bytes(capacity, observation_size, action_space, **kinds)
        wanted, free = others if folder is not None else observations + others, available_memory()
        if wanted > free:
            raise UsageError(
                f"a replay of {capacity} transitions takes {megabytes(wanted)} MB ({megabytes(observations)} MB for "
                f"observations of {observation_size} {dtype} numbers), and {megabytes(free)} MB are free; lower "
                "buffer_size, keep observations as float16 (half as much), or in a folder (a memory-mapped file)"
            )
        ring_capacity = ring_size(capacity, share_observations, margin)
        width = mask_width(action_space)
        self._ring = ObservationRing(ring_capacity, observation_size, width, dtype=dtype, folder=folder)
        self._observation_size = observation_size
        # One record a transition: a draw is one look into the memory, not seven.
        self._entries = np.zeros(capacity, dtype=_entry(action_space))
        self._columns: dict[str, NDArray[Any]] = {name: self._entries[name] for name in _COLUMNS}
        self._first = self._columns["first"]
        self._buffers: dict[int, tuple[F32, F32]] = {}

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
        others = num_kept * mask_width(action_space) + capacity * _entry(action_space).itemsize
        return num_kept * observation_size * np.dtype(dtype).itemsize, others

    def __len__(self) -> int:
        """Returns how many transitions it holds."""
        return self.num_added - self.oldest

    # Adding ------------------------------------------------------------------------------------------------------

    def see(self, observations: F32, masks: Masks | None = None) -> int:
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

    def shows(self, numbers: I64, observations: F32) -> bool:
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
        for name, column in self._columns.items():
            column[target] = getattr(entries, name)

    def add_transitions(self, transitions: Transitions, gamma: float) -> None:
        """Adds transitions of one step each with their observations, the newest ones where there is no room for all.

        Raises:
            UsageError: their observations would push them out again.
        """
        size = len(transitions.rewards)
        follows = chained(transitions)
        needed = size + int(np.count_nonzero(~(follows | transitions.terminated)))
        room = self._ring.capacity - 2 * self.margin
        if size <= self.capacity and needed > room:
            raise UsageError(
                f"{size} transitions have {needed} observations, as few follow each other, and a replay of "
                f"{self.capacity} has room for {room}; give it share_observations=False, or a larger capacity"
            )
        part = max(1, min(self.margin // 2, self.capacity))
        for start in range(0, size, part):
            self._add_part(transitions, follows, slice(start, min(start + part, size)), gamma)

    def _add_part(self, transitions: Transitions, chain: Bools, rows: slice, gamma: float) -> None:
        count = rows.stop - rows.start
        terminated = transitions.terminated[rows]
        follows = chain[rows].copy()
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

    def sample(self, count: int, rng: np.random.Generator) -> ReplaySample:
        """Returns ``count`` transitions, drawn uniformly with replacement.

        Raises:
            UsageError: it is empty.
        """
        self._check_filled()
        return self._gather(rng.integers(self.oldest, self.num_added, size=count), None)

    def _check_filled(self) -> None:
        if self.oldest == self.num_added:
            raise UsageError("the replay holds no transition; add some before a sample is drawn")

    def _gather(self, numbers: I64, weights: F32 | None) -> ReplaySample:
        entries = self._entries.take(numbers % self.capacity)
        observations, next_observations = self._rows_for(len(numbers))
        first, following = entries["first"], entries["following"]
        ring = self._ring
        return ReplaySample(
            numbers=numbers,
            following=following,
            observations=ring.rows(first, observations),
            actions=entries["actions"],
            rewards=entries["rewards"],
            next_observations=ring.rows(following, next_observations),
            discounts=entries["discounts"],
            terminated=entries["terminated"],
            truncated=entries["truncated"],
            masks=ring.masks(first),
            next_masks=ring.masks(following),
            weights=weights,
        )

    def _rows_for(self, count: int) -> tuple[F32, F32]:
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
        found = {name: column[rows] for name, column in self._columns.items()}
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
            for name, column in self._columns.items():
                column[rows] = state[name]
            self.num_added, self.oldest = num_added, num_added - count
        except (KeyError, ValueError, TypeError) as error:
            raise CorruptError(f"a stored replay cannot be read: {error}") from error

    def save(self, folder: Path) -> Path:
        """Writes what it holds into a file in ``folder``, in the place of an older one; returns the file.

        Raises:
            StoreError: the disk refuses.
        """
        path = folder / FILE
        write_state(path, FORMAT, State(self.state(), {}))
        return path

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
        for name, own in self._columns.items():
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


def ring_size(capacity: int, share_observations: bool, margin: int) -> int:
    """Returns how many observations are kept for ``capacity`` transitions."""
    return (capacity + capacity // 16 if share_observations else 2 * capacity) + 2 * margin


def _entry(action_space: ActionSpace) -> np.dtype[Any]:
    """Returns the record of a transition."""
    action = action_array(action_space, 1)
    kinds = (np.int64, np.int64, (action.dtype, action.shape[1:]), np.float32, np.float32, np.bool_, np.bool_)
    return np.dtype(list(zip(_COLUMNS, kinds, strict=True)), align=True)


_COLUMNS = ("first", "following", "actions", "rewards", "discounts", "terminated", "truncated")


def read_replay(folder: Path) -> dict[str, NDArray[Any]]:
    """Returns the state that ``ReplayBuffer.save`` wrote.

    Raises:
        NotFoundError: there is none.
        CorruptError: it is not what was written.
    """
    if not (folder / FILE).is_file():
        raise NotFoundError(f"there is no replay in {folder}")
    return read_state(folder / FILE, FORMAT, FIRST_FORMAT).tensors


def available_memory() -> int:
    """Returns how many bytes can be taken without swapping: what is free, or what the container's limit leaves."""
    free = int(psutil.virtual_memory().available)
    limit, used = _read(_GROUP / "memory.max"), _read(_GROUP / "memory.current")
    return free if limit is None or used is None else max(0, min(free, limit - used))


def megabytes(num_bytes: int) -> int:
    """Returns megabytes of 1,000,000 bytes, rounded up."""
    return -(-num_bytes // 1_000_000)


def _read(path: Path) -> int | None:
    try:
        text = path.read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
