"""Goals reached for real: commands run in a sandbox, their effects last, and no action touches its verifier."""

from __future__ import annotations

import pickle
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from learnloop.core.errors import SandboxError, UsageError
from learnloop.envs import CheckedBy, GoalCommands, GoalTask, HasFiles, check_env, make_stream, shell
from learnloop.envs.goals.commands import ACTIONS, FILES, FIRST_WORLD, GOALS
from learnloop.envs.goals.records import CRASHED, DONE, FAILED, Goal, GoalExecutor
from learnloop.sandbox import Limits, Protection, SandboxReport
from learnloop.sandbox.sandbox import Sandbox

NAMES = [action.name for action in ACTIONS]
PLANS = {
    "fixed": ["fix"],
    "tested": ["fix", "test"],
    "computed": ["fix", "run"],
    "reported": ["fix", "run", "report"],
    "packaged": ["fix", "run", "report", "package"],
}


def act(env: GoalTask, name: str) -> Any:
    return env.step(list(env.executor.actions).index(name))


@pytest.mark.parametrize("goal", GOALS, ids=lambda goal: goal.name)
def test_every_goal_is_reached_by_its_plan_and_not_before(goal: Goal) -> None:
    """S0.7, F0.5: goals run as processes, and what comes of an action depends on the action."""
    env = GoalTask()
    _, info = env.reset(seed=0, options={"goal": goal.name})
    assert info["simulated"] is False
    found = [act(env, name) for name in PLANS[goal.name]]
    assert [each[2] for each in found] == [False] * (len(found) - 1) + [True]
    assert found[-1][4]["is_success"]
    assert all(0.0 < each[4]["seconds"] < 10.0 for each in found)
    assert found[-1][1] in (pytest.approx(0.99), pytest.approx(1.19)), "the bonus is earned by the seconds it took"


def test_failures_and_crashes_are_those_of_the_commands() -> None:
    env = GoalTask(crash_terminates=False)
    env.reset(seed=0, options={"goal": "packaged"})
    lasts = [act(env, name)[0]["last"] for name in ("test", "report", "run", "spoil", "run", "restore", "run", "kill")]
    assert lasts == [FAILED, FAILED, DONE, DONE, FAILED, DONE, DONE, CRASHED]
    assert env.executor.world["result.txt"] == b"43\n", "the fault is still in it"  # type: ignore[attr-defined]
    env.reset(seed=0)
    assert env.executor.world == FIRST_WORLD, "each episode begins anew"  # type: ignore[attr-defined]


def test_what_uses_too_much_is_a_crash_and_leaves_the_world() -> None:
    actions = [
        shell("sleep", "echo > mark; sleep 60"),
        shell("flood", "echo > mark; while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxx; done"),
        shell("scatter", "n=0; while [ $n -lt 300 ]; do echo > f$n; n=$((n+1)); done"),
        shell("mark", "echo > mark"),
    ]
    goals = [Goal("never", "Nothing.", HasFiles({"none": b""}))]
    limits = Limits(wall_seconds=1.0)
    executor = GoalCommands(goals, actions, {"kept": b"1"}, ["kept", "mark"], limits)
    first = executor.start(goals[0], 0)
    for number in range(3):
        outcome = executor.perform(number)
        assert (outcome.crashed, outcome.failed, outcome.succeeded) == (True, False, False), actions[number].name
        assert outcome.state.tolist() == first.tolist()
    assert executor.perform(3).state.tolist() != first.tolist()


def test_an_action_cannot_touch_its_verifier() -> None:
    """F3.7: it writes over the check, patches the interpreter's start and leaves programs of the check's names."""
    attacks = [
        shell("end", "echo 'import os; os._exit(0)' > program.py"),
        shell("overwrite", "echo pass > check.py; echo 'import os; os._exit(0)' > program2.py"),
        shell("start", "echo 'import os; os._exit(0)' > sitecustomize.py; cp sitecustomize.py usercustomize.py"),
        shell("stay", "(setsid sh -c 'while :; do echo pass > check.py; done' >/dev/null 2>&1 &) ; exit 0"),
        shell("shadow", "printf '#!/bin/sh\\nexit 0\\n' > python; chmod +x python; cp python test"),
    ]
    executor = GoalCommands(GOALS, [*attacks, *ACTIONS])
    for goal in GOALS:
        executor.start(goal, 0)
        assert not any(executor.perform(number).succeeded for number in range(len(attacks))), goal.name


def test_the_state_tells_worlds_apart() -> None:
    executor = GoalCommands()
    assert executor.state_size == 9 * len(FILES)
    assert isinstance(executor, GoalExecutor)
    states = [executor.start(GOALS[4], 0)]
    states += [executor.perform(NAMES.index(name)).state for name in ("fix", "run", "report", "package")]
    assert all(one.tolist() != two.tolist() for one, two in pairwise(states))
    assert all(set(np.unique(state)) <= {0.0, 1.0} for state in states)
    assert states[0].reshape(-1, 9)[:, 0].tolist() == [float(name in FIRST_WORLD) for name in FILES]
    again = GoalCommands()
    again.start(GOALS[4], 1)
    repeated = [again.perform(NAMES.index(name)).state for name in ("fix", "run", "report", "package")]
    assert [each.tolist() for each in repeated] == [each.tolist() for each in states[1:]]


def test_worlds_and_verifiers_of_ones_own() -> None:
    check = CheckedBy(("sh", "-c", "test $(cat note) = $(cat wanted)"), {"wanted": b"7"})
    goals = [Goal("seed", "Write the seed.", check)]
    executor = GoalCommands(
        goals, [shell("write", "cp seed note")], lambda seed: {"seed": str(seed).encode()}, ["note"]
    )
    for seed, reached in ((7, True), (8, False)):
        executor.start(goals[0], seed)
        assert executor.perform(0).succeeded is reached


def test_what_lies_in_the_way_of_a_verifier_is_not_there() -> None:
    """An action that makes a folder of the name of the check, or fills the world, stops neither check nor episode."""
    check = CheckedBy(("sh", "check/it"), {"check/it": b"exit 1", "other": b""})
    assert not check({"check": b"", "other/x": b""})
    assert check.__class__(("test", "-e", "kept"), check.files)({"check": b"", "other/x": b"", "kept": b""})
    assert not check({f"f{number}": b"" for number in range(200)})


def test_it_keeps_the_rules_and_runs_in_processes() -> None:
    assert check_env("goal-task", env_kwargs={"goal_view": "text"}) == []
    stream = make_stream("goal-task", 2, vectorization="subprocess", env_kwargs={"max_steps": 3})
    observations, _ = stream.reset(0)
    assert observations.shape == (2, 5 + 4 + 9 * len(FILES) + 1)
    for _ in range(4):
        stream.step(np.array([0, 5]))
    stream.close()
    executor = pickle.loads(pickle.dumps(GoalCommands()))  # noqa: S301 - our own
    executor.start(GOALS[0], 0)
    assert executor.perform(0).succeeded


def test_without_protection_nothing_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = Protection(name="network", is_mandatory=True, is_active=False, reason="none")
    report = SandboxReport(protections=[lacking])
    monkeypatch.setattr(Sandbox, "report", lambda self: report)
    with pytest.raises(SandboxError, match="cannot protect against what code may do: network: none"):
        GoalTask()
    GoalTask(make_executor="simulated")


def test_bad_input() -> None:
    with pytest.raises(UsageError, match="has 0 goals, 8 actions and 6 files to show; at least 1"):
        GoalCommands(goals=[])
    with pytest.raises(UsageError, match="make_executor of goal-task is 'yes'; allowed are 'commands', 'simulated'"):
        GoalTask("yes")  # type: ignore[arg-type]
