"""Names of arrays by the type of their numbers: one for each, in the whole package. Importing it loads numpy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]
"""What networks and policies compute with."""
F64 = NDArray[np.float64]
"""What statistics and rewards are computed with."""
I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]
Bools = NDArray[np.bool_]
Indices = NDArray[np.intp]
"""Positions in other arrays."""
