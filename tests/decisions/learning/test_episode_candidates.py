"""PPO over the log: episodes whose first action shows its worth only in the second step."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from learnloop.algorithms import load_policy
from learnloop.algorithms.on_policy.episode_trainer import EpisodeTrainer, Situation
from learnloop.algorithms.policies.named_actions import NamedActionsPolicy
from learnloop.core.errors import ActionError, ContextError, UsageError
from learnloop.core.ids import new_id
from learnloop.core.protocols import Question
from learnloop.core.records import Decision, DecisionMode, Episode, EpisodeStatus, Reward, Verdict
from learnloop.decisions.learning.episode_candidates import episode_candidate, fits_network, network_config
from learnloop.decisions.learning.episode_log import read_episodes
from learnloop.decisions.learning.learner import Learner
from learnloop.decisions.service.settings import DecisionSettings, LearningSettings, NetworkConfig, VersionedSettings
from learnloop.evaluation.logged import LoggedEpisodes
from learnloop.evaluation.policies import UniformPolicy
from learnloop.registry import Registry
from learnloop.registry.references import CHAMPION
from learnloop.store import Store

ACTIONS = ("left", "right", "stay")
SIZE = 3
NETWORK = NetworkConfig(
    input_dim=SIZE, actions=ACTIONS, hidden=(16,), options={"learning_rate": 1e-2, "gamma": 0.9, "batch_size": 128}
)
START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def store(sqlite_url: str, tmp_path: Path) -> Iterator[Store]:
    with Store.open(sqlite_url, blobs=tmp_path / "blobs") as opened:
        yield opened


def vector_of(*values: float) -> np.ndarray:
    return np.array(values, dtype=np.float32)


class World:
    """Step 1 shows a sign; the right action leads to a good place, which pays in step 2 whatever is done there."""

    def __init__(self, store: Store, seed: int = 0) -> None:
        self._store = store
        self._rng = np.random.default_rng(seed)
        self._count = 0

    def play(self, num_episodes: int, policy: Any = None, *, shuffled: bool = False) -> None:
        records: list[Any] = []
        for _ in range(num_episodes):
            records += self.make_episode(policy or UniformPolicy(), shuffled=shuffled)
        self._store.write(records)

    def make_episode(self, policy: Any, *, shuffled: bool) -> list[Any]:
        name = new_id()
        sign = float(self._rng.choice([-1, 1]))
        first = self.make_decision(name, vector_of(1, sign, self._rng.normal()), policy, {"left", "right"})
        is_good = first.action == ("left" if sign < 0 else "right")
        if shuffled:
            is_good = bool(self._rng.random() < 0.4)
        second = self.make_decision(name, vector_of(-1, 1 if is_good else -1, self._rng.normal()), policy, {"stay"})
        ends = {"status": EpisodeStatus.COMPLETED, "terminated": True, "ended_at": first.created_at}
        return [
            Episode(
                episode_id=name, trace_id=new_id(), agent_id="bot", task_id=None, started_at=first.created_at, **ends
            ),
            first,
            second,
            reward_of(first, 0.0),
            reward_of(second, float(is_good)),
        ]

    def make_decision(
        self, episode: str | None, vector: np.ndarray, policy: Any, allowed: Collection[str] = frozenset(ACTIONS)
    ) -> Decision:
        self._count += 1
        actions = [ACTIONS[number] for number in self._rng.permutation(3)]
        mask = [action in allowed for action in actions]
        probabilities = policy.probabilities(Question({}, None, vector), actions, mask)
        index = int(self._rng.choice(3, p=probabilities))
        return Decision(
            decision_id=new_id(),
            episode_id=episode,
            agent_id="bot",
            policy="move",
            algorithm="x",
            context={},
            actions=actions,
            mask=mask,
            action=actions[index],
            propensity=float(probabilities[index]),
            probabilities=probabilities.tolist(),
            vector=vector.tobytes(),
            mode=DecisionMode.LEARNING,
            created_at=START + timedelta(seconds=self._count),
        )


def reward_of(decision: Decision, value: float | None, **fields: Any) -> Reward:
    given = {"decision_id": decision.decision_id, "episode_id": decision.episode_id, **fields}
    return Reward(reward_id=new_id(), name="score", value=value, source="user", created_at=decision.created_at, **given)


def settings(**learning: Any) -> VersionedSettings:
    return VersionedSettings(1, DecisionSettings(model=NETWORK, learning=LearningSettings(**learning)))


def trainer(start: Any = None) -> EpisodeTrainer:
    return EpisodeTrainer(network_config(NETWORK), SIZE, ACTIONS, start)


def right_share(policy: Any) -> float:
    """Returns how likely the right first action is."""
    found = []
    for sign in (-1, 1):
        row = policy.probabilities(Question({}, None, vector_of(1, sign, 0)), list(ACTIONS), [True, True, False])
        found.append(row[0 if sign < 0 else 1])
    return float(np.mean(found))


@pytest.mark.slow
def test_a_first_action_is_learned_from_what_comes_of_it_later(store: Store, tmp_path: Path) -> None:
    registry = Registry(store, tmp_path / "policies")
    world = World(store)
    world.play(650)
    learner = Learner(store, registry)
    update = learner.update("bot", "move", settings())
    assert update is not None
    assert update.error is None
    assert update.verdict is Verdict.LEARNED, update.reasons
    champion = registry.aliases("bot.move")[CHAMPION]
    served = load_policy(registry.load(champion))
    assert right_share(served) > 0.8
    world.play(20, served)
    candidate = episode_candidate(store, registry, "bot", "move", settings().settings, 1_000_000)
    assert candidate.lineage["goes_on"]  # from the weights that are served
    assert right_share(candidate.trainer.train([], 5)) == right_share(served)


@pytest.mark.slow
def test_nothing_is_learned_where_there_is_nothing(store: Store, tmp_path: Path) -> None:
    registry = Registry(store, tmp_path / "policies")
    World(store, seed=5).play(200, shuffled=True)
    update = Learner(store, registry).update("bot", "move", settings())
    assert update is not None
    assert update.error is None
    assert update.verdict is not Verdict.LEARNED
    assert registry.aliases("bot.move") == {}


def test_training_finds_the_first_action(store: Store) -> None:
    World(store).play(200)
    log = read_episodes(store, "bot", "move", 10_000, store.last_sequence(Reward))
    assert (len(log.samples), log.num_unknown, log.cut) == (400, 0, set())
    ppo = trainer()
    policy = ppo.train(log.samples, 0)
    assert right_share(policy) > 0.7
    assert right_share(ppo.train(log.samples, 0)) == right_share(policy)
    assert ppo.diagnostics["train/num_own_steps"] == 0  # another policy chose, and that is known
    again = load_policy(policy.to_artifact())
    assert right_share(again) == right_share(policy)


def test_a_training_goes_on_from_weights_and_optimiser(store: Store) -> None:
    world = World(store)
    world.play(100)
    log = read_episodes(store, "bot", "move", 10_000, store.last_sequence(Reward))
    first = trainer().train(log.samples, 0)
    unchanged = trainer(first.training).train([], 9)
    assert right_share(unchanged) == right_share(first)
    world.play(50, first)
    newest = read_episodes(store, "bot", "move", 100, store.last_sequence(Reward)).samples
    going_on = trainer(first.training)
    second = going_on.train(newest, 9)
    assert going_on.diagnostics["train/num_own_steps"] == 100  # what it chose itself is on-policy, to the last digit
    assert second.training["figures"][1] > first.training["figures"][1] > 0


def test_rewards_of_a_whole_episode_count_once_at_its_end(store: Store) -> None:
    world = World(store)
    records = world.make_episode(UniformPolicy(), shuffled=False)[:3]
    whole = reward_of(records[1], 5.0, decision_id=None)
    store.write([*records, whole])
    log = read_episodes(store, "bot", "move", 10, store.last_sequence(Reward))
    assert [sample.reward for sample in log.samples] == [0.0, 5.0]
    assert [sample.context.is_last for sample in log.samples if isinstance(sample.context, Situation)] == [False, True]


def test_an_episode_that_has_not_ended_is_truncated_at_its_last_decision(store: Store) -> None:
    world = World(store)
    decisions = [world.make_decision("open", vector_of(step, 0, 0), UniformPolicy()) for step in range(3)]
    status = EpisodeStatus.RUNNING
    running = Episode(
        episode_id="open", trace_id=new_id(), agent_id="bot", task_id=None, started_at=START, status=status
    )
    store.write([running, *decisions, *(reward_of(each, 1.0) for each in decisions)])
    log = read_episodes(store, "bot", "move", 10, store.last_sequence(Reward))
    assert [sample.reward for sample in log.samples] == [1.0, 1.0]
    last = log.samples[-1].context
    assert isinstance(last, Situation)
    assert last.is_last
    assert last.next_vector is not None
    assert last.next_vector.tolist() == [2, 0, 0]
    assert (log.num_unknown, log.cut) == (1, {next(iter(log.cut))} if log.cut else set())


def test_an_episode_that_only_decisions_name_ends_with_a_reward_for_its_last_one(store: Store) -> None:
    """A fault of ours: clients of /v1/decisions cannot end an episode, and the last reward of each was not learned."""
    world = World(store)
    made = ((name, vector_of(step, 0, 0)) for name in ("a", "b") for step in range(2))
    steps = [world.make_decision(*each, UniformPolicy()) for each in made]
    store.write([*steps, *(reward_of(each, float(number)) for number, each in enumerate(steps[:3]))])
    log = read_episodes(store, "bot", "move", 10, store.last_sequence(Reward))
    contexts = [sample.context for sample in log.samples]
    assert [sample.reward for sample in log.samples] == [0.0, 1.0, 2.0]  # the last one of b waits for its own
    assert [each.is_last for each in contexts] == [False, True, True]  # type: ignore[attr-defined]
    assert contexts[1].next_vector is None  # type: ignore[attr-defined]
    assert contexts[2].next_vector.tolist() == [1, 0, 0]  # type: ignore[attr-defined]
    assert log.cut == set()


def test_a_reward_that_is_missing_is_not_0(store: Store) -> None:
    """The steps before it are bootstrapped, it is left out, and the episode judges nobody."""
    world = World(store)
    decisions = [world.make_decision("e", vector_of(step, 0, 0), UniformPolicy()) for step in range(4)]
    ends = {"status": EpisodeStatus.COMPLETED, "terminated": True, "ended_at": START}
    episode = Episode(episode_id="e", trace_id=new_id(), agent_id="bot", task_id=None, started_at=START, **ends)
    known = [reward_of(each, 1.0) for number, each in enumerate(decisions) if number != 1]
    store.write([episode, *decisions, *known])
    log = read_episodes(store, "bot", "move", 10, store.last_sequence(Reward))
    contexts = [sample.context for sample in log.samples]
    assert [each["x"] if "x" in each else each.vector[0] for each in contexts] == [0, 2, 3]  # type: ignore[attr-defined]
    assert [each.is_last for each in contexts] == [True, False, True]  # type: ignore[attr-defined]
    assert contexts[0].next_vector.tolist() == [1, 0, 0]  # type: ignore[attr-defined]
    assert contexts[2].next_vector is None  # type: ignore[attr-defined]
    assert (log.num_unknown, log.cut) == (1, {"e"})


def test_rewards_after_the_update_began_are_not_looked_at(store: Store) -> None:
    world = World(store)
    world.play(3)
    before = store.last_sequence(Reward)
    world.play(3)
    assert len(read_episodes(store, "bot", "move", 100, before).samples) == 6


def test_the_estimate_is_unbiased(store: Store) -> None:
    """Against the exact value: a policy that is right with probability p earns p, on average over episodes."""
    World(store, seed=3).play(3000)
    samples = read_episodes(store, "bot", "move", 10_000, store.last_sequence(Reward)).samples

    class Known:
        def probabilities(self, context: Any, actions: Any, mask: Any = None) -> np.ndarray:
            right = "left" if context.vector[1] < 0 else "right"
            row = np.array([0.8 if action == right else 0.2 for action in actions]) * mask
            return np.array(row / row.sum())

    for models in ([], [0.0, 0.3]):
        rewards = LoggedEpisodes(samples, models).rewards(Known())
        assert rewards.shape == (3000,)
        assert rewards.mean() == pytest.approx(0.8, abs=4 * rewards.std() / 3000**0.5)
        assert rewards.std() / 3000**0.5 < 0.05
        uniform = LoggedEpisodes(samples, models).rewards(UniformPolicy())
        own = [sample.reward for sample in samples]
        assert uniform.mean() == pytest.approx(sum(own) / 3000)  # weights of 1: the log itself
    overlap = LoggedEpisodes(samples, []).overlap(UniformPolicy())
    assert (overlap.num_samples, overlap.mean_weight, overlap.max_weight) == (3000, 1.0, 1.0)


def test_names_are_mapped_to_outputs() -> None:
    policy = trainer().train([], 1)
    asked = Question({}, None, vector_of(0.5, 1, -1))
    all_of_them = policy.probabilities(asked, list(ACTIONS))
    assert all_of_them.sum() == pytest.approx(1, abs=1e-12)
    turned = policy.probabilities(asked, ["stay", "left", "right"])
    np.testing.assert_allclose(turned, all_of_them[[2, 0, 1]], atol=1e-12)
    some = policy.probabilities(asked, ["right", "left"])
    np.testing.assert_allclose(some, all_of_them[[1, 0]] / all_of_them[:2].sum(), atol=1e-7)
    masked = policy.probabilities(asked, list(ACTIONS), [True, False, True])
    np.testing.assert_allclose(masked, all_of_them * [1, 0, 1] / all_of_them[[0, 2]].sum(), atol=1e-7)


def test_what_cannot_be_asked_is_refused() -> None:
    policy = trainer().train([], 1)
    with pytest.raises(ContextError, match="vector"):
        policy.probabilities({}, list(ACTIONS))
    with pytest.raises(ContextError):
        policy.probabilities(Question({}, None, vector_of(1)), list(ACTIONS))
    with pytest.raises(ActionError, match="jump"):
        policy.probabilities(Question({}, None, vector_of(1, 2, 3)), ["jump", "left"])
    with pytest.raises(UsageError, match="dropout"):
        network_config(NetworkConfig(actions=ACTIONS, options={"dropout": 0.1}))


def test_a_stored_policy_is_the_same(store: Store) -> None:
    World(store).play(20)
    log = read_episodes(store, "bot", "move", 100, store.last_sequence(Reward))
    policy = trainer().train(log.samples, 0)
    artifact = policy.to_artifact()
    again = NamedActionsPolicy.from_artifact(artifact).to_artifact()
    assert again.config == artifact.config
    assert {name: value.tobytes() for name, value in again.tensors.items()} == {
        name: value.tobytes() for name, value in artifact.tensors.items()
    }


@pytest.mark.parametrize("wrong", ["size", "actions", "numbers", "nothing"])
def test_a_decision_of_another_form_does_not_stop_the_learning(store: Store, tmp_path: Path, wrong: str) -> None:
    """A fault of ours: one with another vector or other actions, and no update came to an end any more."""
    world = World(store)
    world.play(20)
    vectors = {"size": vector_of(1, 2, 3, 4), "numbers": vector_of(3e38, 3e38, 3e38)}
    steps = [world.make_decision("e", vector_of(0, 0, 0), UniformPolicy()) for _ in range(3)]
    fields: dict[str, Any] = {"vector": vectors[wrong].tobytes()} if wrong in vectors else {"vector": None}
    if wrong == "actions":
        fields = {"actions": ["x", "left", "right"]}
    steps[1] = msgspec.structs.replace(steps[1], **fields)
    store.write([*steps, *(reward_of(each, 1.0) for each in steps)])
    log = read_episodes(store, "bot", "move", 100, store.last_sequence(Reward), partial(fits_network, NETWORK))
    assert len([sample for sample in log.samples if sample.unit == "e"]) == 1  # nor the one that led to it
    assert (log.num_unknown, log.cut) == (2, {"e"})
    registry = Registry(store, tmp_path / "policies")
    candidate = episode_candidate(store, registry, "bot", "move", settings().settings, store.last_sequence(Reward))
    assert candidate.metrics["log/num_left_out"] == 2
    candidate.trainer.train(log.samples, 0)


def test_an_empty_log_gives_an_empty_candidate(store: Store, tmp_path: Path) -> None:
    registry = Registry(store, tmp_path / "policies")
    candidate = episode_candidate(store, registry, "bot", "move", settings().settings, 0)
    assert list(candidate.train) == []
    assert candidate.num_held_out == 0
    assert candidate.held_out.rewards(UniformPolicy()).shape == (0,)
