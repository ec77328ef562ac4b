"""SAC over continuous and discrete actions: losses and gradients against torch, temperature, reproducibility."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
import torch

from learnloop.algorithms.off_policy.sac import SAC, SACConfig, Temperature
from learnloop.algorithms.replay.prioritised import ReplaySample, Transitions
from learnloop.core.errors import CorruptError, DivergedError, UsageError
from learnloop.core.spaces import Box, Discrete, MultiDiscrete
from learnloop.nn.mlp.network import MLP, Head, MLPConfig
from tests.algorithms.chi_square import fits
from tests.algorithms.random_stream import RandomStream
from tests.algorithms.steps import env_step, spaces

F = np.float32
SIZE, N = 3, 4
BOX = Box(shape=(2,), low=(-2.0, 0.0), high=(2.0, 1.0))
DISCRETE = Discrete(n=N)
SPACES = {"continuous": BOX, "discrete": DISCRETE}
HIDDEN = (16, 12)
ALPHA = 0.3


def make(kind: str = "continuous", *, num_envs: int = 2, seed: int = 0, networks: Any = None, **options: Any) -> SAC:
    defaults: dict[str, Any] = {
        "net_arch": HIDDEN,
        "buffer_size": 500,
        "learning_starts": 20,
        "batch_size": 8,
        "learning_rate": 1e-2,
        "tau": 0.05,
    }
    config = SACConfig(**{**defaults, **options})
    return SAC(config, spaces(SIZE, SPACES[kind]), num_envs=num_envs, seed=seed, **(networks or {}))


def drive(algorithm: SAC, num_vector_steps: int, seed: int = 0) -> None:
    RandomStream(algorithm.num_envs, SIZE, seed).drive(algorithm, num_vector_steps)


def random_sample(kind: str, size: int = 32, *, masked: bool = False, seed: int = 0) -> ReplaySample:
    rng = np.random.default_rng(seed)
    masks = rng.random((size, N)) < 0.5
    masks[:, 1] |= ~masks.any(axis=1)
    actions = rng.uniform(-1, 1, (size, 2)).astype(F) if kind == "continuous" else rng.integers(N, size=size)
    if masked:
        actions = masks.argmax(axis=1)
    return ReplaySample(
        numbers=np.arange(size),
        following=np.arange(size),
        observations=rng.standard_normal((size, SIZE)).astype(F),
        actions=actions,
        rewards=(3 * rng.standard_normal(size)).astype(F),
        next_observations=rng.standard_normal((size, SIZE)).astype(F),
        discounts=np.full(size, 0.9, dtype=F),
        terminated=rng.random(size) < 0.3,
        truncated=np.zeros(size, dtype=np.bool_),
        masks=masks if masked else None,
        next_masks=masks[::-1].copy() if masked else None,
        weights=None,
    )


class TorchMLP:
    """The same function as an MLP, written again in torch, on copies of its tensors."""

    def __init__(self, network: Any) -> None:
        self.layers = network.layers()
        self.shared = network.config.shared
        self.heads = [head.name for head in network.config.heads]
        widths = (network.config.input_size, *network.config.hidden)
        self.tensors: dict[str, torch.Tensor] = {}
        for name, place in self.layers.items():
            tensor = torch.tensor(network.parameters[place].copy())
            if name.endswith("weight"):
                tensor = tensor.reshape(-1, widths[int(name.split(".")[1])])
            self.tensors[name] = tensor.requires_grad_()

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        depth = len(HIDDEN)
        outputs = []
        for head in self.heads:
            values = inputs
            for index in range(depth):
                values = torch.relu(self.linear(f"{'trunk' if self.shared else head}.{index}", values))
            outputs.append(self.linear(f"{head}.{depth}", values))
        return torch.cat(outputs, dim=1)

    def linear(self, name: str, values: torch.Tensor) -> torch.Tensor:
        return values @ self.tensors[f"{name}.weight"].T + self.tensors[f"{name}.bias"]

    def check_gradients(self, network: Any) -> None:
        for name, place in self.layers.items():
            grad = self.tensors[name].grad
            assert grad is not None
            np.testing.assert_allclose(network.gradients[place], grad.reshape(-1), rtol=2e-3, atol=2e-6)


def torch_policy(kind: str, outputs: torch.Tensor, noise: Any, masks: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Actions and log densities, or probabilities and log probabilities, by torch.distributions."""
    if kind == "discrete":
        if masks is not None:
            outputs = outputs.masked_fill(~torch.as_tensor(masks), -math.inf)
        found = torch.distributions.Categorical(logits=outputs)
        return found.probs, torch.where(found.probs > 0, found.logits, torch.zeros(()))
    mean, log_std = outputs.chunk(2, dim=1)
    log_std = log_std.clamp(-20, 2)
    unsquashed = mean + log_std.exp() * torch.as_tensor(noise)
    actions = torch.tanh(unsquashed)
    log_density = torch.distributions.Normal(mean, log_std.exp()).log_prob(unsquashed)
    slope = 2 * (math.log(2) - unsquashed - torch.nn.functional.softplus(-2 * unsquashed))
    return actions, (log_density - slope).sum(dim=1)


def torch_soft_values(
    kind: str, actor: TorchMLP, critic: TorchMLP, observations: Any, noise: Any, masks: Any
) -> torch.Tensor:
    """Min Q - alpha log pi: of one drawn action, or its expectation over all."""
    seen = torch.as_tensor(observations)
    chosen, log_chances = torch_policy(kind, actor(seen), noise, masks)
    if kind == "discrete":
        first, second = critic(seen).chunk(2, dim=1)
        return (chosen * (torch.min(first, second) - ALPHA * log_chances)).sum(dim=1)
    values = critic(torch.cat([seen, chosen], dim=1))
    return values.min(dim=1).values - ALPHA * log_chances  # type: ignore[no-any-return]


def trained(kind: str) -> SAC:
    algorithm = make(kind)
    drive(algorithm, 40)
    algorithm.target.parameters[:] *= F(0.8)
    algorithm.target.refresh()
    return algorithm


CASES = [("continuous", False), ("discrete", False), ("discrete", True)]


@pytest.mark.parametrize(("kind", "masked"), CASES)
def test_the_critics_loss_and_its_gradient_are_those_of_the_paper(kind: str, masked: bool) -> None:
    """F0.3, F2.2: the originals have no SAC, and one that fails at its first update."""
    algorithm, sample = trained(kind), random_sample(kind, masked=masked)
    losses, rng = algorithm._losses, np.random.default_rng(5)
    following = losses.next_values(sample, ALPHA, rng)
    noise = np.random.default_rng(5).standard_normal((32, 2), dtype=F)
    actor, critic, target = (TorchMLP(each) for each in (algorithm.actor, algorithm.critic, algorithm.target))
    with torch.no_grad():
        expected = torch_soft_values(kind, actor, target, sample.next_observations, noise, sample.next_masks)
    np.testing.assert_allclose(following, expected, rtol=1e-4, atol=1e-5)
    targets = torch.as_tensor(sample.rewards) + 0.9 * (1 - torch.as_tensor(sample.terminated).float()) * expected
    seen, actions = torch.as_tensor(sample.observations), torch.as_tensor(sample.actions)
    if kind == "discrete":
        pair = [each.gather(1, actions[:, None])[:, 0] for each in critic(seen).chunk(2, dim=1)]
    else:
        pair = list(critic(torch.cat([seen, actions], dim=1)).T)
    loss = 0.5 * torch.stack([torch.nn.functional.mse_loss(each, targets) for each in pair]).sum()
    loss.backward()  # type: ignore[no-untyped-call]
    found, gradient = losses.critic(sample, targets.numpy())
    algorithm.critic.backward(gradient)
    assert found == pytest.approx(loss.item(), rel=1e-4)
    critic.check_gradients(algorithm.critic)


@pytest.mark.parametrize(("kind", "masked"), CASES)
def test_the_actors_loss_and_its_gradient_are_those_of_the_paper(kind: str, masked: bool) -> None:
    algorithm, sample = trained(kind), random_sample(kind, masked=masked)
    losses = algorithm._losses
    gap = losses.look(sample, np.random.default_rng(5))
    noise = np.random.default_rng(5).standard_normal((32, 2), dtype=F)
    actor, critic = TorchMLP(algorithm.actor), TorchMLP(algorithm.critic)
    loss = -torch_soft_values(kind, actor, critic, sample.observations, noise, sample.masks).mean()
    loss.backward()  # type: ignore[no-untyped-call]
    found, gradient = losses.actor(sample, ALPHA)
    algorithm.actor.backward(gradient)
    assert found == pytest.approx(loss.item(), rel=1e-4)
    actor.check_gradients(algorithm.actor)
    # the loss of the temperature has the gap between the entropy and its target as its gradient
    chosen, log_chances = torch_policy(kind, actor(torch.as_tensor(sample.observations)), noise, sample.masks)
    if kind == "discrete":
        allowed = np.full(32, N) if sample.masks is None else sample.masks.sum(axis=1)
        surplus = -(chosen * log_chances).sum(dim=1) - torch.as_tensor(0.98 * np.log(allowed))
    else:
        surplus = -log_chances + 2
    assert gap == pytest.approx(surplus.mean().item(), rel=1e-3, abs=1e-5)


def test_the_temperature_is_learned_as_torch_learns_it() -> None:
    temperature = Temperature("auto_0.1")
    log_alpha = torch.tensor(math.log(0.1), dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.Adam([log_alpha], lr=3e-3)
    for gap in np.random.default_rng(0).normal(0.3, 1, 50):
        loss = (log_alpha * gap).mean()
        assert temperature.loss(gap) == pytest.approx(loss.item(), rel=1e-9)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        temperature.step(gap, 3e-3)
        assert temperature.value == pytest.approx(math.exp(log_alpha.item()), rel=1e-9)


@pytest.mark.parametrize("ent_coef", [0.2, 0.0, "auto", "auto_0.5"])
@pytest.mark.parametrize("kind", SPACES)
def test_the_temperature_is_kept_or_learned(kind: str, ent_coef: Any) -> None:
    algorithm = make(kind, ent_coef=ent_coef)
    start = {"auto": 1.0, "auto_0.5": 0.5}.get(ent_coef, ent_coef)
    assert algorithm.temperature.value == start
    drive(algorithm, 30)
    assert (algorithm.temperature.value == start) == (not isinstance(ent_coef, str))
    assert ("train/ent_coef_loss" in algorithm.metrics.peek()) == isinstance(ent_coef, str)


@pytest.mark.parametrize("kind", SPACES)
@pytest.mark.parametrize("interval", [1, 3])
def test_the_target_critics_follow(kind: str, interval: int) -> None:
    algorithm = make(kind, target_update_interval=interval, gradient_steps=1, tau=0.1)
    drive(algorithm, 15)
    expected = algorithm.target.parameters.astype(np.float64)
    for _ in range(7):  # one gradient step a call: the interval counts over calls
        before = algorithm.critic.parameters.copy()
        moves = algorithm.num_updates % interval == 0
        algorithm._update(1, 1e-2)
        assert not np.array_equal(before, algorithm.critic.parameters)
        if moves:
            expected = 0.9 * expected + 0.1 * algorithm.critic.parameters
        np.testing.assert_allclose(algorithm.target.parameters, expected, rtol=1e-5, atol=1e-6)
    counted: list[None] = []
    algorithm._twin.move_target = lambda: counted.append(None)  # type: ignore[method-assign]
    algorithm._update(6, 1e-2)
    assert len(counted) == 6 // interval


# Actions ----------------------------------------------------------------------------------------------------------


def test_actions_are_in_the_units_of_the_space_and_kept_from_minus_one_to_one() -> None:
    algorithm = make(learning_starts=0, gradient_steps=1, train_freq=1000)
    rng = np.random.default_rng(0)
    taken = []
    observations = rng.standard_normal((2, SIZE)).astype(F)
    for _ in range(100):
        actions = algorithm.choose(observations)
        assert actions.dtype == F
        assert (np.array(BOX.low) <= actions).all()
        assert (actions <= np.array(BOX.high)).all()
        taken.append(actions)
        observations = rng.standard_normal((2, SIZE)).astype(F)
        algorithm.record(env_step(observations, [0.0, 0.0]))
    kept = algorithm.replay._columns["actions"][:200]
    np.testing.assert_allclose(kept * [2.0, 0.5] + [0.0, 0.5], np.concatenate(taken), atol=1e-6)
    np.testing.assert_allclose(algorithm._from_space(np.concatenate(taken)), kept, atol=1e-5)


def test_actions_are_uniform_until_learning_starts() -> None:
    algorithm = make(learning_starts=400)
    actions = np.concatenate([algorithm.choose(np.zeros((2, SIZE), dtype=F)) for _ in range(2000)])
    for column, (low, high) in enumerate(zip(BOX.low, BOX.high, strict=True)):
        assert low is not None
        assert high is not None
        counts, _ = np.histogram(actions[:, column], bins=10, range=(low, high))
        assert fits(counts, np.full(10, 0.1))


def test_masks_are_never_violated() -> None:
    """P11: in 10,000 draws, drawn and greedy, while it learns."""
    algorithm = make("discrete", num_envs=4, learning_starts=100)
    rng = np.random.default_rng(0)
    observations = rng.standard_normal((4, SIZE)).astype(F)
    masks = np.ones((4, N), dtype=np.bool_)
    for step in range(1250):
        actions = algorithm.choose(observations, masks)
        assert masks[np.arange(4), actions].all()
        assert masks[np.arange(4), algorithm.policy().choose(observations, masks)].all()
        observations = rng.standard_normal((4, SIZE)).astype(F)
        masks = rng.random((4, N)) < 0.4
        masks[:, rng.integers(N)] = True
        algorithm.record(env_step(observations, rng.random(4), masks=masks, final_masks=masks))
        if step % 20 == 0:
            algorithm.learn()
    assert algorithm.num_updates > 0


def test_masks_bound_the_entropy() -> None:
    """Where one action alone is allowed the entropy is 0, and so is its target: the temperature stays."""
    algorithm, sample = trained("discrete"), random_sample("discrete", masked=True)
    one = np.eye(N, dtype=np.bool_)[sample.actions]
    gap = algorithm._losses.look(sample._replace(masks=one), np.random.default_rng(0))
    assert gap == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("kind", SPACES)
def test_the_policy_is_frozen_and_samples_if_asked(kind: str) -> None:
    algorithm = trained(kind)
    policy = algorithm.policy()
    observations = np.random.default_rng(0).standard_normal((50, SIZE)).astype(F)
    outputs = algorithm.actor.predict(observations).copy()
    if kind == "continuous":
        expected = np.tanh(outputs[:, :2]) * [2.0, 0.5] + [0.0, 0.5]
        np.testing.assert_allclose(policy.choose(observations), expected, atol=1e-5)
    else:
        np.testing.assert_array_equal(policy.choose(observations), outputs.argmax(axis=1))
    drawn = policy.sampled.choose(observations)
    assert not np.array_equal(drawn, policy.choose(observations))
    before = policy.choose(observations).copy()
    drive(algorithm, 100, seed=4)
    np.testing.assert_array_equal(policy.choose(observations), before)


def test_values_are_those_of_the_losses() -> None:
    algorithm = trained("discrete")
    observations = np.random.default_rng(0).standard_normal((9, SIZE)).astype(F)
    values = algorithm.action_values(observations)
    chances = torch.softmax(torch.tensor(algorithm.actor.predict(observations).copy()), dim=1).numpy()
    alpha = algorithm.temperature.value
    np.testing.assert_allclose(
        algorithm.value(observations), (chances * (values - alpha * np.log(chances))).sum(axis=1), rtol=1e-4
    )
    np.testing.assert_array_equal(algorithm.action_values(observations, np.full(9, 2)), values[:, 2])
    continuous = trained("continuous")
    actions = np.tile(np.array([[1.0, 0.25]], dtype=F), (9, 1))
    inputs = np.concatenate([observations, np.tile(np.array([[0.5, -0.5]], dtype=F), (9, 1))], axis=1)
    wanted = continuous.critic.predict(inputs).min(axis=1)
    np.testing.assert_allclose(continuous.action_values(observations, actions), wanted, rtol=1e-5)
    assert continuous.value(observations).shape == (9,)
    with pytest.raises(UsageError, match="cannot be listed"):
        continuous.action_values(observations)


# What is not finite -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SPACES)
@pytest.mark.parametrize("bad", [math.nan, -math.inf])
def test_a_reward_that_is_not_finite_stops_with_the_updates_number(kind: str, bad: float) -> None:
    algorithm = make(kind)
    drive(algorithm, 30)
    before, number = algorithm.parameter_hash(), algorithm.num_updates
    algorithm.choose(np.zeros((2, SIZE), dtype=F))
    with pytest.raises(DivergedError, match=re.escape(f"update {number + 1}: a reward is {bad}")):
        algorithm.record(env_step(np.zeros((2, SIZE)), [0.0, bad]))
    assert algorithm.parameter_hash() == before
    assert number > 0


@pytest.mark.parametrize("kind", SPACES)
@pytest.mark.parametrize("where", ["critic", "target", "actor gradient"])
def test_a_number_that_is_not_finite_changes_no_parameter(kind: str, where: str) -> None:
    algorithm = make(kind)
    drive(algorithm, 30)
    number = algorithm.num_updates
    if where == "actor gradient":
        backward = algorithm.actor.backward

        def broken(gradient: Any, **options: Any) -> Any:
            backward(gradient, **options)
            algorithm.actor.gradients[0] = np.nan

        algorithm.actor.backward = broken  # type: ignore[method-assign, assignment]
    else:
        {"critic": algorithm.critic, "target": algorithm.target}[where].parameters[-1] = np.nan
    before = algorithm.parameter_hash()
    with pytest.raises(DivergedError, match=f"update {number + 1}: .*the parameters are those before it"):
        algorithm._learn(1)
    assert (algorithm.parameter_hash(), algorithm.num_updates) == (before, number)


@pytest.mark.parametrize("kind", SPACES)
def test_outputs_that_are_not_finite_choose_nothing(kind: str) -> None:
    algorithm = make(kind, learning_starts=0)
    algorithm.actor.parameters[:] = np.nan
    with pytest.raises(DivergedError, match="outputs are not finite"):
        algorithm.choose(np.zeros((2, SIZE), dtype=F))


# The same again ---------------------------------------------------------------------------------------------------

FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "n-step": {"n_steps": 3, "gradient_steps": 2, "train_freq": 3, "target_update_interval": 2},
    "fixed temperature": {"ent_coef": 0.1, "layer_norm": True},
}


@pytest.mark.parametrize("kind", SPACES)
@pytest.mark.parametrize("name", FORMS)
def test_the_same_seed_gives_the_same_parameters(kind: str, name: str) -> None:
    one, other, different = (make(kind, seed=seed, **FORMS[name]) for seed in (5, 5, 6))
    for each in (one, other, different):
        drive(each, 60)
    assert one.parameter_hash() == other.parameter_hash() != different.parameter_hash()
    assert one.num_updates > 0


@pytest.mark.parametrize("kind", SPACES)
@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("interrupted", [False, True])
def test_resumed_is_uninterrupted(kind: str, name: str, interrupted: bool) -> None:
    """B10, L7: 200 + 200 steps are 400, bit for bit."""
    options = {**FORMS[name], "buffer_size": 150}
    whole, first, second = (make(kind, **options) for _ in range(3))
    streams = [RandomStream(2, SIZE, seed=1) for _ in range(2)]
    for each, stream in zip((whole, first), streams, strict=True):
        stream.drive(each, 200)
        if interrupted:
            each.interrupt()
    second.restore(first.state())
    del first
    for each, stream in zip((whole, second), streams, strict=True):
        stream.drive(each, 200)
    assert whole.parameter_hash() == second.parameter_hash()
    mine, theirs = whole.state(), second.state()
    assert mine.values == theirs.values
    for key, value in mine.tensors.items():
        np.testing.assert_array_equal(value, theirs.tensors[key])


def test_a_state_of_another_sac_is_refused() -> None:
    with pytest.raises(CorruptError, match="not one of this sac"):
        make("continuous").restore(make("discrete").state())


@pytest.mark.parametrize("kind", SPACES)
def test_a_shuffled_twin_learns_other_things(kind: str) -> None:
    one, control = make(kind), make(kind)
    control.shuffled = True
    for each in (one, control):
        drive(each, 40)
    assert one.parameter_hash() != control.parameter_hash()


# Figures, networks, history, refusals -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SPACES)
def test_figures_have_the_names_of_stable_baselines(kind: str) -> None:
    algorithm = make(kind, gradient_steps=300)
    drive(algorithm, 14)
    figures = algorithm.metrics.take()
    wanted = {
        "train/actor_gradient_norm",
        "train/actor_loss",
        "train/critic_loss",
        "train/dormant_ratio",
        "train/ent_coef",
        "train/ent_coef_loss",
        "train/gradient_norm",
        "train/learning_rate",
        "train/n_updates",
        "train/num_non_finite",
        "train/weight_change",
    }
    assert wanted <= figures.keys()
    assert all(math.isfinite(each) for each in figures.values())


def test_networks_of_ones_own() -> None:
    actor = MLP(MLPConfig(input_size=SIZE, hidden=(9,), heads=(Head(name="policy", size=4),)), seed=1)
    critic = MLP(MLPConfig(input_size=SIZE + 2, hidden=(7,), heads=(Head(name="q", size=2),)), seed=1)
    algorithm = make(networks={"actor": actor, "critic": critic})
    before = actor.parameters.copy(), critic.parameters.copy()
    drive(algorithm, 30)
    assert algorithm.networks() == {"actor": actor, "critic": critic}
    assert not np.array_equal(actor.parameters, before[0])
    assert not np.array_equal(critic.parameters, before[1])
    with pytest.raises(UsageError, match="the critic maps 3 numbers to 4; sac with these spaces needs 5 to 2"):
        make(networks={"actor": actor, "critic": actor})


def test_bounds_that_stand_for_none_are_refused() -> None:
    largest = float(np.finfo(np.float32).max)
    with pytest.raises(UsageError, match=r"an action from -3.4\d+e\+38 to 3.4\d+e\+38 has none in earnest"):
        SAC(SACConfig(), spaces(SIZE, Box(shape=(1,), low=(-largest,), high=(largest,))))


def test_history_is_learned_in_the_units_of_the_space() -> None:
    algorithm = make()
    rng = np.random.default_rng(0)
    low, high = np.array(BOX.low, dtype=float), np.array(BOX.high, dtype=float)
    actions = rng.uniform(low, high, (64, 2)).astype(F)
    ended = np.ones(64, dtype=np.bool_)
    given = Transitions(
        rng.standard_normal((64, SIZE)).astype(F),
        actions,
        rng.standard_normal(64),
        rng.standard_normal((64, SIZE)).astype(F),
        ended,
        ~ended,
    )
    algorithm.learn_from(given, num_updates=3)
    assert (algorithm.num_updates, algorithm.num_steps) == (3, 0)
    sample = algorithm.replay.sample(100, rng)
    np.testing.assert_allclose(algorithm._to_space(sample.actions), actions[sample.numbers], atol=1e-6)


@pytest.mark.parametrize("kind", SPACES)
def test_live_agents(kind: str) -> None:
    algorithm = make(kind, num_envs=1, learning_starts=10)
    for number in range(60):
        action = algorithm.act([0.5, 0.0, -0.5], episode=f"{number % 3}")
        if kind == "continuous":
            assert action.shape == (2,)
            assert action.dtype == F
        algorithm.observe(float(np.sum(action)), episode=f"{number % 3}", terminated=number % 6 > 3)
        algorithm.learn()
    assert algorithm.num_updates > 0
    sample = algorithm.replay.sample(500, np.random.default_rng(0))
    taken = algorithm._to_space(sample.actions)
    total = taken.sum(axis=1) if kind == "continuous" else taken
    np.testing.assert_allclose(sample.rewards, total, atol=1e-5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ent_coef": "auto_0"}, "ent_coef is 'auto_0'"),
        ({"ent_coef": "automatic"}, "ent_coef is 'automatic'"),
        ({"ent_coef": -0.1}, "ent_coef is -0.1"),
        ({"target_entropy": "low"}, "target_entropy is 'low'"),
        ({"target_entropy": math.nan}, "target_entropy is nan"),
        ({"target_entropy_ratio": 1.2}, "target_entropy_ratio is 1.2"),
        ({"batch_size": 501}, "batch_size is 501"),
        ({"gamma": 1.2}, "gamma is 1.2"),
    ],
)
def test_settings_without_a_meaning_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make(**options)


@pytest.mark.parametrize("space", [MultiDiscrete(nvec=(2, 2)), Box(shape=(1,), low=(None,), high=(1.0,))])
def test_other_actions_are_refused(space: Any) -> None:
    with pytest.raises(UsageError, match="sac needs a box with all bounds or a discrete action space"):
        SAC(SACConfig(), spaces(SIZE, space))


# Learning ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", SPACES)
def test_the_soft_values_of_a_bandit_are_found(kind: str) -> None:
    """One step; what an action earns is known, so pi(a) = exp((r - V) / alpha) with V = alpha log of their sum."""
    alpha = 0.5
    algorithm = make(
        kind, num_envs=8, ent_coef=alpha, net_arch=(32, 32), learning_rate=3e-3, batch_size=64, gradient_steps=4
    )
    observations = np.ones((8, SIZE), dtype=F)
    ended = np.ones(8, dtype=np.bool_)
    for _ in range(500):
        actions = algorithm.choose(observations)
        rewards = np.abs(actions - [0.5, 0.5]).sum(axis=1) * -1.0 if kind == "continuous" else 0.4 * actions
        algorithm.record(env_step(observations, rewards, terminated=ended))
        algorithm.learn()
    if kind == "continuous":
        first, second = np.meshgrid(np.linspace(-2, 2, 801), np.linspace(0, 1, 401))
        rewards = -(np.abs(first - 0.5) + np.abs(second - 0.5))
        soft = alpha * math.log(np.exp(rewards / alpha).mean() * 4)  # over actions from -1 to 1, whose square is 4
        found = algorithm.action_values(observations[:3], np.array([[0.5, 0.5], [-1.5, 0.5], [0.5, 0.0]], dtype=F))
        np.testing.assert_allclose(found, [0, -2, -0.5], atol=0.15)
    else:
        rewards = 0.4 * np.arange(N)
        soft = alpha * math.log(np.exp(rewards / alpha).sum())
        np.testing.assert_allclose(algorithm.action_values(observations[:1])[0], rewards, atol=0.1)
        chances = algorithm.policy().probabilities([1.0, 1.0, 1.0])
        np.testing.assert_allclose(chances, np.exp((rewards - soft) / alpha), atol=0.05)
    assert algorithm.value(observations[:1])[0] == pytest.approx(soft, abs=0.15)


def test_the_gradient_of_each_layer_of_each_network_is_told() -> None:
    """S2.4."""
    algorithm = make(gradient_steps=16)
    drive(algorithm, 30)
    networks = algorithm.networks()
    assert networks.keys() == {"actor", "critic"}
    names = {f"train/gradient_norm/{name}/{layer}" for name, each in networks.items() for layer in each.layers()}
    figures = algorithm.metrics.take()
    assert names <= figures.keys()
    assert all(figures[name] > 0 for name in names)
