"""learnloop.decisions.learning.learner: only what has learned is served, and each update says what it came to."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import pytest

from learnloop.algorithms import load_policy
from learnloop.algorithms.bandits.config import ExplorationConfig
from learnloop.algorithms.hashed.config import HashedConfig
from learnloop.algorithms.hashed.trainer import HashedTrainer
from learnloop.core.clock import now
from learnloop.core.ids import new_id
from learnloop.core.protocols import Policy, Sample
from learnloop.core.records import Agent, Decision, DecisionMode, LearningUpdate, Verdict
from learnloop.decisions.learning.candidates import Candidate, bandit_candidate, choose_recency, shared_questions
from learnloop.decisions.learning.learner import Learner
from learnloop.decisions.service.settings import DecisionSettings, LearningSettings, VersionedSettings
from learnloop.evaluation import LoggedDecisions
from learnloop.registry import Proof, Registry
from learnloop.store import Store
from tests.decisions.population import NAME, Population

SETTINGS = DecisionSettings(
    exploration=ExplorationConfig(algorithm="epsilon_greedy", epsilon=0.4),
    model=HashedConfig(num_bits=8, num_passes=2),
    learning=LearningSettings(min_new_rewards=1_000),
)


@dataclass
class Places:
    store: Store
    registry: Registry

    def users(self, settings: DecisionSettings = SETTINGS, seed: int = 0) -> Population:
        return Population(self.store, self.registry, settings, seed)


@pytest.fixture
def places(tmp_path: Path) -> Iterator[Places]:
    with Store.open(f"sqlite:///{tmp_path}/learnloop.db") as store:
        yield Places(store, Registry(store, tmp_path / "policies"))


def updated(found: object) -> LearningUpdate:
    assert isinstance(found, LearningUpdate)
    return found


def test_what_has_learned_is_served(places: Places) -> None:
    users = places.users()
    users.live(999)
    assert users.update() is None
    users.live(1)
    record = updated(users.update())
    assert record.verdict is Verdict.LEARNED, record
    assert users.value() == 1.0
    champion = places.registry.aliases(NAME)["champion"]
    assert champion.policy_version_id == record.policy_version_id
    assert record.parent_version_id is None
    assert champion.lineage["learning_update"] == record.learning_update_id
    assert {
        "agent": "bot",
        "policy": "p",
        "settings_version": 1,
        "reward_sequence": 1_000,
    }.items() <= champion.lineage.items()
    assert champion.lineage["window"] == 20_000
    assert places.store.get(LearningUpdate, record.learning_update_id) == record
    assert record.num_samples + record.num_held_out == 1_000
    metrics = record.metrics
    assert metrics["held_out/candidate/low"] < metrics["held_out/candidate"] < metrics["held_out/candidate/high"]
    for name in ("train/loss", "reward/mean", "overlap/effective_sample_size", "seconds/total", "seconds/training"):
        assert np.isfinite(metrics[name]), name
    assert any(name.startswith("norm/") for name in metrics)
    assert users.update() is None  # nothing new


def test_the_champion_stays_where_the_candidate_is_not_better(places: Places) -> None:
    users = places.users()
    for _ in range(2):
        users.live(1_000)
        record = updated(users.update())
    assert record.verdict is Verdict.NO_SIGNAL
    assert any("champion" in reason for reason in record.reasons)
    assert record.policy_version_id is None
    assert record.parent_version_id == places.registry.aliases(NAME)["champion"].policy_version_id
    assert len(places.registry.versions(NAME)) == 1
    assert "held_out/champion" in record.metrics


def test_frozen_policies_are_not_updated(places: Places) -> None:
    users = places.users(msgspec.structs.replace(SETTINGS, mode=DecisionMode.FROZEN))
    users.live(1_000)
    assert users.update() is None
    assert places.store.count(LearningUpdate) == 0


def test_too_few_held_out_decisions_are_inconclusive(places: Places) -> None:
    users = places.users(msgspec.structs.replace(SETTINGS, learning=LearningSettings(min_new_rewards=30)))
    users.live(30)
    record = updated(users.update())
    assert record.verdict is Verdict.INCONCLUSIVE
    assert record.reasons


class Failing(Learner):
    """Makes no candidates."""

    def candidate(self, agent_id: str, policy: str, settings: DecisionSettings, log_sequence: int) -> Candidate:
        raise RuntimeError("no candidates today")


def test_a_failure_is_told_in_the_record(places: Places) -> None:
    network = {"kind": "network", "actions": ["left", "right"]}
    settings = msgspec.convert({"model": network, "learning": {"min_new_rewards": 100}}, DecisionSettings)
    users = places.users(settings)
    users.learner = Failing(places.store, places.registry)
    users.live(100)
    record = updated(users.update())
    assert record.verdict is None
    assert record.error == "RuntimeError: no candidates today"
    assert users.update() is None  # not again before there is something new


def test_a_policy_that_learns_the_opposite_has_regressed_and_is_not_served(places: Places) -> None:
    """The trainer is told the opposite of each reward."""
    network = {"kind": "network", "actions": ["left", "right"]}
    settings = msgspec.convert({"model": network, "learning": {"min_new_rewards": 1_000}}, DecisionSettings)
    users = places.users(settings)
    users.live(1_000)
    users.learner = Opposite(places.store, places.registry)
    record = updated(users.update())
    assert record.verdict is Verdict.REGRESSED
    assert places.registry.versions(NAME) == []


class Opposite(Learner):
    """Makes candidates that do the opposite of what they should."""

    def candidate(self, agent_id: str, policy: str, settings: DecisionSettings, log_sequence: int) -> Candidate:
        hashed = msgspec.structs.replace(settings, model=HashedConfig())
        made = super().candidate(agent_id, policy, hashed, log_sequence)
        inner = made.trainer

        class Turned:
            def train(self, samples: Sequence[Sample], seed: int) -> Policy:
                return inner.train([each._replace(reward=-each.reward) for each in samples], seed)

        assert isinstance(made.held_out, LoggedDecisions)
        return made._replace(trainer=Turned())


def test_an_alias_that_was_moved_meanwhile_is_left_alone(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator's rollback during an update is not undone by it."""
    users = places.users()
    users.live(1_000)
    updated(users.update())
    samples = [Sample(f"u{row}", {"segment": "s0"}, ["x", "y"], None, "xy"[row % 2], 0.5, row % 2) for row in range(40)]
    artifact = HashedTrainer(SETTINGS.model).train(samples, 0).to_artifact()
    other = places.registry.register(NAME, artifact, Proof(verdict=Verdict.LEARNED, reasons=[]), lineage={})
    users.switch()
    register = Registry.register

    def register_slowly(self: Registry, *args: object, **more: object) -> object:
        made = register(self, *args, **more)  # type: ignore[arg-type]
        self.set_alias(NAME, "champion", other, actor="operator", reason="test")
        return made

    for _ in range(5):
        users.live(1_000)
    monkeypatch.setattr(Registry, "register", register_slowly)
    record = updated(users.update())
    monkeypatch.undo()
    assert record.verdict is None
    assert "ConflictError" in (record.error or "")
    assert record.policy_version_id is None
    assert places.registry.aliases(NAME)["champion"] == other


def imitate(places: Places, number: int, seed: int, agent: str = "bot", **fields: object) -> None:
    """The caller's own logic: left for s0 and s2, right for s1."""
    rng = np.random.default_rng(seed)
    records = []
    for _ in range(number):
        segment = f"s{rng.integers(3)}"
        chosen = "right" if segment == "s1" else "left"
        given = {"baseline_action": chosen, "policy_action": "left", **fields}
        records.append(
            Decision(
                decision_id=new_id(), episode_id=None, agent_id=agent, policy="p", algorithm="joint",
                context={"segment": segment}, actions=["left", "right"], action=chosen, propensity=1.0,
                mode=DecisionMode.APPRENTICE, created_at=now(), **given,
            )
        )  # fmt: skip
    places.store.write([Agent(agent_id=agent, created_at=now()), *records])


def test_an_apprentice_learns_to_choose_as_its_master(places: Places) -> None:
    """Without any reward; judged by how often it makes the same choice."""
    settings = VersionedSettings(3, msgspec.structs.replace(SETTINGS, mode=DecisionMode.APPRENTICE))
    learner = Learner(places.store, places.registry)
    imitate(places, 999, 0)
    assert learner.update("bot", "p", settings) is None
    imitate(places, 1, 1)
    record = updated(learner.update("bot", "p", settings))
    assert record.verdict is Verdict.LEARNED, record
    assert record.num_samples + record.num_held_out == 1_000
    assert record.metrics["held_out/candidate"] == 1.0
    assert record.metrics["held_out/most_frequent"] == pytest.approx(2 / 3, abs=0.1)
    policy = load_policy(places.registry.load(places.registry.aliases(NAME)["champion"]))
    for segment, action in (("s0", 0), ("s1", 1), ("s2", 0)):
        assert policy.probabilities({"segment": segment}, ["left", "right"])[action] == 1.0
    assert learner.update("bot", "p", settings) is None
    imitate(places, 1_000, 2)
    again = updated(learner.update("bot", "p", settings))
    assert again.verdict is Verdict.NO_SIGNAL  # as good as the champion is not better
    assert again.settings_version == 3


def test_an_apprentice_of_one_choice_is_no_better_than_the_most_frequent(places: Places) -> None:
    settings = VersionedSettings(1, msgspec.structs.replace(SETTINGS, mode=DecisionMode.APPRENTICE))
    imitate(places, 1_000, 0, baseline_action="left")
    record = updated(Learner(places.store, places.registry).update("bot", "p", settings))
    assert record.verdict is not Verdict.LEARNED
    assert places.registry.versions(NAME) == []


def test_recency_is_chosen_on_training_units_alone(places: Places) -> None:
    """What is held out may change as it will: the choice stays. The whole is chosen where nothing changed."""
    users = places.users(seed=1)
    users.live(1_600)
    from learnloop.decisions.log import logged_samples
    from learnloop.evaluation.splitting import is_held_out

    window = shared_questions(logged_samples(places.store, "bot", "p"))
    trainer = HashedTrainer(SETTINGS.model)
    assert choose_recency(window, trainer, 0.4) == 1.0
    turned = [s._replace(reward=1 - s.reward) if i >= 1_000 else s for i, s in enumerate(window)]
    chosen = choose_recency(turned, trainer, 0.4)
    assert chosen < 1.0
    lied = [s._replace(reward=7.0) if is_held_out(s.unit, 0.4) else s for s in turned]
    assert choose_recency(lied, trainer, 0.4) == chosen


def test_integers_of_any_size_do_not_stop_the_learner() -> None:
    samples = [Sample(f"u{row}", {"id": 10**30}, ["x", "y"], None, "xy"[row % 2], 0.5, row % 2) for row in range(40)]
    shared = shared_questions(samples)
    assert shared[1].context is shared[0].context
    assert HashedTrainer(SETTINGS.model).train(shared, 0).num_updates == 40


def test_what_came_before_its_wait_was_over_is_not_learned_from(places: Places) -> None:
    """Those who are rewarded early are not like those who get the default later."""
    users = places.users()
    users.live(60)
    for wait, number in ((3_600.0, 0), (0.01, 60)):
        settings = msgspec.structs.replace(SETTINGS, reward_wait_seconds=wait, default_reward=0.0)
        time.sleep(0.02)
        made = bandit_candidate(places.store, "bot", "p", settings)
        assert len(made.train) + made.num_held_out == number
