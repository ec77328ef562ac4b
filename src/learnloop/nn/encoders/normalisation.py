"""Running normalisation of observations and of the scale of rewards.

Source: Chan, Golub & LeVeque 1983, Algorithms for computing the sample variance, equation 2.1b (merging moments);
Stable-Baselines3's VecNormalize for the conventions (epsilon 1e-8, clipped at 10).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from learnloop.core.arrays import F32, F64
from learnloop.core.errors import UsageError

EPSILON = 1e-8
CLIP = 10.0


class RunningMoments:
    """The mean and variance of all that was seen.

    Attributes:
        count: how many rows.
        mean: shape ``(size,)``.
        variance: of the population, shape ``(size,)``; 1 until two rows were seen.
    """

    def __init__(self, size: int) -> None:
        self.count = 0
        self.mean = np.zeros(size)
        self._squares = np.zeros(size)

    @property
    def variance(self) -> F64:
        """The population variance, shape ``(size,)``; 1 until two rows were seen."""
        return self._squares / self.count if self.count > 1 else np.ones_like(self.mean)

    def update(self, rows: NDArray[Any]) -> None:
        """Takes in ``rows``, shape ``(batch, size)``."""
        batch = len(rows)
        if not batch:
            return
        mean = rows.mean(axis=0, dtype=np.float64)
        delta = mean - self.mean
        total = self.count + batch
        deviations = rows - mean
        self._squares += np.einsum("ij,ij->j", deviations, deviations) + delta * delta * (self.count * batch / total)
        self.mean += delta * (batch / total)
        self.count = total

    def state(self) -> dict[str, NDArray[Any]]:
        """Returns a copy of the moments."""
        return {"count": np.array([self.count]), "mean": self.mean.copy(), "squares": self._squares.copy()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Goes on from ``state``."""
        self.count = int(state["count"][0])
        self.mean = np.array(state["mean"], dtype=np.float64)
        self._squares = np.array(state["squares"], dtype=np.float64)


class Normaliser:
    """Frozen: subtracts a mean, divides by a standard deviation, clips.

    Attributes:
        shift: what is subtracted, shape ``(size,)``.
        scale: what is divided by, shape ``(size,)``.
    """

    def __init__(self, shift: F32, scale: F32) -> None:
        self.shift = shift
        self.scale = scale

    @classmethod
    def of(cls, moments: RunningMoments) -> Self:
        """Returns the normaliser by what ``moments`` has seen so far."""
        scale = np.sqrt(moments.variance + EPSILON)
        return cls(moments.mean.astype(np.float32), scale.astype(np.float32))

    def apply(self, rows: F32) -> F32:
        """Returns ``rows`` normalised, shape ``(batch, size)``."""
        result: F32 = np.clip((rows - self.shift) / self.scale, -CLIP, CLIP)
        return result

    def state(self) -> dict[str, NDArray[Any]]:
        """Returns its tensors."""
        return {"shift": self.shift.copy(), "scale": self.scale.copy()}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, NDArray[Any]], prefix: str) -> Self | None:
        """Returns the normaliser whose tensors begin with ``prefix``; None where there are none.

        Raises:
            UsageError: one of two is missing.
        """
        shift, scale = tensors.get(f"{prefix}shift"), tensors.get(f"{prefix}scale")
        if shift is not None and scale is not None:
            return cls(shift, scale)
        if shift is not None or scale is not None:
            raise UsageError(f"of {prefix}shift and {prefix}scale one is missing")
        return None

    def check(self, size: int) -> None:
        """Returns if it fits rows of ``size`` numbers.

        Raises:
            UsageError: it does not, or a number is not finite, or a scale is not above 0.
        """
        for name, values in (("shift", self.shift), ("scale", self.scale)):
            if values.shape != (size,) or values.dtype != np.float32 or not np.isfinite(values).all():
                raise UsageError(f"the normaliser's {name} is not {size} finite numbers of 32 bits")
        if not (self.scale > 0).all():
            raise UsageError("the normaliser has a scale that is not above 0")
