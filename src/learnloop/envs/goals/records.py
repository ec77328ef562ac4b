"""A goal, what comes of an action, and what performs actions: the words that the environment and executors share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

from learnloop.core.arrays import F32, Bools

NOTHING, DONE, FAILED, CRASHED = range(4)
"""What is shown of the last action: there was none, it did what it does, it failed, it crashed."""


@dataclass(frozen=True)
class Goal:
    """Something to reach.

    Attributes:
        name: of the goal, one word or a few.
        text: what is wanted, as a person would say it.
        verifier: called by the executor with what it keeps of its world (which is the executor's to say, and for
            ``GoalSimulator`` the facts that hold); returns whether the goal is reached.
    """

    name: str
    text: str
    verifier: Callable[[Any], bool]


class Outcome(NamedTuple):
    """What came of an action."""

    state: F32
    """What is to be seen of the world now, shape ``(state_size,)``, each number from -1 to 1."""
    seconds: float
    """How long the action took."""
    succeeded: bool = False
    """The goal's verifier says that it is reached."""
    failed: bool = False
    """The action did not do what it is for, such as a command with an exit code other than 0."""
    crashed: bool = False
    """The action broke what it ran in."""


@runtime_checkable
class GoalExecutor(Protocol):
    """Performs actions in a world of its own. One executor serves one environment.

    Attributes:
        goals: that can be asked for.
        actions: their names; action k of the environment is the k-th.
        state_size: how many numbers of the world are shown.
        is_simulated: whether nothing real is done.
    """

    goals: Sequence[Goal]
    actions: Sequence[str]
    state_size: int
    is_simulated: bool

    def start(self, goal: Goal, seed: int) -> F32:
        """Makes a world for one episode and returns what is to be seen of it; ``seed`` decides all that is random."""
        ...

    def perform(self, action: int) -> Outcome:
        """Performs an action and returns what came of it."""
        ...

    def allowed(self) -> Bools | None:
        """Returns which actions make sense now, shape ``(len(actions),)``; None: it does not know."""
        ...

    def close(self) -> None:
        """Gives back what it holds; again is harmless."""
        ...
