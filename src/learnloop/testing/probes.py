"""Known answers of the probes in ``learnloop.envs.probes``, and checkers that compare a trained algorithm with them.

An algorithm is judged by what it says of the few observations that a probe shows: see ``Judged``. What it must say
depends on its family:

- ``actor-critic`` (PPO, A2C): V of each observation under a policy that has become greedy, and at least .95 for the
  best action.
- ``q`` (DQN): Q(s, a) = r + gamma max_b Q(s', b) of each action.
- ``soft-q`` (SAC) at a temperature alpha: Q(s, a) = r + gamma V(s'), V(s) = alpha log sum_b exp(Q(s, b) / alpha) (an
  integral over [-1, 1] for continuous actions), pi(a | s) = exp((Q(s, a) - V(s)) / alpha).
  Source: Haarnoja et al. 2017, Reinforcement Learning with Deep Energy-Based Policies, equations 2, 3 and 4.

For the first two families these come out as: P1 V = 1. P2 V(o) = o. P3 V(0) = gamma, V(1) = 1. P4 Q = (-1, 1).
P5 Q(o) = (-o, o). P6 V(0) = gamma, V(1) = 1, Q(0) = (-gamma, gamma). P7 V = 1 / (1 - gamma). P8 Q = (-1, -0.2).
P9 V = 0, Q = (0, 0): what learned nothing passes, and what its noise moved does not. P10 as P5, on the average over
noise. P11 and P12 are in ``choice_probes``, P13 in ``credit_probe``, P14 in ``replay_probe``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from learnloop.core.arrays import F32, F64
from learnloop.core.errors import CheckFailedError, UsageError, one_of
from learnloop.core.seeding import generator
from learnloop.envs.probes import NOISE_SIZE, TARGET

Family = Literal["actor-critic", "q", "soft-q"]
Quantity = Literal["value", "action_probabilities", "action_values", "action", "action_value"]
ProbeStep = tuple[float, float | None]
"""A reward and the next observation; None: the episode ends."""
State = Sequence[ProbeStep] | Callable[[float], ProbeStep]
"""The outcome of each discrete action, or of any continuous one."""

GAMMA = 0.5
"""The discount at which all probes are learned: a forgotten one is far off, and values settle soon."""
TOLERANCE = 0.1
BEST_PROBABILITY = 0.95
NUM_SWEEPS = 60
"""Sweeps of value iteration: what is left of an error is 0.5^60."""
NUM_GRID = 2001
"""Points of the integral over continuous actions."""
NUM_NOISES = 64
"""What is said of an observation with noise is the mean over so many draws of the noise."""
SPREAD = 0.3
"""By so much less than the best may the value of a continuous actor-critic policy be: the variance that it keeps."""


class ProbeError(CheckFailedError):
    """An algorithm does not say of a probe what is known; the message lists what it says and what is right."""


@dataclass(frozen=True)
class Judged:
    """What a trained algorithm says of an observation, a float32 array of shape ``(1,)``. Give what its family needs.

    In P10 an observation has the shape ``(31,)``: noise follows the number that counts.

    Attributes:
        value: V of an observation (``actor-critic``, ``soft-q``).
        action_probabilities: of each discrete action, shape ``(num_actions,)`` (``actor-critic``, ``soft-q``).
        action_values: Q of each discrete action, shape ``(num_actions,)`` (``q``, ``soft-q``).
        action: the greedy continuous action, one number (continuous families).
        action_value: Q of a continuous action, a float32 array of shape ``(1,)`` (continuous ``soft-q``).
    """

    value: Callable[[F32], float] | None = None
    action_probabilities: Callable[[F32], Any] | None = None
    action_values: Callable[[F32], Any] | None = None
    action: Callable[[F32], Any] | None = None
    action_value: Callable[[F32, F32], float] | None = None


class Expectation(NamedTuple):
    """What must be said: ``quantity`` of an observation (and an action) lies between ``low`` and ``high``."""

    quantity: Quantity
    observation: float
    action: float | None
    low: float
    high: float


class Probe(NamedTuple):
    """One probe and the small world that it is, apart from its environment."""

    name: str
    env: str
    catches: str
    states: Mapping[float, Sequence[ProbeStep]]
    """Observation -> outcome of each discrete action."""
    best: float | None = None
    """The best reward where a continuous action matters, which falls off with its squared distance from a target."""
    tolerance: float = TOLERANCE
    num_delays: int = 0
    """How many steps later the reward of an action comes."""
    num_noises: int = 0
    """How many numbers that mean nothing follow the one that counts."""

    def env_id(self, family: Family, *, continuous: bool = False) -> str:
        """Returns the environment in which an algorithm of ``family`` is probed; gamma is ``GAMMA``.

        P6 hides the first action from all but actor-critic methods: one-step targets cannot carry its credit.
        """
        name = "RevealedAction" if self.num_delays and family != "actor-critic" else self.env
        return f"learnloop/{name}{'Continuous' if continuous else ''}-v0"


PROBES: Mapping[str, Probe] = {
    probe.name: probe
    for probe in (
        Probe("P1", "ConstantReward", "value loss, optimiser", {0.0: [(1.0, None)]}),
        Probe(
            "P2",
            "ObservedReward",
            "backpropagation, stale observations, clipped rewards",
            {-1.0: [(-1.0, None)], 1.0: [(1.0, None)]},
        ),
        Probe("P3", "DelayedReward", "discount", {0.0: [(0.0, 1.0)], 1.0: [(1.0, None)]}, tolerance=0.05),
        Probe("P4", "ActionReward", "sign of the advantage", {0.0: [(-1.0, None), (1.0, None)]}, best=1.0),
        Probe(
            "P5",
            "ContextualReward",
            "batching, stale observations",
            {-1.0: [(1.0, None), (-1.0, None)], 1.0: [(-1.0, None), (1.0, None)]},
            best=1.0,
        ),
        Probe(
            "P6",
            "DelayedAction",
            "credit over more than one step",
            {0.0: [(0.0, -1.0), (0.0, 1.0)], -1.0: [(-1.0, None)] * 2, 1.0: [(1.0, None)] * 2},
            best=1.0,
            num_delays=1,
        ),
        Probe("P7", "EndlessReward", "truncation taken for termination, discount", {0.0: [(1.0, 0.0)]}),
        Probe("P8", "NegativeReward", "clipped rewards", {0.0: [(-1.0, None), (-0.2, None)]}, best=-0.2),
        Probe(
            "P9",
            "IndependentReward",
            "values that drift, learning from noise",
            {-1.0: [(0.0, None)] * 2, 1.0: [(0.0, None)] * 2},
            tolerance=0.25,
        ),
        Probe(
            "P10",
            "NoisyObservation",
            "normalisation, capacity",
            {-1.0: [(1.0, None), (-1.0, None)], 1.0: [(-1.0, None), (1.0, None)]},
            best=1.0,
            num_noises=NOISE_SIZE,
        ),
    )
}
"""The probes by name."""


def expectations(
    probe: str, family: Family, *, temperature: float | None = None, continuous: bool = False
) -> list[Expectation]:
    """Returns all that an algorithm of ``family`` must say of a probe.

    Args:
        probe: a name in ``PROBES``.
        family: of the algorithm.
        temperature: alpha of ``soft-q``.
        continuous: whether its action is continuous (``actor-critic`` and ``soft-q``).

    Raises:
        UsageError: there is no such probe, or an argument contradicts the family.
    """
    if probe not in PROBES:
        raise UsageError(f"there is no probe {probe!r}; known are {one_of(PROBES)}")
    if (family == "soft-q") != (temperature is not None and temperature > 0):
        raise UsageError(f"temperature is {temperature} for {family!r}; soft-q needs one above 0, the others none")
    if continuous and family == "q":
        raise UsageError("the family 'q' takes the best of its actions, so they are discrete; leave continuous out")
    chosen = PROBES[probe]
    if not continuous:
        return _discrete(chosen, family, temperature)
    if family == "actor-critic":
        return _continuous_actor_critic(chosen)
    return _continuous_soft(chosen, temperature or 0.0)


def check_probe(
    probe: str, family: Family, judged: Judged, *, temperature: float | None = None, continuous: bool = False
) -> None:
    """Returns if ``judged`` says of a probe what is known.

    Raises:
        ProbeError: it does not; each wrong answer is listed.
        UsageError: as ``expectations``, or ``judged`` lacks what the family needs.
    """
    said = answers(probe, family, judged, temperature=temperature, continuous=continuous)
    wrong = [each.text for each in said if not each.is_right]
    if wrong:
        raise ProbeError(f"{probe} ({PROBES[probe].catches}) as {family}: {'; '.join(wrong)}")


class ProbeAnswer(NamedTuple):
    """What a trained algorithm says, beside what it must say."""

    expectation: Expectation
    found: float

    @property
    def is_right(self) -> bool:
        """Whether it lies between the bounds; NaN does not."""
        return self.expectation.low <= self.found <= self.expectation.high

    @property
    def text(self) -> str:
        """The quantity, what was found and what is right, in words."""
        each = self.expectation
        of = f"{each.observation:g}" + ("" if each.action is None else f", {each.action:g}")
        return f"{each.quantity}({of}) is {self.found:.4g}, wanted {each.low:.4g} to {each.high:.4g}"


def answers(
    probe: str, family: Family, judged: Judged, *, temperature: float | None = None, continuous: bool = False
) -> list[ProbeAnswer]:
    """Returns what ``judged`` says of a probe, right and wrong.

    Raises:
        UsageError: as ``expectations``, or ``judged`` lacks what the family needs.
    """
    expected = expectations(probe, family, temperature=temperature, continuous=continuous)
    return [ProbeAnswer(each, _measure_answer(each, judged, PROBES[probe].num_noises)) for each in expected]


def _measure_answer(each: Expectation, judged: Judged, num_noises: int) -> float:
    says: Callable[..., Any] | None = getattr(judged, each.quantity)
    if says is None:
        raise UsageError(f"the judged algorithm does not give {each.quantity}, which its family needs")
    if not num_noises:
        return _ask_judged(says, each, np.array([each.observation], dtype=np.float32))
    noises = generator(0, "probe-noise").uniform(-1.0, 1.0, (NUM_NOISES, num_noises))
    shown = [np.array([each.observation, *noise], dtype=np.float32) for noise in noises]
    return float(np.mean([_ask_judged(says, each, observation) for observation in shown]))


def _ask_judged(says: Callable[..., Any], each: Expectation, observation: F32) -> float:
    if each.quantity == "action_value":
        return float(says(observation, np.array([each.action], dtype=np.float32)))
    answer = np.asarray(says(observation), dtype=np.float64).reshape(-1)
    return float(answer[0 if each.action is None else int(each.action)])


def _around(
    quantity: Quantity, observation: float, action: float | None, wanted: float, tolerance: float
) -> Expectation:
    return Expectation(quantity, observation, action, wanted - tolerance, wanted + tolerance)


def _discrete(probe: Probe, family: Family, temperature: float | None) -> list[Expectation]:
    values = _solve(probe.states, temperature)
    found = []
    for state, outcomes in probe.states.items():
        q_values = _q_values(outcomes, values)
        if family != "q" and not (family == "actor-critic" and probe.num_delays and state == -1.0):
            found.append(_around("value", state, None, values[state], probe.tolerance))
        if family != "actor-critic":
            found += [_around("action_values", state, a, q, probe.tolerance) for a, q in enumerate(q_values)]
        if family == "soft-q":
            for action, q_value in enumerate(q_values):
                probability = math.exp((q_value - values[state]) / (temperature or 1.0))
                found.append(_around("action_probabilities", state, action, probability, 1 - BEST_PROBABILITY))
        elif family == "actor-critic" and len(set(q_values)) > 1:
            best = float(np.argmax(q_values))
            found.append(Expectation("action_probabilities", state, best, BEST_PROBABILITY, 1.0 + 1e-6))
    return found


def _solve(states: Mapping[float, Sequence[ProbeStep]], temperature: float | None) -> dict[float, float]:
    """Returns V of each observation by value iteration."""
    values = dict.fromkeys(states, 0.0)
    for _ in range(NUM_SWEEPS):
        values = {state: _value(_q_values(outcomes, values), temperature) for state, outcomes in states.items()}
    return values


def _q_values(outcomes: Sequence[ProbeStep], values: Mapping[float, float]) -> list[float]:
    return [reward + (0.0 if after is None else GAMMA * values[after]) for reward, after in outcomes]


def _value(q_values: Sequence[float], temperature: float | None) -> float:
    highest = max(q_values)
    if temperature is None:
        return highest
    return highest + temperature * math.log(sum(math.exp((each - highest) / temperature) for each in q_values))


def _target(state: float) -> float:
    """Returns the best continuous action: P5's and P10's observations are -1 and 1, the others' first one is 0."""
    return TARGET * (state or 1.0)


def _continuous_actor_critic(probe: Probe) -> list[Expectation]:
    values = _solve(probe.states, None)
    found = []
    for state in probe.states:
        if probe.num_delays and state == -1.0:  # the hidden form shows 0 and 1 only
            continue
        if probe.best is None:
            found.append(_around("value", state, None, values[state], probe.tolerance))
            continue
        best = probe.best * (GAMMA if probe.num_delays and state == 0.0 else 1.0)
        found.append(Expectation("value", state, None, best - SPREAD, best + probe.tolerance))
        if not (probe.num_delays and state):
            found.append(_around("action", state, None, _target(state), 0.2))
    return found


def _continuous_soft(probe: Probe, temperature: float) -> list[Expectation]:
    actions = np.linspace(-1.0, 1.0, NUM_GRID)
    idle = temperature * math.log(2.0)  # what a free choice in [-1, 1] is worth
    found = []
    if probe.best is None:
        values = dict.fromkeys(probe.states, 0.0)
        for _ in range(NUM_SWEEPS):
            values = {state: _q_values(each, values)[0] + idle for state, each in probe.states.items()}
        for state in probe.states:
            found += [
                _around("action_value", state, a, values[state] - idle, probe.tolerance) for a in (-0.5, 0.0, 0.5)
            ]
            found.append(_around("value", state, None, values[state], probe.tolerance))
        return found
    for state in (0.0,) if 0.0 in probe.states else tuple(probe.states):
        target = _target(state)
        q_values = probe.best - (actions - target) ** 2
        if probe.num_delays:
            q_values = GAMMA * (q_values + idle)
        for action in (target - 0.25, target, target + 0.25):
            q_value = float(np.interp(action, actions, q_values))
            found.append(_around("action_value", state, action, q_value, probe.tolerance))
        found.append(_around("value", state, None, _integral(q_values, actions, temperature), probe.tolerance))
        found.append(_around("action", state, None, target, 0.15))
    return found


def _integral(q_values: F64, actions: F64, temperature: float) -> float:
    highest = float(q_values.max())
    weights = np.exp((q_values - highest) / temperature)
    return highest + temperature * math.log(float(np.trapezoid(weights, actions)))
