"""Memory that a learner and one worker share: what they hand each other is raw numbers, not messages.

A slot has one holder at a time: the worker from the learner's word to go on until it says that it is done, the learner
from then on. So neither ever sees what the other has half written, and no lock is needed: the word goes through the
kernel, after all that was written before it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import DTypeLike

from learnloop.algorithms.on_policy.a3c import A3C
from learnloop.core.arrays import F32, F64, I64
from learnloop.system.shared_arrays import SharedArrays

FIGURES = (
    "train/policy_loss",
    "train/value_loss",
    "train/entropy_loss",
    "train/loss",
    "train/approx_kl",
    "train/explained_variance",
    "train/dormant_ratio",
)
"""What a worker tells of each rollout, beside its gradient."""


class ActorSlot:
    """One worker's part.

    Attributes:
        parameters: of the learner, shape ``(num_parameters,)``.
        gradient: of the worker's rollout, before clipping, the same shape.
        before: moments of the scales that the worker was given, shape ``(num_moments,)``.
        after: the same after its rollout.
        episodes: return and length of each episode that ended in it, shape ``(max_episodes, 2)``.
        figures: of the rollout, by the order of ``FIGURES``; NaN: not known.
        counts: see the properties.
    """

    def __init__(self, algorithm: A3C, handle: int | None = None) -> None:
        """Lays it out for ``algorithm``, in new memory, or in that of the open file ``handle``.

        Raises:
            UsageError: the file is of another size: the worker's environment is not the learner's.
        """
        num_parameters = algorithm.network.parameters.size
        num_moments = algorithm.moments().size
        max_episodes = algorithm.config.n_steps * algorithm.num_envs
        shapes: dict[str, tuple[DTypeLike, tuple[int, ...]]] = {
            "counts": (np.int64, (4,)),
            "figures": (np.float64, (len(FIGURES),)),
            "before": (np.float64, (num_moments,)),
            "after": (np.float64, (num_moments,)),
            "episodes": (np.float64, (max_episodes, 2)),
            "parameters": (np.float32, (num_parameters,)),
            "gradient": (np.float32, (num_parameters,)),
        }
        self._shared = SharedArrays(shapes, handle)
        self.handle = self._shared.handle
        views = self._shared.arrays
        self.counts: I64 = views["counts"]
        self.figures: F64 = views["figures"]
        self.before: F64 = views["before"]
        self.after: F64 = views["after"]
        self.episodes: F64 = views["episodes"]
        self.parameters: F32 = views["parameters"]
        self.gradient: F32 = views["gradient"]

    def offer(self, algorithm: A3C) -> None:
        """Writes what a worker goes on with: the learner's parameters and scales, and how many updates they had."""
        np.copyto(self.parameters, algorithm.network.parameters)
        self.before[:] = algorithm.moments()
        self.counts[0] = algorithm.num_updates

    @property
    def num_updates(self) -> int:
        """Of the parameters in it."""
        return int(self.counts[0])

    def answer(self, num_steps: int, gradient: F32 | None, figures: Mapping[str, float]) -> None:
        """Writes what came of a rollout of ``num_steps`` environment steps; None: nothing of it can be learned from."""
        self.counts[1:3] = num_steps, gradient is not None
        if gradient is not None:
            np.copyto(self.gradient, gradient)
        self.figures[:] = [figures.get(name, np.nan) for name in FIGURES]

    @property
    def num_steps(self) -> int:
        """Environment steps of the rollout."""
        return int(self.counts[1])

    @property
    def has_gradient(self) -> bool:
        """Whether there is something to learn from it."""
        return bool(self.counts[2])

    def put_episodes(self, episodes: list[tuple[float, int]]) -> None:
        """Writes the return and the length of each episode that ended."""
        self.counts[3] = len(episodes)
        if episodes:
            self.episodes[: len(episodes)] = episodes

    def take_episodes(self) -> list[list[float]]:
        """Returns the return and the length of each episode that ended."""
        found: list[list[float]] = self.episodes[: self.counts[3]].tolist()
        return found

    def close(self) -> None:
        """Closes the file; the memory stays for those that have it mapped."""
        self._shared.close()
