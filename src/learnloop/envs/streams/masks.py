"""Which actions an environment allows: ``info["action_mask"]`` read and checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import gymnasium
import numpy as np

from learnloop.core.arrays import Bools
from learnloop.core.errors import ActionError, UsageError
from learnloop.core.spaces import ActionSpace, Box, Discrete
from learnloop.nn.encoders.action_codec import mask_width

if TYPE_CHECKING:
    from learnloop.core.stepping import Masks

KEY = "action_mask"
"""Where gymnasium's environments put their masks, such as Taxi."""


class MaskReader:
    """Reads masks of one action space.

    Attributes:
        num_choices: the length of a mask; 0: the space has no choices, and an environment may give none.
    """

    def __init__(self, space: ActionSpace) -> None:
        self.num_choices = mask_width(space)
        nvec = () if isinstance(space, Box) else (space.n,) if isinstance(space, Discrete) else space.nvec
        self._starts = np.cumsum([0, *nvec])[:-1]

    def put(self, value: Any, row: Bools, where: str) -> None:
        """Writes one mask into ``row``, shape ``(num_choices,)``; None: all is allowed.

        Raises:
            ActionError: its length is wrong, or it holds something else than booleans.
        """
        if value is None:
            row[:] = True
            return
        if self.num_choices == 0:
            raise ActionError(f"{where} has an action mask, but its actions are a Box, which has no choices to mask")
        parts = value if isinstance(value, tuple) else (value,)  # gymnasium's mask of a MultiDiscrete is a tuple
        flat = np.concatenate([np.asarray(part).reshape(-1) for part in parts])
        if flat.shape != row.shape:
            raise ActionError(
                f"{where}: the action mask has {len(flat)} entries; {self.num_choices}, one for each choice, are needed"
            )
        if flat.dtype.kind not in "biu" or not ((flat == 0) | (flat == 1)).all():
            raise ActionError(f"{where}: the action mask is {value!r}; True and False (or 1 and 0) are needed")
        row[:] = flat

    def first_blocked(self, masks: Masks) -> int | None:
        """Returns the first row in which a choice has no allowed value; None: there is none."""
        open_choices = np.logical_or.reduceat(masks, self._starts, axis=1).all(axis=1)
        return None if open_choices.all() else int(np.argmin(open_choices))

    def check(self, masks: Masks, where: Callable[[int], str]) -> None:
        """Returns if each row of ``masks`` allows something of each choice.

        Args:
            masks: what is checked.
            where: says of a row what has it.

        Raises:
            ActionError: one does not.
        """
        row = self.first_blocked(masks)
        if row is not None:
            raise ActionError(f"{where(row)}: the action mask allows no action; it must allow one of each choice")

    def put_batch(self, infos: Mapping[str, Any], masks: Masks, where: str) -> bool:
        """Writes the masks of a vector environment's info; returns False, and writes nothing, where it has none.

        An env that ``infos["_action_mask"]`` leaves out may do anything.

        Raises:
            ActionError: a mask does not fit.
        """
        if KEY not in infos:
            return False
        values, present = infos[KEY], infos.get(f"_{KEY}")
        if len(values) != len(masks):
            raise ActionError(f"{where}: there are {len(values)} action masks for {len(masks)} envs")
        for env_index, row in enumerate(masks):
            given = present is None or present[env_index]
            self.put(values[env_index] if given else None, row, f"{where}, env {env_index}")
        return True


class MaskInfo(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Puts what the environment's ``action_masks()`` returns into its info, where it is not there already."""

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        """Resets the environment."""
        observation, info = self.env.reset(**kwargs)
        return observation, self._with_mask(info)

    def step(self, action: Any) -> Any:
        """Steps the environment."""
        result = self.env.step(action)
        return (*result[:-1], self._with_mask(result[-1]))

    def _with_mask(self, info: dict[str, Any]) -> dict[str, Any]:
        return info if KEY in info else {**info, KEY: self.env.get_wrapper_attr("action_masks")()}


def with_masks(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """Returns ``env`` with its masks in its info, where it tells them by a method ``action_masks()``.

    Raises:
        UsageError: it is no environment.
    """
    given: object = env
    if not isinstance(given, gymnasium.Env):
        refuse_env(given)
    return MaskInfo(env) if env.has_wrapper_attr("action_masks") else env


def refuse_env(given: object) -> NoReturn:
    """Raises the error for what is no environment."""
    raise UsageError(
        f"{given!r} is no environment; give the id of one, a gymnasium.Env, a gymnasium.vector.VectorEnv, or a "
        "callable that returns a gymnasium.Env"
    )
