"""Encoders of texts that were added by name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from learnloop.core.errors import UsageError
from learnloop.core.extensions import POINTS

Floats = NDArray[np.float32]


class TextEncoder(Protocol):
    """Turns texts into numbers; the same text gives the same ones in every process."""

    @property
    def size(self) -> int:
        """How many numbers a text becomes."""
        ...

    def encode(self, texts: Sequence[str]) -> Floats:
        """Returns the numbers of ``texts``, shape ``(len(texts), size)``."""
        ...


def find_encoder(name: str) -> TextEncoder:
    """Returns the encoder that was added as ``name``; a class is called for one.

    Raises:
        NotFoundError: none was: what was learned with it needs the package that has it.
        UsageError: it is none, or its package cannot be imported.
    """
    value = POINTS["encoder"].get(name)
    made = value() if isinstance(value, type) else value
    size: object = getattr(made, "size", None)
    if not isinstance(size, int) or size < 1 or not callable(getattr(made, "encode", None)):
        raise UsageError(f"the encoder {name!r} is {made!r}; an object with size, from 1, and encode(texts) is needed")
    encoder: TextEncoder = made
    return encoder
