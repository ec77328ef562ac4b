"""An encoder: how often each letter occurs in a text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

ALPHABET = "abcdefghijklmnopqrstuvwxyz"


class Letters:
    """Counts of the letters a to z."""

    size = len(ALPHABET)

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Returns the counts, shape ``(len(texts), 26)``."""
        counts = [[text.lower().count(letter) for letter in ALPHABET] for text in texts]
        return np.array(counts, dtype=np.float32).reshape(-1, self.size)
