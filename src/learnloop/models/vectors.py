"""What every vector of a text has to be, whoever made it."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learnloop.core.arrays import F32
from learnloop.core.errors import UsageError

MAX_DIMENSION = 16_384


def unit_vectors(where: str, values: NDArray[Any], num_texts: int, dimension: int) -> F32:
    """Returns ``values`` with each row at the length 1, float32 of shape ``(num_texts, dimension)``.

    Raises:
        UsageError: the shape is another, a number is not finite, or a row is all zeros; the message begins with
            ``where`` and names the row.
    """
    if values.shape != (num_texts, dimension):
        raise UsageError(
            f"{where} gives vectors of shape {values.shape} for {num_texts} texts; {(num_texts, dimension)} is needed: "
            "is the dimension right?"
        )
    wide = values.astype(np.float64)
    finite = np.isfinite(wide).all(axis=1)
    if not finite.all():
        raise UsageError(f"{where} gives numbers that are not finite for text {int(np.argmin(finite))}")
    lengths = np.linalg.norm(wide, axis=1)
    if not lengths.all():
        raise UsageError(f"{where} gives a vector of zeros for text {int(np.argmin(lengths))}; it has no direction")
    return np.asarray(wide / lengths[:, None], dtype=np.float32)


def checked_texts(texts: Sequence[str]) -> Sequence[str]:
    """Returns ``texts``.

    Raises:
        UsageError: it is one text, which is a sequence of its characters.
    """
    if isinstance(texts, str):
        raise UsageError("a list of texts is needed, not one text; put it into a list")
    return texts


def whole_text(text: str) -> str:
    """Returns ``text`` with the replacement character in the place of half surrogate pairs."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def text_hash(text: str) -> bytes:
    """Returns the SHA-256 of a text; of any, halves of surrogate pairs included."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
