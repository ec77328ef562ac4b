"""A3C without processes: in step it is A2C, gradients go from one to the other, stale ones are counted and dropped."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learnloop.algorithms.building import build_algorithm, configure
from learnloop.algorithms.on_policy.a2c import A2C, A2CConfig
from learnloop.algorithms.on_policy.a3c import A3C, A3CConfig
from learnloop.core.errors import CorruptError, DivergedError, UsageError
from learnloop.core.spaces import Box, MultiDiscrete
from learnloop.system.state_file import State
from tests.algorithms.steps import drive, env_step, spaces

F = np.float32
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "adam": {"use_rms_prop": False, "normalize_advantage": True},
    "dropout": {"dropout": 0.3, "ent_coef": 0.01},
    "scaled": {"normalize_observations": True, "normalize_rewards": True},
}


def make(*, seed: int = 0, action: Any = None, num_envs: int = 2, **options: Any) -> A3C:
    return A3C(A3CConfig(**{"net_arch": (8,), **options}), spaces(3, action), num_envs=num_envs, seed=seed)


def two(*, seed: int = 0, action: Any = None, **options: Any) -> tuple[A2C, A3C]:
    """Returns an A2C and an A3C with the same settings."""
    fields = {"net_arch": (8,), **options}
    return (
        A2C(A2CConfig(**fields), spaces(3, action), num_envs=2, seed=seed),
        A3C(A3CConfig(**fields), spaces(3, action), num_envs=2, seed=seed),
    )


class Pair:
    """A learner and one worker, driven as one algorithm: each rollout is the worker's, each step the learner's."""

    def __init__(self, **options: Any) -> None:
        self.learner, self.worker = make(**options), make(**options)
        self.worker.network.parameters[:] = 7.0  # what it starts with must not matter
        self.num_envs, self.encoder = self.worker.num_envs, self.worker.encoder
        self._hand_over()

    def _hand_over(self) -> None:
        self._before = self.learner.moments()
        self.worker.follow(self.learner.network.parameters, self.learner.num_updates)
        self.worker.put_moments(self._before)

    def choose(self, observations: Any, masks: Any = None) -> Any:
        return self.worker.choose(observations, masks)

    def record(self, step: Any) -> None:
        self.worker.record(step)

    def learn(self) -> bool:
        untouched = self.worker.parameter_hash()
        gradient = self.worker.find_gradient()
        assert self.worker.parameter_hash() == untouched
        if gradient is None:
            return False
        self.learner.merge_moments(self._before, self.worker.moments())
        assert self.learner.apply_gradient(gradient.copy(), self.worker.num_updates)
        self._hand_over()
        return True


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_in_step_it_is_a2c(options: dict[str, Any]) -> None:
    a2c, a3c = two(**options)
    for algorithm in (a2c, a3c):
        drive(algorithm, 43, 1)
    assert a3c.num_updates == a2c.num_updates == 43 // 5
    assert a3c.parameter_hash() == a2c.parameter_hash()


@pytest.mark.parametrize("action", [None, Box(shape=(2,), low=(-1, -1), high=(1, 1)), MultiDiscrete(nvec=(2, 3))])
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_a_learner_with_one_worker_is_a2c_to_the_bit(options: dict[str, Any], action: Any) -> None:
    """S0.3: what a worker finds and a learner applies is the step that A2C takes, scales included."""
    a2c, _ = two(action=action, **options)
    pair = Pair(action=action, **options)
    for algorithm in (a2c, pair):
        drive(algorithm, 45, 3)
    assert pair.learner.parameter_hash() == a2c.parameter_hash()
    assert pair.learner.num_updates == a2c.num_updates
    assert pair.learner.staleness_max == 0
    np.testing.assert_array_equal(pair.learner.value(np.ones((1, 3), F)), a2c.value(np.ones((1, 3), F)))


def test_live_agents_are_learned_from_as_by_a2c() -> None:
    a2c, a3c = two()
    for algorithm in (a2c, a3c):
        for number in range(40):
            action = algorithm.act([0.1 * number, 0, 1], episode=str(number))
            algorithm.observe(float(action), episode=str(number), terminated=True)
            algorithm.learn()
    assert a3c.num_updates == a2c.num_updates > 0
    assert a3c.parameter_hash() == a2c.parameter_hash()


def test_without_enough_there_is_no_gradient() -> None:
    algorithm = make()
    assert algorithm.find_gradient() is None
    zeros = np.zeros((2, 3), F)
    algorithm.choose(zeros)
    algorithm.record(env_step(zeros, [1.0, 1.0]))
    assert algorithm.find_gradient() is None
    assert algorithm.num_steps == 2


def test_gradients_of_several_workers_are_taken_as_they_come() -> None:
    """Staleness is the updates between the parameters that a gradient is of and those that it is applied to."""
    learner = make()
    rng = np.random.default_rng(0)
    gradients = rng.standard_normal((4, learner.network.parameters.size)).astype(F)
    seen = []
    for gradient, version in zip(gradients, [0, 0, 0, 2], strict=True):
        assert learner.apply_gradient(gradient, version)
        seen.append(learner.metrics.peek()["train/staleness_max"])
    assert learner.num_updates == 4
    assert seen == [0, 1, 2, 2]
    assert learner.metrics.peek()["train/staleness_mean"] == (0 + 1 + 2 + 1) / 4
    assert learner.metrics.peek()["train/num_stale_dropped"] == 0


def test_a_gradient_that_is_too_old_is_dropped_and_counted() -> None:
    learner = make(max_staleness=1)
    gradient = np.ones_like(learner.network.gradients)
    assert [learner.apply_gradient(gradient, 0) for _ in range(2)] == [True, True]
    before = learner.parameter_hash()
    assert not learner.apply_gradient(gradient, 0)
    assert learner.parameter_hash() == before
    assert (learner.num_updates, learner.num_stale_dropped, learner.staleness_max) == (2, 1, 2)
    assert learner.metrics.peek()["train/num_stale_dropped"] == 1
    assert learner.apply_gradient(gradient, 2)


def test_a_gradient_is_clipped() -> None:
    """With RMSprop's mean square at 0, the first step along g is lr g / (sqrt(.01 g²) + eps)."""
    learner = make(max_grad_norm=0.5, learning_rate=0.1)
    before = learner.network.parameters.copy()
    gradient = np.zeros_like(before)
    gradient[3], gradient[4] = 30.0, -40.0
    learner.apply_gradient(gradient, 0)
    clipped = gradient / 50 * 0.5
    expected = before - 0.1 * clipped / (0.1 * np.abs(clipped) + 1e-5)
    np.testing.assert_allclose(learner.network.parameters, expected, rtol=1e-5, atol=1e-6)
    assert learner.metrics.peek()["train/gradient_norm"] == pytest.approx(50)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_a_gradient_that_is_not_finite_changes_nothing(wrong: float) -> None:
    learner = make()
    gradient = np.ones_like(learner.network.gradients)
    learner.apply_gradient(gradient, 0)
    before, state = learner.parameter_hash(), learner.optimizer.state()["mean_square"].copy()
    gradient[5] = wrong
    with pytest.raises(DivergedError, match="update 2: the gradient has norm"):
        learner.apply_gradient(gradient, 1)
    assert learner.parameter_hash() == before
    assert learner.num_updates == 1
    np.testing.assert_array_equal(learner.optimizer.state()["mean_square"], state)


def test_a_worker_names_the_update_that_its_reward_would_spoil() -> None:
    worker = make()
    worker.follow(np.zeros_like(worker.network.parameters), 41)
    zeros = np.zeros((2, 3), F)
    for _ in range(5):
        worker.choose(zeros)
        worker.record(env_step(zeros, [0.0, np.nan]))
    with pytest.raises(DivergedError, match="update 42"):
        worker.find_gradient()
    assert worker.num_updates == 41


@pytest.mark.parametrize(("size", "version"), [(1, 0), (None, 1), (None, -1)])
def test_a_gradient_that_does_not_fit_is_refused(size: int | None, version: int) -> None:
    learner = make()
    before = learner.parameter_hash()
    gradient = np.ones(size or learner.network.parameters.size, F)
    with pytest.raises(UsageError, match="cannot be applied"):
        learner.apply_gradient(gradient, version)
    assert learner.parameter_hash() == before


@settings(max_examples=30, deadline=None)
@given(
    counts=st.lists(st.integers(0, 9), min_size=3, max_size=3),
    shift=st.sampled_from([0.0, 5.0, 1000.0]),
    seed=st.integers(0, 1000),
)
def test_scales_are_those_of_all_that_workers_saw(counts: list[int], shift: float, seed: int) -> None:
    """The mean and the variance of rows that the learner, and two workers who did not know of each other, saw."""
    rng = np.random.default_rng(seed)
    parts = [rng.standard_normal((count, 3)) * 2 + shift for count in counts]
    learner, *workers = (make(normalize_observations=True) for _ in range(3))
    for algorithm in (learner, *workers):
        assert algorithm.observation_scaler is not None
        algorithm.observation_scaler.update(parts[0])
    before = learner.moments()
    for worker, rows in zip(workers, parts[1:], strict=True):
        assert worker.observation_scaler is not None
        worker.observation_scaler.update(rows)
        learner.merge_moments(before, worker.moments())
    rows = np.concatenate(parts)
    found = learner.moments()
    assert found[0] == len(rows)
    if len(rows):
        np.testing.assert_allclose(found[1:4], rows.mean(axis=0), rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(found[4:] / len(rows), rows.var(axis=0), rtol=1e-6, atol=1e-7)


def test_going_on_from_a_state() -> None:
    learner = make(max_staleness=0, normalize_rewards=True)
    gradient = np.ones_like(learner.network.gradients)
    for version in (0, 0, 1):
        learner.apply_gradient(gradient, version)
    again = make(seed=4, max_staleness=0, normalize_rewards=True)
    again.restore(learner.state())
    for algorithm in (learner, again):
        algorithm.apply_gradient(gradient, 2)
    assert again.parameter_hash() == learner.parameter_hash()
    assert (again.num_updates, again.num_stale_dropped, again.staleness_max) == (3, 1, 1)
    tensors, values = learner.state()
    for spoilt in ({**values, "staleness_max": -1}, {name: values[name] for name in values if name[0] != "s"}):
        with pytest.raises(CorruptError, match="a3c"):
            make(max_staleness=0, normalize_rewards=True).restore(State(tensors, spoilt))


@pytest.mark.parametrize("options", [{"num_workers": 0}, {"num_workers": 65}, {"max_staleness": -1}])
def test_options_without_a_meaning_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=next(iter(options))):
        configure("a3c", options)


def test_it_is_built_by_its_name() -> None:
    algorithm = build_algorithm(configure("a3c", {"num_workers": 3, "lr": 1e-3}), spaces(3))
    assert isinstance(algorithm, A3C)
    assert algorithm.config.num_workers == 3
    assert algorithm.policy().learned_by == "a3c"
