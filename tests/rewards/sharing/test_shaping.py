"""learnloop.rewards.sharing.shaping: the optimal policy stays the same (F4.8), ends are worth 0, cuts are not."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learnloop.core.attempts import Attempt, AttemptStep, ToolCall
from learnloop.core.errors import NotFoundError, RewardError, UsageError
from learnloop.rewards.sharing.shaping import (
    PotentialShaping,
    after_steps,
    find_potential,
    shaped_return,
    shaped_rewards,
    shaping_terms,
)


class Problem:
    """A small random MDP; some of its states are terminal."""

    def __init__(self, seed: int, num_states: int, num_actions: int, num_ends: int, is_sparse: bool) -> None:
        rng = np.random.default_rng(seed)
        self.ends = np.arange(num_states) >= num_states - num_ends
        chances = rng.dirichlet(np.full(num_states, 0.3), (num_states, num_actions))
        self.chances = 0.9 * chances + 0.1 / num_states  # every end is reached from everywhere, so values are finite
        rewards = rng.normal(size=(num_states, num_actions, num_states))
        self.rewards = rewards * (rng.random(rewards.shape) < 0.3) if is_sparse else rewards
        self.potentials = rng.normal(scale=10, size=num_states)

    def shaped(self, gamma: float) -> np.ndarray[Any, Any]:
        """Returns the rewards of all transitions with the product's shaping, ``(states, actions, next states)``."""
        number = len(self.ends)
        pairs = np.stack(np.broadcast_arrays(self.potentials[:, None], self.potentials[None, :]), axis=-1)
        ends = np.broadcast_to(self.ends, (number, number))
        stacked = np.moveaxis(self.rewards, 1, 0)[..., None]
        both = np.stack([shaped_rewards(each, pairs, gamma, ends) for each in stacked])[..., 0]
        return np.moveaxis(both, 0, 1)

    def action_values(self, rewards: np.ndarray[Any, Any], gamma: float) -> np.ndarray[Any, Any]:
        """Returns the optimal action values, by value iteration."""
        values = np.zeros(len(self.ends))
        while True:
            future = np.where(self.ends, 0.0, values)
            found: np.ndarray[Any, Any] = np.einsum("san,san->sa", self.chances, rewards + gamma * future)
            if np.abs(found.max(1) - values).max() < 1e-12:
                return found
            values = found.max(1)


def best_actions(values: np.ndarray[Any, Any]) -> list[set[int]]:
    """Returns the optimal actions of each state: any policy of these is optimal, and no other one."""
    return [set(np.flatnonzero(row >= row.max() - 1e-6).tolist()) for row in values]


problems = st.builds(
    Problem,
    seed=st.integers(0, 2**32),
    num_states=st.integers(3, 6),
    num_actions=st.integers(2, 3),
    num_ends=st.integers(1, 2),
    is_sparse=st.booleans(),
)


@settings(max_examples=60, deadline=None)
@given(problem=problems, gamma=st.one_of(st.floats(0, 0.98), st.just(1.0)))
def test_the_optimal_policies_stay_the_same(problem: Problem, gamma: float) -> None:
    """F4.8: gamma is part of the potential's term, and nothing is normalised."""
    raw = problem.action_values(problem.rewards, gamma)
    shaped = problem.action_values(problem.shaped(gamma), gamma)
    going = ~problem.ends
    assert best_actions(shaped[going]) == best_actions(raw[going])
    np.testing.assert_allclose(shaped[going], (raw - problem.potentials[:, None])[going], atol=1e-8)


def shares_changed(shape: Any, gamma: float = 0.9) -> float:
    """Returns the share of 40 problems whose optimal policies another shaping changes."""
    changed = 0
    for seed in range(40):
        problem = Problem(seed, 5, 3, 1, is_sparse=False)
        raw = best_actions(problem.action_values(problem.rewards, gamma)[~problem.ends])
        changed += raw != best_actions(problem.action_values(shape(problem), gamma)[~problem.ends])
    return changed / 40


def test_other_shapings_do_change_them() -> None:
    """So the test above can fail: F4.8's term without gamma, a bonus for what is claimed, a potential of ends."""

    def without_gamma(problem: Problem) -> Any:
        phi = np.where(problem.ends, 0.0, problem.potentials)
        return problem.rewards + phi[None, None, :] - phi[:, None, None]

    def bonus(problem: Problem) -> Any:
        return problem.rewards + 0.5 * np.abs(problem.potentials)[None, None, :]

    def ends_with_potential(problem: Problem) -> Any:
        phi = problem.potentials
        return problem.rewards + 0.9 * phi[None, None, :] - phi[:, None, None]

    assert shares_changed(lambda problem: problem.shaped(0.9)) == 0
    for shape in (without_gamma, bonus, ends_with_potential):
        assert shares_changed(shape) > 0.3


def test_potentials_that_change_with_time() -> None:
    """The states of a finite horizon are pairs of state and time; the best plan is found by trying all."""
    rng = np.random.default_rng(3)
    rewards, next_states = rng.normal(size=(3, 3, 2)), rng.integers(0, 3, size=(3, 3, 2))  # time, state, action
    potentials = rng.normal(scale=5, size=(4, 3))
    gamma = 0.8
    raw, shaped = {}, {}
    for number in range(2**3):
        plan = [(number >> step) & 1 for step in range(3)]
        states, earned = [0], []
        for time, action in enumerate(plan):
            earned.append(rewards[time, states[-1], action])
            states.append(int(next_states[time, states[-1], action]))
        path = [potentials[time, state] for time, state in enumerate(states)]
        raw[number] = sum(gamma**time * value for time, value in enumerate(earned))
        with_shaping = shaped_rewards(earned, path, gamma, True)
        shaped[number] = sum(gamma**time * value for time, value in enumerate(with_shaping))
        assert shaped[number] == pytest.approx(raw[number] - potentials[0, 0])
    assert max(raw, key=raw.__getitem__) == max(shaped, key=shaped.__getitem__)


numbers = st.floats(-100, 100)


@settings(max_examples=200, deadline=None)
@given(
    rewards=st.lists(numbers, max_size=12),
    seed=st.integers(0, 99),
    gamma=st.floats(0, 1),
    terminated=st.booleans(),
)
def test_an_episode_telescopes(rewards: list[float], seed: int, gamma: float, terminated: bool) -> None:
    number = len(rewards)
    potentials = np.random.default_rng(seed).normal(size=number + 1)
    discounts = [gamma**step for step in range(number)]
    raw = math.fsum(discount * value for discount, value in zip(discounts, rewards, strict=True))
    shaped = shaped_rewards(rewards, potentials, gamma, terminated)
    total = math.fsum(discount * value for discount, value in zip(discounts, shaped, strict=True))
    last = 0.0 if terminated else gamma**number * potentials[-1]
    first = 0.0 if terminated and not rewards else potentials[0]
    assert total == pytest.approx(raw - first + last, abs=1e-9)
    assert float(shaped_return(raw, potentials, gamma, terminated)) == pytest.approx(total, abs=1e-9)


def test_a_cut_leaves_what_a_learner_bootstraps_to() -> None:
    """With the value of the last state, V - Phi with shaping, both returns differ by Phi of the first state alone."""
    rewards, potentials, gamma, last_value = [1.0, 2.0], [3.0, -1.0, 5.0], 0.5, 8.0
    raw = 1 + 0.5 * 2 + 0.25 * last_value
    first, second = shaped_rewards(rewards, potentials, gamma, False)
    assert first + 0.5 * second + 0.25 * (last_value - 5.0) == pytest.approx(raw - 3.0)


def test_many_episodes_at_once() -> None:
    rng = np.random.default_rng(0)
    rewards, potentials = rng.normal(size=(4, 5, 7)), rng.normal(size=(4, 5, 8))
    ends = rng.random((4, 5)) < 0.5
    found = shaped_rewards(rewards, potentials, 0.9, ends)
    returns = shaped_return(rewards.sum(-1), potentials, 0.9, ends)
    for place in np.ndindex(4, 5):
        alone = shaped_rewards(rewards[place], potentials[place], 0.9, bool(ends[place]))
        np.testing.assert_array_equal(found[place], alone)
        assert returns[place] == shaped_return(rewards[place].sum(), potentials[place], 0.9, bool(ends[place]))
    assert potentials[..., -1].all(), "the caller's array is his own"


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: shaping_terms([0.0, math.nan], 1.0, True), RewardError, "a potential is nan"),
        (lambda: shaping_terms([0.0, 1e101], 1.0, True), RewardError, "1e"),
        (lambda: shaping_terms([], 1.0, True), UsageError, "at least the first"),
        (lambda: shaping_terms([0.0, 1.0], 1.5, True), UsageError, "gamma is 1.5"),
        (lambda: shaping_terms([0.0, 1.0], True, True), UsageError, "gamma is True"),
        (lambda: shaping_terms([0.0, 1.0], 1.0, 1), UsageError, "terminated is 1"),
        (lambda: shaping_terms([0.0, 1.0], 1.0, [True, False]), UsageError, "one bool"),
        (lambda: shaped_rewards([1.0, 2.0], [0.0, 1.0], 1.0, True), UsageError, "one more than"),
        (lambda: shaped_rewards([None], [0.0, 1.0], 1.0, True), RewardError, "a reward is nan"),
        (lambda: shaped_rewards(["x"], [0.0, 1.0], 1.0, True), RewardError, "no number"),
        (lambda: shaped_return([1.0], [0.0, 1.0], 1.0, True), UsageError, "returns have the shape"),
    ],
)
def test_what_has_no_meaning_is_refused(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


# ---------------------------------------------------------------------- attempts


def run(**fields: Any) -> Attempt:
    steps = [
        AttemptStep(agent_id="a", tool_calls=[ToolCall(name="search")]),
        AttemptStep(agent_id="a", tool_calls=[ToolCall(name="book", error="no seat")]),
        AttemptStep(agent_id="a", tool_calls=[ToolCall(name="book"), ToolCall(name="other")]),
    ]
    given: dict[str, Any] = {"output": "booked", "completed": True, "num_model_calls": 3, "steps": steps, **fields}
    return Attempt(metadata={"milestones": ["search", "book"]}, **given)


def test_milestones_of_a_run() -> None:
    found = PotentialShaping(potential="milestones", gamma=0.5).shape(run(), 1.0, truncated=False)
    assert found.potentials == [0.0, 0.5, 0.5, 0.0]
    assert found.terms == [0.25, -0.25, -0.5]
    assert found.shaped_reward == pytest.approx(1 + 0.25 - 0.5 * 0.25 - 0.25 * 0.5)
    cut = PotentialShaping(potential="milestones", gamma=0.5).shape(run(), 1.0, truncated=True)
    assert cut.potentials == [0.0, 0.5, 0.5, 1.0]
    assert (cut.raw_reward, cut.shaped_reward) == (1.0, 1 + 0.125)


def test_nothing_is_paid_for_what_an_agent_claims() -> None:
    """F4.8: confidence, a long answer and the answer itself are out of sight of a potential."""
    shaping = PotentialShaping(potential="milestones")
    honest = shaping.shape(run(), 0.5, truncated=True)
    boastful = shaping.shape(run(output="I am 100 % confident! " * 99, completed=True), 0.5, truncated=True)
    assert honest == boastful
    seen = after_steps(run(duration_seconds=1.0, num_output_tokens=3, error="x"), 2)
    assert (seen.output, seen.completed, seen.error, seen.num_model_calls, len(seen.steps)) == (None,) * 4 + (2,)
    assert (seen.duration_seconds, seen.num_output_tokens) == (None, None)


def test_no_shaping_and_no_steps_leave_the_reward() -> None:
    assert PotentialShaping().shape(run(), -2.5, truncated=False).shaped_reward == -2.5
    for truncated in (True, False):
        found = PotentialShaping(potential=f"{__name__}:constant").shape(run(steps=[]), 3.0, truncated=truncated)
        assert (found.shaped_reward, found.terms) == (3.0, [])


def constant(attempt: Attempt) -> float:
    return 7.0


def broken(attempt: Attempt) -> Any:
    return None if attempt.steps else np.float32(1.5)


def raising(attempt: Attempt) -> float:
    return 1 / len(attempt.steps)


def test_potentials_by_name() -> None:
    assert find_potential(f"{__name__}:constant") is constant
    with pytest.raises(NotFoundError, match="allowed: 'none', 'milestones', or module:function"):
        find_potential("confidence")
    with pytest.raises(NotFoundError, match="no 'missing'"):
        find_potential(f"{__name__}:missing")
    with pytest.raises(UsageError, match="a function"):
        find_potential("math:pi")
    with pytest.raises(RewardError, match="after 1 of 3 steps is None"):
        PotentialShaping(potential=f"{__name__}:broken").shape(run(), 1.0, truncated=False)
    with pytest.raises(RewardError, match="after 0 of 3 steps raised ZeroDivisionError: division by zero"):
        PotentialShaping(potential=f"{__name__}:raising").shape(run(), 1.0, truncated=False)
    with pytest.raises(RewardError, match="milestones are None"):
        PotentialShaping(potential="milestones").shape(Attempt(steps=[AttemptStep()]), 1.0, truncated=False)
    with pytest.raises(RewardError, match="a return is nan"):
        PotentialShaping().shape(run(), math.nan, truncated=False)
    with pytest.raises(UsageError, match="gamma"):
        PotentialShaping(gamma=-0.1)
