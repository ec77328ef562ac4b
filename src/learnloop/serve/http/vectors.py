"""Vectors in requests: lists of numbers, or little-endian float32 in base64."""

from __future__ import annotations

import struct

import numpy as np

from learnloop.core.arrays import F32
from learnloop.core.errors import ContextError

Vector = list[float] | bytes
"""What a body's field is declared as: msgspec reads base64 text into bytes."""


def read_vector(name: str, given: Vector) -> F32:
    """Returns the vector of a request, float32 of shape ``(n,)``; it may hold what is not finite.

    Args:
        name: what the client calls it.
        given: as it was read.

    Raises:
        ContextError: the bytes are not whole numbers, or a number is too large for float32.
    """
    if isinstance(given, bytes):
        if len(given) % 4:
            raise ContextError(f"{name} has {len(given)} bytes; float32 in base64 has 4 for each number")
        return np.frombuffer(given, "<f4")
    try:
        packed = struct.pack(f"<{len(given)}f", *given)  # a third of what numpy takes for a list
    except OverflowError as error:
        raise ContextError(f"{name} holds a number that is too large for float32") from error
    return np.frombuffer(packed, "<f4")
