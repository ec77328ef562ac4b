"""Shuffled rewards move whole blocks between units of equal size."""

from collections import Counter
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop.core.protocols import Sample
from learnloop.evaluation.controls import RewardShuffle, rank_p_values, resample_units, staged_p_value


def make(sizes: list[int]) -> list[Sample]:
    rows = [(unit, place) for unit, size in enumerate(sizes) for place in range(size)]
    rows.sort(key=lambda row: (row[1], row[0]))  # samples of a unit need not stand together
    return [Sample(f"u{u}", {"place": p}, ["x"], None, "x", 1.0, 100.0 * u + p) for u, p in rows]


@given(st.lists(st.integers(1, 4), max_size=12), st.integers(0, 2**32 - 1))
def test_blocks_move_whole_between_units_of_equal_size(sizes: list[int], seed: int) -> None:
    samples = make(sizes)
    shuffled = RewardShuffle(samples).draw(np.random.default_rng(seed))
    assert [row._replace(reward=0) for row in shuffled] == [row._replace(reward=0) for row in samples]
    blocks: dict[str, list[float]] = {}
    for row in shuffled:
        blocks.setdefault(row.unit, []).append(row.reward)
    sources = {unit: int(rewards[0] // 100) for unit, rewards in blocks.items()}
    assert sorted(sources.values()) == list(range(len(sizes)))
    for unit, rewards in blocks.items():
        assert rewards == [100.0 * sources[unit] + place for place in range(len(rewards))]
        assert sizes[sources[unit]] == len(rewards)


def test_counts() -> None:
    shuffle = RewardShuffle(make([1, 1, 2, 3, 3, 3]))
    assert (shuffle.num_units, shuffle.num_movable) == (6, 5)
    assert RewardShuffle([]).draw(np.random.default_rng(0)) == []


def test_all_permutations_are_equally_likely() -> None:
    shuffle, rng = RewardShuffle(make([1, 1, 1])), np.random.default_rng(5)
    seen = Counter(tuple(row.reward for row in shuffle.draw(rng)) for _ in range(3000))
    assert len(seen) == 6
    assert all(abs(count - 500) < 4 * np.sqrt(3000 / 6 * 5 / 6) for count in seen.values())


def test_resampled_units_come_whole_and_with_names_of_their_own() -> None:
    samples = make([2, 2, 2, 2])
    drawn = resample_units(samples, np.random.default_rng(0))
    assert len(drawn) == 8
    blocks: dict[str, list[float]] = {}
    for row in drawn:
        blocks.setdefault(row.unit, []).append(row.reward)
    assert len(blocks) == 4
    assert all(rewards[1] == rewards[0] + 1 for rewards in blocks.values())
    assert len({rewards[0] for rewards in blocks.values()}) < 4  # with replacement


def ranks(
    held_out: list[float], chosen: list[list[float]], rewards: list[list[float]], propensity: float | None
) -> tuple:
    samples = [Sample(f"u{i}", {}, ["x", "y"], None, "x", propensity, 0.0) for i in range(len(rewards[0]))]
    return tuple(rank_p_values(np.array(held_out), np.array(chosen), samples, np.array(rewards)))


def test_rank_counts_ties_against_learning() -> None:
    """A trainer that ignores rewards makes equal arms, whatever the rewards; rounding does not rank them."""
    same = [[0.1, 0.7, 0.3]] * 4
    rewards = [[3.0, 1.0, 2.0], [1.0, 2.0, 3.0], [2.0, 3.0, 1.0], [1.0, 3.0, 2.0]]
    assert ranks([0.1 + 0.2, 0.3, 0.3, 0.3], same, rewards, 0.5)[0] == 1.0


def test_rank_breaks_a_tie_of_held_out_reward_by_the_pull_of_the_training_rewards() -> None:
    chosen = [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]
    rewards = [[9.0, 1.0], [5.1, 4.9], [4.9, 5.1], [4.9, 5.1]]  # the first two chose alike, for unlike reasons
    assert ranks([1.0, 1.0, 0.0, 0.0], chosen, rewards, 0.5) == (1 / 4, 1.0)  # alone at the top of one rank
    assert ranks([1.0, 1.0, 0.0, 0.0], chosen, rewards, None) == (2 / 4, 4 / 4)


def test_rank_of_one_that_went_against_its_rewards_is_worst() -> None:
    chosen = [[0.0, 1.0], [1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
    rewards = [[9.0, 1.0], [5.1, 4.9], [4.9, 5.1], [5.1, 4.9]]
    assert ranks([0.0, 1.0, 0.5, 1.0], chosen, rewards, 0.5) == (1.0, 1 / 4)


def test_rank_by_held_out_reward_alone_is_enough_where_the_pull_is_noise() -> None:
    """One sample with a tiny propensity drowns the pull; an arm that earns by far the most is first all the same."""
    chosen = [[0.0, 1.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0]]
    samples = [Sample("u0", {}, ["x", "y"], None, "x", 1e-4, 0.0), Sample("u1", {}, ["x", "y"], None, "x", 0.5, 0.0)]
    rewards = np.array([[1.0, 2.0], [2.0, 1.0], [2.0, 1.0], [2.0, 1.0]])
    found = rank_p_values(np.array([1.0, 0.1, 0.0, 0.1]), np.array(chosen), samples, rewards)
    assert found.better == 1 / 4


def test_a_control_that_is_first_by_the_other_rank_counts() -> None:
    """The first arm leads by held-out reward and another by the sum with the pull: each leads once, so p is 2 / 4."""
    held_out = [1.0, 0.9, 0.0, 0.05]
    chosen = [[0.4, 0.6], [1.0, 0.0], [0.5, 0.5], [0.5, 0.5]]
    rewards = [[5.0, 5.1], [9.0, 1.0], [5.0, 5.1], [5.1, 5.0]]
    assert ranks(held_out, chosen, rewards, 0.5)[0] == 2 / 4
    assert ranks(held_out, chosen, rewards, None)[0] == 1 / 4


@pytest.mark.parametrize("num_allowed", [0, 1])
def test_two_stages_have_the_level_of_one(num_allowed: int) -> None:
    """Against an enumeration of where 3 + 3 controls and the policy may rank: 7! orders, all equally probable."""
    num_first, number = 3, 6
    outcomes = []
    for order in permutations(range(number + 1)):  # order[0] is the policy's place, 0 the best
        num_above = sum(order[control] < order[0] for control in range(1, num_first + 1))
        outcomes.append(0 if num_above <= num_allowed else 1 + order[0])
    for rank in range(1, number + 2):
        share = sum(outcome <= rank for outcome in outcomes) / len(outcomes)
        assert staged_p_value(rank, num_first, number, num_allowed) == pytest.approx(share)
    # The best rank of all implies the best of the first stage, which alone has (num_allowed + 1) / (3 + 1).
    assert staged_p_value(1, num_first, number, num_allowed) == pytest.approx((num_allowed + 1) / 4)
