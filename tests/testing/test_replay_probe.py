"""P14: our replays pass, also when the ring has gone round; replays with known faults do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from learnloop.algorithms.replay.prioritised import Entries, PrioritisedReplay, ReplayBuffer
from learnloop.core.errors import UsageError
from learnloop.core.spaces import Discrete
from learnloop.testing.probes import ProbeError
from learnloop.testing.replay_probe import NUM_ENTRIES, Draw, check_replay, chi_square_p_value

EPSILON = 0.01


def add(replay: ReplayBuffer, count: int) -> None:
    """Adds single transitions."""
    flag = np.array([True])
    for number in range(count):
        first = np.array([replay.see(np.full((1, 2), number, dtype=np.float32))])
        replay.add(Entries(first, np.array([0]), np.array([0.0]), first, 0.9, flag, ~flag))


def uniform(capacity: int) -> Callable[[Any], Draw]:
    def fill(errors: Any) -> Draw:
        replay = ReplayBuffer(capacity, 2, Discrete(n=2))
        add(replay, len(errors))
        rng = np.random.default_rng(0)

        def draw(count: int) -> tuple[Any, Any]:
            sample = replay.sample(count, rng)
            return sample.numbers, sample.weights

        return draw

    return fill


def prioritised(capacity: int, alpha: float, beta: float) -> Callable[[Any], Draw]:
    def fill(errors: Any) -> Draw:
        replay = PrioritisedReplay(capacity, 2, Discrete(n=2), alpha=alpha, epsilon=EPSILON)
        add(replay, len(errors))
        rng = np.random.default_rng(1)
        sample = replay.sample(20_000, rng)  # each of them, surely
        replay.update_priorities(sample, errors[sample.numbers])

        def draw(count: int) -> tuple[Any, Any]:
            found = replay.sample(count, rng, beta)
            return found.numbers, found.weights

        return draw

    return fill


@pytest.mark.parametrize("capacity", [NUM_ENTRIES, 25])
def test_the_uniform_replay(capacity: int) -> None:
    check_replay(uniform(capacity), alpha=0.0, capacity=capacity)


@pytest.mark.parametrize("capacity", [NUM_ENTRIES, 25])
@pytest.mark.parametrize(("alpha", "beta"), [(0.6, 0.4), (1.0, 1.0), (0.0, 0.5), (0.6, 0.0)])
def test_the_prioritised_replay(alpha: float, beta: float, capacity: int) -> None:
    """F0.10: priorities belong to their transitions when others have taken places."""
    check_replay(prioritised(capacity, alpha, beta), alpha=alpha, beta=beta, epsilon=EPSILON, capacity=capacity)


class Plain:
    """A replay by hand, right unless a fault is named."""

    def __init__(self, fault: str = "") -> None:
        self.fault = fault
        self.rng = np.random.default_rng(0)

    def __call__(self, errors: Any) -> Draw:
        alpha, beta = 0.6, 0.4
        if self.fault == "errors moved by one":
            errors = np.roll(errors, 1)
        if self.fault == "signed":
            errors = np.maximum(errors, 0.0)
        scaled = (np.abs(errors) + EPSILON) ** (1.0 if self.fault == "alpha forgotten" else alpha)
        odds = scaled / scaled.sum()
        if self.fault == "uniform draws":
            odds = np.full(len(errors), 1 / len(errors))

        def draw(count: int) -> tuple[Any, Any]:
            numbers = self.rng.choice(len(errors), size=count, p=odds)
            ratios = (len(errors) * odds[numbers]) ** (-1.0 if self.fault == "beta forgotten" else -beta)
            highest = (len(errors) * odds.min()) ** -beta
            weights = ratios / (ratios.max() if self.fault == "largest of the batch" else highest)
            if self.fault == "not normalised":
                weights = ratios
            return numbers, None if self.fault == "no weights" else weights

        return draw


def judged(fault: str) -> None:
    check_replay(Plain(fault), alpha=0.6, beta=0.4, epsilon=EPSILON)


def test_a_replay_by_hand_passes() -> None:
    judged("")


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("errors moved by one", "not in proportion to priorities"),
        ("signed", "not in proportion to priorities"),
        ("alpha forgotten", "not in proportion to priorities"),
        ("uniform draws", "not in proportion to priorities"),
        ("beta forgotten", "a weight is off"),
        ("not normalised", "a weight is off"),
        ("no weights", "lack weights"),
    ],
)
def test_faults_are_found(fault: str, message: str) -> None:
    with pytest.raises(ProbeError, match=message):
        judged(fault)


def test_weights_of_the_batch_are_found_in_small_batches() -> None:
    """F0.10: normalised over what was drawn, a weight depends on its neighbours."""
    with pytest.raises(ProbeError, match="a weight is off"):
        check_replay(Plain("largest of the batch"), alpha=0.6, beta=0.4, epsilon=EPSILON, num_draws=1_000)


def test_what_is_gone_must_not_come_back() -> None:
    with pytest.raises(ProbeError, match=r"the transitions \[.*\] were drawn after others had taken their places"):
        check_replay(uniform(NUM_ENTRIES), alpha=0.0, capacity=30)


def test_weights_that_are_not_wanted() -> None:
    with pytest.raises(ProbeError, match="have weights, and none are wanted"):
        check_replay(Plain(), alpha=0.6, epsilon=EPSILON)


@pytest.mark.parametrize("numbers", [np.array([0, NUM_ENTRIES]), np.array([0.0, 1.0]), np.array([-1, 0]), np.arange(3)])
def test_what_was_never_added_is_refused(numbers: Any) -> None:
    with pytest.raises(UsageError, match="whole numbers from 0 to 39 are needed"):
        check_replay(lambda errors: lambda count: (numbers, None), alpha=0.0, num_draws=200)


def test_the_p_value_is_that_of_chi_squared() -> None:
    """Against the closed form for 2 degrees of freedom, exp(-x / 2), and against simulation."""
    counts, odds = np.array([360, 300, 340]), np.full(3, 1 / 3)
    statistic = float(((counts - 1000 / 3) ** 2 / (1000 / 3)).sum())
    assert chi_square_p_value(counts, odds) == pytest.approx(np.exp(-statistic / 2), abs=0.01)
    rng = np.random.default_rng(0)
    odds = rng.dirichlet(np.ones(20))
    found = np.array([chi_square_p_value(rng.multinomial(5_000, odds), odds) for _ in range(2_000)])
    assert np.mean(found < 0.05) == pytest.approx(0.05, abs=0.015)
    assert np.mean(found < 0.5) == pytest.approx(0.5, abs=0.04)
    assert chi_square_p_value(np.array([1, 99]), np.array([0.0, 1.0])) == 0.0
    assert chi_square_p_value(np.array([0, 99]), np.array([0.0, 1.0])) == 1.0
