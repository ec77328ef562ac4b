"""Steps and data sets of random numbers for contracts, the same for the same seed and actions, with known differences.

What an action earns depends on what it was chosen on, so that there is something to learn.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, Protocol

import numpy as np

from learnloop.algorithms.on_policy.rollout import action_array
from learnloop.core.arrays import F32, Bools
from learnloop.core.datasets import Dataset
from learnloop.core.seeding import generator
from learnloop.core.spaces import ActionSpace, Box, Discrete, Spaces, num_choices
from learnloop.core.stepping import Actions, EnvStep, Masks
from learnloop.envs.spaces import random_actions
from learnloop.testing.contracts.contract import expect

Difference = Literal[
    "", "rewards", "terminated", "truncated", "both ends", "after a cut", "after an end", "invalid", "ignored reward"
]
"""How a stream differs from the plain one, in which every second end is a cut: rewards have the other sign; all ends
are in the task, are cuts, or are both at once; what came at a cut, or at an end in the task, is shown otherwise; an env
takes a step to reset itself, without a reward or with one that must be ignored."""

END_CHANCE = 0.15


class Actor(Protocol):
    """What a stream drives."""

    def choose(self, observations: F32, masks: Masks | None = None) -> Actions:
        """Returns an action for each env."""
        ...

    def record(self, step: EnvStep) -> None:
        """Takes what came of them."""
        ...

    def learn(self) -> bool:
        """Returns whether it updated."""
        ...


class Trace(NamedTuple):
    """What an algorithm did while it was driven."""

    actions: list[Actions]
    updates: list[bool]


def spaces_for(action: ActionSpace, size: int) -> Spaces:
    """Returns spaces in which ``size`` numbers without bounds are observed."""
    return Spaces(observation=Box(shape=(size,), low=(None,) * size, high=(None,) * size), action=action)


class StepStream:
    """Envs whose observations are noise.

    Attributes:
        observations: what the next actions are chosen on, shape ``(num_envs, size)``.
        masks: which choices are allowed in them; None: all.
        num_valid: steps so far in which an env did not only reset itself.
    """

    def __init__(
        self,
        spaces: Spaces,
        num_envs: int,
        seed: int,
        *,
        masked: bool = False,
        difference: Difference = "",
    ) -> None:
        self._rng = generator(seed, "contract")
        self._space = spaces.action
        self._size = spaces.observation.size if isinstance(spaces.observation, Box) else 1
        self._num_envs = num_envs
        self._masked = masked and not isinstance(spaces.action, Box)
        self._difference = difference
        self._resetting = np.zeros(num_envs, dtype=np.bool_)
        self.observations = self._noise()
        self.masks = self._draw_masks()
        self.num_valid = 0

    def drive(self, algorithm: Actor, num_steps: int, *, learning: bool = True) -> Trace:
        """Lets ``algorithm`` act for ``num_steps`` of each env, and learn."""
        trace = Trace([], [])
        for _ in range(num_steps):
            actions = algorithm.choose(self.observations, self.masks)
            trace.actions.append(np.array(actions))
            algorithm.record(self.step(actions))
            if learning:
                trace.updates.append(algorithm.learn())
        return trace

    def step(self, actions: Actions) -> EnvStep:
        """Returns what comes of ``actions``."""
        rng, envs = self._rng, self._num_envs
        first = np.asarray(actions, dtype=np.float64).reshape(envs, -1)[:, 0]
        rewards = np.tanh(self.observations[:, 0] * (2.0 * first - 1.0)) + 0.1 * rng.standard_normal(envs)
        final, fresh = self._noise(), self._noise()
        masks, final_masks = self._draw_masks(), self._draw_masks()
        ended = (rng.random(envs) < END_CHANCE) & ~self._resetting
        terminated, truncated = self._ends(ended, ended & (rng.random(envs) < 0.5))
        valid, resetting = None, None
        starts = ended
        if self._difference in ("invalid", "ignored reward"):
            valid, resetting, starts = ~self._resetting, ended, self._resetting
            rewards[~valid] = 100.0 if self._difference == "ignored reward" else 0.0
            self._resetting = resetting
        self.num_valid += envs if valid is None else int(np.count_nonzero(valid))
        observations = np.where(starts[:, None], fresh, final)
        if masks is not None and final_masks is not None:
            final_masks = np.where(ended[:, None], final_masks, masks)
        shown = np.where(ended[:, None], self._shown(final, terminated, truncated), observations)
        self.observations, self.masks = observations, masks
        return EnvStep(
            observations=observations,
            final_observations=shown,
            rewards=-rewards if self._difference == "rewards" else rewards,
            terminated=terminated,
            truncated=truncated,
            valid=valid,
            masks=masks,
            final_masks=final_masks,
            resetting=resetting,
        )

    def _ends(self, ended: Bools, cut: Bools) -> tuple[Bools, Bools]:
        match self._difference:
            case "terminated":
                return ended, np.zeros_like(ended)
            case "truncated":
                return np.zeros_like(ended), ended
            case "both ends":
                return ended, ended
        return ended & ~cut, cut

    def _shown(self, final: F32, terminated: Bools, truncated: Bools) -> F32:
        other = {"after a cut": truncated & ~terminated, "after an end": terminated}.get(self._difference)
        return final if other is None else np.where(other[:, None], final + np.float32(1), final)

    def _noise(self) -> F32:
        return self._rng.standard_normal((self._num_envs, self._size)).astype(np.float32)

    def _draw_masks(self) -> Masks | None:
        return random_masks(self._space, self._num_envs, self._rng) if self._masked else None


def random_masks(space: ActionSpace, num: int, rng: np.random.Generator) -> Masks | None:
    """Returns masks by a coin, shape ``(num, num_choices)``, that allow something of each choice; None for a Box."""
    if isinstance(space, Box):
        return None
    masks: Masks = rng.random((num, num_choices(space))) < 0.5
    start = 0
    for count in (space.n,) if isinstance(space, Discrete) else space.nvec:
        masks[np.arange(num), start + rng.integers(count, size=num)] = True
        start += count
    return masks


def num_forbidden(space: ActionSpace, actions: Actions, masks: Masks) -> int:
    """Returns how many of ``actions`` a mask forbids."""
    if isinstance(space, Box):
        return 0
    picks = np.asarray(actions).reshape(len(masks), -1)
    starts = np.cumsum([0, *((space.n,) if isinstance(space, Discrete) else space.nvec)])[:-1]
    allowed = masks[np.arange(len(masks))[:, None], starts + picks]
    return int(np.count_nonzero(~allowed.all(axis=1)))


def actions_fault(space: ActionSpace, actions: Any, num: int) -> str | None:
    """Returns what is wrong with a batch of actions; None: nothing."""
    wanted = action_array(space, num)
    if not isinstance(actions, np.ndarray) or actions.dtype != wanted.dtype or actions.shape != wanted.shape:
        found = f"{actions.dtype} {actions.shape}" if isinstance(actions, np.ndarray) else type(actions).__name__
        return f"{found} in the place of {wanted.dtype} {wanted.shape}"
    if isinstance(space, Box):
        return None if np.isfinite(actions).all() else "numbers that are not finite"
    highest = np.array((space.n,) if isinstance(space, Discrete) else space.nvec)
    picks = actions.reshape(num, -1)
    return None if ((picks >= 0) & (picks < highest)).all() else f"choices from {picks.min()} to {picks.max()}"


def expect_action(space: ActionSpace, action: Any) -> None:
    """Returns if one action has the form of the space, as agents are given it.

    Raises:
        ContractError: it has another.
    """
    if isinstance(space, Discrete):
        is_fine = isinstance(action, int) and space.start <= action < space.start + space.n
    else:
        is_fine = np.shape(action) == (space.shape if isinstance(space, Box) else (len(space.nvec),))
    expect(is_fine, f"act returns an action of {space}", repr(action), "an agent does what it says")


def random_dataset(
    spaces: Spaces, num_steps: int, seed: int, *, masked: bool = False, difference: Difference = ""
) -> Dataset:
    """Returns logged episodes of the same kind, acted in by chance."""
    stream = StepStream(spaces, 1, seed, masked=masked, difference=difference)
    rng = generator(seed, "contract", "log")
    steps: list[tuple[F32, Masks | None, Actions, EnvStep]] = []
    while len(steps) < num_steps or not (steps[-1][3].terminated[0] or steps[-1][3].truncated[0]):
        observations, masks = stream.observations, stream.masks
        actions = random_actions(spaces.action, masks, 1, rng)
        steps.append((observations, masks, actions, stream.step(actions)))
    ends = np.array([step.terminated[0] or step.truncated[0] for *_, step in steps])
    episodes = np.concatenate([[0], np.cumsum(ends)[:-1]]).astype(np.int64)
    has_masks = steps[0][1] is not None
    return Dataset(
        spaces=spaces,
        observations=np.concatenate([each[0] for each in steps]),
        actions=np.concatenate([each[2] for each in steps]),
        rewards=np.concatenate([step.rewards for *_, step in steps]),
        next_observations=np.concatenate([step.final_observations for *_, step in steps]),
        terminated=np.concatenate([step.terminated for *_, step in steps]),
        truncated=np.concatenate([step.truncated for *_, step in steps]),
        episodes=episodes,
        goals=[""] * (int(episodes[-1]) + 1),
        masks=np.concatenate([each[1] for each in steps if each[1] is not None]) if has_masks else None,
        next_masks=np.concatenate([step.final_masks for *_, step in steps if step.final_masks is not None])
        if has_masks
        else None,
        source="a contract",
    )
