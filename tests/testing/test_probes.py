"""The known answers against closed forms and played episodes; wrong answers, such as each mutant gives, are refused."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest

from learnloop.core.errors import UsageError
from learnloop.envs import register_envs
from learnloop.testing.probes import GAMMA, PROBES, Family, Judged, ProbeError, check_probe, expectations

V: dict[str, Callable[[float], float]] = {
    "P1": lambda o: 1.0,
    "P2": lambda o: o,
    "P3": lambda o: 1.0 if o == 1 else 0.5,
    "P4": lambda o: 1.0,
    "P5": lambda o: 1.0,
    "P6": lambda o: 1.0 if o == 1 else 0.5,
    "P7": lambda o: 2.0,
    "P8": lambda o: -0.2,
    "P9": lambda o: 0.0,
    "P10": lambda o: 1.0,
}
"""V of a greedy policy at gamma .5."""
Q: dict[str, Callable[[float], list[float]]] = {
    "P1": lambda o: [1.0],
    "P2": lambda o: [o],
    "P3": lambda o: [1.0 if o == 1 else 0.5],
    "P4": lambda o: [-1.0, 1.0],
    "P5": lambda o: [-o, o],
    "P6": lambda o: [-0.5, 0.5] if o == 0 else [o, o],
    "P7": lambda o: [2.0],
    "P8": lambda o: [-1.0, -0.2],
    "P9": lambda o: [0.0, 0.0],
    "P10": lambda o: [-o, o],
}


def actor_critic(name: str, value: Callable[[float], float] | None = None, best: float = 0.98) -> Judged:
    def probabilities(observation: Any) -> list[float]:
        right = 1 if name not in ("P5", "P10") or observation[0] > 0 else 0
        return [best if action == right else 1 - best for action in range(2)]

    says = value or V[name]
    return Judged(value=lambda o: says(float(o[0])), action_probabilities=probabilities)


def by_values(name: str, q_values: Callable[[float], list[float]] | None = None) -> Judged:
    says = q_values or Q[name]
    return Judged(action_values=lambda o: says(float(o[0])))


@pytest.mark.parametrize("name", PROBES)
def test_right_answers_pass(name: str) -> None:
    check_probe(name, "actor-critic", actor_critic(name))
    check_probe(name, "q", by_values(name))


ACTOR_CRITIC_MUTANTS: dict[str, tuple[str, Judged]] = {
    "no discount, P3": ("P3", actor_critic("P3", lambda o: 1.0)),
    "no discount, P6": ("P6", actor_critic("P6", lambda o: 1.0)),
    "no discount, P7": ("P7", actor_critic("P7", lambda o: 9.0)),
    "truncation is termination (lambda 0)": ("P7", actor_critic("P7", lambda o: 1 / (1 - 0.75 * GAMMA))),
    "truncation is termination (lambda 1)": ("P7", actor_critic("P7", lambda o: (1 + 1.5 + 1.75 + 1.875) / 4)),
    "rewards clipped to [0, 1], P2": ("P2", actor_critic("P2", lambda o: max(o, 0.0))),
    "rewards clipped to [0, 1], P8": ("P8", actor_critic("P8", lambda o: 0.0, best=0.5)),
    "lambda 0": ("P6", actor_critic("P6", lambda o: 0.0, best=0.5)),
    "sign of the advantage": ("P4", actor_critic("P4", lambda o: -1.0, best=0.02)),
    "stale observation": ("P5", Judged(value=lambda o: 0.0, action_probabilities=lambda o: [0.5, 0.5])),
    "observation not seen": ("P2", actor_critic("P2", lambda o: 0.0)),
    "learning rate 0": ("P1", actor_critic("P1", lambda o: 0.0)),
    "end ignored": ("P1", actor_critic("P1", lambda o: 2.0)),
    "entropy too strong": ("P4", actor_critic("P4", lambda o: 0.0, best=0.6)),
    "diverged": ("P1", actor_critic("P1", lambda o: math.nan)),
    "learned from noise": ("P9", actor_critic("P9", lambda o: 0.4 * o)),
    "lost in the noise": ("P10", actor_critic("P10", best=0.8)),
}


@pytest.mark.parametrize("mutant", ACTOR_CRITIC_MUTANTS)
def test_mutants_of_actor_critic_are_refused(mutant: str) -> None:
    name, judged = ACTOR_CRITIC_MUTANTS[mutant]
    with pytest.raises(ProbeError, match=f"{name} .* as actor-critic"):
        check_probe(name, "actor-critic", judged)


Q_MUTANTS: dict[str, tuple[str, Callable[[float], list[float]]]] = {
    "no discount": ("P3", lambda o: [1.0]),
    "truncation is termination": ("P7", lambda o: [1.6]),
    "rewards clipped": ("P8", lambda o: [0.0, 0.0]),
    "actions mixed up": ("P4", lambda o: [1.0, -1.0]),
    "no bootstrap": ("P6", lambda o: [0.0, 0.0] if o == 0 else [o, o]),
    "next action by chance": ("P6", lambda o: [0.0, 0.0]),
    "not a number": ("P1", lambda o: [math.nan]),
}


@pytest.mark.parametrize("mutant", Q_MUTANTS)
def test_mutants_of_q_are_refused(mutant: str) -> None:
    name, says = Q_MUTANTS[mutant]
    with pytest.raises(ProbeError, match=r"action_values\(.*\) is .*, wanted"):
        check_probe(name, "q", by_values(name, says))


@pytest.mark.parametrize("alpha", [0.05, 0.2, 1.0])
@pytest.mark.parametrize("name", PROBES)
def test_soft_values_by_hand(name: str, alpha: float) -> None:
    """Q(s, a) = r + gamma V(s'), V = alpha log sum exp(Q / alpha), written out."""
    two = alpha * math.log(2)

    def q_values(o: float) -> list[float]:
        if name == "P6":
            return [0.5 * (-1 + two), 0.5 * (1 + two)] if o == 0 else [o, o]
        return Q[name](o)

    def value(o: float) -> float:
        return alpha * math.log(sum(math.exp(q / alpha) for q in q_values(o)))

    def probabilities(o: float) -> list[float]:
        weights = [math.exp(q / alpha) for q in q_values(o)]
        return [each / sum(weights) for each in weights]

    right = Judged(
        value=lambda o: value(float(o[0])),
        action_values=lambda o: q_values(float(o[0])),
        action_probabilities=lambda o: probabilities(float(o[0])),
    )
    check_probe(name, "soft-q", right, temperature=alpha)
    for each in expectations(name, "soft-q", temperature=alpha):
        exact = {"value": value, "action_values": q_values, "action_probabilities": probabilities}[each.quantity]
        said: Any = exact(each.observation)
        wanted = said if each.action is None else said[int(each.action)]
        assert (each.low + each.high) / 2 == pytest.approx(wanted, abs=1e-9)


def test_a_soft_value_without_entropy_is_refused() -> None:
    judged = Judged(
        value=lambda o: 1.0, action_values=lambda o: [-1.0, 1.0], action_probabilities=lambda o: [0.12, 0.88]
    )
    check_probe(
        "P4", "soft-q", Judged(lambda o: 1.127, judged.action_probabilities, judged.action_values), temperature=1.0
    )
    with pytest.raises(ProbeError, match=r"value\(0\) is 1, wanted 1.027 to 1.227"):
        check_probe("P4", "soft-q", judged, temperature=1.0)


@pytest.mark.parametrize("alpha", [0.02, 0.5])
def test_continuous_soft_values_by_the_error_function(alpha: float) -> None:
    """The integral of exp(-(a - c)^2 / alpha) over [-1, 1] in closed form."""

    def gauss(width: float, target: float) -> float:
        root = math.sqrt(width)
        return math.sqrt(math.pi * width) / 2 * (math.erf((1 - target) / root) + math.erf((1 + target) / root))

    idle = alpha * math.log(2)
    wanted = {
        ("P4", 0.0): 1 + alpha * math.log(gauss(alpha, 0.5)),
        ("P5", -1.0): 1 + alpha * math.log(gauss(alpha, -0.5)),
        ("P8", 0.0): -0.2 + alpha * math.log(gauss(alpha, 0.5)),
        ("P6", 0.0): 0.5 * (1 + idle) + alpha * math.log(gauss(2 * alpha, 0.5)),
        ("P1", 0.0): 1 + idle,
        ("P3", 0.0): 0.5 * (1 + idle) + idle,
        ("P7", 0.0): (1 + idle) / 0.5,
    }
    for (name, observation), value in wanted.items():
        found = expectations(name, "soft-q", temperature=alpha, continuous=True)
        of = next(each for each in found if each.quantity == "value" and each.observation == observation)
        assert (of.low + of.high) / 2 == pytest.approx(value, abs=1e-4), name


@pytest.mark.parametrize("family", ["actor-critic", "q", "soft-q"])
@pytest.mark.parametrize("continuous", [False, True])
@pytest.mark.parametrize("name", PROBES)
def test_the_tables_are_the_environments(name: str, continuous: bool, family: Family) -> None:
    """Each observation that a probe is asked about is shown by its environment, and no other."""
    if continuous and family == "q":
        return
    register_envs()
    env = gymnasium.make(PROBES[name].env_id(family, continuous=continuous))
    env.action_space.seed(0)
    shown = set()
    for seed in range(40):
        shown.add(float(env.reset(seed=seed)[0][0]))
        terminated = truncated = False
        while not (terminated or truncated):
            observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
            if not terminated:
                shown.add(float(observation[0]))
    temperature = 0.1 if family == "soft-q" else None
    asked = {each.observation for each in expectations(name, family, temperature=temperature, continuous=continuous)}
    if continuous and family == "soft-q" and name == "P6":
        assert asked == {0.0}, "its second observation is any number"
    else:
        assert asked == shown


@pytest.mark.parametrize("name", ["P1", "P2", "P3", "P4", "P5", "P7", "P8"])
def test_one_step_values_are_the_rewards_of_the_environment(name: str) -> None:
    env = gymnasium.make(PROBES[name].env_id("q"))
    for seed in range(8):
        observation, _ = env.reset(seed=seed)
        for action in range(len(Q[name](0.0))):
            env.reset(seed=seed)
            after, reward, terminated, _, _ = env.step(action)
            wanted = float(reward) + (0.0 if terminated else GAMMA * max(Q[name](float(after[0]))))
            assert Q[name](float(observation[0]))[action] == pytest.approx(wanted)


def test_continuous_actor_critic() -> None:
    fine = Judged(value=lambda o: 0.9, action=lambda o: [0.5 * float(o[0])])
    check_probe("P5", "actor-critic", fine, continuous=True)
    with pytest.raises(ProbeError, match=r"action\(-1\) is 0.5, wanted -0.7 to -0.3"):
        check_probe("P5", "actor-critic", Judged(value=lambda o: 0.9, action=lambda o: [0.5]), continuous=True)
    soft = Judged(
        value=lambda o: 1.0 + 0.05 * math.log(math.sqrt(math.pi * 0.05)),
        action=lambda o: [0.5],
        action_value=lambda o, a: 1 - (float(a[0]) - 0.5) ** 2,
    )
    check_probe("P4", "soft-q", soft, temperature=0.05, continuous=True)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: expectations("P99", "q"), "no probe 'P99'; known are 'P1'"),
        (lambda: expectations("P1", "soft-q"), "temperature is None for 'soft-q'"),
        (lambda: expectations("P1", "q", temperature=0.1), "temperature is 0.1 for 'q'"),
        (lambda: expectations("P1", "q", continuous=True), "leave continuous out"),
        (lambda: check_probe("P1", "q", Judged()), "does not give action_values"),
    ],
)
def test_wrong_calls(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call()


def test_checks_are_not_stripped() -> None:
    """Checkers whose assertions do nothing pass whatever is learned."""
    code = (
        "from learnloop.testing.probes import *\n"
        "try:\n    check_probe('P1', 'actor-critic', Judged(value=lambda o: 0.0))\n"
        "except ProbeError: raise SystemExit(3)"
    )
    assert subprocess.run([sys.executable, "-O", "-c", code], check=False).returncode == 3


def test_every_probe_is_refused_by_what_learned_nothing() -> None:
    nothing = Judged(
        value=lambda o: 0.0, action_probabilities=lambda o: np.full(2, 0.5), action_values=lambda o: np.zeros(2)
    )
    for name in PROBES:
        for family in ("actor-critic", "q"):
            if name == "P9":  # there is nothing to be learned in it
                check_probe(name, family, nothing)
                continue
            with pytest.raises(ProbeError):
                check_probe(name, family, nothing)


def test_what_is_said_in_noise_is_averaged_over_it() -> None:
    """Each observation of P10 holds the signal first; an answer that leans on one noise is wrong only where it does."""
    shown: list[Any] = []

    def value(observation: Any) -> float:
        shown.append(observation)
        return 1.0 + 0.5 * float(observation[7])

    check_probe("P10", "actor-critic", Judged(value, actor_critic("P10").action_probabilities))
    assert {each.shape for each in shown} == {(31,)}
    assert {float(each[0]) for each in shown} == {-1.0, 1.0}
    assert len({float(each[7]) for each in shown}) > 30
