"""Environments that gymnasium steps together: any ``VectorEnv``, in each of its autoreset modes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv

from learnloop.core.arrays import F32, Bools
from learnloop.core.errors import ContextError, UsageError, one_of
from learnloop.core.stepping import EnvStep
from learnloop.envs.registry import label_of
from learnloop.envs.spaces import ActionEdge, check_num_actions, from_gymnasium
from learnloop.envs.streams.masks import KEY, MaskReader
from learnloop.envs.streams.stream import EnvStream, StepBlock
from learnloop.envs.streams.sync_stream import env_seed, short

if TYPE_CHECKING:
    from learnloop.core.stepping import Actions, Masks

AnyVectorEnv = VectorEnv[Any, Any, Any]


class VectorStream(EnvStream):
    """The envs of a vector environment.

    How an ended env begins again depends on ``metadata["autoreset_mode"]``: ``SAME_STEP`` and ``DISABLED`` (then we
    reset it) give the next episode's first observation at once; with ``NEXT_STEP`` the next step of that env is not
    ``valid``: it ignores the action and only brings the first observation.

    It is not tried out before, so that it has no ``findings``.
    """

    def __init__(self, env: AnyVectorEnv) -> None:
        spaces = from_gymnasium(env.single_observation_space, env.single_action_space)
        super().__init__(label_of(env), spaces, int(env.num_envs))
        self._env = env
        self._mode = _autoreset_mode(env, self._label)
        self._edge = ActionEdge(spaces.action, env.single_action_space.dtype)
        self._reader = MaskReader(spaces.action)
        self._mask_method = _mask_method(env)
        self._has_masks = False
        self._resetting: list[int] = []

    def reset(self, seed: int) -> tuple[F32, Masks | None]:
        """Begins new episodes in all envs; see ``EnvStream.reset``.

        A vector environment that is one program takes one seed for all of its envs.
        """
        seeds: Any = [env_seed(seed, index) for index in range(self.num_envs)]
        if not isinstance(self._env.unwrapped, SyncVectorEnv | AsyncVectorEnv):
            seeds = seeds[0]
        result: object = self._env.reset(seed=seeds)
        if not isinstance(result, tuple) or len(result) != 2:
            raise UsageError(f"{self._label}: reset returned {short(result)}; gymnasium's rule is (observations, info)")
        block = self._next_block()
        self._encode(result[0], block.observations, "reset")
        self._resetting = []
        self._log.begin(range(self.num_envs))
        self._put_masks(result[1], block.masks)
        if self._has_masks:
            self._check_masks(block.masks)
        return block.observations, block.masks if self._has_masks else None

    def step(self, actions: Actions) -> EnvStep:
        """Steps all envs; see ``EnvStream.step``."""
        check_num_actions(actions, self.num_envs)
        result: object = self._env.step(self._edge.to_vector_env(actions))
        if not isinstance(result, tuple) or len(result) != 5:
            raise UsageError(
                f"{self._label}: step returned {short(result)}; gymnasium's rule is (observations, rewards, "
                "terminated, truncated, info)"
            )
        observations, rewards, terminated, truncated, infos = result
        block = self._next_block()
        self._put_numbers(block, rewards, terminated, truncated)
        valid = self._take_resets(block)
        self._log.count(block.rewards, self.num_envs if valid is None else int(valid.sum()))
        self._log.begin(self._resetting)
        ended = (block.terminated | block.truncated).nonzero()[0].tolist()
        if ended:
            self._log.end(ended, block.terminated, block.truncated)
        if ended and self._mode is not AutoresetMode.NEXT_STEP:
            self._begin_again(block, observations, infos, ended)
            return block.env_step(has_ended=True, has_masks=self._has_masks, valid=valid)
        self._resetting = ended
        self._encode(observations, block.finals, "step")
        self._put_masks(infos, block.final_masks)
        if self._has_masks:
            block.final_masks[ended] = True  # what is chosen there is ignored
            self._check_masks(block.final_masks)
        resetting = block.terminated | block.truncated if ended else None
        return block.env_step(has_ended=False, has_masks=self._has_masks, valid=valid, resetting=resetting)

    def close(self) -> None:
        """Closes the environment."""
        self._env.close()

    def _take_resets(self, block: StepBlock) -> Bools | None:
        """Clears what envs that only reset themselves returned, and returns which did not."""
        if not self._resetting:
            return None
        valid = np.ones(self.num_envs, dtype=np.bool_)
        valid[self._resetting] = False
        block.rewards *= valid
        block.terminated &= valid
        block.truncated &= valid
        return valid

    def _begin_again(self, block: StepBlock, observations: Any, infos: dict[str, Any], ended: list[int]) -> None:
        if self._mode is AutoresetMode.SAME_STEP:
            self._encode(observations, block.observations, "step")
            self._put_masks(infos, block.masks)
            block.finals[...] = block.observations
            self._put_finals(block, infos, ended)
        else:
            self._encode(observations, block.finals, "step")
            self._put_masks(infos, block.final_masks)
            chosen = np.zeros(self.num_envs, dtype=np.bool_)
            chosen[ended] = True
            firsts, first_infos = self._env.reset(options={"reset_mask": chosen})
            self._encode(firsts, block.observations, "reset")
            fresh = np.empty_like(block.masks)
            self._put_masks(first_infos, fresh)
            block.masks[...] = block.final_masks
            block.masks[ended] = fresh[ended]
        self._log.begin(ended)
        if self._has_masks:
            block.final_masks[block.terminated] = True
            self._check_masks(block.final_masks)
            self._check_masks(block.masks)

    def _put_finals(self, block: StepBlock, infos: dict[str, Any], ended: list[int]) -> None:
        """Takes the last observations of ended episodes from where ``SAME_STEP`` puts them."""
        finals = infos.get("final_obs")
        if finals is None:
            raise UsageError(
                f"{self._label}: its autoreset mode is SAME_STEP and envs {ended} ended, but info has no 'final_obs' "
                f"(it has {one_of(infos)}); gymnasium's rule is the last observation of each ended episode there"
            )
        try:
            for index in ended:
                self.encoder.encode_into(finals[index], block.final_rows[index])
            self.encoder.check_finite(block.finals)
        except ContextError as error:
            raise ContextError(f"{self._label}, final_obs: {error}") from error
        if self._has_masks:
            block.final_masks[...] = block.masks
            told = np.ones_like(block.masks)
            self._reader.put_batch(infos.get("final_info", {}), told, self._label)
            block.final_masks[ended] = told[ended]

    def _put_numbers(self, block: StepBlock, rewards: Any, terminated: Any, truncated: Any) -> None:
        for name, values, target, kinds in (
            ("rewards", rewards, block.rewards, "fiub"),
            ("terminated", terminated, block.terminated, "b"),
            ("truncated", truncated, block.truncated, "b"),
        ):
            array = np.asarray(values)
            if array.shape != target.shape or array.dtype.kind not in kinds:
                raise UsageError(
                    f"{self._label}: {name} is {short(values)}; gymnasium's rule is an array of {self.num_envs} "
                    f"{'numbers' if name == 'rewards' else 'booleans'}, one an env"
                )
            target[...] = array
        if not np.isfinite(block.rewards).all():
            index = int(np.argmin(np.isfinite(block.rewards)))
            raise UsageError(
                f"{self._where(index)}: the reward is {block.rewards[index]}; gymnasium's rule is a finite number"
            )

    def _encode(self, observations: Any, target: F32, method: str) -> None:
        try:
            self.encoder.encode_batch(observations, self.num_envs, out=target)
        except ContextError as error:
            raise ContextError(f"{self._label}, {method}: {error}") from error

    def _put_masks(self, infos: dict[str, Any], masks: Masks) -> None:
        if self._reader.put_batch({KEY: self._mask_method()} if self._mask_method else infos, masks, self._label):
            self._has_masks = True
        else:
            masks[...] = True

    def _check_masks(self, masks: Masks) -> None:
        self._reader.check(masks, self._where)

    def _where(self, index: int) -> str:
        return f"{self._label}, env {index}, episode {self._log.begun[index]}"


def _autoreset_mode(env: AnyVectorEnv, label: str) -> AutoresetMode:
    mode = env.metadata.get("autoreset_mode")
    try:
        return AutoresetMode(mode)
    except ValueError as error:
        raise UsageError(
            f"{label}: metadata['autoreset_mode'] is {mode!r}; gymnasium's rule is one of "
            f"{one_of(each.name for each in AutoresetMode)}, which says when an ended env begins again"
        ) from error


def _mask_method(env: AnyVectorEnv) -> Callable[[], Any] | None:
    """Returns what tells the masks of all envs, where it is not their info."""
    inner = env.unwrapped
    method: Callable[[], Any] | None = getattr(inner, "action_masks", None)
    if callable(method):
        return method
    if isinstance(inner, SyncVectorEnv) and inner.envs[0].has_wrapper_attr("action_masks"):
        return lambda: np.stack(inner.call("action_masks"))
    return None
