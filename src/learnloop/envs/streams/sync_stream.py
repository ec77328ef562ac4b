"""Single environments stepped one after the other in this process: encoded, checked, ended and begun again."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import gymnasium
import numpy as np

from learnloop.core.arrays import F32
from learnloop.core.errors import ContextError, LearnloopError, UsageError
from learnloop.core.seeding import derive_seed
from learnloop.core.spaces import Spaces
from learnloop.core.stepping import EnvStep
from learnloop.envs.registry import MadeEnv, label_of
from learnloop.envs.spaces import ActionEdge, check_num_actions, from_gymnasium
from learnloop.envs.streams.masks import KEY, MaskReader
from learnloop.envs.streams.stream import EnvStream, StepBlock
from learnloop.nn.encoders.observation_encoder import ObservationEncoder

if TYPE_CHECKING:
    from learnloop.core.stepping import Actions, Masks

SEED_BITS = 0x7FFF_FFFF
"""Environments are given seeds of 31 bits, which each of them takes."""

_NEVER = math.inf


def env_seed(seed: int, index: int) -> int:
    """Returns the seed of one env."""
    return derive_seed(seed, "lane", index) & SEED_BITS


class SyncEnvs:
    """Environments of one kind, each known by its index.

    Attributes:
        spaces: of a policy for them.
        encoder: of their observations.
        has_masks: whether they have told an action mask so far.
    """

    def __init__(self, made: Sequence[MadeEnv], label: str, spaces: Spaces, first: int = 0) -> None:
        """Takes the environments; ``label`` and the number of the ``first`` env are for messages."""
        self.spaces = spaces
        self.encoder = ObservationEncoder(spaces.observation)
        self.has_masks = False
        self._envs = [each.env for each in made]
        self._limits = [_NEVER if each.max_steps is None else each.max_steps for each in made]
        self._label = label
        self._first = first
        self._edge = ActionEdge(spaces.action, self._envs[0].action_space.dtype)
        self._masks = MaskReader(spaces.action)
        self._steps = [each.step for each in self._envs]
        self._tick = 0
        self._cut_ticks: list[float] = [_NEVER] * len(made)
        self._next_cut = _NEVER
        self._begun = [0] * len(made)

    def __len__(self) -> int:
        return len(self._envs)

    def begin(self, index: int, block: StepBlock, row: int, seed: int | None = None) -> None:
        """Starts an episode of one env and writes its first observation, and mask, into a row of ``block``.

        Raises:
            UsageError: the environment breaks gymnasium's rules.
            ActionError: its mask does not fit, or allows nothing.
        """
        try:
            result: object = self._envs[index].reset(seed=seed)
        except LearnloopError:
            raise
        except Exception as error:
            raise self._failure("reset", error, index) from error
        if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[1], dict):
            raise UsageError(
                f"{self._where(index)}: reset returned {short(result)}; gymnasium's rule is a tuple (observation, "
                "info) with a dict info"
            )
        self._begun[index] += 1
        self._cut_ticks[index] = self._tick + self._limits[index]
        self._next_cut = min(self._cut_ticks)
        target = block.observation_rows[row]
        try:
            self.encoder.encode_into(result[0], target)
            self.encoder.check_finite(target[None])
        except ContextError as error:
            self._refuse_observation(index, "reset", error)
        if KEY in result[1] or self.has_masks:
            self._put_mask(block, result[1], index, row, final=False)

    def advance(self, block: StepBlock, actions: Actions, indices: Sequence[int] | None = None) -> list[int]:
        """Steps envs and writes what came of it into the first rows of ``block``: finals, rewards, ends, final masks.

        Args:
            block: has a row for each of ``indices``.
            actions: one for each of ``indices``.
            indices: which, all that run in one episode or another; None: all.

        Returns:
            The rows whose episodes ended.

        Raises:
            UsageError: an environment breaks gymnasium's rules.
            ActionError: a mask does not fit, or allows nothing.
        """
        steps = self._steps if indices is None else [self._steps[index] for index in indices]
        num = len(steps)
        check_num_actions(actions, num)
        rewards: list[Any] = []
        observations: list[Any] = []
        ended: list[int] = []
        block.terminated.fill(False)
        block.truncated.fill(False)
        for step, action in zip(steps, self._edge.to_envs(actions), strict=True):
            try:
                result = step(action)
            except LearnloopError:
                raise
            except Exception as error:
                raise self._failure("step", error, len(rewards), indices) from error
            try:
                observation, reward, is_end, is_cut, info = result
                has_mask = self.has_masks or KEY in info
            except (TypeError, ValueError) as error:
                self._refuse_step(indices, len(rewards), result, error)
            if is_end or is_cut:
                row = len(rewards)
                block.terminated[row], block.truncated[row] = is_end, is_cut
                ended.append(row)
            if has_mask:
                row = len(rewards)
                self._put_mask(block, info, row if indices is None else indices[row], row, final=True)
            observations.append(observation)
            rewards.append(reward)
        self._tick += 1
        if self._tick >= self._next_cut:
            ended = self._cut(block, ended, indices)
        self._encode(observations, block, indices)
        self._put_rewards(rewards, block, indices)
        if self.has_masks and not ended:
            self.check_masks(block.final_masks[:num], indices)
        return ended

    def restart(self, block: StepBlock, ended: Sequence[int]) -> None:
        """Begins the next episode of each env that ended, so that ``block.observations`` and ``masks`` are whole."""
        block.observations[...] = block.finals
        if self.has_masks:
            for index in ended:
                if block.terminated[index]:
                    block.final_masks[index] = True  # nothing is chosen after an end, so none need be allowed
            block.masks[...] = block.final_masks
        for index in ended:
            self.begin(index, block, index)
        if self.has_masks:
            self.check_masks(block.final_masks)
            self.check_masks(block.masks)

    def reset(self, block: StepBlock, seed: int) -> None:
        """Begins a new episode in each env, from seeds that derive from ``seed`` and the env's number."""
        for index in range(len(self)):
            self.begin(index, block, index, env_seed(seed, self._first + index))
        if self.has_masks:
            self.check_masks(block.masks)

    def _failure(self, call: str, error: Exception, row: int, indices: Sequence[int] | None = None) -> UsageError:
        """Returns what is told of an environment that raised: its own message, and where to look."""
        return UsageError(f"{self._where(row, indices)}: {call} raised {type(error).__name__}: {error}")

    def check_masks(self, masks: Masks, indices: Sequence[int] | None = None) -> None:
        """Returns if each of ``masks``, one for each of ``indices`` (None: all), allows something.

        Raises:
            ActionError: one does not.
        """
        self._masks.check(masks, lambda row: self._where(row, indices))

    def close(self) -> None:
        """Closes the environments."""
        for env in self._envs:
            env.close()

    def _cut(self, block: StepBlock, ended: list[int], indices: Sequence[int] | None) -> list[int]:
        """Truncates the envs whose time is up, and returns the rows that ended, those included."""
        for row, index in enumerate(range(len(self)) if indices is None else indices):
            if self._tick >= self._cut_ticks[index]:
                block.truncated[row] = True
        num = len(self) if indices is None else len(indices)
        return sorted({*ended, *np.flatnonzero(block.truncated[:num]).tolist()})

    def _encode(self, observations: list[Any], block: StepBlock, indices: Sequence[int] | None) -> None:
        finals = block.finals[: len(observations)]
        try:
            self.encoder.encode_list(observations, finals)
            self.encoder.check_finite(finals)
        except ContextError:
            for row, observation in enumerate(observations):  # again, to find the one
                try:
                    self.encoder.encode(observation)
                except ContextError as error:
                    self._refuse_observation(row if indices is None else indices[row], "step", error)
            raise

    def _put_rewards(self, rewards: list[Any], block: StepBlock, indices: Sequence[int] | None) -> None:
        try:
            is_finite = math.isfinite(sum(rewards))
            block.rewards[: len(rewards)] = rewards
        except (TypeError, ValueError):
            is_finite = not rewards
        if not is_finite:
            self._check_rewards(rewards, indices)

    def _check_rewards(self, rewards: list[Any], indices: Sequence[int] | None) -> None:
        for row, reward in enumerate(rewards):
            if not is_reward(reward):
                raise UsageError(
                    f"{self._where(row, indices)}: the reward is {short(reward)}; gymnasium's rule is a finite number"
                )

    def _put_mask(self, block: StepBlock, info: dict[str, Any], index: int, row: int, *, final: bool) -> None:
        if not self.has_masks:  # told for the first time: until now all was allowed
            self.has_masks = True
            block.masks[...] = True
            block.final_masks[...] = True
        rows = block.final_mask_rows if final else block.mask_rows
        self._masks.put(info.get(KEY), rows[row], self._where(index))

    def _where(self, row: int, indices: Sequence[int] | None = None) -> str:
        index = row if indices is None else indices[row]
        return f"{self._label}, env {self._first + index}, episode {self._begun[index]}"

    def _refuse_step(self, indices: Sequence[int] | None, row: int, result: object, error: Exception) -> NoReturn:
        old = ""
        if isinstance(result, tuple) and len(result) == 4:
            old = " (4 values are the rule of the old gym, whose done is two things now)"
        raise UsageError(
            f"{self._where(row, indices)}: step returned {short(result)}{old}; gymnasium's "
            "rule is a tuple (observation, reward, terminated, truncated, info) with a dict info"
        ) from error

    def _refuse_observation(self, index: int, method: str, error: ContextError) -> NoReturn:
        raise ContextError(f"{self._where(index)}, {method}: {error}") from error


def is_reward(value: object) -> bool:
    """Returns whether ``value`` is a finite number, numpy's included."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        value = value.item()
    return isinstance(value, numbers.Real | np.bool_) and math.isfinite(value)


def short(value: object) -> str:
    """Returns ``value`` as one line for a message."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 160 else text[:160] + "..."


def spaces_of(env: gymnasium.Env[Any, Any]) -> Spaces:
    """Returns the spaces of a policy for ``env``.

    Raises:
        UsageError: it does not say them, or they are not supported.
    """
    try:
        return from_gymnasium(env.observation_space, env.action_space)
    except AttributeError as error:
        raise UsageError(
            f"{label_of(env)} does not say its spaces ({error}); set observation_space and action_space in its "
            "constructor"
        ) from error


class SyncStream(EnvStream):
    """Envs that are stepped by a loop in this process; an ended env begins again in the same step."""

    def __init__(self, made: Sequence[MadeEnv], label: str, spaces: Spaces, findings: Sequence[str] = ()) -> None:
        super().__init__(label, spaces, len(made), findings)
        self._envs = SyncEnvs(made, label, spaces)

    def reset(self, seed: int) -> tuple[F32, Masks | None]:
        """Begins new episodes in all envs; see ``EnvStream.reset``."""
        block = self._next_block()
        self._envs.reset(block, seed)
        self._log.begin(range(self.num_envs))
        return block.observations, block.masks if self._envs.has_masks else None

    def step(self, actions: Actions) -> EnvStep:
        """Steps all envs; see ``EnvStream.step``."""
        block = self._next_block()
        ended = self._envs.advance(block, actions)
        self._log.count(block.rewards, self.num_envs)
        if ended:
            self._log.end(ended, block.terminated, block.truncated)
            self._envs.restart(block, ended)
            self._log.begin(ended)
        return block.env_step(has_ended=bool(ended), has_masks=self._envs.has_masks)

    def close(self) -> None:
        """Closes the environments."""
        self._envs.close()
