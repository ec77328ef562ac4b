"""Live steps that wait: the oldest make room, whether their episode has ended or not."""

from __future__ import annotations

from typing import Any

import numpy as np

from learnloop.algorithms.live.episodes import LiveStep
from learnloop.algorithms.live.segments import LiveSegments


def step(number: int, *, terminated: bool = False) -> LiveStep:
    shown: Any = np.array([number], dtype=np.float32)
    return LiveStep(shown, None, None, float(number), None, None, terminated=terminated, truncated=False)  # type: ignore[arg-type]


def kept(segments: LiveSegments) -> list[list[float]]:
    return [[each.reward for each in steps] for steps in segments]


def test_what_began_first_makes_room_first() -> None:
    segments = LiveSegments(4)
    segments.add("a", step(0))
    segments.add("a", step(1))
    segments.add("b", step(2))
    segments.add("a", step(3, terminated=True))
    segments.add("c", step(4))
    assert kept(segments) == [[1, 3], [2], [4]]
    assert (segments.num_steps, segments.num_dropped) == (4, 1)


def test_a_name_is_free_after_its_end() -> None:
    segments = LiveSegments(10)
    segments.add("a", step(0, terminated=True))
    segments.add("a", step(1))
    segments.discard("a")
    assert kept(segments) == [[0]]
    assert segments.num_steps == 1
    segments.clear()
    segments.discard("a")
    assert (len(segments), segments.num_steps) == (0, 0)


def test_an_episode_goes_on_after_its_first_steps_were_forgotten() -> None:
    segments = LiveSegments(1)
    for number in range(3):
        segments.add("a", step(number))
    assert kept(segments) == [[2]]
    assert segments.num_dropped == 2
