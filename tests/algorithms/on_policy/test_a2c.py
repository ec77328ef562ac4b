"""A2C: its gradient against torch, historical batches by V-trace, reproducibility."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from learnloop.algorithms.on_policy.a2c import A2C, A2CConfig
from learnloop.algorithms.on_policy.rollout import Batch, Segment, joined_segments
from learnloop.core.errors import UsageError
from tests.algorithms.on_policy.test_ppo import ACTIONS, torch_log_probs
from tests.algorithms.steps import drive, env_step, spaces

F = np.float32


def make(action: Any = None, *, seed: int = 0, num_envs: int = 4, **options: Any) -> A2C:
    return A2C(A2CConfig(**{"net_arch": (16,), **options}), spaces(3, action), num_envs=num_envs, seed=seed)


@pytest.mark.parametrize("name", ACTIONS)
@pytest.mark.parametrize("normalise", [False, True])
def test_the_gradient_is_that_of_the_paper(name: str, normalise: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm = make(ACTIONS[name], ent_coef=0.02, normalize_advantage=normalise)
    rng = np.random.default_rng(1)
    observations = rng.standard_normal((21, 3)).astype(F)
    outputs = algorithm.network.predict(observations).copy()
    actions, log_probs = algorithm.distribution.sample(outputs[:, :-1], rng)
    advantages, returns = rng.standard_normal((2, 21)).astype(F)
    batch = Batch(observations, actions, log_probs, outputs[:, -1], advantages, returns, None, None)
    seen: dict[str, Any] = {}
    monkeypatch.setattr(algorithm, "_step", lambda gradient, loss, rate: seen.update(gradient=gradient, loss=loss))
    algorithm._update(batch)
    leaf = torch.tensor(outputs, requires_grad=True)
    now, entropies = torch_log_probs(algorithm.spaces.action, leaf[:, :-1], actions)
    weights = torch.as_tensor(advantages)
    if normalise:
        weights = (weights - weights.mean()) / (weights.std() + 1e-8)
    loss = -(weights * now).mean() + 0.5 * torch.nn.functional.mse_loss(leaf[:, -1], torch.as_tensor(returns))
    loss = loss - 0.02 * entropies.mean()
    loss.backward()
    assert seen["loss"] == pytest.approx(loss.item(), rel=1e-4)
    np.testing.assert_allclose(seen["gradient"], leaf.grad, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("rms", [True, False])
def test_going_on_from_a_state_is_as_if_it_had_never_stopped(rms: bool) -> None:
    whole, first, second = make(use_rms_prop=rms), make(use_rms_prop=rms), make(seed=5, use_rms_prop=rms)
    for algorithm in (whole, first):
        drive(algorithm, 33, 1)
    drive(whole, 33, 2)
    second.restore(first.state())
    drive(second, 33, 2)
    assert second.parameter_hash() == whole.parameter_hash()
    assert whole.num_updates == 66 // 5


def history(probability: float, count: int = 400, seed: int = 0) -> Segment:
    """Steps of a policy that takes action 1 with ``probability`` whatever it sees; action 1 pays 1, action 0 pays 0."""
    rng = np.random.default_rng(seed)
    actions = (rng.random(count) < probability).astype(np.int64)
    chances = np.where(actions == 1, probability, 1 - probability)
    return Segment(
        observations=np.zeros((count, 3), dtype=F),
        actions=actions,
        masks=None,
        log_probs=np.log(chances).astype(F),
        rewards=actions.astype(F),
        last_observation=None,
    )


def test_history_is_weighted_by_how_likely_this_policy_is_to_act_so() -> None:
    """S2.2: never as if on-policy. With gamma 0, V-trace's value is that of the policy that learns, cut at rho = 1."""
    algorithm = make(gamma=0.0, learning_rate=0.0)
    batch = algorithm.historical_batch(joined_segments([history(0.9)], algorithm.spaces.action))
    chance = algorithm.policy().probabilities(np.zeros(3))
    rho = {1: min(1.0, chance[1] / 0.9), 0: min(1.0, chance[0] / 0.1)}
    assert batch.weights is not None
    np.testing.assert_allclose(batch.weights, [rho[int(action)] for action in batch.actions], rtol=1e-4)
    value = float(algorithm.value(np.zeros((1, 3), dtype=F))[0])
    expected = [value + rho[int(action)] * (float(action) - value) for action in batch.actions]
    np.testing.assert_allclose(batch.returns, expected, rtol=1e-4, atol=1e-6)


def test_history_of_a_bad_policy_teaches_the_better_action() -> None:
    algorithm = make(gamma=0.0, learning_rate=3e-3, use_rms_prop=False)
    for round_number in range(150):
        algorithm.learn_from([history(0.1, seed=round_number)])
    assert algorithm.policy().probabilities(np.zeros(3))[1] > 0.8


def test_history_without_propensities_is_refused() -> None:
    algorithm = make()
    good = history(0.5)
    with pytest.raises(UsageError, match="not finite"):
        algorithm.learn_from([good._replace(log_probs=np.full(400, np.nan, dtype=F))])
    with pytest.raises(UsageError, match="above 0"):
        algorithm.learn_from([good._replace(log_probs=np.full(400, 0.5, dtype=F))])
    with pytest.raises(UsageError, match="no segments"):
        algorithm.learn_from([])


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"actions": np.zeros(1, dtype=np.int64)}, "actions of a historical segment have shape"),
        ({"rewards": np.zeros(1, dtype=F)}, "rewards of a historical segment have shape"),
        ({"log_probs": np.full(1, -0.7, dtype=F)}, "log_probs of a historical segment have shape"),
        ({"observations": np.zeros((400, 2), dtype=F)}, "observations of a historical segment have shape"),
        ({"observations": np.zeros((0, 3), dtype=F)}, "has no transition"),
        ({"observations": np.full((400, 3), np.nan, dtype=F)}, "not finite"),
        ({"rewards": np.full(400, np.inf, dtype=F)}, "not finite"),
        ({"actions": np.full(400, 2)}, "actions from 2 to 2"),
        ({"actions": np.full(400, -1)}, "actions from -1 to -1"),
        ({"actions": np.zeros(400)}, "type float64"),
        ({"masks": np.ones((400, 3), dtype=np.bool_)}, "masks of a historical segment have shape"),
        ({"masks": np.tile([False, True], (400, 1))}, "its mask does not allow"),
        ({"last_observation": np.zeros(2, dtype=F)}, "last_observation of a historical segment have shape"),
    ],
)
def test_history_that_does_not_fit_is_refused(fields: dict[str, Any], words: str) -> None:
    algorithm = make()
    before = algorithm.parameter_hash()
    with pytest.raises(UsageError) as caught:
        algorithm.learn_from([history(0.5)._replace(**fields)])
    assert words in str(caught.value)
    assert algorithm.parameter_hash() == before


def test_history_is_seen_through_the_masks_that_it_is_learned_through() -> None:
    """The ratio is 1 before the first gradient step, with dropout too."""
    algorithm = make(dropout=0.5)
    rng = np.random.default_rng(0)
    segment = history(0.5)._replace(observations=5 * rng.standard_normal((400, 3)).astype(F))
    batch = algorithm.historical_batch(joined_segments([segment], algorithm.spaces.action))
    _, evaluation = algorithm._evaluate(batch)
    np.testing.assert_allclose(evaluation.log_probs, batch.log_probs, atol=1e-6)
    assert batch.dropout is not None
    assert len(np.unique(batch.dropout)) > 50


def test_historical_rewards_are_scaled_as_those_of_lanes() -> None:
    algorithm = make(normalize_rewards=True, gamma=0.0, learning_rate=0.0)
    assert algorithm.reward_scaler is not None
    algorithm.reward_scaler.moments.update(np.array([[0.0], [20.0]]))  # standard deviation 10
    segment = history(0.5)
    other = make(gamma=0.0, learning_rate=0.0)
    tenth = segment._replace(rewards=segment.rewards / 10)
    plain = other.historical_batch(joined_segments([tenth], other.spaces.action))
    found = algorithm.historical_batch(joined_segments([segment], algorithm.spaces.action))
    np.testing.assert_allclose(
        found.returns,
        plain.returns,
        rtol=1e-5,
        atol=1e-7,
    )


def test_a_rollout_in_which_all_lanes_only_reset_themselves() -> None:
    """One env, one step an update, autoreset mode NEXT_STEP."""
    algorithm = make(num_envs=1, n_steps=1, normalize_rewards=True)
    zeros = np.zeros((1, 3), dtype=F)
    algorithm.choose(zeros)
    algorithm.record(env_step(zeros, [1.0], terminated=[True]))
    assert algorithm.learn()
    algorithm.choose(zeros)
    algorithm.record(env_step(zeros, [0.0], valid=[False]))
    assert not algorithm.learn()
    assert algorithm.num_updates == 1
    assert algorithm.reward_scaler is not None
    assert algorithm.reward_scaler.moments.count == 1
    algorithm.choose(zeros)  # there is room again
