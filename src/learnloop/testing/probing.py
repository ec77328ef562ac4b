"""Trains an algorithm on the probes and judges it: what ``learnloop probe`` does, and our own tests.

The settings with which our own algorithms pass are in ``probe_subjects``, and nowhere else.
"""

from __future__ import annotations

import math
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import msgspec
import numpy as np

from learnloop.algorithms.base.algorithm import Algorithm
from learnloop.core.arrays import F32
from learnloop.core.errors import CheckFailedError, LearnloopError, UsageError, one_of
from learnloop.core.spaces import Spaces
from learnloop.envs import make_stream
from learnloop.testing.choice_probes import check_masked, check_recovery
from learnloop.testing.probe_subjects import (
    CHOICES,
    DEFAULT_PROBES,
    ELSEWHERE,
    KNOWN,
    NO_OPTIONS,
    Make,
    Options,
    ProbeSettings,
    Subject,
    settings_for,
    subject_of,
)
from learnloop.testing.probes import NUM_NOISES, PROBES, Family, Judged, answers

__all__ = [
    "DEFAULT_PROBES",
    "ActionValued",
    "Plan",
    "ProbeOutcome",
    "Valued",
    "check_probes",
    "family_of",
    "judge",
    "run_probe",
    "subject_of",
    "temperature_of",
    "train",
]

NUM_DRAWS = 2_000
"""The soft value of continuous actions is an estimate from so many of them."""

OnProgress = Callable[[int], None]
"""Is told how many steps were taken since its last call."""


@runtime_checkable
class Valued(Protocol):
    """What says the value of observations."""

    def value(self, observations: F32) -> F32:
        """Returns V, shape ``(batch,)``."""
        ...


@runtime_checkable
class ActionValued(Protocol):
    """What says the values of actions."""

    def action_values(self, observations: F32, /) -> F32:
        """Returns Q of each action, shape ``(batch, n)``; over a Box it takes actions too."""
        ...


# Training and judging ----------------------------------------------------------------------------------------------


def train(
    make: Make,
    env: str,
    *,
    steps: int,
    num_envs: int,
    seed: int = 0,
    env_kwargs: Options | None = None,
    on_progress: OnProgress | None = None,
    at_half: Callable[[Algorithm], None] | None = None,
) -> Algorithm:
    """Returns an algorithm after ``steps`` steps in ``env``.

    Args:
        make: what makes it.
        env: the id of the environment.
        steps: all envs together.
        num_envs: how many environments run side by side.
        seed: of the algorithm and of the environment.
        env_kwargs: what the environment is made with.
        on_progress: is told of steps.
        at_half: is called once with the algorithm when half of the steps are taken.
    """
    stream = make_stream(env, num_envs, env_kwargs=env_kwargs)
    try:
        algorithm = make(stream.spaces, num_envs=num_envs, seed=seed)
        observations, masks = stream.reset(seed)
        while algorithm.num_steps < steps:
            before = algorithm.num_steps
            step = stream.step(algorithm.choose(observations, masks))
            algorithm.record(step)
            observations, masks = step.observations, step.masks
            algorithm.set_progress(algorithm.num_steps / steps)
            algorithm.learn()
            if algorithm.num_steps == before:
                raise UsageError("num_steps did not grow with record; it must count the steps of all envs")
            if at_half is not None and algorithm.num_steps >= steps // 2 > before:
                at_half(algorithm)
            if on_progress is not None:
                on_progress(algorithm.num_steps - before)
        return algorithm
    finally:
        stream.close()


def family_of(algorithm: Algorithm) -> Family:
    """Returns the family of an algorithm by what it offers: ``value``, ``action_values`` or both.

    Raises:
        UsageError: it offers neither.
    """
    if isinstance(algorithm, ActionValued):
        return "soft-q" if isinstance(algorithm, Valued) else "q"
    if isinstance(algorithm, Valued):
        return "actor-critic"
    raise UsageError(
        f"a {type(algorithm).__name__} has neither value(observations) nor action_values(observations), so that "
        "nothing of what it learned can be judged; add one of them, float32 in and out"
    )


def judge(algorithm: Algorithm, family: Family, *, continuous: bool = False) -> Judged:
    """Returns what ``algorithm`` says, in the form of ``check_probe``.

    Raises:
        UsageError: it lacks what its family must offer.
    """
    policy = algorithm.policy()
    offered: Any = algorithm
    if family != "q" and not isinstance(algorithm, Valued):
        raise UsageError(f"the family {family!r} needs value(observations), which the algorithm lacks")
    if family != "actor-critic" and not isinstance(algorithm, ActionValued):
        raise UsageError(f"the family {family!r} needs action_values(observations), which the algorithm lacks")

    def value(observation: F32) -> float:
        rows = 1
        if family == "soft-q" and continuous:  # there it is an estimate from draws, which noisy observations share
            rows = NUM_DRAWS if observation.size == 1 else math.ceil(NUM_DRAWS / NUM_NOISES)
        return float(np.mean(offered.value(np.repeat(observation[None], rows, axis=0))))

    def action_values(observation: F32) -> Any:
        return offered.action_values(observation[None])[0]

    def action_value(observation: F32, action: F32) -> float:
        return float(offered.action_values(observation[None], action[None])[0])

    return Judged(
        value=None if family == "q" else value,
        action_probabilities=None if continuous or family == "q" else policy.probabilities,
        action_values=None if continuous or family == "actor-critic" else action_values,
        action=policy.act if continuous else None,
        action_value=action_value if continuous and family == "soft-q" else None,
    )


def temperature_of(algorithm: Algorithm) -> float:
    """Returns the fixed temperature of a ``soft-q`` algorithm: ``ent_coef`` of its config.

    Raises:
        UsageError: it has none above 0: what is right depends on it.
    """
    found: object = getattr(algorithm.config, "ent_coef", None)
    if isinstance(found, int | float) and not isinstance(found, bool) and found > 0:
        return float(found)
    raise UsageError(
        f"ent_coef is {found!r}; what is right for a soft-q algorithm depends on its temperature: set ent_coef to a "
        "number above 0, such as 0.5"
    )


Verdict = Literal["passed", "failed"]


class ProbeOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How an algorithm did on a probe."""

    probe: str
    env: str
    catches: str
    """Which faults it is for."""
    family: Family | None
    """Taken to be; None: it was not trained far enough to tell."""
    verdict: Verdict
    said: list[str]
    """What it said beside what is right: all of it where it passed, what is wrong where it failed."""
    steps: int
    seconds: float


class _Crash(CheckFailedError):
    """An algorithm raised an error while it was probed."""


class Plan(NamedTuple):
    """How an algorithm is probed; what is None comes from ``settings_for``."""

    family: Family | None = None
    continuous: bool = False
    options: Options = NO_OPTIONS
    steps: int | None = None
    num_envs: int | None = None
    seed: int = 0

    def settings(self, subject: Subject, probe: str) -> ProbeSettings:
        """Returns with what ``subject`` is trained on ``probe``."""
        found = settings_for(subject.name, probe, continuous=self.continuous)
        return ProbeSettings(
            found.steps if self.steps is None else self.steps,
            found.num_envs if self.num_envs is None else self.num_envs,
            {**found.options, **self.options},
        )


def check_probes(names: Sequence[str], *, continuous: bool = False) -> list[str]:
    """Returns ``names``, each once.

    Raises:
        UsageError: one is no probe of algorithms, or has no form with a continuous action.
    """
    for name in names:
        if name in ELSEWHERE:
            raise UsageError(f"{name} judges {ELSEWHERE[name]}, no algorithm; probes are {one_of(KNOWN, 20)}")
        if name not in KNOWN:
            raise UsageError(f"there is no probe {name!r}; known are {one_of(KNOWN, 20)}")
        if continuous and name in CHOICES:
            raise UsageError(f"{name} has discrete actions only; leave it out, or continuous")
    return list(dict.fromkeys(names))


def run_probe(
    subject: Subject, probe: str, plan: Plan | None = None, *, on_progress: OnProgress | None = None
) -> ProbeOutcome:
    """Trains ``subject`` on ``probe`` and judges it.

    Raises:
        UsageError: it cannot be probed: it refuses the spaces or the options, or does not say what is judged.
    """
    plan = plan or Plan()
    check_probes([probe], continuous=plan.continuous)
    settings = plan.settings(subject, probe)
    started = time.monotonic()
    family, env = _family_and_env(subject, probe, plan, settings)
    try:
        verdict, said = _trained(subject, probe, plan, settings, family, env, on_progress)
    except LearnloopError as error:
        if isinstance(error, UsageError):
            raise
        verdict, said = "failed", [str(error)]
    return ProbeOutcome(
        probe=probe,
        env=env,
        catches=KNOWN[probe].catches,
        family=family,
        verdict=verdict,
        said=said,
        steps=settings.steps,
        seconds=time.monotonic() - started,
    )


def _family_and_env(subject: Subject, probe: str, plan: Plan, settings: ProbeSettings) -> tuple[Family, str]:
    stream = make_stream(KNOWN[probe].env_id("actor-critic", continuous=plan.continuous), 1)
    stream.close()
    algorithm = subject.make(settings.options, stream.spaces, num_envs=settings.num_envs, seed=plan.seed)
    family = plan.family or family_of(algorithm)
    if family == "q" and plan.continuous:
        raise UsageError(
            f"{subject.name} is of the family 'q', which takes the best of its actions; leave continuous out"
        )
    if probe in PROBES:
        judge(algorithm, family, continuous=plan.continuous)  # before it is trained for nothing
        if family == "soft-q":
            temperature_of(algorithm)
    return family, KNOWN[probe].env_id(family, continuous=plan.continuous)


def _trained(
    subject: Subject,
    probe: str,
    plan: Plan,
    settings: ProbeSettings,
    family: Family,
    env: str,
    on_progress: OnProgress | None,
) -> tuple[Verdict, list[str]]:
    if probe == "P12" and settings.steps < 2 * settings.num_envs:
        raise UsageError(
            f"P12 flips its best arm halfway, and {settings.steps} steps in {settings.num_envs} envs have no half; "
            f"give {2 * settings.num_envs} or more"
        )
    halves: list[Any] = []
    shown = np.zeros(1, dtype=np.float32)

    def make(spaces: Spaces, *, num_envs: int, seed: int) -> Algorithm:
        return subject.make(settings.options, spaces, num_envs=num_envs, seed=seed)

    try:
        algorithm = train(
            make,
            env,
            steps=settings.steps,
            num_envs=settings.num_envs,
            seed=plan.seed,
            env_kwargs={"flip_steps": max(1, settings.steps // 2 // settings.num_envs)} if probe == "P12" else None,
            on_progress=on_progress,
            at_half=(lambda half: halves.append(half.policy().probabilities(shown))) if probe == "P12" else None,
        )
        if probe in PROBES:
            return _compared(probe, algorithm, family, plan.continuous)
        policy = algorithm.policy()
        if probe == "P11":
            check_masked(policy.choose)
            return "passed", ["each of 10,000 picks was legal, and the best legal action in each state"]
        after = policy.probabilities(shown)
        check_recovery(halves[0], after)
        return "passed", [
            f"the best arm had {float(halves[0][0]):.3f} before the flip, and {float(after[1]):.3f} after it"
        ]
    except LearnloopError:
        raise
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        raise _Crash(f"it raised {type(error).__name__}: {error} ({last.filename}:{last.lineno})") from error


def _compared(probe: str, algorithm: Algorithm, family: Family, continuous: bool) -> tuple[Verdict, list[str]]:
    found = answers(
        probe,
        family,
        judge(algorithm, family, continuous=continuous),
        temperature=temperature_of(algorithm) if family == "soft-q" else None,
        continuous=continuous,
    )
    wrong = [each.text for each in found if not each.is_right]
    return ("failed", wrong) if wrong else ("passed", [each.text for each in found])
