"""Shares a reward out over the steps of a run and the agents that took them; the shares add up to the reward.

What a method leaves over is booked on a line of its own, under ``UNASSIGNED``: no share is ever scaled to fit. Whose a
step is: the agent that the step names; where it names none, the run's only agent, else ``UNASSIGNED``. An agent that
took no step gets a line without a step. Each agent of the run has at least one line; further lines of 0 are left out.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, get_args

import msgspec

from learnloop.core.attempts import Attempt
from learnloop.core.checks import check_range
from learnloop.core.decoding import convert_record
from learnloop.core.errors import RewardError, UsageError, one_of
from learnloop.core.records import Json, Record
from learnloop.core.rewards import check_learnable
from learnloop.rewards.sharing.shapley import (
    MAX_EXACT_PLAYERS,
    CoalitionValue,
    Game,
    exact_shapley,
    leave_one_out,
    sampled_shapley,
)

UNASSIGNED = "(unassigned)"
"""The agent under which is booked what is nobody's; no agent of learnloop's can have such a name."""
TOLERANCE = 1e-9
"""How far the sum of the shares may be from the reward, for each unit of a reward larger than 1."""
_ROUNDING = 1e-12

SharedOut = tuple[list["CreditShare"], dict[str, Any]]
"""The lines that a method makes, and its figures."""


class CreditShare(Record, frozen=True, kw_only=True):
    """One line: what a step, or an agent as a whole, is credited with."""

    agent_id: str
    """Of the run, or ``UNASSIGNED``."""
    span_id: str | None = None
    step: int | None = None
    """The number of the step, from 0; None: the line is the agent's as a whole."""
    value: float


class Credit(Record, frozen=True, kw_only=True):
    """A reward that was shared out."""

    method: str
    reward: float
    """What the shares add up to."""
    shares: list[CreditShare]
    details: Json
    """Figures of the method, such as its error bound."""

    def by_agent(self) -> dict[str, float]:
        """Returns what each agent is credited with, ``UNASSIGNED`` among them where something is left over."""
        values: dict[str, list[float]] = {}
        for share in self.shares:
            values.setdefault(share.agent_id, []).append(share.value)
        return {agent_id: math.fsum(listed) for agent_id, listed in values.items()}


def adds_up(values: Sequence[float], reward: float) -> bool:
    """Returns whether values add up to a reward, to ``TOLERANCE``."""
    return abs(math.fsum([*values, -reward])) <= TOLERANCE * max(1.0, abs(reward))


def participants(attempt: Attempt) -> list[str]:
    """Returns the agents of a run, each once: those it names, then those that only its steps name."""
    named = [step.agent_id for step in attempt.steps if step.agent_id is not None]
    found = list(dict.fromkeys([*attempt.agents, *named]))
    if UNASSIGNED in found:
        raise UsageError(f"an agent of the run is called {UNASSIGNED!r}, which stands for nobody; rename it")
    return found


def step_owners(attempt: Attempt) -> list[str]:
    """Returns whose each step is; ``UNASSIGNED`` where that is not known."""
    agents = participants(attempt)
    nobody = agents[0] if len(agents) == 1 else UNASSIGNED
    return [nobody if step.agent_id is None else step.agent_id for step in attempt.steps]


class CreditMethod(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="method"):
    """A way to share a reward out; what all do alike: check what comes in, and book what is left over."""

    needs_value: ClassVar[bool] = False
    """Whether ``assign`` has to be told what fewer agents would have achieved."""

    @property
    def name(self) -> str:
        """The name by which ``credit_method`` finds it."""
        return str(self.__struct_config__.tag)

    def assign(self, attempt: Attempt, reward: float, value: CoalitionValue | None = None) -> Credit:
        """Returns the shares of the reward of a run.

        Args:
            attempt: the run.
            reward: what is shared out.
            value: what each set of agents would have achieved alone; needed by ``leave_one_out`` and ``shapley``.

        Raises:
            RewardError: the reward, or what a coalition is worth, is not a finite number.
            UsageError: ``value`` is needed and missing, or the run cannot be read.
        """
        given = check_learnable("the reward that is to be shared out", reward)
        shares, details = self._share_out(attempt, given, value)
        named = {share.agent_id for share in shares}
        shares += [CreditShare(agent_id=each, value=0.0) for each in participants(attempt) if each not in named]
        shares = _with_remainder(shares, given)
        if not adds_up([share.value for share in shares], given):
            raise RewardError(f"shares as large as {_largest(shares):g} cannot add up to {given:g} to {TOLERANCE:g}")
        return Credit(method=self.name, reward=given, shares=shares, details=details)

    def _share_out(self, attempt: Attempt, reward: float, value: CoalitionValue | None) -> SharedOut:
        raise NotImplementedError


def _with_remainder(shares: list[CreditShare], reward: float) -> list[CreditShare]:
    remainder = reward - math.fsum(share.value for share in shares)
    if shares and abs(remainder) <= _ROUNDING * max(abs(reward), _largest(shares)):
        return shares
    return [*shares, CreditShare(agent_id=UNASSIGNED, value=remainder)]


def _largest(shares: Sequence[CreditShare]) -> float:
    return max((abs(share.value) for share in shares), default=0.0)


def _over_steps(attempt: Attempt, reward: float, gamma: float) -> list[CreditShare]:
    """Returns a line for each step, in proportion to ``gamma ** (num_steps - 1 - step)``, where that is not 0.

    With no steps the only agent gets all.
    """
    agents, num_steps = participants(attempt), len(attempt.steps)
    if not attempt.steps:
        return [CreditShare(agent_id=agents[0], value=reward)] if len(agents) == 1 else []
    weights = [gamma ** (num_steps - 1 - step) for step in range(num_steps)]
    total = math.fsum(weights)
    lines = zip(attempt.steps, step_owners(attempt), weights, strict=True)
    return [
        CreditShare(agent_id=owner, span_id=step.span_id, step=number, value=reward * (weight / total))
        for number, (step, owner, weight) in enumerate(lines)
        if weight
    ]


def _over_agents(attempt: Attempt, values: Mapping[str, float]) -> list[CreditShare]:
    """Returns the value of each agent, split evenly over its steps; as a whole where it took none."""
    owners = step_owners(attempt)
    counts = Counter(owners)
    shares = [
        CreditShare(agent_id=owner, span_id=step.span_id, step=number, value=values[owner] / counts[owner])
        for number, (step, owner) in enumerate(zip(attempt.steps, owners, strict=True))
        if owner != UNASSIGNED
    ]
    return shares + [CreditShare(agent_id=each, value=values[each]) for each in values if each not in counts]


class LastCredit(CreditMethod, frozen=True, kw_only=True, tag="last"):
    """All of it to the last step."""

    def _share_out(self, attempt: Attempt, reward: float, value: CoalitionValue | None) -> SharedOut:
        return _over_steps(attempt, reward, 0.0), {}


class UniformCredit(CreditMethod, frozen=True, kw_only=True, tag="uniform"):
    """The same to each step; to each agent where no steps are recorded."""

    def _share_out(self, attempt: Attempt, reward: float, value: CoalitionValue | None) -> SharedOut:
        if attempt.steps:
            return _over_steps(attempt, reward, 1.0), {}
        agents = participants(attempt)
        return [CreditShare(agent_id=each, value=reward / len(agents)) for each in agents], {}


class DiscountedCredit(CreditMethod, frozen=True, kw_only=True, tag="discounted"):
    """More to later steps: in proportion to ``gamma ** (num_steps - 1 - step)``.

    Source: Sutton, Barto 2018, section 3.3 (a reward counts for an action by the discount to the power of the delay).
    """

    gamma: float = 0.9
    """0 to 1: 0 gives all to the last step, 1 the same to each."""

    def __post_init__(self) -> None:
        """Refuses a discount without a meaning."""
        check_range("gamma", self.gamma, 0, 1)

    def _share_out(self, attempt: Attempt, reward: float, value: CoalitionValue | None) -> SharedOut:
        return _over_steps(attempt, reward, self.gamma), {"gamma": self.gamma}


class LeaveOneOutCredit(CreditMethod, frozen=True, kw_only=True, tag="leave_one_out"):
    """What would be lost without each agent (difference rewards); see ``shapley.py``.

    These do not add up to the reward: what is left over is booked under ``UNASSIGNED``.
    """

    needs_value: ClassVar[bool] = True

    def _share_out(self, attempt: Attempt, reward: float, value: CoalitionValue | None) -> SharedOut:
        game = Game(participants(attempt), _needed(value, self.name))
        values = dict(zip(game.players, leave_one_out(game), strict=True))
        return _over_agents(attempt, values), {"num_evaluations": game.num_evaluations}


class ShapleyCredit(CreditMethod, frozen=True, kw_only=True, tag="shapley"):
    """What each agent adds on average over all orders in which they could join; see ``shapley.py``.

    These add up to ``v(all) - v(nobody)``; where that is not the reward, the difference is booked under ``UNASSIGNED``.
    """

    needs_value: ClassVar[bool] = True
    max_exact: int = 8
    """Up to so many agents the values are exact: ``2 ** max_exact`` coalitions; beyond, they are estimated."""
    num_permutations: int = 1_000
    """How many orders an estimate is made of; even."""
    value_range: tuple[float, float] = (0.0, 1.0)
    """Between which any coalition's worth lies: what the error bound of an estimate relies on."""
    delta: float = 0.05
    """How likely the error bound of an estimate may fail."""
    seed: int = 0
    """Of the orders."""

    def __post_init__(self) -> None:
        """Refuses what has no meaning."""
        check_range("max_exact", self.max_exact, 0, MAX_EXACT_PLAYERS)
        if self.num_permutations < 4 or self.num_permutations % 2:
            raise UsageError(f"num_permutations is {self.num_permutations}; give an even number of at least 4")
        if not -math.inf < self.value_range[0] <= self.value_range[1] < math.inf:
            raise UsageError(f"value_range is {self.value_range}; give the lowest and the highest worth")
        check_range("delta", self.delta, above=0, below=1)

    def _share_out(self, attempt: Attempt, reward: float, value: CoalitionValue | None) -> SharedOut:
        agents = participants(attempt)
        if len(agents) <= self.max_exact:
            game = Game(agents, _needed(value, self.name))
            values, details = exact_shapley(game), {"exact": True, "error_bound": 0.0}
        else:
            game = Game(agents, _needed(value, self.name), self.value_range)
            values, details = self._estimate(game)
        details["num_evaluations"] = game.num_evaluations
        return _over_agents(attempt, dict(zip(agents, values, strict=True))), details

    def _estimate(self, game: Game) -> tuple[list[float], dict[str, Any]]:
        found = sampled_shapley(
            game,
            value_range=self.value_range,
            num_permutations=self.num_permutations,
            seed=self.seed,
            delta=self.delta,
        )
        details = {
            "exact": False,
            "error_bound": max(found.error_bounds),
            "error_bounds": dict(zip(game.players, found.error_bounds, strict=True)),
            "num_permutations": self.num_permutations,
            "delta": self.delta,
        }
        return found.values, details


def _needed(value: CoalitionValue | None, name: str) -> CoalitionValue:
    if value is None:
        raise UsageError(
            f"{name!r} asks what fewer agents would have achieved; give value=, a function of a set of agents, or "
            "choose 'last', 'uniform' or 'discounted'"
        )
    return value


AnyCredit = LastCredit | UniformCredit | DiscountedCredit | LeaveOneOutCredit | ShapleyCredit
METHODS: Mapping[str, type[AnyCredit]] = {kind.__struct_config__.tag: kind for kind in get_args(AnyCredit)}
"""The ways to share a reward out, by name."""


def credit_method(name: str, **options: Any) -> AnyCredit:
    """Returns the way to share rewards out that is called ``name``.

    Args:
        name: one of ``METHODS``.
        options: the fields of that method, such as ``gamma`` of ``discounted``.

    Raises:
        UsageError: there is no such method or option, or a value of one is wrong.
    """
    kind = METHODS.get(name)
    if kind is None:
        raise UsageError(f"there is no credit method {name!r}; allowed: {one_of(METHODS)}")
    fields = one_of(kind.__struct_fields__)
    return convert_record(
        options, f"the credit method {name!r} cannot take {options}", kind, hint=f"; options: {fields}"
    )
