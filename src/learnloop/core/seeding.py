"""Random numbers that can be had again: every stream is named, none is global."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


def derive_seed(seed: int, *names: object) -> int:
    """Returns a 63-bit seed that depends on ``seed`` and on each name, the same on every machine."""
    text = "\x1f".join([str(int(seed)), *map(str, names)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator(seed: int, *names: object) -> np.random.Generator:
    """Returns the numpy generator of the stream ``names`` under ``seed``."""
    import numpy as np

    return np.random.Generator(np.random.PCG64(derive_seed(seed, *names)))
