"""Running scales of an algorithm's observations and rewards, as Stable-Baselines3's VecNormalize keeps them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learnloop.core.arrays import F32, F64, Bools
from learnloop.nn.encoders.normalisation import CLIP, EPSILON, Normaliser, RunningMoments


class ObservationScaler(RunningMoments):
    """Brings observations to mean 0 and standard deviation 1 by what was seen so far."""

    def see(self, observations: F32, left_out: Bools | None = None) -> F32:
        """Takes in ``observations``, shape ``(batch, size)``, and returns them normalised.

        Args:
            observations: of all envs.
            left_out: True where nothing is chosen on them, shape ``(batch,)``: they are normalised, and not taken in.
        """
        self.update(observations if left_out is None else observations[~left_out])
        return self.apply(observations)

    def apply(self, observations: F32) -> F32:
        """Returns ``observations`` normalised by what was seen so far."""
        return self.normaliser().apply(observations)

    def normaliser(self) -> Normaliser:
        """Returns a frozen copy."""
        return Normaliser.of(self)


class RewardScaler:
    """Divides rewards by the standard deviation of the discounted return so far; their mean is left alone."""

    def __init__(self, num_envs: int, gamma: float) -> None:
        self.moments = RunningMoments(1)
        self._returns = np.zeros(num_envs)
        self._live: dict[str, float] = {}
        self._gamma = gamma

    def see(self, rewards: F64, ended: Bools, valid: Bools | None = None) -> F64:
        """Takes in the rewards of all envs, shape ``(num_envs,)``, but of those that only reset themselves.

        Returns:
            The rewards scaled, shape ``(num_envs,)``.
        """
        self._returns = self._returns * self._gamma + rewards
        self.moments.update((self._returns if valid is None else self._returns[valid])[:, None])
        self._returns[ended if valid is None else ended | ~valid] = 0
        return self.apply(rewards)

    def see_live(self, episode: str, reward: float, *, ended: bool) -> float:
        """Takes in a reward of a live episode and returns it scaled."""
        total = self._live.pop(episode, 0.0) * self._gamma + reward
        if not ended:
            self._live[episode] = total
        self.moments.update(np.array([[total]]))
        return float(self.apply(np.array([reward]))[0])

    def apply(self, rewards: NDArray[np.floating]) -> F64:
        """Returns ``rewards`` scaled by what was seen so far."""
        scaled: F64 = np.clip(rewards / np.sqrt(self.moments.variance[0] + EPSILON), -CLIP, CLIP)
        return scaled

    def reset(self) -> None:
        """Forgets the running episodes of all envs."""
        self._returns[:] = 0

    def discard(self, episode: str) -> None:
        """Forgets a live episode; what was seen of it stays in the scale."""
        self._live.pop(episode, None)

    def state(self) -> dict[str, NDArray[Any]]:
        """Returns a copy of what was seen."""
        return {**self.moments.state(), "returns": self._returns.copy()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Goes on from ``state``."""
        self.moments.restore(state)
        self._returns = np.array(state["returns"], dtype=np.float64)
        self._live.clear()
