"""Replayed episodes: what was logged, in its order, and no answer to what was never tried."""

from __future__ import annotations

from pathlib import Path

import gymnasium
import numpy as np
import pytest

from learnloop.core.datasets import Dataset
from learnloop.core.errors import ActionError, NotFoundError, UsageError
from learnloop.core.spaces import Box, Spaces
from learnloop.envs import check_env, make_stream
from learnloop.envs.registry import make_env, resolve_env
from learnloop.envs.spaces import random_actions
from learnloop.envs.trace_replay import TraceReplay
from learnloop.traces.datasets.building import dataset_from_file
from tests.traces.logs import decision, episode, goal_line, reward, write_lines, write_records

LINES = [goal_line(10 * e + s, f"goal {e}", "abc"[(e + s) % 3], success=s > 0) for e in range(5) for s in range(1 + e)]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "log.jsonl", LINES)


def test_each_episode_is_replayed_as_it_was_logged(log: Path) -> None:
    dataset, _ = dataset_from_file(log)
    env = TraceReplay(dataset)
    seen = set()
    observation, info = env.reset(seed=0)
    for _ in range(60):
        number = info["episode"]
        seen.add(number)
        rows = np.flatnonzero(dataset.episodes == number)
        for row in rows:
            assert observation.tobytes() == dataset.observations[row].tobytes()
            assert info["goal"] == f"goal {number}"
            assert info["action_mask"].tolist() == [action == dataset.actions[row] for action in range(3)]
            observation, earned, terminated, truncated, info = env.step(int(dataset.actions[row]))
            assert earned == dataset.rewards[row]
            assert (terminated, truncated) == (row == rows[-1], False)
        assert observation.tobytes() == dataset.next_observations[rows[-1]].tobytes()
        assert info["action_mask"].all()
        observation, info = env.reset()
    assert seen == set(range(5))


def test_another_action_is_refused(log: Path) -> None:
    """S0.6: it is never answered with what the logged action earned, and the episode goes on as it was."""
    env = TraceReplay(dataset_from_file(log)[0])
    _, info = env.reset(seed=1)
    logged = int(np.argmax(info["action_mask"]))
    for action in {0, 1, 2, 3} - {logged}:
        with pytest.raises(ActionError, match=rf"action {action} .*log\.jsonl has {logged}.*bc, cql, iql or awac"):
            env.step(action)
    env.step(logged)


def test_the_seed_chooses_the_episodes(log: Path) -> None:
    env = TraceReplay(dataset_from_file(log)[0])

    def chosen(seed: int) -> list[int]:
        first = env.reset(seed=seed)[1]["episode"]
        return [first, *(env.reset()[1]["episode"] for _ in range(20))]

    assert chosen(3) == chosen(3) != chosen(4)


def test_stepping_without_an_episode(log: Path) -> None:
    env = TraceReplay(dataset_from_file(log)[0])
    with pytest.raises(UsageError, match="while no episode runs"):
        env.step(0)


def test_a_cut_episode_is_truncated(tmp_path: Path) -> None:
    cut = [episode("e", terminated=False, truncated=True), decision("d", "e", 1, "a", ["a", "b"]), reward(1.0, "e")]
    env = TraceReplay(dataset_from_file(write_records(tmp_path / "log.jsonl", cut))[0])
    env.reset(seed=0)
    assert env.step(0)[2:4] == (False, True)


@pytest.mark.parametrize("name", ["trace-replay", "jsonl", "learnloop/TraceReplay-v0"])
def test_by_name(log: Path, name: str) -> None:
    """The check of environments passes, and a stream of envs walks through the log under its masks."""
    kwargs = {"trace_file": str(log)}
    assert check_env(name, env_kwargs=kwargs) == []
    made = make_env(resolve_env(name), kwargs)
    assert isinstance(made.env.unwrapped, TraceReplay)
    assert made.max_steps is None
    stream = make_stream(name, num_envs=3, env_kwargs=kwargs)
    rng = np.random.default_rng(0)
    _, masks = stream.reset(0)
    for _ in range(50):
        assert masks is not None
        assert (masks.sum(axis=1) == 1).all()
        masks = stream.step(random_actions(stream.spaces.action, masks, 3, rng)).masks
    episodes = stream.episodes()
    stream.close()
    assert len(episodes) >= 20
    # Each episode of this log earns 1 for each step but the first.
    assert all(episode.total_reward == episode.length - 1 for episode in episodes)


def test_gymnasium_makes_it_too(log: Path) -> None:
    env = gymnasium.make("learnloop/TraceReplay-v0", trace_file=str(log), disable_env_checker=True)
    seen, info = env.reset(seed=0)
    assert info["action_mask"].sum() == 1
    following, _, _, truncated, _ = env.step(int(np.argmax(info["action_mask"])))
    assert not truncated
    assert following.shape == seen.shape


def test_wrong_calls(log: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"needs the file of traces.*trace_file"):
        make_env("learnloop/TraceReplay-v0")
    with pytest.raises(NotFoundError, match=r"no file .*nothing\.jsonl"):
        make_env("learnloop/TraceReplay-v0", {"trace_file": str(tmp_path / "nothing.jsonl")})
    dataset, _ = dataset_from_file(log)
    box = Box(shape=(1,), low=(0.0,), high=(1.0,))
    continuous = Dataset(
        **{
            **dataset.arrays(),
            "spaces": Spaces(observation=dataset.spaces.observation, action=box),
            "actions": np.zeros((dataset.num_steps, 1), dtype=np.float32),
            "goals": dataset.goals,
        }
    )
    with pytest.raises(UsageError, match=r"discrete ones are needed.*bc, iql or awac"):
        TraceReplay(continuous)


def test_a_file_that_has_changed_is_read_again(log: Path) -> None:
    def goals() -> set[str]:
        env = make_env("learnloop/TraceReplay-v0", {"trace_file": str(log)}).env
        return {env.reset(seed=seed)[1]["goal"] for seed in range(30)}

    assert len(goals()) == 5
    write_lines(log, LINES[:1])
    assert goals() == {"goal 0"}
