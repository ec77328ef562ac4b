"""Seed 1's learner: experiences of many clients, exact ratios, and what is kept."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

from learnloop.algorithms.on_policy.segment_ppo import MAX_NORM, dropout_of
from learnloop.compat.seed1.learner import MAX_BATCH, MutationLearner, Selection, Snapshot
from learnloop.compat.seed1.settings import MUTATIONS, MutationSettings, read_mutation_settings
from learnloop.compat.seed1.transition_buffer import SentTransition, segments_of, steps_of
from learnloop.compat.seed1.update_process import UpdateProcess
from learnloop.core.errors import (
    ActionError,
    ConflictError,
    ContextError,
    CorruptError,
    DivergedError,
    LearnloopError,
    NotFoundError,
    UnreachableError,
    UsageError,
)
from learnloop.nn.mlp.network import MLP, Head, MLPConfig
from learnloop.system.state_file import State

SIZE = 6
NOWHERE = Path("/nonexistent/checkpoints")
"""For learners that save nothing."""
OPTIONS: dict[str, Any] = {"net_arch": (16, 8), "batch_size": 4}
SETTINGS = MutationSettings(input_dim=SIZE, min_transitions=8, buffer_size=64, seed=3, options=OPTIONS)
SMALL = MLPConfig(
    input_size=SIZE, hidden=(16, 8), heads=(Head(name="policy", size=3), Head(name="value", size=1)), shared=False,
    layer_norm=True, dropout=0.2,
)  # fmt: skip


def states(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(count, SIZE)).astype(np.float32)


def transition(learner: MutationLearner, state: np.ndarray, **fields: Any) -> SentTransition:
    chosen = learner.select(state)
    given = {"reward": 0.0, "next_observation": state, "terminated": True, "truncated": False, **fields}
    return SentTransition(
        observation=state, action=chosen.action, log_prob=chosen.log_prob, value=chosen.value, **given
    )


def filled(learner: MutationLearner, count: int = 8, seed: int = 0) -> MutationLearner:
    for number, state in enumerate(states(count, seed)):
        learner.store(transition(learner, state, reward=float(number % 3)))
    return learner


def same(left: MutationLearner, right: MutationLearner) -> bool:
    return left.ppo.parameter_hash() == right.ppo.parameter_hash()


@pytest.mark.parametrize(
    "wrong", [{"decay_interval": 0}, {"decay": -1.0}, {"input_dim": 0}, {"weight_decay": float("nan")}]
)
def test_settings_without_a_meaning_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=f"mutations.{next(iter(wrong))} is"):
        MutationSettings(**wrong)
    with pytest.raises(UsageError, match=next(iter(wrong))):
        read_mutation_settings(wrong)


def test_the_network_is_that_of_the_seed() -> None:
    """S1.1: 1536-256-256-128-5 with the seed's hyper-parameters; LayerNorm in the place of BatchNorm."""
    config = MutationSettings().config()
    assert config.net_arch == (256, 256, 128)
    assert (config.learning_rate, config.gamma, config.gae_lambda, config.clip_range) == (3e-4, 0.99, 0.95, 0.2)
    assert (config.ent_coef, config.vf_coef, config.n_epochs, config.batch_size) == (0.01, 0.5, 4, 64)
    assert (config.n_steps, config.layer_norm, config.dropout, config.init) == (2048, True, 0.1, "xavier")
    learner = MutationLearner(MutationSettings(seed=0), NOWHERE)
    assert learner.ppo.network.input_size == 1536
    assert learner.ppo.network.output_size == len(MUTATIONS) + 1
    sizes = [1536, 256, 256, 128]
    hidden = sum(a * b + 3 * b for a, b in pairwise(sizes))  # weights, bias, scale and shift of the normalisation
    assert learner.ppo.network.parameters.size == 2 * hidden + 128 * 5 + 5 + 128 + 1


def test_settings_have_the_seeds_names_and_refuse_what_is_unknown() -> None:
    config = MutationSettings(
        options={"hidden_dim": 64, "eps_clip": 0.1, "entropy_coef": 0.0, "value_coef": 1}
    ).config()
    assert (config.net_arch, config.clip_range, config.ent_coef, config.vf_coef) == ((64, 64, 32), 0.1, 0.0, 1)
    for wrong in ({"input_dims": 3}, {"options": {"epps": 1}}, {"options": {"n_steps": 4}}, {"min_transitions": 10}):
        with pytest.raises(UsageError):
            read_mutation_settings(wrong)


def test_the_ratio_is_1_before_the_first_gradient_step() -> None:
    """F1.1: what chose and what learns see the same, dropout included: ratios differ from 1 by rounding alone."""
    learner = filled(MutationLearner(SETTINGS, NOWHERE), 64)
    assert learner.ppo.network.num_masks > 0
    updated = learner.update()
    assert updated is not None
    assert updated.record.metrics["train/max_first_log_ratio"] <= 2e-6
    assert updated.record.metrics["train/num_stale_steps"] == 0
    again = filled(learner, 32, seed=5).update()  # after an update too
    assert again is not None
    assert again.record.metrics["train/max_first_log_ratio"] <= 2e-6
    assert again.record.metrics["train/num_stale_steps"] == 0


def test_a_choice_is_what_the_distribution_says() -> None:
    learner = MutationLearner(SETTINGS, NOWHERE)
    state = states(1)[0]
    shown = learner.distribution(state)
    assert sum(shown) == pytest.approx(1)
    chosen = learner.select(state)
    assert np.exp(chosen.log_prob) == pytest.approx(shown[chosen.action], abs=1e-6)
    assert chosen.decision.probabilities == shown
    assert chosen.decision.propensity == shown[chosen.action]
    best = learner.select(state, deterministic=True)
    assert best.action == int(np.argmax(shown))
    assert best.decision.propensity == 1.0
    counts = np.bincount([learner.select(state).action for _ in range(4000)], minlength=5) / 4000
    assert np.abs(counts - shown).max() < 0.04


@pytest.mark.parametrize("count", [8, 9, 13, 61, 64])
def test_any_number_of_experiences_updates(count: int) -> None:
    """F1.2: a last minibatch of 1 is no fault."""
    updated = filled(MutationLearner(SETTINGS, NOWHERE), count).update()
    assert updated is not None
    assert updated.record.num_samples == count
    assert updated.figures.buffer_size == 0


def test_129_experiences_of_the_seeds_batch_size() -> None:
    """F1.2, with the seed's numbers."""
    settings = MutationSettings(input_dim=SIZE, seed=1, options={"net_arch": (8,)})
    learner = filled(MutationLearner(settings, NOWHERE), 127)
    assert learner.update() is None
    filled(learner, 2, seed=9)
    assert learner.update() is not None


def clients(learner: MutationLearner) -> list[list[SentTransition]]:
    """Two episodes: one that never earns anything, cut by a limit, and one that earns much at its end."""
    poor, rich = states(6, 1), states(6, 2)
    episodes = []
    for name, path, reward in (("poor", poor, 0.0), ("rich", rich, 1000.0)):
        episodes.append(
            [
                transition(
                    learner,
                    path[step],
                    next_observation=path[step + 1],
                    reward=reward if step == 4 else 0.0,
                    terminated=step == 4,
                    truncated=step == 4 and name == "poor",
                    client=name,
                    episode_id="same name",
                )
                for step in range(5)
            ]
        )
    return episodes


def test_interleaved_clients_have_the_advantages_of_clients_one_after_the_other() -> None:
    """F1.3: bit for bit, and no step gets an advantage from another client's reward."""
    learner = MutationLearner(SETTINGS, NOWHERE)
    poor, rich = clients(learner)
    mixed = [each for pair in zip(poor, rich, strict=True) for each in pair]
    found = {}
    for name, order in (("mixed", mixed), ("apart", poor + rich)):
        batch = learner.ppo.prepare(steps_of(segments_of(order), SIZE)).batch
        found[name] = batch.advantages
    assert found["mixed"].tobytes() == found["apart"].tobytes()
    values = np.array([each.value for each in poor], dtype=np.float64)
    last = float(learner.ppo.value(poor[-1].next_observation[None])[0])
    ahead = np.append(values[1:], last)  # the limit is bootstrapped
    deltas = 0.99 * ahead - values
    expected = [sum((0.99 * 0.95) ** k * deltas[t + k] for k in range(5 - t)) for t in range(5)]
    np.testing.assert_allclose(found["apart"][:5], expected, atol=1e-5)
    assert np.abs(found["apart"][:5]).max() < 10 < found["apart"][5:].max()


def test_without_identity_each_experience_is_an_episode_of_one_step() -> None:
    """F1.3: whether the row after it is another client's cannot be known."""
    learner = MutationLearner(SETTINGS, NOWHERE)
    path = states(3)
    found = [
        transition(learner, path[step], next_observation=path[step + 1], reward=5.0, terminated=False)
        for step in range(2)
    ]
    steps = steps_of(segments_of(found), SIZE)
    assert steps.ended.all()
    batch = learner.ppo.prepare(steps).batch
    ahead = learner.ppo.value(path[1:])
    np.testing.assert_allclose(batch.returns, 5 + 0.99 * ahead, atol=1e-5)


def test_two_programs_with_one_key_do_not_mix() -> None:
    learner = MutationLearner(SETTINGS, NOWHERE)
    one, two = states(4, 1), states(4, 2)
    order = []
    for step in range(3):
        for path in (one, two):
            order.append(
                transition(learner, path[step], next_observation=path[step + 1], terminated=False, client="key")
            )
    assert [len(each) for each in segments_of(order)] == [1] * 6
    chained = [
        transition(learner, one[step], next_observation=one[step + 1], terminated=step == 1, client="key")
        for step in range(3)
    ]
    assert [len(each) for each in segments_of(chained)] == [2, 1]


def test_experiences_of_an_earlier_policy_are_counted_and_weighted() -> None:
    learner = MutationLearner(SETTINGS, NOWHERE)
    old = [transition(learner, state, reward=1.0) for state in states(8)]
    for _ in range(5):
        filled(learner, 32, seed=4).update()
    for each in old:
        learner.store(each)
    prepared = learner.ppo.prepare(steps_of(segments_of(old), SIZE))
    assert prepared.num_stale == 8
    assert prepared.batch.weights is not None
    outputs = learner.snapshot
    for row, each in enumerate(old):
        now = np.log(learner.distribution(each.observation)[each.action])
        assert prepared.batch.weights[row] == pytest.approx(min(1.0, np.exp(now - each.log_prob)), rel=1e-4)
    assert outputs.num_updates > 0
    updated = learner.update()
    assert updated is not None
    assert updated.record.metrics["train/num_stale_steps"] == 8


def test_a_full_buffer_refuses_and_keeps_what_it_has() -> None:
    """F1.9: nothing is dropped."""
    learner = filled(MutationLearner(SETTINGS, NOWHERE), 64)
    with pytest.raises(ConflictError, match="64"):
        filled(learner, 1)
    updated = learner.update()
    assert updated is not None
    assert updated.record.num_samples == 64
    filled(learner, 1)


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"reward": float("nan")}, UsageError),
        ({"reward": float("inf")}, UsageError),
        ({"reward": 1e300}, UsageError),
        ({"log_prob": float("nan")}, UsageError),
        ({"log_prob": 0.5}, UsageError),
        ({"value": float("inf")}, UsageError),
        ({"action": 5}, ActionError),
        ({"action": 7}, ActionError),
        ({"action": -1}, ActionError),
        ({"observation": np.zeros(5, np.float32)}, ContextError),
        ({"next_observation": np.full(6, np.nan, np.float32)}, ContextError),
        ({"observation": np.full(6, np.inf, np.float32)}, ContextError),
        ({"observation": np.full(6, -3e38, np.float32)}, ContextError),
        ({"next_observation": np.full(6, 3e38, np.float32)}, ContextError),
    ],
)
def test_what_is_wrong_is_refused_and_changes_nothing(fields: dict[str, Any], kind: type[LearnloopError]) -> None:
    """F1.5."""
    learner = MutationLearner(SETTINGS, NOWHERE)
    good = transition(learner, states(1)[0])
    with pytest.raises(kind):
        learner.store(good._replace(**fields))
    assert len(learner.buffer) == 0


@pytest.mark.parametrize("field", ["observation", "next_observation"])
def test_the_largest_numbers_that_are_taken_can_be_learned_from(field: str) -> None:
    """A fault of ours: one experience beyond what a network can read, and no update came to an end any more."""
    learner = filled(MutationLearner(SETTINGS, NOWHERE), 20)
    largest = np.array([-1, 1, 1, 1, 1, 1], dtype=np.float32) * np.float32(0.4 * MAX_NORM)
    learner.store(transition(learner, states(1)[0], terminated=False)._replace(**{field: largest}))
    assert learner.update() is not None
    learner.select(largest)


def test_statistics_are_those_of_what_came() -> None:
    """F1.4."""
    learner = filled(MutationLearner(SETTINGS, NOWHERE), 9)
    assert learner.stats() is None
    updated = learner.update()
    assert updated is not None
    stats = learner.stats()
    assert stats is not None
    assert (stats.total_updates, stats.total_episodes, stats.avg_reward, stats.max_reward) == (1, 9, 1.0, 2.0)
    assert stats.avg_policy_loss == updated.figures.policy_loss
    assert stats.avg_kl == updated.figures.approx_kl


def test_a_longer_episode_counts_once_with_the_sum_of_its_rewards() -> None:
    learner = MutationLearner(SETTINGS, NOWHERE)
    path = states(10)
    for step in range(9):
        fields = {
            "reward": 1.0,
            "next_observation": path[step + 1],
            "terminated": step in (3, 8),
            "episode_id": f"e{step // 4}",
        }
        learner.store(transition(learner, path[step], **fields))
    learner.update()
    stats = learner.stats()
    assert stats is not None
    assert (stats.total_episodes, stats.avg_reward, stats.max_reward) == (2, 2.5, 4.0)


def test_it_learns() -> None:
    """The best action for an embedding follows from its first number; chance is 1/5."""
    learner = MutationLearner(
        MutationSettings(
            input_dim=SIZE, min_transitions=128, seed=0, options={"net_arch": (32, 32), "learning_rate": 3e-3}
        ),
        NOWHERE,
    )
    for number in range(25):
        for state in states(256, number):
            chosen = transition(learner, state)
            learner.store(chosen._replace(reward=float(chosen.action == (1 if state[0] > 0 else 3))))
        learner.update()
    hits = [learner.select(state).action == (1 if state[0] > 0 else 3) for state in states(500, 99)]
    assert np.mean(hits) > 0.8


# Keeping -------------------------------------------------------------------------------------------------------------


def test_a_loaded_learner_goes_on_as_if_it_had_never_stopped(tmp_path: Path) -> None:
    """F1.9: optimiser, counters, random numbers and waiting experiences are kept."""
    whole = MutationLearner(SETTINGS, tmp_path)
    filled(filled(whole, 20), 0).update()
    filled(whole, 7, seed=2)
    whole.save("checkpoint.pt")
    other = MutationLearner(MutationSettings(**{**SETTINGS_FIELDS, "seed": 77}), tmp_path)
    assert not same(whole, other)
    other.load("checkpoint.pt")
    for learner in (whole, other):
        filled(learner, 20, seed=3)
        assert learner.update() is not None
    assert same(whole, other)
    assert whole.stats() == other.stats()
    assert [whole.select(each).action for each in states(20)] == [other.select(each).action for each in states(20)]


SETTINGS_FIELDS: dict[str, Any] = {
    "input_dim": SIZE,
    "min_transitions": 8,
    "buffer_size": 64,
    "options": OPTIONS,
}

ATTACKS = [
    "../x",
    "./../x",
    "a/../../x",
    "/etc/passwd",
    "..%2f",
    "%2e%2e%2f",
    "%252e%252e%252f",
    "..\\x",
    "C:\\x",
    "\\\\host\\s",
    "file:///etc/passwd",
    "http://h/?/../..",
    "x;/../..",
    "x\0",
    "a" * 300,
    ".",
    "..",
    "-rf",
    "．．／",
    "",
]  # fmt: skip


def everything(folder: Path) -> list[str]:
    return sorted(str(each.relative_to(folder)) for each in folder.rglob("*"))


@pytest.mark.parametrize("name", ATTACKS)
def test_no_name_leads_out_of_the_folder(tmp_path: Path, name: str) -> None:
    """F1.9: names alone, no paths."""
    learner = MutationLearner(SETTINGS, tmp_path / "home" / "checkpoints")
    learner.save("good")
    before = everything(tmp_path)
    with pytest.raises(UsageError):
        learner.save(name)
    with pytest.raises(UsageError):
        learner.load(name)
    assert everything(tmp_path) == before


def test_links_are_not_followed(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoints"
    learner = MutationLearner(SETTINGS, folder)
    learner.save("good")
    outside = tmp_path / "outside"
    outside.write_bytes((folder / "good.safetensors").read_bytes())
    (folder / "link.safetensors").symlink_to(outside)
    os.link(folder / "good.safetensors", folder / "hard.safetensors")
    os.mkfifo(folder / "pipe.safetensors")
    (folder / "folder.safetensors").mkdir()
    for name in ("link", "hard", "pipe", "folder", "good"):  # good has two names now
        with pytest.raises(LearnloopError):
            learner.load(name)
    before = outside.read_bytes()
    learner.save("link")  # replaces the link, not what it leads to
    assert outside.read_bytes() == before
    assert not (folder / "link.safetensors").is_symlink()
    learner.load("link")


def test_a_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "checkpoints").symlink_to(tmp_path / "elsewhere")
    learner = MutationLearner(SETTINGS, tmp_path / "checkpoints")
    with pytest.raises(LearnloopError):
        learner.save("x")
    assert everything(tmp_path / "elsewhere") == []


def test_an_unknown_checkpoint(tmp_path: Path) -> None:
    learner = MutationLearner(SETTINGS, tmp_path / "none")
    with pytest.raises(NotFoundError):
        learner.load("x")
    learner.save("y")
    with pytest.raises(NotFoundError):
        learner.load("x")


def test_what_was_changed_or_does_not_fit_is_refused_whole(tmp_path: Path) -> None:
    """F1.9: schema, dimensions, checksums and numbers are looked at before anything is used."""
    learner = filled(MutationLearner(SETTINGS, tmp_path), 20)
    learner.save("good")
    file = tmp_path / "good.safetensors"
    data = file.read_bytes()
    head = 8 + int.from_bytes(data[:8], "little")
    before = learner.ppo.parameter_hash()

    def refused() -> None:
        with pytest.raises(CorruptError):
            learner.load("good")
        assert learner.ppo.parameter_hash() == before

    for where in (0, 8, head // 2, head, (head + len(data)) // 2, len(data) - 1):
        changed = bytearray(data)
        changed[where] ^= 1
        file.write_bytes(changed)
        refused()
    without = (b"", data[:-1], data[: head - 1], data[:head], data[5:], b"{}", b"[" * 100_000)
    for broken in (*without, data.replace(b"mutations/v1", b"mutations/v9")):
        file.write_bytes(broken)
        refused()
    file.write_bytes(data)
    learner.load("good")
    for fields in ({"input_dim": 7}, {"options": {**OPTIONS, "net_arch": (16, 9)}}, {"buffer_size": 8}):
        other = MutationLearner(MutationSettings(**{**SETTINGS_FIELDS, **fields}), tmp_path)
        with pytest.raises(CorruptError):
            other.load("good")


def test_numbers_that_are_not_finite_are_refused(tmp_path: Path) -> None:
    learner = MutationLearner(SETTINGS, tmp_path)
    learner.ppo.network.parameters[3] = np.nan
    learner.save("bad")
    with pytest.raises(CorruptError, match="not finite"):
        learner.load("bad")


def test_saving_again_leaves_one_file(tmp_path: Path) -> None:
    learner = MutationLearner(SETTINGS, tmp_path)
    for seed in range(3):
        filled(learner, 8, seed).update()
        learner.save("x")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "x.safetensors"]
    with safe_open(tmp_path / "x.safetensors", "numpy") as file:
        assert file.metadata()["format"] == "learnloop.mutations/v1"


def test_it_saves_itself_after_some_updates(tmp_path: Path) -> None:
    learner = MutationLearner(MutationSettings(**SETTINGS_FIELDS, checkpoint_interval=2), tmp_path)
    filled(learner).update()
    assert not tmp_path.joinpath("latest.safetensors").exists()
    filled(learner).update()
    learner.load("latest")


def test_an_update_counts_where_its_checkpoint_cannot_be_saved(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A fault of ours: it was in use, and yet no answer and no record told of it."""
    (tmp_path / "real").mkdir()
    (tmp_path / "checkpoints").symlink_to(tmp_path / "real")
    learner = MutationLearner(MutationSettings(**SETTINGS_FIELDS, checkpoint_interval=1), tmp_path / "checkpoints")
    updated = filled(learner).update()
    assert updated is not None
    assert updated.figures.update_count == 1
    assert "update 1 was not saved" in caplog.text
    assert list((tmp_path / "real").iterdir()) == []


# In a process of its own ---------------------------------------------------------------------------------------------


def test_a_process_learns_the_same(tmp_path: Path) -> None:
    process = UpdateProcess()
    try:
        here, there = MutationLearner(SETTINGS, NOWHERE), MutationLearner(SETTINGS, NOWHERE, learn=process.learn)
        for seed in range(2):
            assert filled(here, 20, seed).update() is not None
            assert filled(there, 20, seed).update() is not None
        assert same(here, there)
        assert here.stats() == there.stats()
    finally:
        process.close()


def test_a_process_that_ended_is_started_again() -> None:
    process = UpdateProcess()
    try:
        learner = MutationLearner(SETTINGS, NOWHERE, learn=process.learn)
        assert filled(learner, 20).update() is not None
        process.close()
        assert filled(learner, 20).update() is not None
    finally:
        process.close()


def test_an_update_that_fails_changes_nothing_and_keeps_the_experiences() -> None:
    def fail(job: State) -> State:
        raise UnreachableError("it is gone")

    learner = filled(MutationLearner(SETTINGS, NOWHERE, learn=fail), 20)
    before = learner.ppo.parameter_hash()
    waiting = list(learner.buffer.transitions)
    with pytest.raises(UnreachableError):
        learner.update()
    assert learner.ppo.parameter_hash() == before
    assert learner.buffer.transitions == waiting
    assert learner.stats() is None


def test_updates_that_fail_do_not_let_the_buffer_grow_and_it_can_be_loaded(tmp_path: Path) -> None:
    """A fault of ours: each one let as many in again, and what was saved then could not be loaded."""

    def fail(job: State) -> State:
        with pytest.raises(ConflictError):
            filled(learner, 2 * room, seed=2)
        raise UnreachableError("it is gone")

    learner = MutationLearner(SETTINGS, tmp_path, learn=fail)
    room = SETTINGS.buffer_size
    filled(learner, room - 1)
    for _ in range(3):
        with pytest.raises(UnreachableError):
            learner.update()
        assert room < len(learner.buffer.transitions) <= 2 * room
        with pytest.raises(ConflictError):
            filled(learner, 1)
    learner.save("full")
    again = MutationLearner(SETTINGS, tmp_path)
    again.load("full")
    assert len(again.buffer) == len(learner.buffer)
    assert again.update() is not None
    filled(again, room)


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5, 8, 9, MAX_BATCH, MAX_BATCH + 1, 3 * MAX_BATCH])
def test_each_row_is_as_in_one_pass_through_its_own_mask(number: int) -> None:
    network = MLP(SMALL, seed=1)
    rows = np.random.default_rng(number).normal(size=(number, SIZE)).astype(np.float32)
    found = Snapshot(network, 7).outputs(list(rows))
    wanted = network.forward(rows, dropout_of(rows, 7, network.num_masks))
    assert found.shape == (number, 4)
    np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_outputs_stay_when_others_are_asked_for() -> None:
    snapshot = Snapshot(MLP(SMALL, seed=1), 0)
    first, second = np.ones((2, SIZE), dtype=np.float32) * np.array([[1], [-3]], dtype=np.float32)
    for number in (1, 4):
        kept = snapshot.outputs([first] * number)
        before = kept.copy()
        snapshot.outputs([second] * number)
        np.testing.assert_array_equal(kept, before)


def test_only_the_choices_whose_numbers_overflow_are_refused() -> None:
    """What one embedding makes of the network is no fault of the others that pass through it with that one."""
    learner = MutationLearner(SETTINGS, NOWHERE)
    good, bad = states(2)
    predict = learner.snapshot.network.predict

    def overflowing(rows: np.ndarray, dropout: np.ndarray | None) -> np.ndarray:
        outputs = predict(rows, dropout)
        outputs[(rows == bad).all(axis=1), 2] = np.inf
        return outputs

    learner.snapshot.network.predict = overflowing  # type: ignore[method-assign]
    first, second, third = learner.select_many([good, bad, good], [True] * 3)
    assert isinstance(first, Selection)
    assert isinstance(third, Selection)
    assert first.action == third.action == learner.select(good, deterministic=True).action
    assert isinstance(second, DivergedError)
    for ask in (learner.select, learner.distribution):
        with pytest.raises(DivergedError):
            ask(bad)
