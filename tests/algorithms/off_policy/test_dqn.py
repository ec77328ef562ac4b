"""DQN: its targets and loss against torch, target updates, exploration, reproducibility, refusals."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
import torch

from learnloop.algorithms.base.config import Linear
from learnloop.algorithms.off_policy import dqn as dqn_module
from learnloop.algorithms.off_policy.dqn import DQN, DQNConfig
from learnloop.algorithms.replay.prioritised import PrioritisedReplay, ReplaySample, Transitions
from learnloop.core.errors import ActionError, CorruptError, DivergedError, UsageError
from learnloop.core.spaces import Box, Discrete, MultiDiscrete
from learnloop.nn.mlp.network import MLP, Head, MLPConfig
from tests.algorithms.chi_square import fits
from tests.algorithms.random_stream import RandomStream
from tests.algorithms.steps import drive, env_step, spaces

F = np.float32
SIZE, N = 3, 4

FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "double": {"double": True},
    "duelling": {"duelling": True},
    "double duelling": {"double": True, "duelling": True},
    "prioritised": {"prioritised": True},
    "n-step": {"n_steps": 3},
    "all": {"double": True, "duelling": True, "prioritised": True, "n_steps": 3},
}


def make(*, num_envs: int = 2, seed: int = 0, n: int = N, network: Any = None, **options: Any) -> DQN:
    defaults: dict[str, Any] = {
        "net_arch": (16,),
        "buffer_size": 500,
        "learning_starts": 20,
        "batch_size": 8,
        "target_update_interval": 40,
        "learning_rate": 1e-2,
    }
    config = DQNConfig(**{**defaults, **options})
    return DQN(config, spaces(SIZE, Discrete(n=n)), num_envs=num_envs, seed=seed, network=network)


def random_sample(size: int = 32, *, masked: bool = False, weighted: bool = False, seed: int = 0) -> ReplaySample:
    rng = np.random.default_rng(seed)
    terminated = rng.random(size) < 0.3
    masks = rng.random((size, N)) < 0.5
    masks[:, 1] |= ~masks.any(axis=1)
    return ReplaySample(
        numbers=np.arange(size),
        following=np.arange(size),
        observations=rng.standard_normal((size, SIZE)).astype(F),
        actions=rng.integers(N, size=size),
        rewards=(3 * rng.standard_normal(size)).astype(F),
        next_observations=rng.standard_normal((size, SIZE)).astype(F),
        discounts=(0.9 ** rng.integers(1, 4, size=size)).astype(F),
        terminated=terminated,
        truncated=~terminated & (rng.random(size) < 0.3),
        masks=masks if masked else None,
        next_masks=masks[::-1] if masked else None,
        weights=rng.random(size).astype(F) if weighted else None,
    )


def torch_network(network: Any, *, duelling: bool) -> torch.nn.Module:
    """The same function, written again in torch, with the parameters copied tensor by tensor."""
    layers = network.layers()

    def tensor(name: str, *shape: int) -> torch.Tensor:
        return torch.tensor(network.parameters[layers[name]].copy()).reshape(shape)

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.hidden = torch.nn.Linear(SIZE, 16)
            self.value = torch.nn.Linear(16, 1 if duelling else N)
            self.advantage = torch.nn.Linear(16, N) if duelling else None
            parts = [("trunk.0", self.hidden), ("value.1", self.value)]
            if self.advantage is not None:
                parts.append(("advantage.1", self.advantage))
            self.named = parts
            with torch.no_grad():
                for name, layer in parts:
                    layer.weight.copy_(tensor(f"{name}.weight", *layer.weight.shape))
                    layer.bias.copy_(tensor(f"{name}.bias", *layer.bias.shape))

        def forward(self, inputs: torch.Tensor) -> torch.Tensor:
            hidden = torch.relu(self.hidden(inputs))
            if self.advantage is None:
                return self.value(hidden)  # type: ignore[no-any-return]
            advantage = self.advantage(hidden)
            return self.value(hidden) + advantage - advantage.mean(dim=1, keepdim=True)  # type: ignore[no-any-return]

    return Net()


def torch_loss(algorithm: DQN, sample: ReplaySample) -> tuple[torch.Tensor, torch.Tensor, torch.nn.Module]:
    """The targets and the loss as the papers and Stable-Baselines3 have them."""
    config = algorithm.config
    online = torch_network(algorithm.network, duelling=config.duelling)
    target = torch_network(algorithm.target, duelling=config.duelling)
    with torch.no_grad():
        arrived = torch.as_tensor(sample.next_observations)
        worth = target(arrived)
        judged = online(arrived) if config.double else worth
        if sample.next_masks is not None:
            judged = judged.masked_fill(~torch.as_tensor(sample.next_masks.copy()), -math.inf)
        best = worth.gather(1, judged.argmax(dim=1, keepdim=True))[:, 0]
        goes_on = 1 - torch.as_tensor(sample.terminated).float()
        targets = torch.as_tensor(sample.rewards) + goes_on * torch.as_tensor(sample.discounts) * best
    chosen = online(torch.as_tensor(sample.observations)).gather(1, torch.as_tensor(sample.actions)[:, None])[:, 0]
    losses = torch.nn.functional.smooth_l1_loss(chosen, targets, reduction="none")
    weights = torch.ones(len(losses)) if sample.weights is None else torch.as_tensor(sample.weights)
    return targets, (weights * losses).mean(), online


@pytest.mark.parametrize("name", ["plain", "double", "duelling", "double duelling"])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_targets_loss_and_gradient_are_those_of_the_papers(name: str, masked: bool, weighted: bool) -> None:
    """F0.3, F2.2: the originals have a config struct, and an update that fails."""
    algorithm = make(**FORMS[name], max_grad_norm=None)
    drive(algorithm, 30)
    algorithm.target.parameters[:] *= F(0.7)
    algorithm.target.refresh()
    sample = random_sample(masked=masked, weighted=weighted)
    expected, loss, online = torch_loss(algorithm, sample)
    loss.backward()  # type: ignore[no-untyped-call]
    targets = algorithm._targets(sample, algorithm.target_values(sample))
    np.testing.assert_allclose(targets, expected, rtol=1e-4, atol=1e-5)
    algorithm.metrics.take()
    errors = algorithm._step(sample, targets, 0.0)
    assert algorithm.metrics.peek()["train/loss"] == pytest.approx(loss.item(), rel=1e-4)
    layers = algorithm.network.layers()
    for part, layer in online.named:  # type: ignore[union-attr]
        for kind in ("weight", "bias"):
            wanted = getattr(layer, kind).grad.reshape(-1)
            np.testing.assert_allclose(
                algorithm.network.gradients[layers[f"{part}.{kind}"]], wanted, rtol=1e-3, atol=1e-6
            )
    chosen = online(torch.as_tensor(sample.observations)).detach().numpy()[np.arange(32), sample.actions]
    np.testing.assert_allclose(errors, chosen - expected.numpy(), rtol=1e-4, atol=1e-5)


def test_a_long_pass_of_the_target_network_is_one_of_its_parts() -> None:
    """Targets of all gradient steps of an update are computed together, as the target network stays as it is."""
    algorithm = make()
    algorithm.target.parameters[:] *= F(0.7)  # another network than the one that learns
    algorithm.target.refresh()
    sample = random_sample(1500)
    repeated = np.random.default_rng(1).integers(1500, size=1500)
    sample = sample._replace(following=repeated, next_observations=sample.next_observations[repeated])
    whole = algorithm.target_values(sample)
    for start in range(0, 1500, 8):
        part = sample.rows(slice(start, start + 8))
        np.testing.assert_allclose(algorithm.target_values(part), whole[start : start + 8], rtol=1e-4, atol=1e-6)
    expected = algorithm.target.predict(sample.next_observations)
    np.testing.assert_allclose(whole, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("at_once", [8, 32, 8192])
def test_what_is_drawn_at_once_is_what_is_drawn_one_after_the_other(at_once: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(dqn_module, "MAX_ROWS", at_once)
    seen: list[np.ndarray] = []
    step = DQN._step

    def spy(self: DQN, sample: ReplaySample, *rest: Any) -> Any:
        seen.append(sample.numbers.copy())
        return step(self, sample, *rest)

    monkeypatch.setattr(DQN, "_step", spy)
    algorithm = make(gradient_steps=10, seed=3)
    drive(algorithm, 40)
    monkeypatch.setattr(dqn_module, "MAX_ROWS", 1)
    alone = make(gradient_steps=10, seed=3)
    together, seen = seen, []
    drive(alone, 40)
    np.testing.assert_array_equal(together, seen)
    np.testing.assert_allclose(algorithm.network.parameters, alone.network.parameters, atol=1e-4)


# Target updates ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tau", "interval"), [(1.0, 40), (0.3, 6), (0.005, 2), (0.5, 1)])
def test_the_target_network_follows(tau: float, interval: int) -> None:
    """Counted in steps of all envs, as Stable-Baselines3 does; recomputed here from the parameters at each step."""
    algorithm = make(tau=tau, target_update_interval=interval, train_freq=3)
    expected = algorithm.target.parameters.astype(np.float64)
    steps = 0
    learn = algorithm.learn

    def spied() -> bool:
        nonlocal expected, steps
        now = algorithm.network.parameters.copy()
        before = steps
        steps = algorithm.num_steps
        for _ in range(steps // interval - before // interval):
            expected = (1 - tau) * expected + tau * now
        learned = learn()
        if learned:
            np.testing.assert_allclose(algorithm.target.parameters, expected, rtol=1e-4, atol=1e-6)
        return learned

    algorithm.learn = spied  # type: ignore[method-assign]
    drive(algorithm, 90)
    assert algorithm.num_updates > 20
    assert not np.array_equal(algorithm.target.parameters, algorithm.network.parameters)


# When it learns ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_envs", [1, 3])
def test_updates_come_when_stable_baselines_has_them(num_envs: int) -> None:
    algorithm = make(num_envs=num_envs, train_freq=4, gradient_steps=2, learning_starts=30)
    counts = []
    for _ in range(20):
        drive(algorithm, 1)
        counts.append((algorithm.num_steps, algorithm.num_updates))
    updates = 0
    for at, (steps, found) in enumerate(counts, start=1):
        if at % 4 == 0 and steps > 30:
            updates += 2
        assert found == updates


@pytest.mark.parametrize("num_envs", [1, 3])
def test_as_many_gradient_steps_as_steps(num_envs: int) -> None:
    algorithm = make(num_envs=num_envs, train_freq=4, gradient_steps=-1, learning_starts=0)
    drive(algorithm, 8)
    assert algorithm.num_updates == algorithm.num_steps == 8 * num_envs


def test_rows_that_are_not_valid_are_not_learned() -> None:
    """An env that only reset itself (gymnasium's NEXT_STEP) made no transition."""
    algorithm = make()
    observations = np.arange(6, dtype=F).reshape(2, 3)
    for step in range(6):
        algorithm.choose(observations)
        observations = observations + 1
        algorithm.record(env_step(observations, [1.0, 7.0], valid=[True, step % 2 == 0]))
    assert algorithm.num_steps == 9
    sample = algorithm.replay.sample(500, np.random.default_rng(0))
    assert set(sample.numbers) == set(range(9))
    np.testing.assert_array_equal(sample.next_observations, sample.observations + 1)
    assert set(sample.observations[sample.rewards == 7, 0]) == {3, 5, 7}


def test_a_batch_may_be_larger_than_what_is_recorded() -> None:
    algorithm = make(batch_size=64, learning_starts=0, train_freq=1, num_envs=1)
    drive(algorithm, 3)
    assert algorithm.num_updates == 3


# Exploration ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("num_envs", [1, 5])
@pytest.mark.parametrize("masked", [False, True])
def test_exploration_is_as_often_as_it_should_be(num_envs: int, masked: bool) -> None:
    algorithm = make(
        num_envs=num_envs,
        learning_starts=0,
        exploration_fraction=0.5,
        exploration_initial_eps=0.8,
        exploration_final_eps=0.2,
    )
    observations = np.random.default_rng(0).standard_normal((num_envs, SIZE)).astype(F)
    masks = np.tile([True, True, False, True], (num_envs, 1)) if masked else None
    allowed = np.array([1, 1, 0, 1]) if masked else np.ones(N)
    values = algorithm.action_values(observations)
    best = np.where(allowed > 0, values, -np.inf).argmax(axis=1)
    for progress, rate in ((0.0, 0.8), (0.25, 0.5), (0.5, 0.2), (1.0, 0.2)):
        algorithm.set_progress(progress)
        assert algorithm.exploration_rate == pytest.approx(rate)
        counts = np.zeros((num_envs, N))
        for _ in range(2000):
            counts[np.arange(num_envs), algorithm.choose(observations, masks)] += 1
        for lane in range(num_envs):
            odds = rate * allowed / allowed.sum()
            odds[best[lane]] += 1 - rate
            assert fits(counts[lane], odds)


def test_actions_are_uniform_until_learning_starts() -> None:
    algorithm = make(learning_starts=300, exploration_initial_eps=0.0, exploration_final_eps=0.0)
    observations = np.zeros((2, SIZE), dtype=F)
    counts = np.bincount(np.concatenate([algorithm.choose(observations) for _ in range(2000)]), minlength=N)
    assert fits(counts, np.full(N, 1 / N))


@pytest.mark.parametrize("name", ["plain", "double duelling"])
@pytest.mark.parametrize("num_envs", [1, 4])
def test_masks_are_never_violated(name: str, num_envs: int) -> None:
    """P11: in 10,000 draws, explored and greedy, while it learns, and in the policy."""
    algorithm = make(num_envs=num_envs, learning_starts=100, exploration_final_eps=0.5, **FORMS[name])
    algorithm.set_progress(1.0)
    rng = np.random.default_rng(0)
    draws = 0
    observations = rng.standard_normal((num_envs, SIZE)).astype(F)
    masks = np.ones((num_envs, N), dtype=np.bool_)
    while draws < 10_000:
        actions = algorithm.choose(observations, masks)
        assert masks[np.arange(num_envs), actions].all()
        if draws % 40 == 0:
            policy = algorithm.policy()
        assert masks[np.arange(num_envs), policy.choose(observations, masks)].all()
        draws += 2 * num_envs
        observations = rng.standard_normal((num_envs, SIZE)).astype(F)
        masks = rng.random((num_envs, N)) < 0.4
        masks[:, rng.integers(N)] = True
        algorithm.record(env_step(observations, rng.random(num_envs), masks=masks, final_masks=masks))
        if draws % 50 == 0:
            algorithm.learn()
    assert algorithm.num_updates > 0


def test_a_mask_that_allows_nothing_is_refused() -> None:
    algorithm = make()
    masks = np.array([[True] * N, [False] * N])
    with pytest.raises(ActionError, match="env 1 allows no action"):
        algorithm.choose(np.zeros((2, SIZE), dtype=F), masks)


# What is not finite -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e39])
def test_a_reward_that_is_not_finite_stops_with_the_updates_number(bad: float) -> None:
    algorithm = make()
    drive(algorithm, 40)
    before, number = algorithm.parameter_hash(), algorithm.num_updates
    algorithm.choose(np.zeros((2, SIZE), dtype=F))
    with pytest.raises(DivergedError, match=re.escape(f"update {number + 1}: a reward is {bad}")):
        algorithm.record(env_step(np.zeros((2, SIZE)), [0.0, bad]))
    assert algorithm.parameter_hash() == before
    assert number > 0
    assert algorithm.metrics.peek()["train/num_non_finite"] == 1


@pytest.mark.parametrize("name", ["plain", "all"])
@pytest.mark.parametrize("where", ["parameters", "target"])
def test_a_loss_that_is_not_finite_stops_before_the_update(name: str, where: str) -> None:
    algorithm = make(**FORMS[name])
    drive(algorithm, 40)
    number = algorithm.num_updates
    broken = algorithm.network if where == "parameters" else algorithm.target
    broken.parameters[-1] = np.nan
    broken.refresh()
    before, moments = algorithm.parameter_hash(), algorithm.optimizer.state()["first_moment"].copy()
    with pytest.raises(DivergedError, match=f"update {number + 1}: the loss is nan"):
        algorithm._learn(1)
    assert (algorithm.parameter_hash(), algorithm.num_updates) == (before, number)
    np.testing.assert_array_equal(algorithm.optimizer.state()["first_moment"], moments)


def test_a_gradient_that_is_not_finite_stops_before_the_update() -> None:
    algorithm = make()
    drive(algorithm, 40)
    before, number = algorithm.parameter_hash(), algorithm.num_updates
    backward = algorithm.network.backward

    def broken(gradient: Any, **options: Any) -> Any:
        backward(gradient, **options)
        algorithm.network.gradients[3:5] = np.inf

    algorithm.network.backward = broken  # type: ignore[method-assign, assignment]
    with pytest.raises(DivergedError, match=f"update {number + 1}: the gradient has norm inf"):
        algorithm._learn(1)
    assert (algorithm.parameter_hash(), algorithm.num_updates) == (before, number)


def test_outputs_that_are_not_finite_choose_nothing() -> None:
    algorithm = make(learning_starts=0, exploration_initial_eps=0.0, exploration_final_eps=0.0)
    algorithm.network.parameters[:] = np.nan
    with pytest.raises(DivergedError, match="outputs are not finite"):
        algorithm.choose(np.zeros((2, SIZE), dtype=F))


# The same again ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMS)
def test_the_same_seed_gives_the_same_parameters(name: str) -> None:
    one, other, different = (make(seed=seed, **FORMS[name]) for seed in (5, 5, 6))
    for each in (one, other, different):
        drive(each, 80)
    assert one.parameter_hash() == other.parameter_hash() != different.parameter_hash()
    assert one.num_updates > 0


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("num_envs", [1, 3])
@pytest.mark.parametrize("interrupted", [False, True])
def test_resumed_is_uninterrupted(name: str, num_envs: int, interrupted: bool) -> None:
    """B10, L7: 200 + 200 steps are 400, bit for bit; the replay has gone round by then."""
    options = {**FORMS[name], "num_envs": num_envs, "buffer_size": 150, "target_update_interval": 7, "tau": 0.5}
    whole, first, second = (make(**options) for _ in range(3))
    streams = [RandomStream(num_envs, SIZE, seed=1) for _ in range(2)]
    for each, stream in zip((whole, first), streams, strict=True):
        stream.drive(each, 200)
        each.set_progress(0.5)
        if interrupted:
            each.interrupt()
    state = first.state()
    assert state.values["algorithm"] == "dqn"
    second.restore(state)
    del first
    for each, stream in zip((whole, second), streams, strict=True):
        stream.drive(each, 200)
    assert whole.parameter_hash() == second.parameter_hash()
    mine, theirs = whole.state(), second.state()
    assert mine.values == theirs.values
    assert mine.tensors.keys() == theirs.tensors.keys()
    for key, value in mine.tensors.items():
        np.testing.assert_array_equal(value, theirs.tensors[key])


def test_a_state_of_another_algorithm_is_refused() -> None:
    state = make().state()
    with pytest.raises(CorruptError, match="not one of this dqn"):
        make(net_arch=(8,)).restore(state)
    with pytest.raises(CorruptError, match="cannot be read"):
        make(prioritised=True).restore(state)
    with pytest.raises(CorruptError, match="not one of this dqn"):
        make().restore(state._replace(tensors={}))


def test_a_shuffled_twin_has_the_same_targets_for_other_transitions() -> None:
    algorithm = make()
    algorithm.shuffled = True
    sample = random_sample()
    following = algorithm.target_values(sample)
    found = algorithm._targets(sample, following)
    algorithm.shuffled = False
    expected = algorithm._targets(sample, following)
    assert not np.array_equal(found, expected)
    np.testing.assert_array_equal(np.sort(found), np.sort(expected))


# Figures, policies, networks of one's own -------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["plain", "prioritised"])
def test_figures_have_the_names_of_stable_baselines(name: str) -> None:
    algorithm = make(**FORMS[name], gradient_steps=400)
    drive(algorithm, 40)
    figures = algorithm.metrics.take()
    wanted = {
        "rollout/exploration_rate",
        "train/dormant_ratio",
        "train/gradient_norm",
        "train/learning_rate",
        "train/loss",
        "train/n_updates",
        "train/num_non_finite",
        "train/weight_change",
    }
    assert wanted <= figures.keys()
    assert figures["train/n_updates"] == algorithm.num_updates
    assert figures["train/num_non_finite"] == 0
    assert 0 < figures["train/weight_change"] < 1
    assert ("train/priority_beta" in figures) == (name == "prioritised")


def test_the_weights_of_priorities_are_annealed() -> None:
    """F0.10: the original's beta never moves."""
    algorithm = make(prioritised=True)
    for progress, beta in ((0.0, 0.4), (0.5, 0.7), (1.0, 1.0)):
        algorithm.set_progress(progress)
        drive(algorithm, 20)
        assert algorithm.metrics.take()["train/priority_beta"] == pytest.approx(beta)
    assert isinstance(algorithm.replay, PrioritisedReplay)


def test_priorities_are_the_errors() -> None:
    algorithm = make(prioritised=True, buffer_size=60, learning_rate=0.0, gradient_steps=60, max_grad_norm=None)
    drive(algorithm, 60)
    replay = algorithm.replay
    assert isinstance(replay, PrioritisedReplay)
    numbers = np.arange(replay.oldest, replay.num_added)
    sample = replay._gather(numbers, None)
    errors = algorithm._values(algorithm.network.predict(sample.observations))[np.arange(60), sample.actions]
    errors = errors - algorithm._targets(sample, algorithm.target_values(sample))
    found = replay.priorities(numbers)
    seen = found != replay._largest
    assert seen.sum() > 30
    np.testing.assert_allclose(found[seen], (np.abs(errors) + 1e-6)[seen] ** 0.6, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["plain", "duelling"])
def test_the_policy_is_greedy_and_frozen(name: str) -> None:
    algorithm = make(**FORMS[name])
    drive(algorithm, 30)
    policy = algorithm.policy()
    observations = np.random.default_rng(0).standard_normal((50, SIZE)).astype(F)
    values = algorithm.action_values(observations)
    np.testing.assert_array_equal(policy.choose(observations), values.argmax(axis=1))
    before = policy.choose(observations).copy()
    drive(algorithm, 200, seed=4)
    np.testing.assert_array_equal(policy.choose(observations), before)


def test_a_network_of_ones_own() -> None:
    config = MLPConfig(input_size=SIZE, hidden=(9, 7), heads=(Head(name="q", size=N),), activation="tanh")
    network = MLP(config, seed=1)
    algorithm = make(network=network)
    before = network.parameters.copy()
    drive(algorithm, 40)
    assert algorithm.network is network
    assert algorithm.networks() == {"network": network}
    assert not np.array_equal(network.parameters, before)
    with pytest.raises(UsageError, match="maps 3 numbers to 4; dqn with these spaces needs 3 to 5: V, then"):
        make(network=network, duelling=True)


# Refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 600}, "batch_size is 600, more than the 500 transitions"),
        ({"learning_starts": 501}, "learning_starts is 501, more than the 500"),
        ({"exploration_final_eps": 1.5}, r"exploration_final_eps is 1.5; allowed is from 0 to 1"),
        ({"exploration_initial_eps": 0.1, "exploration_final_eps": 0.2}, "exploration falls"),
        ({"exploration_fraction": 0.0}, "exploration_fraction is 0.0"),
        ({"gamma": 1.2}, "gamma is 1.2"),
        ({"tau": -0.1}, "tau is -0.1"),
        ({"train_freq": 0}, "train_freq is 0"),
        ({"gradient_steps": 0}, "gradient_steps is 0"),
        ({"n_steps": 0}, "n_steps is 0"),
        ({"max_grad_norm": 0.0}, "max_grad_norm is 0.0"),
        ({"priority_beta": Linear(initial=0.4, final=1.4)}, "priority_beta is 1.4"),
        ({"priority_alpha": 1.4}, "priority_alpha is 1.4"),
        ({"dropout": 0.1}, "dropout is 0.1"),
        ({"buffer_size": 8, "n_steps": 5, "learning_starts": 0}, "2 envs with returns of 5 steps need at least 10"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make(**options)


@pytest.mark.parametrize("space", [MultiDiscrete(nvec=(2, 2)), Box(shape=(1,), low=(0.0,), high=(1.0,))])
def test_other_actions_are_refused(space: Any) -> None:
    with pytest.raises(UsageError, match="dqn needs a discrete action space"):
        DQN(DQNConfig(), spaces(SIZE, space))


def test_calls_out_of_order_are_refused() -> None:
    algorithm = make()
    with pytest.raises(UsageError, match="record was called without choose"):
        algorithm.record(env_step(np.zeros((2, SIZE)), [0.0, 0.0]))
    with pytest.raises(UsageError, match="3 observations were given for 2 envs"):
        algorithm.choose(np.zeros((3, SIZE), dtype=F))


# Live episodes and history ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_steps", [1, 3])
def test_live_episodes_never_mix(n_steps: int) -> None:
    """F1.3: two clients at once; each observation tells its client and step, each reward the observation."""
    algorithm = make(n_steps=n_steps, buffer_size=2000, learning_starts=1000)
    rng = np.random.default_rng(0)
    at = {"a": 0, "b": 0}
    codes = {"a": 1.0, "b": 2.0}

    def show(name: str) -> list[float]:
        return [codes[name], float(at[name]), 0.0]

    for _ in range(300):
        name = "ab"[rng.integers(2)]
        algorithm.act(show(name), episode=name)
        reward = 100 * codes[name] + at[name]
        at[name] += 1
        ending = at[name] % 7 == 0
        algorithm.observe(reward, episode=name, truncated=ending, next_observation=show(name) if ending else None)
    sample = algorithm.replay.sample(2000, np.random.default_rng(0))
    client, step = sample.observations[:, 0], sample.observations[:, 1]
    assert set(client) == {1, 2}
    np.testing.assert_array_equal(sample.next_observations[:, 0], client)
    count = np.minimum(n_steps, 7 - step % 7).astype(int)
    np.testing.assert_array_equal(sample.next_observations[:, 1], step + count)
    gamma = algorithm.config.gamma
    expected = [
        sum(gamma**age * (100 * who + when + age) for age in range(number))
        for who, when, number in zip(client, step, count, strict=True)
    ]
    np.testing.assert_allclose(sample.rewards, expected, rtol=1e-5)
    np.testing.assert_allclose(sample.discounts, gamma**count, rtol=1e-6)
    np.testing.assert_array_equal(sample.truncated, (step + count) % 7 == 0)
    assert not sample.terminated.any()


def test_live_episodes_that_wait_long_keep_their_observations() -> None:
    algorithm = make(buffer_size=3000, learning_starts=2000, n_steps=2)
    slow = [7.0, 7.0, 7.0]
    algorithm.act(slow, episode="slow")
    for number in range(1000):
        algorithm.act([1.0, float(number), 0.0], episode="fast")
        algorithm.observe(0.0, episode="fast", terminated=number % 10 == 9)
    algorithm.observe(5.0, episode="slow", next_observation=[8.0, 8.0, 8.0], truncated=True)
    sample = algorithm.replay.sample(20_000, np.random.default_rng(0))
    (row, *_) = np.flatnonzero(sample.rewards == 5)
    assert sample.observations[row].tolist() == slow
    assert sample.next_observations[row].tolist() == [8.0, 8.0, 8.0]


def test_a_live_agent_learns_and_may_be_discarded() -> None:
    algorithm = make(num_envs=1, learning_starts=50, train_freq=4, batch_size=16, n=2, target_update_interval=20)
    rng = np.random.default_rng(0)
    algorithm.set_progress(1.0)
    for number in range(400):
        seen = [float(rng.choice([-1, 1])), 0.0, 0.0]
        name = f"request {number}"
        action = algorithm.act(seen, episode=name, mask=[True, True])
        if number % 10 == 3:
            algorithm.discard(name)
            continue
        algorithm.observe(1.0 if (action == 1) == (seen[0] > 0) else -1.0, episode=name, terminated=True)
        algorithm.learn()
    values = algorithm.action_values(np.array([[-1, 0, 0], [1, 0, 0]], dtype=F))
    np.testing.assert_allclose(values, [[1, -1], [-1, 1]], atol=0.3)
    assert algorithm.num_steps == 360


def history(size: int = 64) -> Transitions:
    rng = np.random.default_rng(0)
    ended = rng.random(size) < 0.5
    return Transitions(
        rng.standard_normal((size, SIZE)).astype(F),
        rng.integers(N, size=size),
        rng.standard_normal(size),
        rng.standard_normal((size, SIZE)).astype(F),
        ended,
        ~ended,
    )


def test_history_is_learned_without_a_step() -> None:
    """Section 3 of the issue: never as if it were on-policy; one-step targets hold for any policy that acted."""
    algorithm = make()
    algorithm.learn_from(history(), num_updates=5)
    assert (len(algorithm.replay), algorithm.num_updates, algorithm.num_steps) == (64, 5, 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rewards": np.full(64, np.nan)}, "rewards of historical transitions are not finite"),
        ({"rewards": np.full(64, 1e39)}, "rewards of historical transitions are not finite in 32 bits"),
        ({"rewards": ["1"] * 64}, "rewards of historical transitions .* not .* numbers"),
        ({"rewards": np.zeros(0)}, "at least 1 is needed"),
        ({"observations": np.full((64, SIZE), np.inf, dtype=F)}, "observations of historical transitions are not"),
        ({"actions": np.full(64, N)}, r"historical transitions have actions from 4 to 4; .* below \[4\]"),
        ({"actions": np.zeros((64, 2), dtype=int)}, r"actions of historical transitions have shape \(64, 2\)"),
        ({"actions": np.full(64, 0.7)}, "actions of .* type float64, not .* integers"),
        ({"observations": np.zeros((64, 2), dtype=F)}, "observations of historical transitions have shape"),
        ({"observations": [[1.0], [1.0, 2.0]]}, "observations of historical transitions are no array"),
        ({"terminated": np.zeros(3, dtype=np.bool_)}, r"terminated of historical transitions have shape \(3,\)"),
        ({"terminated": np.zeros(64, dtype=int)}, "terminated of .* type int64, not .* booleans"),
        ({"masks": np.ones((64, N + 1), dtype=np.bool_)}, r"masks of historical transitions have shape \(64, 5\)"),
        ({"next_masks": np.ones((64, N))}, "next_masks of historical transitions .* booleans"),
        ({"masks": np.zeros((64, N), dtype=np.bool_)}, "an action that its mask does not allow"),
    ],
)
def test_history_that_does_not_fit_is_refused(change: dict[str, Any], message: str) -> None:
    algorithm = make()
    with pytest.raises(UsageError, match=message):
        algorithm.learn_from(history()._replace(**change))
    assert len(algorithm.replay) == 0


def test_what_came_after_an_end_is_not_looked_at() -> None:
    algorithm = make()
    given = history()
    given.next_observations[given.terminated] = np.nan
    algorithm.learn_from(given, num_updates=5)
    assert np.isfinite(algorithm.network.parameters).all()


@pytest.mark.parametrize("options", [{}, {"gradient_steps": -1}, {"train_freq": 1, "gradient_steps": 2}])
def test_history_alone_is_learned_over_many_steps(options: dict[str, Any]) -> None:
    """V of a chain of three states with a reward at its end: .81, .9, 1; the target network must move for that."""
    settings = {"gamma": 0.9, "target_update_interval": 50, "learning_rate": 3e-3, "batch_size": 32, **options}
    algorithm = make(n=1, num_envs=1, **settings)
    at = np.arange(60) % 3
    states = np.eye(3, dtype=F)
    ends = at == 2
    actions, never = np.zeros(60, dtype=np.int64), np.zeros(60, dtype=np.bool_)
    chain = Transitions(states[at], actions, ends.astype(float), states[(at + 1) % 3], ends, never)
    for _ in range(150):  # in small parts: the interval counts over calls
        algorithm.learn_from(chain, num_updates=20)
    np.testing.assert_allclose(algorithm.action_values(states)[:, 0], [0.81, 0.9, 1.0], atol=0.02)
    again = make(n=1, num_envs=1, **settings)
    again.restore(algorithm.state())
    for each in (algorithm, again):
        each.learn_from(chain, num_updates=37)
    assert again.parameter_hash() == algorithm.parameter_hash()
    np.testing.assert_array_equal(again.target.parameters, algorithm.target.parameters)


def test_history_is_not_for_returns_of_several_steps() -> None:
    with pytest.raises(UsageError, match=r"n_steps is 3; historical transitions"):
        make(n_steps=3).learn_from(history())


# Learning ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FORMS)
def test_the_values_of_a_chain_are_found(name: str) -> None:
    """Two states. Action 1 goes from the first to the second for 0, and from there ends for 1; action 0 stays for -.1.

    Episodes are cut after 6 steps, which the values must not show: Q(0, 1) = gamma, Q(1, 1) = 1, and Q(s, 0) is -.1 +
    gamma V(s). Returns of 3 steps contain explored actions, so that they are held to less.
    """
    gamma = 0.5
    algorithm = make(
        num_envs=4,
        n=2,
        gamma=gamma,
        net_arch=(32,),
        learning_rate=5e-3,
        batch_size=32,
        train_freq=1,
        gradient_steps=2,
        target_update_interval=20,
        exploration_fraction=0.5,
        buffer_size=2000,
        learning_starts=50,
        **FORMS[name],
    )
    shown = np.eye(SIZE, dtype=F)
    states, ages = np.zeros(4, dtype=int), np.zeros(4, dtype=int)
    observations = shown[states]
    for step in range(500):
        algorithm.set_progress(step / 500)
        actions = algorithm.choose(observations)
        rewards = np.where(actions == 0, -0.1, states.astype(float))
        terminated = (actions == 1) & (states == 1)
        arrived = np.where(actions == 1, 1, states)
        ages += 1
        truncated = ~terminated & (ages >= 6)
        ended = terminated | truncated
        states = np.where(ended, 0, arrived)
        ages[ended] = 0
        observations = shown[states]
        algorithm.record(
            env_step(
                observations,
                rewards,
                final_observations=shown[arrived],
                terminated=terminated,
                truncated=truncated,
            )
        )
        algorithm.learn()
    found = algorithm.action_values(shown[:2])
    expected = [[-0.1 + gamma * gamma, gamma], [-0.1 + gamma, 1.0]]
    np.testing.assert_allclose(found, expected, atol=0.25 if algorithm.config.n_steps > 1 else 0.08)
    np.testing.assert_allclose(found[:, 1], [gamma, 1.0], atol=0.08)


# Live agents ------------------------------------------------------------------------------------------------------


def live(algorithm: DQN, num_steps: int) -> None:
    for _ in range(num_steps):
        algorithm.act([0.0, 0.0, 0.0])
        algorithm.observe(1.0)
        algorithm.learn()


def test_exploration_falls_with_the_live_steps() -> None:
    algorithm = make(num_envs=1, live_steps=200, exploration_fraction=0.5)
    live(algorithm, 51)  # the last step waits for what it led to
    assert algorithm.progress == 0.25
    assert algorithm.exploration_rate == pytest.approx(0.525)
    live(algorithm, 300)
    assert algorithm.progress == 1
    assert algorithm.exploration_rate == pytest.approx(0.05)


def test_a_live_agent_whose_exploration_never_falls_is_warned_of_once() -> None:
    algorithm = make(num_envs=1, train_freq=1)
    with pytest.warns(UserWarning, match="exploration_initial_eps of dqn change .* Set live_steps"):
        live(algorithm, 30)
    live(algorithm, 5)  # a second warning would be an error
    told = make(num_envs=1, train_freq=1)
    told.set_progress(0.1)
    live(told, 30)
    constant = make(num_envs=1, train_freq=1, exploration_initial_eps=0.1, exploration_final_eps=0.1)
    live(constant, 30)


def test_live_steps_must_be_a_count() -> None:
    with pytest.raises(UsageError, match="live_steps is 0; allowed is from 1"):
        make(live_steps=0)


def test_what_is_allowed_after_a_cut_counts() -> None:
    """The value of a truncated episode is that of its best allowed action."""
    algorithm = make(num_envs=1)
    algorithm.act([0.0, 0.0, 0.0])
    with pytest.raises(ActionError, match="allows no action"):
        algorithm.observe(1.0, truncated=True, next_observation=[1.0, 0.0, 0.0], next_mask=[False] * N)
    algorithm.observe(1.0, truncated=True, next_observation=[1.0, 0.0, 0.0], next_mask=[False, True, False, False])
    sample = algorithm.replay.sample(1, np.random.default_rng(0))
    assert sample.next_masks is not None
    assert sample.next_masks.tolist() == [[False, True, False, False]]
    following = np.array([[9.0, 2.0, 9.0, 9.0]], dtype=F)
    np.testing.assert_allclose(algorithm._targets(sample, following), [1 + 0.99 * 2.0], rtol=1e-6)


@pytest.mark.parametrize(
    "name", ["num_collected", "next_dormant", "steps_to_target", "num_target_updates", "updates_to_target"]
)
def test_a_counter_that_is_none_is_refused(name: str) -> None:
    algorithm = make()
    state = algorithm.state()
    for value in ("x", -1, 1.5, None):
        with pytest.raises(CorruptError, match=f"{name} is {value!r}, not a whole number from 0"):
            algorithm.restore(state._replace(values={**state.values, name: value}))


def test_numbers_of_other_lanes_are_refused() -> None:
    algorithm = make()
    state = algorithm.state()
    with pytest.raises(CorruptError, match=r"numbers of observations have shape \(3,\)"):
        algorithm.restore(state._replace(tensors={**state.tensors, "numbers": np.zeros(3, dtype=np.int64)}))
