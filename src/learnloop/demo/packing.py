"""The ways to pack a file, what the agent sees of it, and what a packing is worth."""

from __future__ import annotations

import bz2
import lzma
import time
import zlib
from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from learnloop.core.protocols import ContextValue

SECONDS_PRICE = 0.02
"""What one CPU second per megabyte costs, as a fraction of the file."""

_HEAD_BYTES = 4096
_BCJ = [{"id": lzma.FILTER_X86}, {"id": lzma.FILTER_LZMA2, "preset": 6}]

CODECS: Mapping[str, Callable[[bytes], bytes]] = {
    "store": bytes,
    "gzip-1": lambda data: zlib.compress(data, 1, wbits=31),
    "gzip-9": lambda data: zlib.compress(data, 9, wbits=31),
    "bz2-9": lambda data: bz2.compress(data, 9),
    "xz-6": lambda data: lzma.compress(data, preset=6),
    "xz-x86": lambda data: lzma.compress(data, format=lzma.FORMAT_XZ, filters=_BCJ),
}
"""The choices: real packers of the standard library; ``xz-x86`` converts machine code before it packs."""


class Packing(NamedTuple):
    """The measured outcome of packing one file in one way."""

    num_bytes: int
    packed_bytes: int
    cpu_seconds: float

    @property
    def saved(self) -> float:
        """The share of the bytes that was saved; negative where the packed file is larger."""
        return 1.0 - self.packed_bytes / self.num_bytes

    @property
    def reward(self) -> float:
        """``saved - SECONDS_PRICE * cpu_seconds / megabytes``."""
        return self.saved - SECONDS_PRICE * self.cpu_seconds / (self.num_bytes / 1e6)


def pack(codec: str, data: bytes) -> Packing:
    """Packs ``data`` for real and returns what came out and what it took of this thread's CPU time."""
    started = time.thread_time()
    packed = CODECS[codec](data)
    return Packing(len(data), len(packed), time.thread_time() - started)


def context_of(kind: str, data: bytes) -> dict[str, ContextValue]:
    """Returns what the agent sees before it chooses.

    ``size`` in bytes, ``kind`` by the file's name, ``entropy`` of the first 4 KiB in bits a byte (Shannon 1948,
    section 6), ``probe``: the share that the fastest packer saves of these 4 KiB.
    """
    head = data[:_HEAD_BYTES]
    return {
        "size": len(data),
        "kind": kind,
        "entropy": _entropy(head),
        "probe": 1.0 - len(zlib.compress(head, 1)) / len(head),
    }


def _entropy(data: bytes) -> float:
    frequencies = np.array(list(Counter(data).values()), dtype=float) / len(data)
    return float(-(frequencies * np.log2(frequencies)).sum())
