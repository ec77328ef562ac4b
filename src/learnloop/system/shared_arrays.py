"""Arrays in memory that processes share: what they hand each other is raw numbers, not messages.

The memory is a file without a name: the system frees it with the last process that has it open, however that one ends.
"""

from __future__ import annotations

import math
import mmap
import os
import sys
import tempfile
import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from learnloop.core.errors import UsageError

_ALIGNMENT = 8


class SharedArrays:
    """Arrays of zeros by name, which lie one after the other in one piece of memory.

    Attributes:
        arrays: by name.
        handle: the open file of the memory, by which another process has the same arrays.
    """

    def __init__(self, shapes: Mapping[str, tuple[DTypeLike, tuple[int, ...]]], handle: int | None = None) -> None:
        """Lays out arrays of these types and shapes in new memory, or in that of the open file ``handle``.

        Raises:
            UsageError: the file is of another size: what the processes share is not the same in both.
        """
        places: dict[str, int] = {}
        size = 0
        for name, (dtype, shape) in shapes.items():
            places[name] = size
            size += -(-np.dtype(dtype).itemsize * math.prod(shape) // _ALIGNMENT) * _ALIGNMENT
        size = max(size, _ALIGNMENT)  # no memory is of 0 bytes
        self.handle = _unnamed(size) if handle is None else handle
        if os.fstat(self.handle).st_size != size:
            raise UsageError(
                f"the shared memory has {os.fstat(self.handle).st_size} bytes, not {size}: the processes were given "
                "different environments or networks"
            )
        self._close = weakref.finalize(self, os.close, self.handle)
        memory = mmap.mmap(self.handle, size)
        self.arrays: dict[str, NDArray[Any]] = {
            name: np.frombuffer(memory, dtype, math.prod(shape), places[name]).reshape(shape)
            for name, (dtype, shape) in shapes.items()
        }

    def close(self) -> None:
        """Closes the file; the memory stays for those that have it mapped. Again is harmless."""
        self._close()


def _unnamed(num_bytes: int) -> int:
    """Returns an open file of ``num_bytes`` zeros in memory, without a name."""
    if sys.platform == "linux":
        handle = os.memfd_create("learnloop-worker")
    else:
        with tempfile.TemporaryFile() as file:
            handle = os.dup(file.fileno())
    os.ftruncate(handle, num_bytes)
    return handle
