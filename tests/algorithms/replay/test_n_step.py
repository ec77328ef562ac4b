"""Returns of several steps against a recomputation from the whole stream."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop.algorithms.replay.n_step import NStepEnvs, NStepEpisode
from learnloop.algorithms.replay.prioritised import Entries
from learnloop.core.spaces import Discrete

GAMMA = 0.9
GOES_ON, TERMINATED, TRUNCATED, INVALID = range(4)


def naive(stream: list[tuple[int, float, int, int]], num_steps: int) -> list[tuple[int, float, int, float, bool, bool]]:
    """All transitions of one env: (first, return, following, discount, terminated, truncated).

    ``stream`` has, for each step, the observation that it began with, its reward, what it led to, and how it ended.
    """
    found = []
    for start, (first, _, _, kind) in enumerate(stream):
        if kind == INVALID:
            continue
        total, count, end = 0.0, 0, GOES_ON
        following: int | None = None
        for _, reward, led_to, ended in stream[start:]:
            total += GAMMA**count * reward
            count += 1
            following, end = led_to, ended
            if ended != GOES_ON or count == num_steps:
                break
        else:
            end = TRUNCATED  # the stream is cut at its end
        assert following is not None
        led = first if end == TERMINATED else following
        found.append((first, total, led, GAMMA**count, end == TERMINATED, end == TRUNCATED))
    return found


def rows(entries: Entries | None) -> list[tuple[Any, ...]]:
    if entries is None:
        return []
    columns = (entries.first, entries.rewards, entries.following, entries.discounts, entries.terminated)
    return list(zip(*(np.asarray(each).tolist() for each in (*columns, entries.truncated)), strict=True))


@st.composite
def streams(draw: Any) -> tuple[list[list[int]], int]:
    num_envs = draw(st.integers(1, 3))
    length = draw(st.integers(1, 15))
    kinds = [[draw(st.sampled_from([0, 0, 0, 1, 2])) for _ in range(length)] for _ in range(num_envs)]
    if draw(st.booleans()):  # gymnasium's NEXT_STEP: after an end the env only resets itself
        for lane in kinds:
            for at in range(1, length):
                if lane[at - 1] in (TERMINATED, TRUNCATED):
                    lane[at] = INVALID
    return kinds, draw(st.integers(2, 5))


@given(streams(), st.integers(0, 2**32 - 1))
def test_lanes_give_what_the_whole_stream_says(drawn: tuple[list[list[int]], int], seed: int) -> None:
    """F1.3: nothing crosses the end of an episode, and no env sees another."""
    kinds, num_steps = drawn
    num_envs, length = len(kinds), len(kinds[0])
    rng = np.random.default_rng(seed)
    rewards = rng.standard_normal((length, num_envs))
    at = np.arange((length + 1) * num_envs).reshape(length + 1, num_envs)
    window = NStepEnvs(num_steps, num_envs, GAMMA, Discrete(n=9))
    found: list[tuple[Any, ...]] = []
    for step in range(length):
        kind = np.array([lane[step] for lane in kinds])
        entries = Entries(
            at[step],
            np.arange(num_envs),
            rewards[step],
            at[step + 1],
            GAMMA,
            kind == TERMINATED,
            kind == TRUNCATED,
        )
        found += rows(window.push(entries, kind != INVALID if (kind == INVALID).any() else None))
    found += rows(window.cut(at[length]))
    expected = [
        each
        for lane in range(num_envs)
        for each in naive(
            [(at[s, lane], rewards[s, lane], at[s + 1, lane], kinds[lane][s]) for s in range(length)], num_steps
        )
    ]
    assert len(found) == len(expected)
    for one, other in zip(sorted(found), sorted(expected), strict=True):
        assert one[:1] + one[2:3] + one[4:] == other[:1] + other[2:3] + other[4:]
        assert one[1] == pytest.approx(other[1])
        assert one[3] == pytest.approx(other[3])
    assert not window.state()["waiting"].any()


def test_actions_stay_with_their_observations() -> None:
    window = NStepEnvs(2, 2, GAMMA, Discrete(n=9))
    nothing = np.zeros(2, dtype=np.bool_)
    released = None
    for step in range(3):
        first = np.array([10 * step, 10 * step + 1])
        released = window.push(Entries(first, first % 9, np.ones(2), first + 10, GAMMA, nothing, nothing), None)
    assert released is not None
    np.testing.assert_array_equal(released.first, [10, 11])
    np.testing.assert_array_equal(released.actions, [10 % 9, 11 % 9])
    np.testing.assert_allclose(released.rewards, 1 + GAMMA)
    np.testing.assert_allclose(released.discounts, GAMMA**2)
    state = window.state()
    assert state["first"][state["waiting"]].min() == 20


def test_a_restored_window_goes_on() -> None:
    one, other = (NStepEnvs(3, 1, GAMMA, Discrete(n=2)) for _ in range(2))
    nothing = np.zeros(1, dtype=np.bool_)

    def step(window: NStepEnvs, number: int) -> Entries | None:
        at = np.array([number])
        return window.push(Entries(at, at % 2, np.array([float(number)]), at + 1, GAMMA, nothing, nothing), None)

    for number in range(2):
        step(one, number)
    other.restore(one.state())
    assert rows(step(one, 2)) == rows(step(other, 2)) != []
    with pytest.raises(ValueError, match="shape"):
        NStepEnvs(2, 1, GAMMA, Discrete(n=2)).restore(one.state())


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=12), st.integers(1, 5))
def test_a_live_episode_gives_the_same(rewards: list[float], num_steps: int) -> None:
    window = NStepEpisode(num_steps, GAMMA)
    found = []
    for at, reward in enumerate(rewards):
        ended = at == len(rewards) - 1
        found += window.push(at, np.array(at), reward, ended=ended)
    stream = [(at, reward, at + 1, GOES_ON) for at, reward in enumerate(rewards)]
    expected = naive(stream, num_steps)
    assert [each[0] for each in found] == [each[0] for each in expected]
    assert [int(each[1]) for each in found] == [each[0] for each in expected]
    np.testing.assert_allclose([each[2] for each in found], [each[1] for each in expected], atol=1e-12)
    np.testing.assert_allclose([GAMMA ** each[3] for each in found], [each[3] for each in expected])
