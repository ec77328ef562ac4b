"""Environments that break gymnasium's rules are refused before training, and later where they break them later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import SyncVectorEnv

from learnloop.core.errors import ActionError, ContextError, LearnloopError, UsageError
from learnloop.envs import check_env, make_stream
from learnloop.envs.streams.make import NUM_TRIAL_STEPS

ZEROS = np.zeros(2, dtype=np.float32)


class Broken(gymnasium.Env[Any, Any]):
    """Keeps the rules until ``step`` number ``after``, then returns what ``fault`` says."""

    def __init__(self, fault: Any = None, after: int = 0, first: Any = (ZEROS, {}), action_space: Any = None) -> None:
        self.observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
        self.action_space = action_space or gymnasium.spaces.Discrete(3)
        self.fault, self.after, self.first, self.t = fault, after, first, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        return self.first

    def step(self, action: Any) -> Any:
        self.t += 1
        return (ZEROS, 0.0, False, False, {}) if self.t <= self.after or self.fault is None else self.fault


STEP_FAULTS = {
    "nan reward": (
        (ZEROS, float("nan"), False, False, {}),
        UsageError,
        "the reward is nan; gymnasium's rule is a finite",
    ),
    "infinite reward": ((ZEROS, np.float32("inf"), False, False, {}), UsageError, "the reward is .*inf"),
    "no reward": ((ZEROS, None, False, False, {}), UsageError, "the reward is None"),
    "text reward": ((ZEROS, "1.0", False, False, {}), UsageError, "the reward is '1.0'"),
    "two rewards": ((ZEROS, np.zeros(2), False, False, {}), UsageError, "the reward is array"),
    "shape": ((np.zeros(3, np.float32), 0.0, False, False, {}), ContextError, r"shape \(2,\), not \(3,\)"),
    "scalar": ((0.5, 0.0, False, False, {}), ContextError, r"observation is 0.5"),
    "nan": ((np.array([0, np.nan], np.float32), 0.0, False, False, {}), ContextError, "holds nan at index 1"),
    "old gym": ((ZEROS, 0.0, False, {}), UsageError, "4 values are the rule of the old gym"),
    "no tuple": (ZEROS, UsageError, r"step returned array.*rule is a tuple \(observation, reward"),
    "no info": ((ZEROS, 0.0, False, False, None), UsageError, "with a dict info"),
}


@pytest.mark.parametrize("name", STEP_FAULTS)
def test_steps_that_break_the_rules(name: str) -> None:
    fault, error, message = STEP_FAULTS[name]
    with pytest.raises(error, match=message):
        check_env(lambda: Broken(fault))
    with pytest.raises(error, match=message):
        make_stream(Broken, env_kwargs={"fault": fault})
    with pytest.raises(error, match=message):
        make_stream(Broken(fault))


@pytest.mark.parametrize("name", STEP_FAULTS)
def test_steps_that_break_the_rules_after_the_trial(name: str) -> None:
    fault, error, message = STEP_FAULTS[name]
    made = iter([Broken(), Broken(fault, after=NUM_TRIAL_STEPS + 5), Broken()])
    stream = make_stream(lambda: next(made), 3)
    stream.reset(0)
    with pytest.raises(error, match=f"env 1, episode 1.*{message}"):
        for _ in range(100):
            stream.step(np.zeros(3, dtype=np.int64))


@pytest.mark.parametrize(
    ("first", "message"),
    [
        (ZEROS, r"reset returned array.*a tuple \(observation, info\)"),
        ((ZEROS, None), "with a dict info"),
        ((ZEROS, {}, {}), "reset returned"),
        ((np.zeros(5, np.float32), {}), r"env 0, episode 1, reset: observation is .*not \(5,\)"),
        ((np.full(2, np.inf, np.float32), {}), "observation holds inf"),
    ],
)
def test_resets_that_break_the_rules(first: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make_stream(Broken, env_kwargs={"first": first})


@pytest.mark.parametrize("place", [2, 3])
@pytest.mark.parametrize("value", [0, "no", None])
def test_ends_are_booleans(place: int, value: Any) -> None:
    fault: list[Any] = [ZEROS, 0.0, False, False, {}]
    fault[place] = value
    with pytest.raises(UsageError, match=r"Broken: t.*ated is .*rule is True or False"):
        make_stream(Broken, env_kwargs={"fault": tuple(fault)})


def test_unsaid_and_unsupported_spaces() -> None:
    class Silent(Broken):
        def __init__(self) -> None:
            super().__init__()
            del self.action_space

    with pytest.raises(UsageError, match="Silent does not say its spaces"):
        make_stream(Silent)
    graph = gymnasium.spaces.Graph(gymnasium.spaces.Discrete(2), None)
    with pytest.raises(UsageError, match=r"the action space Graph.* is not supported; allowed are Discrete"):
        make_stream(Broken, env_kwargs={"action_space": graph})


def test_findings_are_no_errors() -> None:
    class Odd(Broken):
        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            self.first = (self.first[0] + np.float32(0.7), {})
            return self.first

    assert check_env(Broken) == []
    findings = check_env(Odd)
    assert len(findings) == 2
    assert "two resets with the same seed gave different observations" in findings[0]
    assert "outside its space" in findings[1]
    assert make_stream(Odd).findings == tuple(findings)
    assert make_stream(Odd, check=False).findings == ()


@pytest.mark.parametrize("env", ["CartPole-v1", "Pendulum-v1", "Taxi-v4", "Blackjack-v1", "MountainCar-v0"])
def test_gymnasiums_own_are_fine(env: str) -> None:
    assert check_env(env) == []


def masked(mask: Any, **kwargs: Any) -> Broken:
    return Broken((ZEROS, 0.0, False, False, {"action_mask": mask}), **kwargs)


MASK_FAULTS = {
    "length": (np.ones(2, dtype=bool), "the action mask has 2 entries; 3, one for each choice"),
    "nothing": (np.zeros(3, dtype=np.int8), "the action mask allows no action"),
    "no booleans": (np.array([1, 0, 2]), "True and False"),
    "floats": (np.array([1.0, 0.0, 1.0]), "True and False"),
}


@pytest.mark.parametrize("name", MASK_FAULTS)
def test_wrong_masks(name: str) -> None:
    mask, message = MASK_FAULTS[name]
    with pytest.raises(ActionError, match=f"env 0, episode 2.*{message}"):
        check_env(lambda: masked(mask))
    made = iter([Broken(), masked(mask)])
    stream = make_stream(lambda: next(made), 2)
    stream.reset(0)
    with pytest.raises(ActionError, match=f"env 1, episode 1.*{message}"):
        stream.step(np.zeros(2, dtype=np.int64))
    vector = make_stream(SyncVectorEnv([lambda: masked(mask)] * 2))
    vector.reset(0)
    with pytest.raises(ActionError, match=message):
        vector.step(np.zeros(2, dtype=np.int64))


def test_masks_on_the_first_observation_are_checked_too() -> None:
    with pytest.raises(ActionError, match="env 0, episode 1: the action mask allows no action"):
        check_env(lambda: Broken(first=(ZEROS, {"action_mask": np.zeros(3, dtype=bool)})))


def test_masks_of_boxes_and_of_several_choices() -> None:
    box = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    with pytest.raises(ActionError, match="its actions are a Box"):
        check_env(lambda: masked(np.ones(1, dtype=bool), action_space=box))
    several = gymnasium.spaces.MultiDiscrete([2, 3])
    stream = make_stream(
        lambda: masked((np.array([1, 0], np.int8), np.array([0, 1, 1], np.int8)), action_space=several), 2
    )
    assert stream.reset(0)[1] is None
    stream.step(np.zeros((2, 2), dtype=np.int64))
    assert stream.reset(0)[1] is not None, "from the first mask on all steps have one"
    step = stream.step(np.zeros((2, 2), dtype=np.int64))
    assert step.masks is not None
    assert step.masks.astype(int).tolist() == [[1, 0, 0, 1, 1]] * 2
    with pytest.raises(ActionError, match="allows no action"):
        check_env(lambda: masked((np.zeros(2, np.int8), np.ones(3, np.int8)), action_space=several))


class BrokenVector(SyncVectorEnv):
    """Two fine envs whose step returns what ``fault`` makes of it."""

    def __init__(self, fault: Callable[[list[Any]], Any]) -> None:
        super().__init__([Broken] * 2)
        self.fault = fault

    def step(self, actions: Any) -> Any:
        return self.fault(list(super().step(actions)))


def with_value(place: int, value: Any) -> Callable[[list[Any]], Any]:
    return lambda result: (*result[:place], value, *result[place + 1 :])


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (lambda result: tuple(result[:4]), "step returned .*rule is"),
        (with_value(0, np.zeros((2, 3), np.float32)), r"step: observation is .*not \(2, 3\)"),
        (with_value(0, np.array([[0, 0], [0, np.nan]], np.float32)), r"observation \(row 1\) holds nan at index 1"),
        (with_value(1, np.array([0.0, np.nan])), "env 1, episode 1: the reward is nan"),
        (with_value(1, np.zeros(3)), "rewards is .*an array of 2 numbers"),
        (with_value(1, [None, 1]), "rewards is .*an array of 2 numbers"),
        (with_value(2, np.zeros(2)), "terminated is .*an array of 2 booleans"),
        (with_value(3, False), "truncated is .*an array of 2 booleans"),
    ],
)
def test_vector_environments_that_break_the_rules(fault: Any, message: str) -> None:
    stream = make_stream(BrokenVector(fault))
    stream.reset(0)
    with pytest.raises(UsageError, match=message):
        stream.step(np.zeros(2, dtype=np.int64))


def test_vector_environments_say_how_they_reset() -> None:
    env = SyncVectorEnv([Broken] * 2)
    env.metadata = {"autoreset_mode": "Sometimes"}
    with pytest.raises(UsageError, match=r"metadata\['autoreset_mode'\] is 'Sometimes'.*SAME_STEP"):
        make_stream(env)
    env.metadata = {"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP}  # but it does not
    env.step = lambda actions: (np.zeros((2, 2)), np.zeros(2), np.array([False, True]), np.zeros(2, bool), {})  # type: ignore[method-assign]
    stream = make_stream(env)
    stream.reset(0)
    with pytest.raises(UsageError, match=r"envs \[1\] ended, but info has no 'final_obs'"):
        stream.step(np.zeros(2, dtype=np.int64))


def test_errors_of_the_environment_itself_are_not_hidden() -> None:
    class Raising(Broken):
        def step(self, action: Any) -> Any:
            raise LearnloopError("mine")

    with pytest.raises(LearnloopError, match=r"^mine$"):
        check_env(Raising)


class Raising(gymnasium.Env[Any, Any]):
    """Raises where it is told to."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self, where: str = "step") -> None:
        self._where = where
        self._count = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        if self._where == "reset":
            raise RuntimeError("no power")
        return np.zeros(1, dtype=np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._count += 1
        if self._count > 40:
            raise RuntimeError("no power")
        return np.zeros(1, dtype=np.float32), 0.0, False, False, {}


@pytest.mark.parametrize("where", ["reset", "step"])
def test_what_an_environment_raises_is_told_with_its_lane(where: str) -> None:
    with pytest.raises(UsageError, match=rf"Raising.*{where} raised RuntimeError: no power") as caught:
        stream = make_stream(Raising, 2, env_kwargs={"where": where}, check=False)
        stream.reset(0)
        for _ in range(60):
            stream.step(np.zeros(2, dtype=np.int64))
    assert isinstance(caught.value.__cause__, RuntimeError)
