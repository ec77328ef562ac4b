"""PPO: its loss against torch, its batches, its bounds, its reproducibility."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from learnloop.algorithms.on_policy.learner import OnPolicyAlgorithm
from learnloop.algorithms.on_policy.ppo import PPO, PPOConfig
from learnloop.algorithms.on_policy.rollout import Batch
from learnloop.core.errors import CorruptError, DivergedError, UsageError
from learnloop.core.spaces import Box, Discrete, MultiDiscrete
from tests.algorithms.steps import drive, env_step, spaces

F = np.float32

ACTIONS = {
    "discrete": Discrete(n=4),
    "multi_discrete": MultiDiscrete(nvec=(2, 3)),
    "box": Box(shape=(2,), low=(-1.0, -1.0), high=(1.0, 1.0)),
}


def make(action: Any = None, *, num_envs: int = 2, seed: int = 0, **options: Any) -> PPO:
    config = PPOConfig(**{"n_steps": 16, "batch_size": 8, "n_epochs": 3, "net_arch": (16,), **options})
    return PPO(config, spaces(3, action), num_envs=num_envs, seed=seed)


def random_batch(algorithm: PPO, size: int, seed: int = 0) -> Batch:
    """A batch whose old log probabilities and values are off by a little, so that clipping bites."""
    rng = np.random.default_rng(seed)
    observations = rng.standard_normal((size, 3)).astype(F)
    outputs = algorithm.network.predict(observations).copy()
    actions, log_probs = algorithm.distribution.sample(outputs[:, :-1], rng)
    return Batch(
        observations=observations,
        actions=actions,
        log_probs=(log_probs + rng.normal(0, 0.3, size)).astype(F),
        values=(outputs[:, -1] + rng.normal(0, 0.3, size)).astype(F),
        advantages=rng.standard_normal(size).astype(F),
        returns=rng.standard_normal(size).astype(F),
        masks=None,
        dropout=None,
    )


def torch_log_probs(action: Any, parameters: torch.Tensor, actions: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """Log probabilities and entropies by torch.distributions."""
    chosen = torch.as_tensor(actions)
    if isinstance(action, Discrete):
        found = torch.distributions.Categorical(logits=parameters)
        return found.log_prob(chosen), found.entropy()
    if isinstance(action, MultiDiscrete):
        parts = [torch.distributions.Categorical(logits=part) for part in parameters.split(list(action.nvec), dim=1)]
        log_probs = [part.log_prob(chosen[:, at]) for at, part in enumerate(parts)]
        return sum(log_probs), sum(part.entropy() for part in parts)  # type: ignore[return-value]
    mean, log_std = parameters.chunk(2, dim=1)
    normal = torch.distributions.Normal(mean, log_std.exp())
    return normal.log_prob(chosen).sum(1), normal.entropy().sum(1)


def torch_loss(algorithm: PPO, batch: Batch, outputs: torch.Tensor, clip_vf: float | None) -> torch.Tensor:
    """Schulman et al. 2017, equations 7 and 9, as Stable-Baselines3 computes them."""
    config = algorithm.config
    log_probs, entropies = torch_log_probs(algorithm.spaces.action, outputs[:, :-1], batch.actions)
    advantages = torch.as_tensor(batch.advantages)
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    if batch.weights is not None:
        advantages = advantages * torch.as_tensor(batch.weights)
    ratio = (log_probs - torch.as_tensor(batch.log_probs)).exp()
    clipped = torch.clamp(ratio, 1 - 0.2, 1 + 0.2)
    policy_loss = -torch.min(advantages * ratio, advantages * clipped).mean()
    values = outputs[:, -1]
    if clip_vf is not None:
        old = torch.as_tensor(batch.values)
        values = old + torch.clamp(values - old, -clip_vf, clip_vf)
    value_loss = torch.nn.functional.mse_loss(torch.as_tensor(batch.returns), values)
    return policy_loss + config.vf_coef * value_loss - config.ent_coef * entropies.mean()


@pytest.mark.parametrize("name", ACTIONS)
@pytest.mark.parametrize("clip_vf", [None, 0.2])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_loss_and_its_gradient_are_those_of_the_paper(name: str, clip_vf: float | None, weighted: bool) -> None:
    """F0.1, F0.2: a real gradient of the real loss, for each kind of action."""
    algorithm = make(ACTIONS[name], ent_coef=0.03, clip_range_vf=clip_vf, n_steps=17, batch_size=33)
    batch = random_batch(algorithm, 33)
    if weighted:
        batch = batch._replace(weights=np.linspace(0.1, 1, 33, dtype=F))
    gradient, loss, _ = algorithm._loss(next(algorithm.minibatches(batch, 0.2)), clip_vf)
    outputs = torch.tensor(algorithm.network.predict(batch.observations), requires_grad=True)
    expected = torch_loss(algorithm, batch, outputs, clip_vf)
    expected.backward()  # type: ignore[no-untyped-call]
    assert loss == pytest.approx(expected.item(), rel=1e-4)
    np.testing.assert_allclose(gradient, outputs.grad, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("name", ACTIONS)
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_the_ratio_is_one_before_the_first_gradient_step(name: str, dropout: float, monkeypatch: Any) -> None:
    """F1.1: the seed's ratios went from .061 to 7.74 here, since dropout and batch statistics differed."""
    seen: list[np.ndarray] = []
    original = OnPolicyAlgorithm._evaluate

    def spy(self: PPO, batch: Batch) -> Any:
        outputs, evaluation = original(self, batch)
        if self.num_updates == 0:
            seen.append(np.exp(evaluation.log_probs - batch.log_probs))
        return outputs, evaluation

    monkeypatch.setattr(OnPolicyAlgorithm, "_evaluate", spy)
    algorithm = make(ACTIONS[name], dropout=dropout, layer_norm=dropout > 0, n_steps=32, batch_size=64, n_epochs=1)
    drive(algorithm, 32)
    assert algorithm.num_updates == 1
    np.testing.assert_allclose(np.concatenate(seen), 1, atol=2e-6)


@pytest.mark.parametrize("lanes", [1, 3])
@pytest.mark.parametrize("batch_size", [1, 7, 16])
def test_minibatches_of_any_size(lanes: int, batch_size: int) -> None:
    """F1.2: 129 transitions in batches of 64 left one, and the seed's update crashed."""
    normalise = batch_size > 1
    algorithm = make(num_envs=lanes, n_steps=16, batch_size=batch_size, n_epochs=2, normalize_advantage=normalise)
    drive(algorithm, 16)
    assert algorithm.num_updates > 0
    assert np.isfinite(algorithm.network.parameters).all()


@pytest.mark.parametrize("limit", [0, 1 << 20])
def test_each_epoch_goes_through_each_transition_once(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm = make(n_steps=43, num_envs=3, batch_size=64)
    batch = random_batch(algorithm, 129)
    monkeypatch.setattr("learnloop.algorithms.on_policy.ppo.SHUFFLED_BYTES", limit)
    parts = [each.batch for each in algorithm.minibatches(batch, 0.2)]
    assert [part.size for part in parts] == [64, 65]  # one transition alone has no spread to be normalised by
    joined = np.concatenate([part.observations for part in parts])
    np.testing.assert_array_equal(np.sort(joined, axis=0), np.sort(batch.observations, axis=0))


@pytest.mark.parametrize("limit", [0, 1 << 20])
@pytest.mark.parametrize("weighted", [False, True])
def test_each_minibatch_is_normalised_by_itself(weighted: bool, limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Huang et al. 2022, detail 7, recomputed in float64, for a last minibatch that is longer than the others."""
    algorithm = make(n_steps=43, num_envs=3, batch_size=16)
    weights = np.linspace(0.1, 1, 129, dtype=F) if weighted else None
    batch = random_batch(algorithm, 129)._replace(weights=weights)
    monkeypatch.setattr("learnloop.algorithms.on_policy.ppo.SHUFFLED_BYTES", limit)
    minibatches = list(algorithm.minibatches(batch, 0.2))
    assert [each.batch.size for each in minibatches] == [16] * 7 + [17]
    for part, _, terms in minibatches:
        wide = part.advantages.astype(np.float64)
        expected = (wide - wide.mean()) / wide.std(ddof=1)
        if part.weights is not None:
            expected *= part.weights
        np.testing.assert_allclose(terms.advantages, expected, rtol=1e-4, atol=1e-6)
        bounds = np.where(expected > 0, 1.2, 0.8)
        np.testing.assert_array_equal(terms.signs, np.sign(expected))
        np.testing.assert_allclose(terms.signed_bounds, bounds * np.sign(expected), rtol=1e-6)
        np.testing.assert_allclose(terms.bounded, bounds * expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("value", [3.3, -1e-3, 0.0])
def test_equal_advantages_say_nothing(value: float) -> None:
    algorithm = make(n_steps=43, num_envs=3, batch_size=16)
    batch = random_batch(algorithm, 129)._replace(advantages=np.full(129, value, dtype=F))
    for minibatch in algorithm.minibatches(batch, 0.2):
        np.testing.assert_array_equal(minibatch.terms.advantages, 0)


def test_a_large_move_ends_the_update_early() -> None:
    calm = make(target_kl=None, learning_rate=0.05, n_epochs=20)
    careful = make(target_kl=0.01, learning_rate=0.05, n_epochs=20)
    drive(calm, 16)
    drive(careful, 16)
    assert 0 < careful.num_updates < calm.num_updates


def test_gradients_are_clipped(monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm = make(max_grad_norm=1e-3)
    norms: list[float] = []
    step = algorithm.optimizer.step

    def watched(learning_rate: float, gradient_scale: float) -> None:
        norms.append(gradient_scale * float(np.linalg.norm(algorithm.network.gradients)))
        step(learning_rate, gradient_scale)

    monkeypatch.setattr(algorithm.optimizer, "step", watched)
    drive(algorithm, 16)
    assert norms
    assert max(norms) <= 1e-3 * 1.0001
    assert algorithm.metrics.peek()["train/gradient_norm"] > 1e-3  # what is reported is the norm before


def test_schedules_follow_the_progress() -> None:
    algorithm = make(learning_rate="lin_0.001", clip_range="lin_0.2")
    algorithm.set_progress(0.75)
    drive(algorithm, 16)
    figures = algorithm.metrics.take()
    assert figures["train/learning_rate"] == pytest.approx(0.00025)
    assert figures["train/clip_range"] == pytest.approx(0.05)


def test_every_update_leaves_its_figures() -> None:
    algorithm = make()
    drive(algorithm, 16)
    figures = algorithm.metrics.take()
    wanted = {
        "train/approx_kl",
        "train/clip_fraction",
        "train/clip_range",
        "train/dormant_ratio",
        "train/entropy_loss",
        "train/explained_variance",
        "train/gradient_norm",
        "train/learning_rate",
        "train/loss",
        "train/n_updates",
        "train/policy_gradient_loss",
        "train/value_loss",
        "train/weight_change",
        "train/weight_ratio_ess",
    }
    assert wanted <= figures.keys()
    assert figures["train/n_updates"] == algorithm.num_updates == 3 * 4
    assert algorithm.metrics.peek() == {}


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_reward_that_is_not_finite_stops_with_the_updates_number(bad: float) -> None:
    algorithm = make(n_steps=4, batch_size=8)
    drive(algorithm, 4)
    assert algorithm.num_updates == 3
    before = algorithm.network.parameters.copy()
    for step in range(4):
        algorithm.choose(np.zeros((2, 3), dtype=F))
        algorithm.record(env_step(np.zeros((2, 3)), [bad if step == 2 else 0.0, 1.0]))
    with pytest.raises(DivergedError, match="update 4"):
        algorithm.learn()
    np.testing.assert_array_equal(algorithm.network.parameters, before)


def test_parameters_that_are_not_finite_stop_the_acting() -> None:
    algorithm = make()
    algorithm.network.parameters[:] = np.nan
    algorithm.network.refresh()
    with pytest.raises(DivergedError, match="after update 0"):
        algorithm.choose(np.zeros((2, 3), dtype=F))


def test_a_gradient_that_is_not_finite_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm = make(n_steps=4, batch_size=8, n_epochs=1)
    before = algorithm.network.parameters.copy()
    backward = algorithm.network.backward

    def poisoned(gradient: Any, **options: Any) -> Any:
        found = backward(gradient, **options)
        algorithm.network.gradients[0] = np.inf
        return found

    monkeypatch.setattr(algorithm.network, "backward", poisoned)
    with pytest.raises(DivergedError, match="update 1: the gradient has norm inf"):
        drive(algorithm, 4)
    np.testing.assert_array_equal(algorithm.network.parameters, before)


@pytest.mark.parametrize("name", ACTIONS)
def test_the_same_seed_gives_the_same_parameters(name: str) -> None:
    """B10."""
    hashes = set()
    for seed in (3, 3, 4):
        algorithm = make(ACTIONS[name], seed=seed)
        drive(algorithm, 48)
        hashes.add(algorithm.parameter_hash())
    assert len(hashes) == 2


@pytest.mark.parametrize("options", [{}, {"normalize_observations": True, "normalize_rewards": True}, {"dropout": 0.2}])
@pytest.mark.parametrize("at", [16, 23])
def test_going_on_from_a_state_is_as_if_it_had_never_stopped(options: dict[str, Any], at: int) -> None:
    """B10: weights, optimiser, random numbers, the half-full rollout and the running scales."""

    def half(algorithm: PPO, count: int, seed: int) -> None:
        drive(algorithm, count, seed)

    whole, first, second = make(**options), make(**options), make(**options)
    half(second, 20, 3)
    half(whole, at, 1)
    half(whole, 40, 2)
    half(first, at, 1)
    second.restore(first.state())
    half(second, 40, 2)
    assert second.parameter_hash() == whole.parameter_hash()
    assert second.num_updates == whole.num_updates
    assert second.num_steps == whole.num_steps


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"gamma": 1.2}, "gamma is 1.2; allowed is from 0 to 1"),
        ({"batch_size": 64}, "batch_size is 64, more than the 32 transitions"),
        ({"n_epochs": 0}, "n_epochs is 0"),
        ({"gae_lambda": -0.1}, "gae_lambda is -0.1"),
        ({"learning_rate": "fast"}, "learning_rate is 'fast'"),
        ({"clip_range": -1.0}, "clip_range is -1"),
        ({"target_kl": 0.0}, "target_kl is 0"),
        ({"max_grad_norm": 0.0}, "max_grad_norm is 0"),
        ({"batch_size": 1}, "one advantage cannot be normalised"),
        ({"net_arch": (0,)}, "a layer of net_arch is 0"),
        ({"net_arch": (), "dropout": 0.5}, "net_arch has none"),
        ({"dropout": 1.0}, "dropout is 1"),
    ],
)
def test_contradictory_configs_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError) as caught:
        make(**options)
    assert words in str(caught.value)


def test_lanes_that_only_reset_themselves_are_not_learned_from() -> None:
    """The autoreset mode NEXT_STEP of gymnasium puts a step without meaning between two episodes."""
    algorithm = make(n_steps=4, num_envs=2, batch_size=4)
    valid = [[True, True], [True, False], [True, True], [True, True]]
    ended = [[False, True], [False, False], [False, False], [False, False]]
    for step in range(4):
        observations = np.full((2, 3), step, dtype=F)
        algorithm.choose(observations)
        given = np.array(valid[step])
        fields = {"terminated": np.array(ended[step]), "valid": given}
        algorithm.record(env_step(observations + 1, [1.0, -7.0 if not given[1] else 1.0], **fields))
    assert algorithm.num_steps == 7
    batch = algorithm.rollout_batch()
    assert batch.size == 7
    lane = batch.observations[:, 0]
    assert (lane == 1).sum() == 1  # step 1 of env 1 is missing
    assert (batch.returns > -5).all()


def test_masked_actions_are_never_drawn_and_have_no_gradient() -> None:
    algorithm = make(Discrete(n=4), num_envs=50, n_steps=200, batch_size=50, n_epochs=1)
    masks = np.tile([True, False, True, False], (50, 1))
    observations = np.random.default_rng(0).standard_normal((50, 3)).astype(F)
    drawn = []
    for _ in range(200):  # 10,000 draws
        actions = algorithm.choose(observations, masks)
        drawn.append(actions.copy())
        algorithm.record(env_step(observations, np.where(actions == 0, 1.0, 0.0), masks=masks))
    assert set(np.unique(drawn)) == {0, 2}
    assert algorithm.learn()
    policy = algorithm.policy()
    chances = policy.probabilities(observations[0], [True, False, True, False])
    assert chances[1] == chances[3] == 0
    assert chances.sum() == pytest.approx(1)


def test_interrupting_cuts_running_episodes_with_their_value() -> None:
    algorithm = make(n_steps=4, num_envs=2, batch_size=8)
    observations = np.ones((2, 3), dtype=F)
    algorithm.choose(observations)
    algorithm.record(env_step(observations * 2, [1.0, 1.0], terminated=[True, False]))
    algorithm.interrupt()
    rollout = algorithm._rollout
    assert rollout.ended[0].tolist() == [True, True]
    value = float(algorithm.value(observations * 2)[1])
    assert rollout.bootstraps[0].tolist() == pytest.approx([0.0, value])


def share_of_best_actions(seed: int, *, shuffled: bool) -> float:
    algorithm = make(n_steps=64, num_envs=4, batch_size=64, n_epochs=5, learning_rate=3e-3, seed=seed)
    algorithm.shuffled = shuffled
    drive(algorithm, 640, ends=0.5)
    observations = np.random.default_rng(9).standard_normal((500, 3)).astype(F)
    best = (observations[:, 0] > 0).astype(np.int64)
    return float(np.mean(algorithm.policy().choose(observations) == best))


def test_shuffled_credit_learns_nothing() -> None:
    """The control of a proof: the same updates, each action credited with another's advantage.

    One that drifts may be right by chance, as half of all planes are more often than not; on the average they are not.
    """
    assert min(share_of_best_actions(seed, shuffled=False) for seed in (1, 2)) > 0.9
    controls = [share_of_best_actions(seed, shuffled=True) for seed in range(8)]
    assert abs(np.mean(controls) - 0.5) < 0.2, controls


@pytest.mark.parametrize(
    ("others", "words"),
    [
        ({"gamma": 0.5}, "gamma 0.99, not 0.5"),
        ({"num_envs": 3}, "num_envs is 2, not 3"),
        ({"action": Discrete(n=2, start=1)}, "action"),
        ({"n_steps": 32}, "n_steps 16, not 32"),
        ({"normalize_observations": True}, "normalize_observations"),
    ],
)
def test_the_state_of_another_one_is_refused(others: dict[str, Any], words: str) -> None:
    """F1.9: nothing was checked when a state was loaded."""
    algorithm = make()
    drive(algorithm, 5)
    other = make(**others)
    before = other.state()
    with pytest.raises(CorruptError) as caught:
        other.restore(algorithm.state())
    assert words in str(caught.value)
    assert other.state().values == before.values


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("parameters", np.full(1, np.nan, dtype=F)),
        ("rollout.rewards", np.zeros((1, 2), dtype=F)),
        ("rollout.actions", np.zeros((5, 2), dtype=np.int8)),
        ("rollout.flags", np.array([17, 0, 0])),
    ],
)
def test_a_damaged_state_is_refused(name: str, value: Any) -> None:
    algorithm = make()
    drive(algorithm, 5)
    state = algorithm.state()
    state.tensors[name] = np.broadcast_to(value, state.tensors[name].shape) if name == "parameters" else value
    with pytest.raises(CorruptError, match="not one of this ppo"):
        make().restore(state)
    with pytest.raises(CorruptError, match="not one of this ppo"):
        make().restore(state._replace(values={**state.values, "rng": None}))


def test_a_progress_that_is_no_number_is_refused() -> None:
    with pytest.raises(UsageError, match="progress is nan"):
        make().set_progress(math.nan)


# Scales, layers ------------------------------------------------------------------------------------------------------


def test_the_last_observation_before_a_reset_of_its_own_is_not_seen_by_the_scale() -> None:
    """Autoreset mode NEXT_STEP: nothing is chosen there, and no other autoreset mode shows it to the scale."""
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((5, 2, 3)).astype(F)
    rows[2, 1] = 1000.0
    algorithm = make(normalize_observations=True)
    resets = np.array([False, True])
    for at in range(4):
        algorithm.choose(rows[at])
        ends = {"terminated": resets, "resetting": resets} if at == 1 else {}
        algorithm.record(env_step(rows[at + 1], [0.0, 0.0], valid=~resets if at == 2 else None, **ends))
        if at == 1:  # all that is needed lies in the state
            again = make(normalize_observations=True)
            again.restore(algorithm.state())
            algorithm = again
    seen = rows[:4].reshape(-1, 3)
    seen = seen[seen[:, 0] != 1000.0]
    assert algorithm.observation_scaler is not None
    moments = algorithm.observation_scaler
    assert moments.count == 7
    np.testing.assert_allclose(moments.mean, seen.mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(moments.variance, seen.var(axis=0), rtol=1e-5)


def test_an_interruption_forgets_which_lanes_reset_themselves() -> None:
    algorithm = make(normalize_observations=True)
    algorithm.choose(np.zeros((2, 3), dtype=F))
    both = np.array([True, True])
    algorithm.record(env_step(np.ones((2, 3)), [0.0, 0.0], terminated=both, resetting=both))
    algorithm.interrupt()
    algorithm.choose(np.full((2, 3), 2.0, dtype=F))
    assert algorithm.observation_scaler is not None
    assert algorithm.observation_scaler.count == 4


@pytest.mark.parametrize("max_grad_norm", [None, 1e-3])
def test_the_gradient_of_each_layer_is_told_before_clipping(max_grad_norm: float | None) -> None:
    """S2.4. The squares of the layers' norms add up to that of the whole gradient's."""
    algorithm = make(n_epochs=1, batch_size=32, max_grad_norm=max_grad_norm)  # one gradient step
    drive(algorithm, 16)
    assert algorithm.num_updates == 1
    figures = algorithm.metrics.take()
    layers = {name: value for name, value in figures.items() if name.startswith("train/gradient_norm/")}
    assert {name.removeprefix("train/gradient_norm/") for name in layers} == algorithm.network.layers().keys()
    assert math.sqrt(sum(value**2 for value in layers.values())) == pytest.approx(figures["train/gradient_norm"])
