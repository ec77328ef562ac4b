"""Potential-based shaping: rewards on the way that leave the optimal policy as it is.

A potential says how good a state is; a step earns ``gamma * Phi(next state) - Phi(state)`` besides its reward. Over an
episode these terms add up to a number that no choice within it changes, so the best policy with shaping is the best one
without. Nothing is normalised with what other episodes earned, and no potential sees what an agent claims of itself.

Source: Ng, Harada, Russell 1999, "Policy invariance under reward transformations", theorem 1 (the form, with gamma);
Devlin, Kudenko 2012, "Dynamic potential-based reward shaping", section 3 (potentials that change with time); Grzes
2017, "Reward shaping in episodic reinforcement learning", section 3 (the potential of a terminal state is 0).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import numpy as np
from numpy.typing import ArrayLike

from learnloop.core.arrays import F64
from learnloop.core.attempts import Attempt
from learnloop.core.checks import check_number
from learnloop.core.errors import LearnloopError, NotFoundError, RewardError, UsageError, one_of
from learnloop.core.importing import import_named
from learnloop.core.records import MAX_REWARD, Json, Record
from learnloop.core.rewards import is_learnable

Potential = Callable[[Attempt], float]
"""How good it is to stand where an attempt stands. It is given the attempt with the steps done so far and what is known
of the task; answer, error and totals, which only the end brings, are None."""


def shaping_terms(potentials: ArrayLike, gamma: float, terminated: ArrayLike) -> F64:
    """Returns what shaping adds to each reward, ``gamma * Phi(s[t + 1]) - Phi(s[t])``, of shape ``(..., num_steps)``.

    Args:
        potentials: those of the states, ``(..., num_steps + 1)``, the state after the last step included; they may
            depend on the time too.
        gamma: the discount of the learner, 0 to 1: with another one the optimal policy can change.
        terminated: whether the episode ended there, one for all or ``(...,)``. The potential of an end is 0, whatever
            is given. Where False a limit cut it off: the learner goes on from the last state with that state's value,
            which with shaping is smaller by its potential, so the potential stays and both cancel. For a learner that
            does not go on from there (it takes the reward of a whole run as it is) a limit is an end: say True.

    Raises:
        UsageError: a shape or ``gamma`` is wrong.
        RewardError: a potential is not a finite number.
    """
    states = _with_ends(potentials, gamma, terminated)
    return gamma * states[..., 1:] - states[..., :-1]


def shaped_rewards(rewards: ArrayLike, potentials: ArrayLike, gamma: float, terminated: ArrayLike) -> F64:
    """Returns the rewards of the steps with shaping, ``(..., num_steps)``; see ``shaping_terms``.

    Raises:
        UsageError: a shape or ``gamma`` is wrong.
        RewardError: a reward or a potential is not a finite number.
    """
    given = _finite("a reward", rewards)
    terms = shaping_terms(potentials, gamma, terminated)
    if given.shape != terms.shape:
        raise UsageError(
            f"the rewards have the shape {given.shape} and the potentials are for {terms.shape}; give one potential "
            "for each state, which is one more than there are rewards"
        )
    return given + terms


def shaped_return(returns: ArrayLike, potentials: ArrayLike, gamma: float, terminated: ArrayLike) -> F64:
    """Returns the discounted returns of episodes with shaping, ``(...,)``: what the terms of the steps add up to.

    It is the return without, less ``Phi(s[0])``, and at a cut plus ``gamma ** num_steps * Phi(s[num_steps])``.

    Raises:
        UsageError: a shape or ``gamma`` is wrong.
        RewardError: a return or a potential is not a finite number.
    """
    states = _with_ends(potentials, gamma, terminated)
    given = _finite("a return", returns)
    if given.shape != states.shape[:-1]:
        raise UsageError(f"the returns have the shape {given.shape}; the potentials are for {states.shape[:-1]}")
    return np.asarray(given - states[..., 0] + gamma ** (states.shape[-1] - 1) * states[..., -1])


def _with_ends(potentials: ArrayLike, gamma: float, terminated: ArrayLike) -> F64:
    """Returns the potentials with 0 for each state in which an episode ended."""
    check_number("gamma", gamma, 0, 1)
    states = _finite("a potential", potentials).copy()
    if states.ndim == 0 or states.shape[-1] == 0:
        raise UsageError(f"the potentials have the shape {states.shape}; give one for each state, at least the first")
    ends = np.asarray(terminated)
    if ends.dtype != np.bool_ or ends.shape not in ((), states.shape[:-1]):
        raise UsageError(f"terminated is {terminated!r}; give one bool, or one for each of {states.shape[:-1]}")
    states[..., -1] = np.where(ends, 0.0, states[..., -1])
    return states


def _finite(what: str, values: ArrayLike) -> F64:
    try:
        found = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise RewardError(f"{what} is no number: {error}") from error
    bad = ~(np.abs(found) <= MAX_REWARD)
    if bad.any():
        raise RewardError(f"{what} is {found[bad].flat[0]}; finite numbers up to {MAX_REWARD:g} are allowed")
    return found


# ---------------------------------------------------------------------- of attempts


class Shaped(Record, frozen=True, kw_only=True):
    """The reward of a run with shaping, and how it came to be."""

    raw_reward: float
    """The reward of the whole run without."""
    shaped_reward: float
    """``raw_reward`` plus the discounted sum of ``terms``."""
    terms: list[float]
    """What each step earns for where it leads, ``(num_steps,)``."""
    potentials: list[float]
    """Those of the states, ``(num_steps + 1,)``; the last one is 0 where the run came to its end."""
    gamma: float
    truncated: bool


class PotentialShaping(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Shapes the rewards of attempts by a potential that has a name."""

    potential: str = "none"
    """One of ``POTENTIALS``, or ``module:function`` of your own: a ``Potential``."""
    gamma: float = 1.0
    """The learner's discount, 0 to 1; 1 where the reward of a whole run is learned from."""

    def __post_init__(self) -> None:
        """Refuses a discount without a meaning."""
        check_number("gamma", self.gamma, 0, 1)

    def shape(self, attempt: Attempt, reward: float, *, truncated: bool) -> Shaped:
        """Returns the reward of a run with shaping.

        Args:
            attempt: the run; its steps are the time.
            reward: what the whole run was worth, as its return: it is not discounted once more.
            truncated: whether a limit cut it off and a learner goes on from there; see ``shaping_terms``.

        Raises:
            NotFoundError: there is no such potential.
            RewardError: the reward or a potential is not a finite number.
        """
        states = potentials_of(attempt, find_potential(self.potential), terminated=not truncated)
        terms = shaping_terms(states, self.gamma, not truncated)
        return Shaped(
            raw_reward=float(reward),
            shaped_reward=float(shaped_return(reward, states, self.gamma, not truncated)),
            terms=terms.tolist(),
            potentials=states.tolist(),
            gamma=self.gamma,
            truncated=truncated,
        )


def potentials_of(attempt: Attempt, potential: Potential, *, terminated: bool) -> F64:
    """Returns the potential of each state of an attempt, ``(num_steps + 1,)``; that of an end is 0 and not asked for.

    Raises:
        RewardError: the function raises, or gives what is not a finite number.
    """
    num_steps = len(attempt.steps)
    found = np.zeros(num_steps + 1)
    for number in range(num_steps if terminated else num_steps + 1):
        try:
            value = potential(after_steps(attempt, number))
        except LearnloopError:
            raise
        except Exception as error:  # a potential may be anybody's function; nothing is guessed in its place
            raise RewardError(
                f"the potential after {number} of {num_steps} steps raised {type(error).__name__}: {error}"
            ) from error
        if not is_learnable(value):
            raise RewardError(
                f"the potential after {number} of {num_steps} steps is {value!r}; a finite number is needed"
            )
        found[number] = value
    return found


def after_steps(attempt: Attempt, num_steps: int) -> Attempt:
    """Returns an attempt as it stood after so many steps: what came later is not in it."""
    return msgspec.structs.replace(
        attempt,
        steps=attempt.steps[:num_steps],
        output=None,
        completed=None,
        error=None,
        num_input_tokens=None,
        num_output_tokens=None,
        num_model_calls=None,
        duration_seconds=None,
    )


def no_potential(attempt: Attempt) -> float:
    """Returns 0: the reward stays as it is."""
    return 0.0


def reached_milestones(attempt: Attempt) -> float:
    """Returns the share of the task's milestones that were reached, 0 to 1.

    ``metadata["milestones"]`` names the tools that have to be called; one is reached by a call without an error.

    Raises:
        RewardError: the task names none.
    """
    milestones = _names(attempt.metadata)
    called = {call.name for call in attempt.tool_calls if call.error is None}
    return len(milestones & called) / len(milestones)


def _names(metadata: Json) -> set[str]:
    given: Any = metadata.get("milestones")
    if not isinstance(given, list | tuple) or not given or not all(isinstance(name, str) for name in given):
        raise RewardError(f"the task's milestones are {given!r}; give metadata['milestones'], a list of names of tools")
    return set(given)


POTENTIALS: Mapping[str, Potential] = {"none": no_potential, "milestones": reached_milestones}
"""The potentials that have a name."""


def find_potential(name: str) -> Potential:
    """Returns the potential ``name``: one of ``POTENTIALS``, or ``module:function``.

    Raises:
        NotFoundError: there is none.
        UsageError: what the name leads to is no function.
    """
    if name in POTENTIALS:
        return POTENTIALS[name]
    module, colon, attribute = name.partition(":")
    if not colon:
        raise NotFoundError(f"there is no potential {name!r}; allowed: {one_of(POTENTIALS)}, or module:function")
    what = f"the potential {name!r}"
    found = getattr(import_named(module, what, "my_package.potentials:progress"), attribute, None)
    if found is None:
        raise NotFoundError(f"{what}: there is no {attribute!r} in {module}")
    if not callable(found):
        raise UsageError(f"{what} is {found!r}; a function of an Attempt is needed")
    potential: Potential = found
    return potential
