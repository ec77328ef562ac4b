"""What all that learn from logged data share: what they load and refuse, how they resume, and that they act."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from learnloop.algorithms.building import ALGORITHMS, build_algorithm, configure
from learnloop.algorithms.policies.network_policy import NetworkPolicy
from learnloop.core.datasets import Dataset
from learnloop.core.errors import ActionError, CorruptError, DivergedError, UsageError
from learnloop.core.spaces import Box, Discrete, MultiDiscrete
from tests.algorithms.chi_square import fits
from tests.algorithms.logged_chains import chain, make, observed, random_dataset
from tests.algorithms.steps import env_step, spaces

F = np.float32
NAMES = ["bc", "cql", "iql", "awac"]
COMPARING = ["cql", "iql", "awac"]


def changed(data: Dataset, **fields: Any) -> Dataset:
    return dataclasses.replace(data, **fields)


def with_value(array: np.ndarray, at: Any, value: Any) -> np.ndarray:
    copy = array.copy()
    copy[at] = value
    return copy


# What is loaded ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_arrays_are_kept_and_never_written_to(name: str) -> None:
    data = random_dataset(masked=True)
    for array in data.arrays().values():
        array.flags.writeable = False
    before = data.fingerprint()
    algorithm = make(name, data)
    algorithm.update(30)
    assert np.shares_memory(algorithm._steps.observations, data.observations)
    assert np.shares_memory(algorithm._steps.next_observations, data.next_observations)
    assert np.shares_memory(algorithm._steps._columns[1], data.actions)
    assert algorithm.fingerprint == before == data.fingerprint()
    assert algorithm.num_steps == data.num_steps


def test_steps_are_drawn_uniformly_and_belong_together() -> None:
    """Logged actions are never re-interpreted: each row is the logged one; after an end comes nothing."""
    data = random_dataset(num_steps=40, masked=True)
    steps = make("bc", data, batch_size=50)._steps
    rng = np.random.default_rng(0)
    counts = np.zeros(40)
    for _ in range(200):
        drawn = steps.draw(rng)
        np.add.at(counts, drawn.rows, 1)
        for name in ("observations", "actions", "next_observations", "masks"):
            np.testing.assert_array_equal(getattr(drawn, name), getattr(data, name)[drawn.rows])
        np.testing.assert_array_equal(drawn.rewards, data.rewards[drawn.rows].astype(F))
        terminated = data.terminated[drawn.rows]
        np.testing.assert_array_equal(drawn.discounts, np.where(terminated, F(0), F(0.9)))
        np.testing.assert_array_equal(drawn.next_masks, data.next_masks[drawn.rows] | terminated[:, None])
    assert fits(counts, np.full(40, 1 / 40))


@pytest.mark.parametrize("name", COMPARING)
def test_a_log_of_one_action_has_nothing_to_compare(name: str) -> None:
    data = chain(100, chances=(1.0, 1.0, 1.0))
    algorithm = make(name, data, load=False)
    with pytest.raises(
        UsageError, match=rf"only one action was ever taken; behaviour cloning \(bc\).*what {name} does"
    ):
        algorithm.load(data)
    with pytest.raises(UsageError, match="none is loaded"):
        algorithm.update()


NOT_ALLOWED = random_dataset(masked=True)
BAD: dict[str, tuple[Any, str]] = {
    "a reward that is not known": (
        lambda data: changed(data, rewards=with_value(data.rewards, 3, np.nan)),
        "rewards of historical transitions are not finite",
    ),
    "an observation that is not finite": (
        lambda data: changed(data, observations=with_value(data.observations, (3, 1), np.inf)),
        "observations of historical transitions are not finite",
    ),
    "an observation of another size": (
        lambda data: changed(data, observations=data.observations[:, :3]),
        r"have shape \(300, 3\)",
    ),
    "actions that do not exist": (
        lambda data: changed(data, actions=with_value(data.actions, 3, 3)),
        r"actions from 0 to 3; they count from 0 to below \[3\]",
    ),
    "actions that are no numbers of actions": (
        lambda data: changed(data, actions=data.actions.astype(F)),
        "type float32, not .* and integers",
    ),
    "an action that its mask does not allow": (
        lambda data: changed(
            NOT_ALLOWED,
            masks=with_value(NOT_ALLOWED.masks, (3, NOT_ALLOWED.actions[3]), False),  # type: ignore[arg-type]
        ),
        "an action that its mask does not allow",
    ),
    "a mask that allows nothing where it goes on": (
        lambda data: changed(NOT_ALLOWED, next_masks=np.zeros_like(NOT_ALLOWED.next_masks)),
        "goes on after step .*, and next_masks allow no action there",
    ),
    "other actions": (
        lambda data: random_dataset(Discrete(n=4)),
        r"logs Discrete\(n=4.*Build it for the data set's spaces",
    ),
    "other observations": (lambda data: random_dataset(size=5), "shows 5 numbers"),
}


@pytest.mark.parametrize("what", BAD)
@pytest.mark.parametrize("name", NAMES)
def test_data_that_cannot_be_learned_from_is_refused(name: str, what: str) -> None:
    data = random_dataset()
    spoil, message = BAD[what]
    algorithm = make(name, data)
    before = algorithm.fingerprint
    with pytest.raises(UsageError, match=message) as caught:
        algorithm.load(spoil(data))
    assert "a test" in str(caught.value)  # the data set is named
    assert algorithm.fingerprint == before
    algorithm.update(2)


def test_a_continuous_action_outside_the_space_is_refused() -> None:
    data = random_dataset(Box(shape=(2,), low=(-1.0, -1.0), high=(1.0, 1.0)))
    algorithm = make("bc", data)
    with pytest.raises(UsageError, match=r"the action of step 7 .* is \[.*1.5\], outside Box"):
        algorithm.load(changed(data, actions=with_value(data.actions, (7, 1), 1.5)))


@pytest.mark.parametrize("name", NAMES)
def test_what_came_after_an_end_is_not_looked_at(name: str) -> None:
    data = random_dataset()
    spoiled = changed(data, next_observations=with_value(data.next_observations, data.terminated, np.nan))
    one, other = make(name, data), make(name, spoiled)
    for each in (one, other):
        each.update(50)
    assert np.isfinite(other.actor.parameters if name != "cql" else other.network.parameters).all()
    assert one.parameter_hash() == other.parameter_hash()


@pytest.mark.parametrize("name", COMPARING)
def test_truncated_steps_are_bootstrapped(name: str) -> None:
    """The same steps, terminated instead of truncated, give other values."""
    data = random_dataset()
    ended = changed(data, terminated=data.terminated | data.truncated, truncated=np.zeros_like(data.truncated))
    one, other = make(name, data), make(name, ended)
    for each in (one, other):
        each.update(50)
    assert one.parameter_hash() != other.parameter_hash()


# Learning ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("masked", [False, True])
def test_many_calls_are_one_and_the_same_seed_the_same_parameters(name: str, masked: bool) -> None:
    data = random_dataset(masked=masked)
    options = {"target_update_interval": 20} if name == "cql" else {}
    one, other, different = (make(name, data, seed=seed, **options) for seed in (5, 5, 6))
    one.update(75)
    different.update(75)
    for count in (1, 30, 7, 37):
        other.update(count)
    assert one.num_updates == other.num_updates == 75
    assert one.parameter_hash() == other.parameter_hash() != different.parameter_hash()


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("loaded_first", [False, True])
@pytest.mark.parametrize("shuffled", [False, True])
def test_resumed_is_uninterrupted(name: str, loaded_first: bool, shuffled: bool) -> None:
    """L7: 60 + 60 updates are 120, bit for bit, and the same draws when acting."""
    data = random_dataset(masked=True)
    options = {"shuffled": shuffled, **({"target_update_interval": 25} if name == "cql" else {})}
    whole, first = (make(name, data, **options) for _ in range(2))
    second = make(name, data, load=loaded_first, **options)
    observations = np.random.default_rng(0).standard_normal((1, 4)).astype(F)
    for each in (whole, first):
        each.set_progress(0.5)
        each.update(60)
        each.choose(observations)
    state = first.state()
    assert state.values["algorithm"] == name
    second.restore(state)
    if not loaded_first:
        second.load(data)
    for each in (whole, second):
        each.update(60)
    assert whole.parameter_hash() == second.parameter_hash()
    assert [int(whole.choose(observations)[0]) for _ in range(20)] == [
        int(second.choose(observations)[0]) for _ in range(20)
    ]
    mine, theirs = whole.state(), second.state()
    assert mine.values == theirs.values
    assert mine.tensors.keys() == theirs.tensors.keys()
    for key, value in mine.tensors.items():
        np.testing.assert_array_equal(value, theirs.tensors[key])


@pytest.mark.parametrize("name", NAMES)
def test_a_state_belongs_to_its_data_set(name: str) -> None:
    data, other = random_dataset(), random_dataset(seed=1)
    algorithm = make(name, data)
    algorithm.update(3)
    state = algorithm.state()
    with pytest.raises(CorruptError, match="it has learned from the data set"):
        make(name, other).restore(state)
    fresh = make(name, other, load=False)
    fresh.restore(state)
    with pytest.raises(UsageError, match="is not the one that the restored"):
        fresh.load(other)
    fresh.load(data)
    fresh.update(3)


@pytest.mark.parametrize("name", NAMES)
def test_a_state_of_another_algorithm_is_refused(name: str) -> None:
    state = make(name, random_dataset()).state()
    with pytest.raises(CorruptError, match=f"not one of this {name}"):
        make(name, random_dataset(), net_arch=(8,)).restore(state)
    with pytest.raises(CorruptError, match=f"not one of this {name}"):
        make(name, random_dataset()).restore(state._replace(tensors={}))
    with pytest.raises(CorruptError, match=f"not one of this {name}"):
        make(name, random_dataset()).restore(state._replace(values={**state.values, "data": 3}))


@pytest.mark.parametrize("name", NAMES)
def test_acting_changes_no_training(name: str) -> None:
    data = random_dataset()
    one, other = make(name, data), make(name, data)
    for _ in range(10):
        one.choose(np.zeros((1, 4), dtype=F))
        for each in (one, other):
            each.update(3)
    assert one.parameter_hash() == other.parameter_hash()


@pytest.mark.parametrize("name", COMPARING)
def test_a_shuffled_twin_learns_nothing_from_rewards(name: str) -> None:
    """F4.5: reward must matter. The values of a chain tell actions apart, those of its control do not."""
    options = {"alpha": 0.0, "target_update_interval": 20} if name == "cql" else {"tau": 0.05}
    honest, control = (
        make(name, chain(), net_arch=(), batch_size=256, shuffled=each, **options) for each in (False, True)
    )
    gaps = []
    for each in (honest, control):
        each.update(1500)
        outputs = each.networks()["network" if name == "cql" else "critic"].predict(observed())[:, :2]
        gaps.append(np.diff(outputs, axis=1)[:, 0])
    assert gaps[0][0] > 0.05
    assert gaps[0][2] > 0.7
    np.testing.assert_allclose(gaps[1], 0, atol=0.06)
    if name != "cql":
        for observation in observed():
            assert control.policy().probabilities(observation)[1] == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("name", NAMES)
def test_every_update_leaves_its_figures(name: str) -> None:
    algorithm = make(name, random_dataset(), learning_rate="lin_0.01")
    algorithm.set_progress(0.25)
    algorithm.update(1000)
    figures = algorithm.metrics.take()
    wanted = {
        "train/dormant_ratio",
        "train/gradient_norm",
        "train/learning_rate",
        "train/loss",
        "train/n_updates",
        "train/num_non_finite",
        "train/weight_change",
    }
    parts = {"iql": {"actor", "critic", "value"}, "awac": {"actor", "critic"}}.get(name, set())
    wanted |= {f"train/{part}_{what}" for part in parts for what in ("loss", "gradient_norm")}
    assert wanted <= figures.keys()
    assert figures["train/learning_rate"] == pytest.approx(0.0075)
    assert figures["train/n_updates"] == algorithm.num_updates == 1000
    assert figures["train/weight_change"] > 0
    assert any(key.startswith("train/gradient_norm/") for key in figures)
    assert all(math.isfinite(value) for value in figures.values())


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_clipped(name: str) -> None:
    algorithm = make(name, random_dataset(), max_grad_norm=1e-3)
    optimizers = {key.split(".")[1]: each for key, each in algorithm._kept_optimizers.items()}
    norms: list[float] = []

    def watch(network: Any, optimizer: Any) -> None:
        step = optimizer.step

        def watched(learning_rate: float, gradient_scale: float) -> None:
            norms.append(gradient_scale * float(np.linalg.norm(network.gradients)))
            step(learning_rate, gradient_scale)

        optimizer.step = watched

    for key, optimizer in optimizers.items():
        watch(algorithm.networks()[key], optimizer)
    algorithm.update(5)
    assert len(norms) == 5 * len(optimizers)
    assert max(norms) <= 1e-3 * 1.0001


@pytest.mark.parametrize("name", NAMES)
def test_a_number_that_is_not_finite_stops_before_the_update(name: str) -> None:
    """Of several networks none is changed, though the first ones had their step already."""
    algorithm = make(name, random_dataset())
    algorithm.update(20)
    network = list(algorithm.networks().values())[-1 if name == "iql" else 0]
    backward = network.backward

    def broken(gradient: Any, **options: Any) -> Any:
        found = backward(gradient, **options)
        network.gradients[3:5] = np.inf
        return found

    network.backward = broken
    before = algorithm.parameter_hash()
    with pytest.raises(DivergedError, match="update 21: the gradient has norm inf"):
        algorithm.update(5)
    assert (algorithm.parameter_hash(), algorithm.num_updates) == (before, 20)
    assert algorithm.metrics.peek()["train/num_non_finite"] == 2


@pytest.mark.parametrize("name", NAMES)
def test_a_loss_that_is_not_finite_stops_before_the_update(name: str) -> None:
    algorithm = make(name, random_dataset())
    algorithm.update(20)
    next(iter(algorithm.networks().values())).parameters[-1] = np.nan
    before = algorithm.parameter_hash()
    with pytest.raises(DivergedError, match="update 21: the loss is nan"):
        algorithm.update(5)
    assert (algorithm.parameter_hash(), algorithm.num_updates) == (before, 20)
    with pytest.raises(DivergedError, match="outputs are not finite"):
        algorithm.choose(np.ones((1, 4), dtype=F))


# Acting -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_it_acts_and_never_learns_from_it(name: str) -> None:
    algorithm = make(name, random_dataset())
    algorithm.update(10)
    actions = algorithm.choose(np.zeros((1, 4), dtype=F))
    with pytest.raises(UsageError, match=f"record was called, but {name} learns from a data set"):
        algorithm.record(env_step(np.zeros((1, 4)), [1.0]))
    with pytest.raises(UsageError, match="learn was called"):
        algorithm.learn()
    assert actions.shape == (1,)
    for _ in range(3):  # no reward is waited for
        assert algorithm.act([0.0, 0.1, 0.2, 0.3], episode="e") in (0, 1, 2)
    with pytest.raises(UsageError, match="observe was called"):
        algorithm.observe(1.0, episode="e")
    algorithm.discard("e")
    algorithm.interrupt()
    with pytest.raises(UsageError, match="2 observations were given for 1 envs"):
        algorithm.choose(np.zeros((2, 4), dtype=F))


@pytest.mark.parametrize("name", NAMES)
def test_masks_are_never_violated(name: str) -> None:
    """P11: in 10,000 rows, explored and in the policy."""
    data = random_dataset(masked=True)
    algorithm = build_algorithm(configure(name, {"net_arch": [16]}), data.spaces, num_envs=500)
    rng = np.random.default_rng(0)
    policy = algorithm.policy()
    for _ in range(20):
        masks = rng.random((500, 3)) < 0.4
        masks[:, rng.integers(3)] = True
        observations = rng.standard_normal((500, 4)).astype(F)
        for actions in (algorithm.choose(observations, masks), policy.choose(observations, masks)):
            assert masks[np.arange(500), actions].all()
    with pytest.raises(ActionError):
        algorithm.act([0.0] * 4, mask=[False] * 3)


@pytest.mark.parametrize("name", NAMES)
def test_the_policy_is_frozen_and_can_be_stored(name: str) -> None:
    algorithm = make(name, random_dataset())
    algorithm.update(50)
    policy = algorithm.policy()
    observations = np.random.default_rng(0).standard_normal((50, 4)).astype(F)
    before = policy.choose(observations).copy()
    stored = NetworkPolicy.from_artifact(policy.to_artifact())
    algorithm.update(300)
    np.testing.assert_array_equal(policy.choose(observations), before)
    np.testing.assert_array_equal(stored.choose(observations), before)
    assert policy.learned_by == name


@pytest.mark.parametrize("name", ["bc", "iql", "awac"])
def test_acting_draws_from_the_policy(name: str) -> None:
    algorithm = make(name, random_dataset())
    algorithm.update(20)
    observation = np.full((1, 4), 0.3, dtype=F)
    counts = np.bincount([int(algorithm.choose(observation)[0]) for _ in range(3000)], minlength=3)
    assert fits(counts, algorithm.policy().probabilities(observation[0]))


@pytest.mark.parametrize("name", NAMES)
def test_networks_of_ones_own(name: str) -> None:
    """What ``networks`` returns can be given to the constructor, as on another device."""
    data = random_dataset()
    donor = make(name, data, seed=9)
    given = donor.networks()
    algorithm: Any = build_algorithm(donor.config, data.spaces, seed=1, **given)
    assert {key: network is given[key] for key, network in algorithm.networks().items()} == dict.fromkeys(given, True)
    algorithm.load(data)
    before = algorithm.parameter_hash()
    algorithm.update(3)
    assert algorithm.parameter_hash() != before
    narrow = make(name, random_dataset(size=5), load=False).networks()
    with pytest.raises(UsageError, match=f"maps 5 numbers to .*; {name} with these spaces needs 4 to"):
        build_algorithm(donor.config, data.spaces, **narrow)


# Settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_they_are_known_by_name(name: str) -> None:
    algorithm = ALGORITHMS[name]
    assert algorithm.tag == name
    assert algorithm.is_offline
    assert type(configure(name, {"lr": 1e-3, "hidden_dim": 32})) is algorithm.config_type


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"batch_size": 0}, "batch_size is 0"),
        ({"max_grad_norm": 0.0}, "max_grad_norm is 0.0"),
        ({"dropout": 0.1}, "dropout is 0.1"),
        ({"live_steps": 10}, "live_steps is 10"),
        ({"gamma": 1.5}, "gamma is 1.5"),
    ],
)
def test_settings_without_a_meaning_are_refused(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        configure(name, options)


def test_updates_are_counted_from_one() -> None:
    with pytest.raises(UsageError, match="count is 0"):
        make("bc", random_dataset()).update(0)


@pytest.mark.parametrize("action", [Discrete(n=3, start=-1), MultiDiscrete(nvec=(2, 3))])
def test_actions_come_out_in_the_form_of_the_space(action: Any) -> None:
    algorithm: Any = build_algorithm(configure("bc", {"net_arch": [8]}), spaces(4, action))
    found = algorithm.act([0.0] * 4)
    if isinstance(action, Discrete):
        assert found in (-1, 0, 1)
    else:
        assert found.shape == (2,)


@pytest.mark.parametrize("name", ["iql", "awac"])
def test_a_step_that_diverges_moves_nothing(name: str) -> None:
    """Of several networks the last one is not finite: neither the others nor their optimisers have moved."""
    algorithm = make(name, random_dataset())
    algorithm.update(3)
    before = algorithm.state()
    with np.errstate(invalid="ignore"):
        algorithm.actor.parameters[:] = np.nan
        with pytest.raises(DivergedError):
            algorithm.update(1)
    after = algorithm.state()
    for key, value in before.tensors.items():
        if key != "network.actor":
            np.testing.assert_array_equal(after.tensors[key], value, err_msg=key)
