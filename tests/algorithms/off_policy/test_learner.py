"""What DQN and SAC put into their replay where an episode of an env is cut or ends."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from learnloop.algorithms.off_policy.dqn import DQN, DQNConfig
from tests.algorithms.steps import env_step, spaces

F = np.float32


@pytest.mark.parametrize("n_steps", [1, 3])
@pytest.mark.parametrize("end", ["truncated", "terminated"])
def test_a_cut_episode_leads_to_its_own_last_observation(end: str, n_steps: int) -> None:
    """F0.11: not to the observation that its env goes on with; after a terminated one nothing is looked at."""
    config = DQNConfig(buffer_size=100, learning_starts=50, batch_size=4, net_arch=(8,), n_steps=n_steps, gamma=0.5)
    algorithm = DQN(config, spaces(3), num_envs=2)
    first, final, fresh = np.random.default_rng(0).standard_normal((3, 2, 3)).astype(F)
    algorithm.choose(first)
    fields: dict[str, Any] = {"final_observations": final, end: [True, False]}
    following = np.stack([fresh[0], final[1]])  # the second env goes on
    algorithm.record(env_step(following, [2.0, 3.0], **fields))
    sample = algorithm.replay.sample(50, np.random.default_rng(1))
    ended = sample.rewards == 2
    assert ended.any()
    assert (sample.truncated[ended] == (end == "truncated")).all()
    assert (sample.terminated[ended] == (end == "terminated")).all()
    np.testing.assert_array_equal(sample.observations[ended], np.repeat(first[:1], ended.sum(), axis=0))
    if end == "truncated":
        np.testing.assert_array_equal(sample.next_observations[ended], np.repeat(final[:1], ended.sum(), axis=0))
    if n_steps == 1:
        np.testing.assert_array_equal(sample.next_observations[~ended], np.repeat(final[1:], (~ended).sum(), axis=0))
    else:
        assert ended.all()  # the return of the other env is not whole
