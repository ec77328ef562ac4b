"""learnloop.rewards.sharing.credit: shares over steps and agents add up to the reward (F4.8, B6)."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learnloop.core.attempts import Attempt, AttemptStep
from learnloop.core.errors import RewardError, UsageError
from learnloop.rewards.sharing.credit import (
    METHODS,
    UNASSIGNED,
    Credit,
    DiscountedCredit,
    ShapleyCredit,
    credit_method,
    participants,
    step_owners,
)


def run(*owners: str | None, agents: tuple[str, ...] = ()) -> Attempt:
    """Returns a run with a step for each of the owners."""
    steps = [AttemptStep(agent_id=owner, span_id=f"span-{number}") for number, owner in enumerate(owners)]
    return Attempt(episode_id="e", agents=list(agents), steps=steps)


def lines(credit: Credit) -> list[tuple[str, int | None, float]]:
    return [(share.agent_id, share.step, share.value) for share in credit.shares]


names = st.sampled_from(["a", "b", "c", "d"])
attempts = st.builds(
    lambda owners, agents: run(*owners, agents=tuple(agents)),
    st.lists(names | st.none(), max_size=12),
    st.lists(names, unique=True, max_size=4),
)
rewards = st.floats(-1e12, 1e12) | st.floats(-2, 2) | st.sampled_from([0.0, -1.0, 1e-13, 1e99, -1e99])


def worth(coalition: frozenset[str]) -> float:
    return 0.25 * len(coalition) + 0.5 * ("a" in coalition) - 0.125 * ({"b", "c"} <= coalition)


@settings(max_examples=60, deadline=None)
@given(attempt=attempts, reward=rewards)
@pytest.mark.parametrize("name", METHODS)
def test_shares_add_up_to_the_reward(name: str, attempt: Attempt, reward: float) -> None:
    """F4.8: the original's credits of a reward of 1 add up to 1.75."""
    credit = credit_method(name).assign(attempt, reward, worth)
    total = math.fsum(share.value for share in credit.shares)
    assert abs(total - reward) <= 1e-9 * max(1.0, abs(reward))
    assert (credit.method, credit.reward) == (name, reward)
    owned = {share.agent_id for share in credit.shares}
    assert set(participants(attempt)) <= owned <= {*participants(attempt), UNASSIGNED}
    assert sum(credit.by_agent().values()) == pytest.approx(reward, rel=1e-9, abs=1e-9)
    keys = [(share.agent_id, share.step) for share in credit.shares]
    assert len(set(keys)) == len(keys)
    for share in credit.shares:
        if share.step is not None:
            assert share.span_id == f"span-{share.step}"
            assert share.agent_id == step_owners(attempt)[share.step]
    if name in ("last", "uniform", "discounted"):
        assert all(share.value * reward >= 0 for share in credit.shares)


def test_over_steps() -> None:
    attempt = run("a", "b", "a", agents=("c",))
    assert lines(credit_method("last").assign(attempt, 2.0)) == [("a", 2, 2.0), ("c", None, 0.0), ("b", None, 0.0)]
    uniform = credit_method("uniform").assign(attempt, 1.5)
    assert lines(uniform) == [("a", 0, 0.5), ("b", 1, 0.5), ("a", 2, 0.5), ("c", None, 0.0)]
    assert uniform.by_agent() == {"a": 1.0, "b": 0.5, "c": 0.0}
    discounted = credit_method("discounted", gamma=0.5).assign(attempt, -7.0)
    assert [value for _, _, value in lines(discounted)] == pytest.approx([-1.0, -2.0, -4.0, 0.0])


def test_the_ends_of_the_discount() -> None:
    attempt = run("a", "b", "a")
    assert lines(DiscountedCredit(gamma=0.0).assign(attempt, 3.0)) == lines(credit_method("last").assign(attempt, 3.0))
    alike = lines(DiscountedCredit(gamma=1.0).assign(attempt, 3.0))
    assert alike == lines(credit_method("uniform").assign(attempt, 3.0))
    long = DiscountedCredit(gamma=0.5).assign(run(*["a"] * 3_000), 1.0)  # the first weights are too small for a float
    assert math.fsum(share.value for share in long.shares) == pytest.approx(1.0, abs=1e-9)
    assert len(long.shares) < 1_100


def test_steps_of_nobody() -> None:
    """A step without an agent is the only agent's; of several, it is nobody's, and the line says which step it was."""
    assert lines(credit_method("last").assign(run(None, agents=("a",)), 1.0)) == [("a", 0, 1.0)]
    found = credit_method("uniform").assign(run("a", None, agents=("b",)), 1.0)
    assert lines(found) == [("a", 0, 0.5), (UNASSIGNED, 1, 0.5), ("b", None, 0.0)]
    assert found.shares[1].span_id == "span-1"
    with pytest.raises(UsageError, match="stands for nobody"):
        credit_method("last").assign(run(UNASSIGNED), 1.0)


@pytest.mark.parametrize("name", METHODS)
def test_runs_without_steps(name: str) -> None:
    def whole(coalition: frozenset[str]) -> float:
        return float(bool(coalition))

    method = credit_method(name)
    assert lines(method.assign(run(agents=("a",)), 1.0, whole)) == [("a", None, 1.0)]
    assert lines(method.assign(run(), 1.0, lambda _: 0.0)) == [(UNASSIGNED, None, 1.0)]
    assert lines(method.assign(run(), 0.0, lambda _: 0.0)) == [(UNASSIGNED, None, 0.0)]
    two = {
        "uniform": {"a": 0.5, "b": 0.5},
        "shapley": {"a": 0.5, "b": 0.5},
        "last": {"a": 0.0, "b": 0.0, UNASSIGNED: 1.0},
        "discounted": {"a": 0.0, "b": 0.0, UNASSIGNED: 1.0},
        "leave_one_out": {"a": 0.0, "b": 0.0, UNASSIGNED: 1.0},
    }
    assert method.assign(run(agents=("a", "b")), 1.0, whole).by_agent() == two[name]


def test_what_one_is_missed_for_and_what_is_left_over() -> None:
    """Wolpert, Tumer 2002: two that do alike are not missed one by one; the rest is booked, not scaled."""

    def value(coalition: frozenset[str]) -> float:
        return 0.5 * bool(coalition & {"a", "b"}) + 0.5 * ("c" in coalition)

    attempt = run("a", "c", "c", "b", agents=("idle",))
    credit = credit_method("leave_one_out").assign(attempt, 1.0, value)
    assert credit.by_agent() == {"a": 0.0, "b": 0.0, "c": 0.5, "idle": 0.0, UNASSIGNED: 0.5}
    assert credit.shares[-1].step is None
    assert [share.value for share in credit.shares if share.agent_id == "c"] == [0.25, 0.25]
    assert credit.details == {"num_evaluations": 5}


def test_shapley_over_the_steps_of_the_agents() -> None:
    attempt = run("a", "b", "a", None, agents=("dummy",))
    credit = credit_method("shapley").assign(attempt, 0.75, lambda each: worth(each - {"dummy"}))
    assert lines(credit) == [("a", 0, 0.375), ("b", 1, 0.25), ("a", 2, 0.375), ("dummy", None, 0.0),
                             (UNASSIGNED, None, pytest.approx(-0.25))]  # fmt: skip
    assert credit.details == {"exact": True, "error_bound": 0.0, "num_evaluations": 8}


def test_many_agents_are_estimated_with_a_bound() -> None:
    agents = tuple(f"agent-{number}" for number in range(12))

    def value(coalition: frozenset[str]) -> float:
        return float(len(coalition) >= 6)

    attempt = run("agent-0", "agent-0", agents=agents)
    credit = credit_method("shapley", num_permutations=400, seed=3).assign(attempt, 1.0, value)
    bounds = credit.details["error_bounds"]
    assert set(bounds) == set(agents)
    assert credit.details["error_bound"] == max(bounds.values())
    assert (credit.details["exact"], credit.details["delta"], credit.details["num_permutations"]) == (False, 0.05, 400)
    for agent, share in credit.by_agent().items():
        assert abs(share - 1 / 12) <= bounds[agent]
    assert UNASSIGNED not in credit.by_agent()
    assert credit == credit_method("shapley", num_permutations=400, seed=3).assign(attempt, 1.0, value)
    exact = credit_method("shapley", max_exact=12).assign(attempt, 1.0, value)
    assert list(exact.by_agent().values()) == pytest.approx([1 / 12] * 12)
    with pytest.raises(RewardError, match="value_range"):
        credit_method("shapley").assign(attempt, 1.0, lambda each: 2.0 * len(each))


def test_up_to_eight_agents_are_exact() -> None:
    for number in (8, 9):
        attempt = run(agents=tuple("abcdefghi"[:number]))
        details = ShapleyCredit(num_permutations=4).assign(attempt, 1.0, lambda each: len(each) / 9).details
        assert details["exact"] is (number == 8)


def test_a_worth_that_is_not_known_gives_no_credit() -> None:
    attempt = run("a", "b")
    for name in ("leave_one_out", "shapley"):
        with pytest.raises(RewardError, match=r"\{'a', 'b'\} is not known"):
            credit_method(name).assign(attempt, 1.0, lambda each: 0.5 if len(each) < 2 else None)
        with pytest.raises(UsageError, match="give value="):
            credit_method(name).assign(attempt, 1.0)


@pytest.mark.parametrize("name", ["last", "shapley"])
@pytest.mark.parametrize("reward", [math.nan, math.inf, None, "1", True, 1e101])
def test_a_reward_that_is_no_number_is_refused(reward: Any, name: str) -> None:
    with pytest.raises(RewardError, match="shared out is"):
        credit_method(name).assign(run("a"), reward, lambda _: 1.0)


def test_shares_that_are_too_large_to_add_up_are_refused() -> None:
    def value(coalition: frozenset[str]) -> float:
        return {0: 0.0, 1: 1e18 / 3, 2: 0.1}[len(coalition)]

    with pytest.raises(RewardError, match="cannot add up"):
        credit_method("leave_one_out").assign(run("a", "b"), 0.1, value)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("best", {}, "no credit method 'best'.*'last'"),
        ("last", {"gamma": 0.5}, "unknown field"),
        ("discounted", {"gamma": 1.5}, "gamma is 1.5"),
        ("discounted", {"gamma": "high"}, "Expected `float`"),
        ("shapley", {"max_exact": 17}, "max_exact is 17; allowed is from 0 to 16"),
        ("shapley", {"num_permutations": 5}, "an even number"),
        ("shapley", {"num_permutations": 2}, "at least 4"),
        ("shapley", {"value_range": (1.0, 0.0)}, "lowest and the highest"),
        ("shapley", {"value_range": (0.0, math.inf)}, "lowest and the highest"),
        ("shapley", {"delta": 0.0}, "delta is 0.0; allowed is above 0 and below 1"),
    ],
)
def test_methods_and_options_that_do_not_exist(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        credit_method(name, **options)


def test_methods_know_their_names() -> None:
    assert [credit_method(name).name for name in METHODS] == list(METHODS)
