"""The verdict on a trained policy: what learned, what did not, and what got worse."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from learnloop.core.records import Verdict
from learnloop.evaluation.permutation import two_sample_p_value
from learnloop.evaluation.returns import Returns
from learnloop.training.options import make_options
from learnloop.training.proof import (
    CONTROLS,
    FROZEN,
    RANDOM,
    Change,
    ReturnTest,
    Rivals,
    controls_needed,
    draw_controls,
    find_drift,
    judge,
    judge_policy,
)
from learnloop.training.runs import start_run


def outcome(against: str, difference: float, **fields: Any) -> ReturnTest:
    given = {"effect": difference, "p_value": 0.001, "p_value_worse": 0.999, "p_adjusted": 0.003, **fields}
    return ReturnTest(against=against, mean=0.0, difference=difference, interval=None, **given)


def returns(values: Sequence[float], unfinished: tuple[int, ...] = ()) -> Returns:
    array = np.array(values, dtype=np.float64)
    return Returns(
        env="test",
        seed=0,
        returns=tuple(array.tolist()),
        lengths=(1,) * len(array),
        mean=float(array.mean()),
        std=float(array.std()),
        unfinished=unfinished,
        max_episode_steps=10,
    )


def test_better_than_each_other_one_is_learned() -> None:
    verdict, reasons = judge([outcome(FROZEN, 2.0), outcome(RANDOM, 2.0), outcome(CONTROLS, 2.0, effect=None)])
    assert verdict is Verdict.LEARNED
    assert len(reasons) == 3


def test_twins_that_are_as_good_say_that_the_reward_did_nothing() -> None:
    controls = outcome(CONTROLS, 0.0, effect=None, p_value=0.5, p_adjusted=0.5)
    verdict, reasons = judge([outcome(FROZEN, 2.0), outcome(RANDOM, 2.0), controls])
    assert verdict is Verdict.NO_SIGNAL
    assert "shuffled" in reasons[0]


def test_a_small_difference_is_not_learning_however_certain() -> None:
    verdict, _ = judge([outcome(FROZEN, 0.2), outcome(RANDOM, 2.0)])
    assert verdict is Verdict.INCONCLUSIVE


def test_worse_than_before_is_regressed() -> None:
    worse = {"p_value": 1.0, "p_value_worse": 0.001, "p_adjusted": 1.0}
    verdict, reasons = judge([outcome(FROZEN, -2.0, **worse), outcome(RANDOM, 1.0)])
    assert verdict is Verdict.REGRESSED
    assert "worse than before the first update" in reasons[0]


@pytest.mark.parametrize("num_seeds", [1, 2, 3, 4, 5, 8])
def test_enough_twins_are_trained_for_the_level(num_seeds: int) -> None:
    num_controls = controls_needed(num_seeds)
    best = two_sample_p_value(np.arange(100.0, 100.0 + num_seeds), np.arange(float(num_controls)))
    assert best <= 0.05
    assert best > 0


def test_trainings_are_ranked_not_episodes() -> None:
    """A policy far better than the frozen and the random one is not learned if one of 19 controls is as good."""
    rng = np.random.default_rng(0)
    learned, frozen = returns(200 + rng.normal(0, 5, 100)), returns(9 + rng.normal(0, 1, 100))
    controls = [9.0, 20.0, 250.0]
    proof = judge_policy(learned, Rivals(frozen, frozen, [learned.mean], controls), seed=0)
    assert proof.verdict is Verdict.NO_SIGNAL
    better = judge_policy(learned, Rivals(frozen, frozen, [learned.mean], [20.0] * 19), seed=0)
    assert better.verdict is Verdict.LEARNED
    assert better.tests[2].p_value == pytest.approx(1 / 20)
    few = judge_policy(learned, Rivals(frozen, frozen, [learned.mean], [20.0] * 18), seed=0)
    assert few.verdict is not Verdict.LEARNED


def test_trainings_that_learn_nothing_are_seldom_called_learned() -> None:
    """L3: at most 5 %, also where the returns of such trainings are heavy-tailed and one episode is like another."""
    rng = np.random.default_rng(1)
    frozen = returns([9.0] * 8)
    found = 0
    for _ in range(2_000):
        draws = np.exp(rng.normal(3, 1, 25))
        num_seeds = int(rng.choice([1, 3, 5]))
        means = draws[:num_seeds].tolist()
        num = controls_needed(num_seeds)
        controls = draw_controls(means, num, lambda numbers: draws[5:][list(numbers)].tolist(), 2)  # noqa: B023
        proof = judge_policy(returns([means[0]] * 8), Rivals(frozen, frozen, means, controls), seed=0)
        found += proof.verdict is Verdict.LEARNED
    assert found <= 0.06 * 2_000  # 5 % and two standard errors


def test_twins_end_as_soon_as_one_is_as_good() -> None:
    asked: list[int] = []

    def train(numbers: Sequence[int]) -> list[float]:
        asked.extend(numbers)
        return [50.0 if number == 3 else 1.0 for number in numbers]

    assert draw_controls([50.0], 19, train, 2) == [1.0, 1.0, 1.0, 50.0]
    assert asked == [0, 1, 2, 3]
    assert len(draw_controls([50.0, 40.0], 9, train, 2)) == 9  # a mean over seeds needs them all


def test_episodes_that_never_end_prove_nothing() -> None:
    good, bad = returns([5.0, 6.0] * 50, unfinished=(3,)), returns([1.0, 2.0] * 50)
    proof = judge_policy(good, Rivals(bad, bad, [good.mean], [1.0] * 19), seed=0)
    assert proof.verdict is Verdict.INCONCLUSIVE
    assert "did not end within 10 steps" in proof.reasons[0]


@pytest.mark.slow
def test_cartpole_is_learned_and_its_shuffled_twin_is_not(tmp_path: Path) -> None:
    """S2.4: on held-out return against a frozen copy, a random policy and shuffled controls."""
    options = make_options("ppo", "CartPole-v1", steps=16_000, preset="many-envs", eval_interval=4_000)
    run = start_run(tmp_path, options, [0, 1])
    proof = run.best.prove(num_episodes=30)
    assert proof.verdict is Verdict.LEARNED, proof.reasons
    by_name = {test.against: test for test in proof.tests}
    assert by_name.keys() == {FROZEN, RANDOM, CONTROLS}
    assert proof.mean > 300
    assert len(by_name[CONTROLS].values) == controls_needed(2)
    assert max(by_name[CONTROLS].values) < min(proof.seed_means)


@pytest.mark.slow
def test_mountain_car_with_defaults_is_not_learned(tmp_path: Path) -> None:
    """A known failure (-200 in the published tables), which must be said."""
    run = start_run(tmp_path, make_options("ppo", "MountainCar-v0", preset="defaults", steps=20_000), [0])
    proof = run.best.prove()
    assert proof.verdict is Verdict.NO_SIGNAL
    assert proof.mean == -200


def test_the_random_policy_has_learned_nothing(tmp_path: Path) -> None:
    run = start_run(tmp_path, make_options("random", "CartPole-v1", steps=500), [3])
    proof = run.best.prove()
    assert proof.verdict is Verdict.NO_SIGNAL
    assert {test.against for test in proof.tests} == {FROZEN, RANDOM}


def test_a_policy_against_itself_has_no_effect() -> None:
    same = returns([1.0, 2.0, 3.0] * 10)
    proof = judge_policy(same, Rivals(same, same, [same.mean], []), seed=0)
    assert proof.tests[0].difference == 0
    assert proof.tests[0].effect == 0
    assert proof.tests[0].p_value == pytest.approx(1)
    assert proof.verdict is Verdict.NO_SIGNAL


# --- rewards that change with the clock ---


NOISE = np.random.default_rng(0).normal(0, 5, 100)
"""What episodes differ by: each starts elsewhere."""


@pytest.mark.parametrize("change", [-1.0, 1.0])
def test_the_same_episodes_that_earn_more_or_less_than_before_are_drift(change: float) -> None:
    learned, again = returns(100 + NOISE), returns(100 + NOISE + change)
    drift = find_drift(learned, again, None, 0)
    assert drift is not None
    assert f"the policy earned {learned.mean:.4g} before its controls were trained and {again.mean:.4g} after" in drift
    assert "in the same 100 episodes" in drift


def test_a_policy_that_earns_the_same_again_has_not_drifted() -> None:
    learned = returns(100 + NOISE)
    assert find_drift(learned, learned, Change(learned.mean, learned), 0) is None
    assert find_drift(learned, None, None, 0) is None


def test_rounding_is_no_drift() -> None:
    """A network's rows differ by about 1e-7 with the size of their batch, all of them the same way."""
    learned, again = returns(-1409 + NOISE * 0), returns(-1409 + NOISE * 0 + 1e-5)
    assert find_drift(learned, again, Change(learned.mean, again), 0) is None
    assert find_drift(learned, returns(-1409 + NOISE * 0 + 0.1), None, 0) is not None


def test_noise_alone_is_seldom_drift() -> None:
    """A policy or an environment that draws anew: level .01, so of 200 more than 7 happen with probability .001."""
    rng = np.random.default_rng(1)
    found = 0
    for seed in range(200):
        learned, again = (returns(100 + NOISE[:30] + rng.normal(0, 3, 30)) for _ in range(2))
        found += find_drift(learned, again, None, seed) is not None
    assert found <= 7


@pytest.mark.parametrize("change", [-1.0, 1.0])
def test_either_side_counts_in_the_level_of_drift(change: float) -> None:
    """All of n episodes changed the same way: by chance 2 / 2^n, which is below .01 from 8 on."""
    for number, is_drift in ((7, False), (8, True)):
        learned = returns(NOISE[:number])
        again = returns(NOISE[:number] + change * np.arange(1, number + 1))
        assert (find_drift(learned, again, None, 0) is not None) is is_drift


def test_a_change_within_noise_is_found_where_episodes_are_many() -> None:
    """A fall by one where each draw has a deviation of 3: z = 1 / (3 sqrt(2 / 400)) = 4.7."""
    rng = np.random.default_rng(2)
    starts = rng.normal(0, 5, 400)
    learned, again = (returns(starts + rng.normal(0, 3, 400) - change) for change in (0.0, 1.0))
    assert find_drift(learned, again, None, 0) is not None


@pytest.mark.parametrize(("offset", "is_drift"), [(5.9, False), (-5.9, False), (6.1, True), (-6.1, True)])
def test_a_policy_that_earns_what_training_saw_has_not_drifted(offset: float, is_drift: bool) -> None:
    """The limit is six standard errors of a difference of two means, each of 50 episodes with a deviation of 2."""
    since = returns([8.0, 12.0] * 25)
    drift = find_drift(since, None, Change(10.0 + offset * 2 * np.sqrt(2 / 50), since), 0)
    assert (drift is not None) is is_drift
    assert drift is None or "when training chose it and earns 10 now, in the same 50 episodes" in drift


def test_returns_without_any_noise_may_not_change_at_all() -> None:
    since = returns([10.0] * 20)
    assert find_drift(since, None, Change(10.0, since), 0) is None
    assert find_drift(since, None, Change(10.0 * (1 + 1e-12), since), 0) is None
    assert find_drift(since, None, Change(10.001, since), 0) is not None


@pytest.mark.parametrize("change", [-1.0, 1.0])
def test_drift_makes_any_verdict_inconclusive(change: float) -> None:
    """What was learned is far better than all others, and far worse."""
    frozen = returns(NOISE)
    for level, verdict in ((200.0, Verdict.LEARNED), (-200.0, Verdict.REGRESSED)):
        learned = returns(level + NOISE)
        rivals = Rivals(frozen, frozen, [level], [0.0] * 19)
        assert judge_policy(learned, rivals, seed=0, again=learned).verdict is verdict
        proof = judge_policy(learned, rivals, seed=0, again=returns(level + NOISE + change))
        assert proof.verdict is Verdict.INCONCLUSIVE
        assert "before its controls were trained" in proof.reasons[0]
        since = judge_policy(learned, rivals, seed=0, as_trained=Change(level + 100, learned))
        assert since.verdict is Verdict.INCONCLUSIVE
        assert "when training chose it" in since.reasons[0]
