"""Encoders of texts, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from learnloop.core.arrays import F32
from learnloop.core.errors import ExtensionError, UsageError
from learnloop.core.extensions import POINTS

HASHED = "hashed"
"""The name of what texts are seen through where nothing else is said."""
BUILT_IN: Mapping[str, str] = {HASHED: "Words and parts of words of a text, hashed into 256 numbers."}


class TextEncoder(Protocol):
    """Turns texts into numbers; the same text gives the same ones in every process."""

    @property
    def size(self) -> int:
        """How many numbers a text becomes."""
        ...

    def encode(self, texts: Sequence[str]) -> F32:
        """Returns the numbers of ``texts``, shape ``(len(texts), size)``."""
        ...


def check_encoder(name: str, value: object) -> object:
    """Returns what is to be added as the encoder ``name``; a class is not called yet, which may load a model.

    Raises:
        UsageError: it has no ``encode``, or, where it is an object, no ``size``.
    """
    size: object = 1 if isinstance(value, type) else getattr(value, "size", None)
    is_size = isinstance(size, int) and not isinstance(size, bool) and size >= 1
    if not is_size or not callable(getattr(value, "encode", None)):
        raise UsageError(
            f"the encoder {name!r} is {value!r}; an object with size and encode(texts), or a class of such, is needed"
        )
    return value


_made: dict[str, tuple[Any, TextEncoder]] = {}
"""By name: what was added, and the encoder that came of it."""


def find_encoder(name: str) -> TextEncoder:
    """Returns the encoder that was added as ``name``; a class is called for one, once in a process.

    Raises:
        NotFoundError: none was: what was learned with it needs the package that has it.
        ExtensionError: it is not an encoder, or cannot be made, or its package cannot be imported.
    """
    value: Any = POINTS["encoder"].get(name, BUILT_IN)
    known = _made.get(name)
    if known is not None and known[0] is value:
        return known[1]
    try:
        made = value() if isinstance(check_encoder(name, value), type) else value
        encoder: TextEncoder = check_encoder(name, made)  # type: ignore[assignment]
    except Exception as error:  # whatever its constructor raises
        told = (
            error if isinstance(error, UsageError) else f"the encoder {name!r} raised {type(error).__name__}: {error}"
        )
        raise ExtensionError(str(told)) from error
    _made[name] = (value, encoder)
    return encoder


def encode_texts(name: str, encoder: TextEncoder, texts: Sequence[str]) -> F32:
    """Returns the numbers of ``texts``, shape ``(len(texts), encoder.size)``.

    Raises:
        ExtensionError: the encoder raised something, or gave something else.
    """
    try:
        found = np.asarray(encoder.encode(texts), dtype=np.float32)
    except Exception as error:  # whatever the encoder raises
        raise ExtensionError(f"the encoder {name!r} raised {type(error).__name__}: {error}") from error
    wanted = (len(texts), encoder.size)
    if found.shape != wanted or not np.isfinite(found).all():
        what = "numbers that are not finite" if found.shape == wanted else f"an array of shape {found.shape}"
        raise ExtensionError(
            f"the encoder {name!r} gave {what} for {len(texts)} texts; {wanted} finite numbers are needed"
        )
    return found
