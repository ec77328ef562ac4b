"""Single environments stepped one after the other: encoded, checked, ended and begun again."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import gymnasium
import numpy as np

from learnloop.core.errors import ActionError, ContextError, LearnloopError, UsageError
from learnloop.core.seeding import derive_seed
from learnloop.core.spaces import Spaces
from learnloop.envs.registry import MadeEnv, label_of
from learnloop.envs.spaces import ActionEdge, from_gymnasium
from learnloop.envs.streams.blocks import StepBlock
from learnloop.envs.streams.masks import KEY, MaskReader
from learnloop.nn.encoders.observation_encoder import ObservationEncoder

if TYPE_CHECKING:
    from learnloop.core.stepping import Actions, Masks

SEED_BITS = 0x7FFF_FFFF
"""Environments are given seeds of 31 bits, which each of them takes."""

_NEVER = math.inf


def lane_seed(seed: int, lane: int) -> int:
    """Returns the seed of one lane."""
    return derive_seed(seed, "lane", lane) & SEED_BITS


class Lanes:
    """Environments of one kind, each a lane.

    Attributes:
        spaces: of a policy for them.
        encoder: of their observations.
        has_masks: whether they have told an action mask so far.
    """

    def __init__(self, made: Sequence[MadeEnv], label: str, spaces: Spaces, first: int = 0) -> None:
        """Takes the environments; ``label`` and the number of the ``first`` lane are for messages."""
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

    def begin(self, lane: int, block: StepBlock, row: int, seed: int | None = None) -> None:
        """Starts an episode of one lane and writes its first observation, and mask, into a row of ``block``.

        Raises:
            UsageError: the environment breaks gymnasium's rules.
            ActionError: its mask does not fit, or allows nothing.
        """
        try:
            result: object = self._envs[lane].reset(seed=seed)
        except LearnloopError:
            raise
        except Exception as error:
            raise self._failure(lane, "reset", error) from error
        if not isinstance(result, tuple) or len(result) != 2 or not isinstance(result[1], dict):
            raise UsageError(
                f"{self._where(lane)}: reset returned {short(result)}; gymnasium's rule is a tuple (observation, info) "
                "with a dict info"
            )
        self._begun[lane] += 1
        self._cut_ticks[lane] = self._tick + self._limits[lane]
        self._next_cut = min(self._cut_ticks)
        target = block.observation_rows[row]
        try:
            self.encoder.encode_into(result[0], target)
            self.encoder.check_finite(target[None])
        except ContextError as error:
            self._refuse_observation(lane, "reset", error)
        if KEY in result[1] or self.has_masks:
            self._put_mask(block, result[1], lane, row, final=False)

    def advance(self, block: StepBlock, actions: Actions, lanes: Sequence[int] | None = None) -> list[int]:
        """Steps lanes and writes what came of it into the first rows of ``block``: finals, rewards, ends, final masks.

        Args:
            block: has a row for each of ``lanes``.
            actions: one for each of ``lanes``.
            lanes: which, all that run in one episode or another; None: all.

        Returns:
            The rows whose episodes ended.

        Raises:
            UsageError: an environment breaks gymnasium's rules.
            ActionError: a mask does not fit, or allows nothing.
        """
        steps = self._steps if lanes is None else [self._steps[lane] for lane in lanes]
        num = len(steps)
        if len(actions) != num:
            raise ActionError(f"{len(actions)} actions were given for {num} lanes; one for each is needed")
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
                raise self._failure(len(rewards) if lanes is None else lanes[len(rewards)], "step", error) from error
            try:
                observation, reward, is_end, is_cut, info = result
                has_mask = self.has_masks or KEY in info
            except (TypeError, ValueError) as error:
                self._refuse_step(lanes, len(rewards), result, error)
            if is_end or is_cut:
                row = len(rewards)
                block.terminated[row], block.truncated[row] = is_end, is_cut
                ended.append(row)
            if has_mask:
                row = len(rewards)
                self._put_mask(block, info, row if lanes is None else lanes[row], row, final=True)
            observations.append(observation)
            rewards.append(reward)
        self._tick += 1
        if self._tick >= self._next_cut:
            ended = self._cut(block, ended, lanes)
        self._encode(observations, block, lanes)
        self._put_rewards(rewards, block, lanes)
        if self.has_masks and not ended:
            self.check_masks(block.final_masks[:num], lanes)
        return ended

    def restart(self, block: StepBlock, ended: Sequence[int]) -> None:
        """Begins the next episode of each lane that ended, so that ``block.observations`` and ``masks`` are whole."""
        block.observations[...] = block.finals
        if self.has_masks:
            for lane in ended:
                if block.terminated[lane]:
                    block.final_masks[lane] = True  # nothing is chosen after an end, so none need be allowed
            block.masks[...] = block.final_masks
        for lane in ended:
            self.begin(lane, block, lane)
        if self.has_masks:
            self.check_masks(block.final_masks)
            self.check_masks(block.masks)

    def reset(self, block: StepBlock, seed: int) -> None:
        """Begins a new episode in each lane, from seeds that derive from ``seed`` and the lane's number."""
        for lane in range(len(self)):
            self.begin(lane, block, lane, lane_seed(seed, self._first + lane))
        if self.has_masks:
            self.check_masks(block.masks)

    def _failure(self, lane: int, call: str, error: Exception) -> UsageError:
        """Returns what is told of an environment that raised: its own message, and where to look."""
        return UsageError(f"{self._where(lane)}: {call} raised {type(error).__name__}: {error}")

    def check_masks(self, masks: Masks, lanes: Sequence[int] | None = None) -> None:
        """Returns if each of ``masks``, one for each of ``lanes`` (None: all), allows something.

        Raises:
            ActionError: one does not.
        """
        blocked = self._masks.first_blocked(masks)
        if blocked is not None:
            lane = blocked if lanes is None else lanes[blocked]
            raise ActionError(
                f"{self._where(lane)}: the action mask allows no action; it must allow one of each choice"
            )

    def close(self) -> None:
        """Closes the environments."""
        for env in self._envs:
            env.close()

    def _cut(self, block: StepBlock, ended: list[int], lanes: Sequence[int] | None) -> list[int]:
        """Truncates the lanes whose time is up, and returns the rows that ended, those included."""
        for row, lane in enumerate(range(len(self)) if lanes is None else lanes):
            if self._tick >= self._cut_ticks[lane]:
                block.truncated[row] = True
        num = len(self) if lanes is None else len(lanes)
        return sorted({*ended, *np.flatnonzero(block.truncated[:num]).tolist()})

    def _encode(self, observations: list[Any], block: StepBlock, lanes: Sequence[int] | None) -> None:
        finals = block.finals[: len(observations)]
        try:
            self.encoder.encode_list(observations, finals)
            self.encoder.check_finite(finals)
        except ContextError:
            for row, observation in enumerate(observations):  # again, to find the one
                try:
                    self.encoder.encode(observation)
                except ContextError as error:
                    self._refuse_observation(row if lanes is None else lanes[row], "step", error)
            raise

    def _put_rewards(self, rewards: list[Any], block: StepBlock, lanes: Sequence[int] | None) -> None:
        try:
            is_finite = math.isfinite(sum(rewards))
            block.rewards[: len(rewards)] = rewards
        except (TypeError, ValueError):
            is_finite = not rewards
        if not is_finite:
            self._check_rewards(rewards, lanes)

    def _check_rewards(self, rewards: list[Any], lanes: Sequence[int] | None) -> None:
        for row, reward in enumerate(rewards):
            if not is_reward(reward):
                raise UsageError(
                    f"{self._where(row if lanes is None else lanes[row])}: the reward is {short(reward)}; gymnasium's "
                    "rule is a finite number"
                )

    def _put_mask(self, block: StepBlock, info: dict[str, Any], lane: int, row: int, *, final: bool) -> None:
        if not self.has_masks:  # told for the first time: until now all was allowed
            self.has_masks = True
            block.masks[...] = True
            block.final_masks[...] = True
        rows = block.final_mask_rows if final else block.mask_rows
        self._masks.put(info.get(KEY), rows[row], self._where(lane))

    def _where(self, lane: int) -> str:
        return f"{self._label}, lane {self._first + lane}, episode {self._begun[lane]}"

    def _refuse_step(self, lanes: Sequence[int] | None, row: int, result: object, error: Exception) -> NoReturn:
        old = ""
        if isinstance(result, tuple) and len(result) == 4:
            old = " (4 values are the rule of the old gym, whose done is two things now)"
        raise UsageError(
            f"{self._where(row if lanes is None else lanes[row])}: step returned {short(result)}{old}; gymnasium's "
            "rule is a tuple (observation, reward, terminated, truncated, info) with a dict info"
        ) from error

    def _refuse_observation(self, lane: int, method: str, error: ContextError) -> NoReturn:
        raise ContextError(f"{self._where(lane)}, {method}: {error}") from error


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
