"""Whether counts are those of a distribution."""

from __future__ import annotations

from typing import Any

import numpy as np

from learnloop.testing.replay_probe import chi_square_p_value


def fits(counts: Any, probabilities: Any) -> bool:
    """Returns whether ``counts`` could be draws of ``probabilities`` (chi-squared test, p > .001)."""
    return chi_square_p_value(counts, np.asarray(probabilities, dtype=np.float64)) > 0.001
