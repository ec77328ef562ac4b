"""The probes on an algorithm of one's own: right ones pass, wrong ones fail the probe for their fault, in words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from learnloop.algorithms.building import ALGORITHMS
from learnloop.core.errors import UsageError
from learnloop.testing.probe_subjects import CHOICES, DEFAULT_PROBES, ON_POLICY, UNKNOWN, settings_for, subject_of
from learnloop.testing.probes import PROBES
from learnloop.testing.probing import Plan, check_probes, family_of, run_probe, temperature_of
from tests.algorithms.steps import spaces
from tests.testing import my_algorithms as mine

FAST = Plan(options=ON_POLICY["a2c"], steps=3_000)


def test_one_of_ours_passes_with_its_settings() -> None:
    found = run_probe(subject_of("a2c"), "P4")
    assert (found.probe, found.verdict, found.family, found.steps) == ("P4", "passed", "actor-critic", 8_000)
    assert found.env == "learnloop/ActionReward-v0"
    assert len(found.said) == 2
    assert all("wanted" in text for text in found.said)
    assert found.seconds > 0


def test_a_class_of_ones_own_passes() -> None:
    steps: list[int] = []
    assert run_probe(subject_of(mine.Mine), "P4", FAST, on_progress=steps.append).verdict == "passed"
    assert sum(steps) == 3_000


def test_a_callable_passes() -> None:
    assert run_probe(subject_of(mine.make), "P4", Plan(steps=3_000)).verdict == "passed"


@pytest.mark.parametrize(
    ("kind", "probe", "said"),
    [
        (mine.Inverted, "P4", "action_probabilities(0, 1) is"),
        (mine.CutsAreEnds, "P7", "value(0) is"),
        (mine.Crashes, "P1", "it raised KeyError: 'lost'"),
        (mine.Diverges, "P1", "not finite"),
    ],
)
def test_wrong_ones_fail(kind: Any, probe: str, said: str) -> None:
    found = run_probe(subject_of(kind), probe, FAST)
    assert found.verdict == "failed"
    assert said in "; ".join(found.said)


def test_only_what_is_wrong_is_said_of_a_failure() -> None:
    found = run_probe(subject_of(mine.Mine), "P1", Plan(options=ON_POLICY["a2c"], steps=64))
    assert found.verdict == "failed"
    assert [text.split(" is ")[0] for text in found.said] == ["value(0)"]


def test_masks() -> None:
    found = run_probe(subject_of("a2c"), "P11")
    assert (found.verdict, found.env) == ("passed", "learnloop/MaskedReward-v0")
    unmasked = run_probe(subject_of(mine.Unmasked), "P11", Plan(options=ON_POLICY["a2c"], steps=8_000))
    assert unmasked.verdict == "failed"
    assert "picks where -1 is shown were illegal" in unmasked.said[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ppo", "dqn", "sac"])
def test_ours_learn_on(name: str) -> None:
    found = run_probe(subject_of(name), "P12")
    assert found.verdict == "passed", found.said


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dqn", "sac"])
def test_ours_keep_masks(name: str) -> None:
    found = run_probe(subject_of(name), "P11")
    assert found.verdict == "passed", found.said


def test_who_does_not_learn_on_is_found() -> None:
    found = run_probe(subject_of("a2c"), "P12", Plan(options={"learning_rate": 1e-5}, steps=1_600))
    assert found.verdict == "failed"
    assert "before the flip the best arm has" in found.said[0]


def test_continuous_actions() -> None:
    found = run_probe(subject_of("a2c"), "P1", Plan(continuous=True, steps=3_000))
    assert (found.env, found.verdict) == ("learnloop/ConstantRewardContinuous-v0", "passed")


def test_families() -> None:
    shown = spaces(1)
    names = ("ppo", "dqn", "sac")
    made = {name: subject_of(name).make(settings_for(name).options, shown, num_envs=8, seed=0) for name in names}
    assert [family_of(made[name]) for name in names] == ["actor-critic", "q", "soft-q"]
    assert temperature_of(made["sac"]) == 0.5
    learned = subject_of("sac").make({}, shown, num_envs=1, seed=0)
    with pytest.raises(UsageError, match="set ent_coef to a number above 0"):
        temperature_of(learned)
    with pytest.raises(UsageError, match="neither value"):
        family_of(subject_of("random").make({}, shown, num_envs=1, seed=0))


@pytest.mark.parametrize(
    ("target", "plan", "message"),
    [
        (mine.make_with_another_gamma, Plan(), "gamma of make_with_another_gamma is 0.99.*0.5"),
        (mine.make_nothing, Plan(), "gave a NoneType; an object of a subclass"),
        (mine.make, Plan(options={"n_steps": 4}), "takes no options; set 'n_steps' in it"),
        (mine.Mine, Plan(options={"steps": 4}), "do not fit Mine.*steps"),
        (mine.Mine, Plan(family="q"), "needs action_values"),
        (mine.Mute, Plan(family="actor-critic"), "needs value"),
        (mine.NeverCounts, FAST, "num_steps did not grow"),
        (mine.Unfinished, Plan(), "is abstract; it does not define '_choose'"),
        (mine.Unsaid, Plan(), "says no config"),
        ("dqn", Plan(continuous=True), "dqn needs a discrete action space"),
        ("bc", Plan(), "learns from a data set"),
        (lambda spaces, num_lanes, seed: None, Plan(), "num_envs"),
        ("random", Plan(), "neither value"),
    ],
)
def test_what_cannot_be_probed_is_refused(target: Any, plan: Plan, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        run_probe(subject_of(target), "P4", plan)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("pppo", "did you mean 'ppo'"),
        (mine.NoAlgorithm, "no subclass of"),
        (mine.NUMBER, "a callable make"),
    ],
)
def test_what_is_no_algorithm_is_refused(target: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        subject_of(target)


def test_names_of_probes() -> None:
    assert check_probes(["P4", "P1", "P4"]) == ["P4", "P1"]
    for name, message in (("P99", "known are 'P1'"), ("P13", "judges credit"), ("P14", "judges a replay")):
        with pytest.raises(UsageError, match=message):
            check_probes([name])
    with pytest.raises(UsageError, match="discrete actions only"):
        check_probes(["P11"], continuous=True)
    assert set(DEFAULT_PROBES) == {*PROBES, *CHOICES} - {"P12"}


def test_ours_have_settings_and_others_do_not() -> None:
    acting = {name for name, each in ALGORITHMS.items() if not each.is_offline} - {"random"}
    assert all(settings_for(name).options for name in acting)
    assert settings_for("mine") == UNKNOWN
    assert settings_for("a2c", "P12").options["learning_rate"] == 0.01
    assert np.isfinite(UNKNOWN.steps)
