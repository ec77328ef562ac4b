"""What all streams of environment steps are and share: a contract, the arrays of a step, and a count of episodes."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from learnloop.core.arrays import F32, F64, Bools
from learnloop.core.spaces import ActionSpace, Spaces
from learnloop.core.stepping import EnvStep
from learnloop.nn.encoders.action_codec import mask_width
from learnloop.nn.encoders.observation_encoder import ObservationEncoder

if TYPE_CHECKING:
    from learnloop.core.stepping import Actions, Masks

Allocate = Callable[[tuple[int, ...], Any], NDArray[Any]]


class StepBlock:
    """What came of one step in each env.

    Attributes:
        finals: what the actions led to, shape ``(num_envs, size)``.
        observations: the same, but the first of the next episode where one ended; not valid where none ended.
        rewards: shape ``(num_envs,)``.
        terminated: shape ``(num_envs,)``.
        truncated: shape ``(num_envs,)``.
        final_masks: shape ``(num_envs, num_choices)``, for ``finals``.
        masks: the same for ``observations``.
    """

    def __init__(
        self,
        num_envs: int,
        size: int,
        space: ActionSpace,
        allocate: Allocate = np.zeros,
    ) -> None:
        width = mask_width(space)
        self.observations = allocate((num_envs, size), np.float32)
        self.finals = allocate((num_envs, size), np.float32)
        self.rewards = allocate((num_envs,), np.float64)
        self.terminated = allocate((num_envs,), np.bool_)
        self.truncated = allocate((num_envs,), np.bool_)
        self.masks = allocate((num_envs, width), np.bool_)
        self.final_masks = allocate((num_envs, width), np.bool_)
        self._list_rows()

    def _list_rows(self) -> None:
        # Views of rows, made once: indexing an array costs as much as writing four numbers.
        self.observation_rows = list(self.observations)
        self.final_rows = list(self.finals)
        self.mask_rows = list(self.masks)
        self.final_mask_rows = list(self.final_masks)

    def part(self, first: int, stop: int) -> StepBlock:
        """Returns a view of some envs."""
        part = StepBlock.__new__(StepBlock)
        for name in ("observations", "finals", "rewards", "terminated", "truncated", "masks", "final_masks"):
            setattr(part, name, getattr(self, name)[first:stop])
        part._list_rows()
        return part

    def env_step(
        self,
        *,
        has_ended: bool,
        has_masks: bool,
        valid: Bools | None = None,
        resetting: Bools | None = None,
    ) -> EnvStep:
        """Returns the step; its arrays are the block's own."""
        masks = self.masks if has_ended else self.final_masks
        return EnvStep(
            observations=self.observations if has_ended else self.finals,
            final_observations=self.finals,
            rewards=self.rewards,
            terminated=self.terminated,
            truncated=self.truncated,
            valid=valid,
            masks=masks if has_masks else None,
            final_masks=self.final_masks if has_masks else None,
            resetting=resetting,
        )


class FinishedEpisode(NamedTuple):
    """A whole episode of one env."""

    env_index: int
    total_reward: float
    """The sum of its rewards, not discounted: its return."""
    length: int
    """Environment steps."""
    seconds: float
    """From its first observation to its end, on the wall clock."""
    terminated: bool
    truncated: bool
    first_step: int
    """How many environment steps the stream had made in all its envs when it began."""


class EpisodeCounts:
    """Counts the episodes of ``num_envs`` envs that step together.

    Attributes:
        num_steps: environment steps so far, of all envs.
        begun: how many episodes each env has begun.
    """

    def __init__(self, num_envs: int) -> None:
        self.num_steps = 0
        self.begun = [0] * num_envs
        self._returns = np.zeros(num_envs)
        self._tick = 0
        self._first_ticks = [0] * num_envs
        self._first_steps = [0] * num_envs
        self._first_seconds = [0.0] * num_envs
        self._finished: list[FinishedEpisode] = []

    def begin(self, env_indices: Sequence[int]) -> None:
        """Begins an episode in each of ``env_indices``; what ran there is forgotten."""
        now = time.perf_counter()
        for env_index in env_indices:
            self.begun[env_index] += 1
            self._returns[env_index] = 0.0
            self._first_ticks[env_index] = self._tick
            self._first_steps[env_index] = self.num_steps
            self._first_seconds[env_index] = now

    def count(self, rewards: F64, num_steps: int) -> None:
        """Adds the rewards of a step, shape ``(num_envs,)``, in which ``num_steps`` envs made one."""
        self._tick += 1
        self.num_steps += num_steps
        self._returns += rewards

    def end(self, env_indices: Sequence[int], terminated: Bools, truncated: Bools) -> None:
        """Ends the episodes of ``env_indices``."""
        now = time.perf_counter()
        for env_index in env_indices:
            episode = FinishedEpisode(
                env_index=env_index,
                total_reward=float(self._returns[env_index]),
                length=self._tick - self._first_ticks[env_index],
                seconds=now - self._first_seconds[env_index],
                terminated=bool(terminated[env_index]),
                truncated=bool(truncated[env_index]),
                first_step=self._first_steps[env_index],
            )
            self._finished.append(episode)

    def take(self) -> list[FinishedEpisode]:
        """Returns the episodes that ended since it was last asked, in the order of their ends."""
        finished, self._finished = self._finished, []
        return finished


class EnvStream(ABC):
    """Several environments of one kind that step together, encoded, with their episodes counted.

    The arrays of ``reset`` and ``step`` are the stream's: they stay as they are until the next call but one, which
    writes over them. Copy what must last longer.

    Attributes:
        spaces: of a policy for the environment.
        encoder: of its observations.
        num_envs: how many environments there are.
        findings: what was odd, but no error, when the environment was tried out.
    """

    def __init__(
        self, label: str, spaces: Spaces, num_envs: int, findings: Sequence[str] = (), allocate: Allocate = np.zeros
    ) -> None:
        """Makes two blocks, with arrays that ``allocate`` returns; ``label`` is for messages."""
        self.spaces = spaces
        self.num_envs = num_envs
        self.findings = tuple(findings)
        self.encoder = ObservationEncoder(spaces.observation)
        self._label = label
        self._log = EpisodeCounts(num_envs)
        self._blocks = [StepBlock(num_envs, self.encoder.size, spaces.action, allocate) for _ in range(2)]
        self._turn = 0

    @abstractmethod
    def reset(self, seed: int) -> tuple[F32, Masks | None]:
        """Begins new episodes in all envs, whatever ran; what ran is not among ``episodes``.

        The seed of an env derives from ``seed`` and the env's number; its later episodes go on with the
        environment's own random numbers. So equal seeds and actions give equal steps, whatever came before.

        Returns:
            The observations, shape ``(num_envs, encoder.size)``, and the action masks, shape
            ``(num_envs, num_choices)``, None where the environment has none.

        Raises:
            UsageError: the environment breaks gymnasium's rules.
            ActionError: an action mask has the wrong length or allows nothing.
        """

    @abstractmethod
    def step(self, actions: Actions) -> EnvStep:
        """Acts in all envs. Actions of a Box are clipped to its bounds.

        Raises:
            UsageError: the environment breaks gymnasium's rules: the rule, the env and the value are named.
            ActionError: an action mask has the wrong length or allows nothing.
        """

    @abstractmethod
    def close(self) -> None:
        """Closes the environments."""

    def episodes(self) -> list[FinishedEpisode]:
        """Returns the episodes that ended since it was last asked, in the order of their ends."""
        return self._log.take()

    def _next_block(self) -> StepBlock:
        """Returns the block that was not written to last."""
        self._turn = 1 - self._turn
        return self._blocks[self._turn]
