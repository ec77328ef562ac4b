"""Worker processes: the same steps as in this process, and faults that name their envs."""

from __future__ import annotations

import os
import signal
from typing import Any

import numpy as np
import pytest

from learnloop.core.errors import ContextError, LearnloopError, UsageError
from learnloop.envs import make_stream
from learnloop.envs.streams.subprocess_stream import SubprocessStream
from tests.envs.counting import Counting
from tests.envs.streams.test_make import Broken
from tests.waiting import eventually, is_running

DIED = r"\(process \d+\) ended by itself with exit code -9"
ZEROS = np.zeros(4, dtype=np.int64)


def started(**kwargs: Any) -> SubprocessStream:
    stream = make_stream(vectorization="subprocess", num_envs=4, check=False, **kwargs)
    assert isinstance(stream, SubprocessStream)
    return stream


def workers(stream: SubprocessStream) -> list[int]:
    return [each.process_id for each in stream._workers]


def test_steps_are_those_of_one_process() -> None:
    ours, theirs = started(env="CartPole-v1"), make_stream("CartPole-v1", 4)
    np.testing.assert_array_equal(ours.reset(3)[0], theirs.reset(3)[0])
    rng = np.random.default_rng(0)
    for _ in range(120):
        actions = rng.integers(2, size=4)
        for one, two in zip(ours.step(actions)[:5], theirs.step(actions)[:5], strict=True):
            np.testing.assert_array_equal(one, two)
    ended = [[each._replace(seconds=0.0) for each in stream.episodes()] for stream in (ours, theirs)]
    assert ended[0] == ended[1] != []
    ours.close()


def test_a_worker_that_is_killed_is_named() -> None:
    stream = started(env="CartPole-v1")
    stream.reset(0)
    os.kill(workers(stream)[-1], signal.SIGKILL)
    with pytest.raises(LearnloopError, match=rf"the process of envs \d to 3 {DIED}"):
        stream.step(ZEROS)
    assert not any(is_running(each) for each in workers(stream)), "the others are ended, not left behind"


def test_a_failing_environment_is_told_with_its_traceback() -> None:
    stream = started(env=Counting, env_kwargs={"kill_at": 1})
    stream.reset(0)
    stream.step(ZEROS)
    with pytest.raises(
        LearnloopError,
        match=r"env \d.*: step raised RuntimeError: the world ended\nTraceback(?s:.*)RuntimeError: the world ended",
    ):
        stream.step(ZEROS)


@pytest.mark.parametrize(
    ("fault", "error", "message"),
    [
        ((np.zeros(2), float("nan"), False, False, {}), UsageError, "env 0, episode 1: the reward is nan"),
        ((np.zeros(3), 0.0, False, False, {}), ContextError, "env 0, episode 1, step: observation is"),
        ((np.zeros(2), 0.0, True, {}), UsageError, "old gym"),
    ],
)
def test_broken_rules_are_told_as_in_one_process(fault: Any, error: type[Exception], message: str) -> None:
    stream = started(env=Broken, env_kwargs={"fault": fault})
    stream.reset(0)
    with pytest.raises(error, match=message):
        stream.step(ZEROS)


def test_callables_of_a_function_are_handed_over() -> None:
    length = 3

    def make() -> Counting:
        env = Counting()
        env.tag = length
        return env

    stream = started(env=make)
    assert stream.reset(0)[0].shape == (4, 3)
    stream.close()
    stream.close()  # twice is harmless
    assert not any(is_running(each) for each in workers(stream))


def test_workers_end_with_their_parent() -> None:
    stream = started(env="CartPole-v1")
    pids = workers(stream)
    for worker in stream._workers:
        worker.ask_to_end()
    assert eventually(lambda: not any(is_running(each) for each in pids))
    stream.close()
