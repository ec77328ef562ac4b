"""A simulator for ``goal-task``: nothing is executed, but what comes of an action depends on it and on what was done.

The world is a set of facts. An action needs some, gives some and takes some away; it fails where one that it needs does
not hold, and crashes where that is said. By default it is a service that is to be built, tested, packaged and started
beside a database that is to be migrated: goals need two to nine actions in an order, what is built is lost when its
sources are fetched again, and a database that is migrated under a running service crashes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from learnloop.core.arrays import F32, Bools
from learnloop.core.checks import check_number
from learnloop.core.errors import UsageError, one_of
from learnloop.core.seeding import generator
from learnloop.envs.goals.records import Goal, Outcome

_LABEL = "the goal simulator"
SPREAD = 0.2
"""Of the logarithm of an action's seconds."""
FAILURE_SECONDS = 0.01
"""How long an action takes that lacks what it needs."""


@dataclass(frozen=True)
class WorldAction:
    """What an action does to the facts."""

    name: str
    needs: frozenset[str] = frozenset()
    """It fails at once unless all of these hold."""
    gives: frozenset[str] = frozenset()
    takes: frozenset[str] = frozenset()
    """What does not hold any more once it is done."""
    crashes_with: frozenset[str] = frozenset()
    """It crashes, if it does not fail at once, where one of these holds."""
    crashes_without: frozenset[str] = frozenset()
    """It crashes, if it does not fail at once, where one of these does not hold."""
    seconds: float = 0.05
    """How long it takes, about."""
    failure_rate: float = 0.0
    """The probability that it fails for no reason, and changes nothing."""


@dataclass(frozen=True)
class Holds:
    """A verifier: all of ``facts`` hold."""

    facts: frozenset[str]

    def __call__(self, facts: frozenset[str]) -> bool:
        """Returns whether they do."""
        return self.facts <= facts


_BUILT = frozenset({"built", "tested", "packaged"})

ACTIONS = (
    WorldAction("fetch", gives=frozenset({"sources"}), takes=_BUILT | {"configured"}, seconds=0.3),
    WorldAction("configure", frozenset({"sources"}), frozenset({"configured"}), takes=_BUILT, seconds=0.02),
    WorldAction(
        "build",
        frozenset({"sources"}),
        frozenset({"built"}),
        takes=frozenset({"tested", "packaged"}),
        crashes_without=frozenset({"configured"}),
        seconds=0.6,
    ),
    WorldAction("test", frozenset({"built"}), frozenset({"tested"}), seconds=0.4),
    WorldAction("quick-test", frozenset({"built"}), frozenset({"tested"}), seconds=0.03, failure_rate=0.15),
    WorldAction("package", frozenset({"built", "tested"}), frozenset({"packaged"}), seconds=0.05),
    WorldAction(
        "start",
        frozenset({"packaged"}),
        frozenset({"running"}),
        crashes_with=frozenset({"running"}),
        crashes_without=frozenset({"migrated"}),
        seconds=0.05,
    ),
    WorldAction("stop", frozenset({"running"}), takes=frozenset({"running"}), seconds=0.02),
    WorldAction("back-up", gives=frozenset({"backup"}), seconds=0.2),
    WorldAction(
        "migrate",
        frozenset({"backup"}),
        frozenset({"migrated"}),
        crashes_with=frozenset({"running"}),
        seconds=0.08,
    ),
)
"""The actions of the default world."""

GOALS = (
    Goal("configured", "Fetch the sources and configure them.", Holds(frozenset({"sources", "configured"}))),
    Goal("tested", "Build the service and let its tests pass.", Holds(frozenset({"built", "tested"}))),
    Goal("packaged", "Make a package of the service.", Holds(frozenset({"packaged"}))),
    Goal("migrated", "Migrate the database, with a backup of it.", Holds(frozenset({"migrated", "backup"}))),
    Goal(
        "running",
        "Run the new service on the migrated database.",
        Holds(frozenset({"packaged", "running", "migrated"})),
    ),
)
"""The goals of the default world."""

FIRST_FACTS: Mapping[str, float] = {"sources": 0.5, "running": 0.5}
"""The facts that an episode of the default world may begin with, and the probability of each."""


class GoalSimulator:
    """Performs nothing, and says what would have come of it. See ``GoalExecutor``.

    A verifier is called with the frozenset of the facts that hold. The state shows each fact, in the order of their
    names: 1 where it holds, else 0.

    Attributes:
        goals: that can be asked for.
        actions: their names.
        facts: all that can hold, in their order.
        is_simulated: True.
    """

    is_simulated = True

    def __init__(
        self,
        goals: Iterable[Goal] = GOALS,
        actions: Iterable[WorldAction] = ACTIONS,
        first_facts: Mapping[str, float] = FIRST_FACTS,
    ) -> None:
        """Takes the world.

        Raises:
            UsageError: a number has no meaning, or an action needs a fact that nothing gives.
        """
        self.goals: Sequence[Goal] = tuple(goals)
        self._actions = tuple(actions)
        self.actions: Sequence[str] = tuple(action.name for action in self._actions)
        self._first_facts = dict(first_facts)
        given = {*self._first_facts, *(fact for action in self._actions for fact in action.gives)}
        self.facts = tuple(sorted(given))
        self.state_size = len(self.facts)
        self._check(given)
        self._goal = self.goals[0]
        self._held: frozenset[str] = frozenset()
        self._rng = generator(0, "goal-simulator")

    def start(self, goal: Goal, seed: int) -> F32:
        """Begins with the facts that ``seed`` draws."""
        self._rng = generator(seed, "goal-simulator")
        self._goal = goal
        self._held = frozenset(fact for fact, share in self._first_facts.items() if self._rng.random() < share)
        return self._state()

    def perform(self, action: int) -> Outcome:
        """Changes the facts as the action would."""
        done, held = self._actions[action], self._held
        seconds = done.seconds * float(np.exp(SPREAD * self._rng.standard_normal()))
        fails = self._rng.random() < done.failure_rate
        if not done.needs <= held:
            return Outcome(self._state(), FAILURE_SECONDS, failed=True)
        if done.crashes_with & held or not done.crashes_without <= held:
            return Outcome(self._state(), seconds, crashed=True)
        if fails:
            return Outcome(self._state(), seconds, failed=True)
        self._held = (held - done.takes) | done.gives
        return Outcome(self._state(), seconds, succeeded=bool(self._goal.verifier(self._held)))

    def allowed(self) -> Bools:
        """Returns which actions have what they need."""
        return np.array([action.needs <= self._held for action in self._actions])

    def close(self) -> None:
        """Has nothing to give back."""

    def _state(self) -> F32:
        return np.array([fact in self._held for fact in self.facts], dtype=np.float32)

    def _check(self, given: set[str]) -> None:
        if not (self.goals and self._actions and given):
            raise UsageError(
                f"{_LABEL} has {len(self.goals)} goals, {len(self._actions)} actions and {len(given)} facts; "
                "at least 1 of each is needed"
            )
        for fact, share in self._first_facts.items():
            check_number(f"the probability of {fact!r} of {_LABEL}", share, 0.0, 1.0)
        for action in self._actions:
            check_number(f"the seconds of {action.name!r} of {_LABEL}", action.seconds, 0.0)
            check_number(f"the failure_rate of {action.name!r} of {_LABEL}", action.failure_rate, 0.0, 1.0)
            if unknown := sorted((action.needs | action.crashes_with | action.crashes_without | action.takes) - given):
                raise UsageError(
                    f"the action {action.name!r} of {_LABEL} names {one_of(unknown)}, which no action gives and no "
                    f"episode begins with; known are {one_of(sorted(given))}"
                )
