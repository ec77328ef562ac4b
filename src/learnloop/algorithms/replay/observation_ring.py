"""Observations by number, the newest of them kept: each is stored once, however many transitions it belongs to."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from learnloop.core.arrays import F32, I64
from learnloop.core.errors import StoreError, UsageError
from learnloop.core.stepping import Masks

Precision = Literal["float32", "float16"]

LARGEST_HALF = 65504.0
"""The largest finite float16."""


class ObservationRing:
    """The newest ``capacity`` observations, numbered from 0 in the order in which they came, with their action masks.

    Attributes:
        capacity: how many are kept.
        num_added: how many came so far; the next one has this number.
        is_half: whether they are kept as float16.
    """

    def __init__(
        self, capacity: int, size: int, num_choices: int, *, dtype: Precision = "float32", folder: Path | None = None
    ) -> None:
        """Takes the memory.

        Args:
            capacity: how many to keep.
            size: numbers of an observation.
            num_choices: length of an action mask; 0: there are none.
            dtype: how they are kept.
            folder: where a file of them lies that goes with the process; None: in memory.

        Raises:
            StoreError: the folder cannot be written.
        """
        self.capacity = capacity
        self.num_added = 0
        self._num_choices = num_choices
        self._rows = _allocate((capacity, size), dtype, folder)
        self._masks: Masks | None = None
        self.is_half = dtype == "float16"

    @property
    def oldest(self) -> int:
        """The number of the oldest one that is kept."""
        return max(0, self.num_added - self.capacity)

    def add(self, observations: F32, masks: Masks | None) -> int:
        """Keeps ``observations``, shape ``(batch, size)``, batch at most ``capacity``; returns the first one's number.

        Args:
            observations: encoded.
            masks: which choices are allowed in them, shape ``(batch, num_choices)``; None: all.

        Raises:
            UsageError: a number is too large for float16.
        """
        first = self.num_added
        if masks is not None and self._masks is None:
            self._masks = np.ones((self.capacity, self._num_choices), dtype=np.bool_)
        if self.is_half:
            _check_half(observations)
        count = len(observations)
        start = first % self.capacity
        if start + count <= self.capacity:
            self._write(slice(start, start + count), observations, masks)
        else:
            split = self.capacity - start
            self._write(slice(start, None), observations[:split], None if masks is None else masks[:split])
            self._write(slice(0, count - split), observations[split:], None if masks is None else masks[split:])
        self.num_added = first + count
        return first

    def _write(self, target: slice, observations: F32, masks: Masks | None) -> None:
        self._rows[target] = observations
        if self._masks is not None:
            self._masks[target] = True if masks is None else masks

    def rows(self, numbers: I64, out: F32 | None = None) -> F32:
        """Returns observations by number, shape ``(batch, size)``; they must be kept ones.

        Args:
            numbers: shape ``(batch,)``.
            out: where to write them; None: a new array.
        """
        places = numbers % self.capacity
        if self.is_half:
            result: F32 = self._rows.take(places, axis=0).astype(np.float32)
            if out is None:
                return result
            out[...] = result
            return out
        return self._rows.take(places, axis=0, out=out, mode="clip")

    def masks(self, numbers: I64) -> Masks | None:
        """Returns which choices are allowed in observations, shape ``(batch, num_choices)``; None: all, in all."""
        return None if self._masks is None else self._masks.take(numbers % self.capacity, axis=0)

    def state(self, oldest: int) -> dict[str, NDArray[Any]]:
        """Returns a copy of the observations from the number ``oldest`` on."""
        numbers = np.arange(oldest, self.num_added)
        places = numbers % self.capacity
        found = {"observations": self._rows[places], "num_observations": np.array([self.num_added])}
        if self._masks is not None:
            found["masks"] = self._masks[places]
        return found

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Holds what ``state`` says.

        Raises:
            ValueError: it does not fit.
        """
        rows, masks = state["observations"], state.get("masks")
        num_added = int(state["num_observations"].item())
        if rows.shape[1:] != self._rows.shape[1:] or rows.dtype != self._rows.dtype or len(rows) > self.capacity:
            raise ValueError(
                f"observations of shape {rows.shape} and type {rows.dtype}, not at most {self._rows.shape} of "
                f"{self._rows.dtype}"
            )
        if num_added < len(rows):
            raise ValueError(f"{len(rows)} observations of {num_added}")
        places = np.arange(num_added - len(rows), num_added) % self.capacity
        if masks is not None and (masks.shape != (len(rows), self._num_choices) or masks.dtype != np.bool_):
            raise ValueError(f"masks of shape {masks.shape} and type {masks.dtype}")
        if not np.isfinite(rows).all():
            raise ValueError("observations that are not finite")
        self._rows[places] = rows
        self._masks = None
        if masks is not None:
            self._masks = np.ones((self.capacity, self._num_choices), dtype=np.bool_)
            self._masks[places] = masks
        self.num_added = num_added


def _allocate(shape: tuple[int, int], dtype: Precision, folder: Path | None) -> NDArray[Any]:
    if folder is None:
        return np.zeros(shape, dtype=dtype)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:  # the map holds on to it
            _reserve(file.fileno(), shape[0] * shape[1] * np.dtype(dtype).itemsize)
            return np.asarray(np.memmap(file, dtype=dtype, mode="w+", shape=shape))
    except OSError as error:
        raise StoreError(f"the replay's observations cannot be kept in {folder}: {error.strerror or error}") from error


def _reserve(descriptor: int, num_bytes: int) -> None:
    """Takes the room on the disk now, where the system can: a map whose disk fills up later kills the process."""
    if sys.platform != "darwin" and sys.platform != "win32":
        os.posix_fallocate(descriptor, 0, num_bytes)


def _check_half(observations: F32) -> None:
    largest = float(np.abs(observations).max(initial=0.0))
    if largest > LARGEST_HALF:
        raise UsageError(
            f"an observation holds a number of size {largest:g}, and float16 ends at {LARGEST_HALF:g}; keep the replay "
            "as float32, or scale the observations"
        )
