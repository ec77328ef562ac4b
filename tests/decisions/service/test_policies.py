"""Decisions from a snapshot: exploration, masks, slots, modes, and what replaces a snapshot."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from sqlalchemy import event
from sqlalchemy.engine import Engine

from learnloop.algorithms.hashed.config import HashedConfig
from learnloop.algorithms.hashed.trainer import HashedTrainer
from learnloop.core.arrays import F64
from learnloop.core.errors import ActionError, ContextError, LearnloopError, UsageError
from learnloop.core.protocols import Question, Sample
from learnloop.core.records import DecisionMode, Reward, Verdict
from learnloop.decisions.service.policies import Policies
from learnloop.decisions.service.request import DecisionRequest, Slot
from learnloop.decisions.service.settings import DecisionSettings, NetworkConfig, read_settings
from learnloop.decisions.service.settings_store import current, history, put
from learnloop.decisions.service.snapshot import PolicySnapshot
from learnloop.registry import Proof, Registry
from learnloop.store import Store
from tests.waiting import costs_at_most


class Prefers:
    """A policy whose scores are the feature ``score`` of each action."""

    num_updates = 1_000

    def scores(self, context: Mapping[str, Any], actions: Sequence[str]) -> F64:
        assert isinstance(context, Question)
        return np.array([features["score"] for features in context.action_features or ()], dtype=np.float64)

    def probabilities(
        self, context: Mapping[str, Any], actions: Sequence[str], mask: Sequence[bool] | None = None
    ) -> F64:
        raise AssertionError("a policy that predicts rewards explores by them")


def served(settings: Mapping[str, Any] | None = None, model: Any = None) -> PolicySnapshot:
    scoring = model if isinstance(model, Prefers) else None
    return PolicySnapshot("a", "p", 3, read_settings(settings or {}), "v1", "joint", model, scoring)


FEATURES = [{"score": 0.0}, {"score": 1.0}, {"score": 3.0}]
ASKED = DecisionRequest(["x", "y", "z"], action_features=FEATURES)


def test_propensities_are_those_of_squarecb_with_its_floor() -> None:
    """Foster and Rakhlin 2020, algorithm 1, recomputed here: K = 3, gamma = .15 x 1000^.85, epsilon .05."""
    gamma = 0.15 * 1_000**0.85
    losing = [1 / (3 + gamma * 3.0), 1 / (3 + gamma * 2.0)]
    wanted = [0.95 * each + 0.05 / 3 for each in [*losing, 1 - sum(losing)]]
    rng = np.random.default_rng(0)
    made = [served(model=Prefers()).decide(ASKED, rng)[0] for _ in range(3_000)]
    assert made[0].probabilities == pytest.approx(wanted, abs=1e-12)
    counts = Counter(each.action for each in made)
    for action, probability in zip(ASKED.actions, wanted, strict=True):
        assert counts[action] / 3_000 == pytest.approx(probability, abs=4 * (probability / 3_000) ** 0.5)
    assert all(each.propensity == each.probabilities[ASKED.actions.index(each.action)] for each in made)


def test_without_a_model_all_allowed_actions_are_as_likely() -> None:
    (made,) = served().decide(replace(ASKED, mask=[True, False, True]), np.random.default_rng(0))
    assert made.probabilities == [0.5, 0.0, 0.5]
    assert (made.num_updates, made.settings_version, made.mode) == (0, 3, DecisionMode.LEARNING)


@given(
    scores=st.lists(st.floats(-5, 5), min_size=1, max_size=6),
    masked=st.integers(0, 63),
    algorithm=st.sampled_from(["squarecb", "epsilon_greedy", "softmax"]),
    epsilon=st.floats(0, 1),
)
def test_what_is_not_allowed_is_never_chosen(scores: list[float], masked: int, algorithm: str, epsilon: float) -> None:
    names = [f"a{number}" for number in range(len(scores))]
    mask = [bool(masked >> number & 1) for number in range(len(scores))]
    asked = DecisionRequest(names, action_features=[{"score": score} for score in scores], mask=mask)
    policy = served({"exploration": {"algorithm": algorithm, "epsilon": epsilon}}, Prefers())
    if not any(mask):
        with pytest.raises(ActionError):
            policy.decide(asked, np.random.default_rng(0))
        return
    (made,) = policy.decide(asked, np.random.default_rng(0))
    assert made.probabilities is not None
    assert sum(made.probabilities) == pytest.approx(1.0)
    assert all(probability == 0.0 for probability, allowed in zip(made.probabilities, mask, strict=True) if not allowed)
    assert mask[names.index(made.action)]
    assert made.propensity is not None
    assert made.propensity > 0


def test_a_slot_is_chosen_from_what_the_earlier_ones_left() -> None:
    slots = [Slot("top"), Slot("side", excluded=frozenset({"x"})), Slot("end")]
    rng = np.random.default_rng(5)
    for _ in range(60):
        made = served({"exploration": {"epsilon": 1.0}}, Prefers()).decide(replace(ASKED, slots=slots), rng)
        assert sorted(each.action for each in made) == ["x", "y", "z"]
        assert made[1].action != "x"
        assert made[1].mask == [False, made[0].action != "y", made[0].action != "z"]
        assert made[2].propensity == 1.0
        assert [each.decision_id for each in made] == [f"{made[0].request_id}.{number}" for number in range(3)]


def test_too_few_actions_for_the_slots() -> None:
    slots = [Slot(f"s{number}") for number in range(4)]
    with pytest.raises(ActionError, match="no action is left for the slot 's3'"):
        served().decide(replace(ASKED, slots=slots), np.random.default_rng(0))


def test_an_apprentice_answers_with_the_baseline_and_notes_what_it_would_have_done() -> None:
    policy = served({"mode": "apprentice"}, Prefers())
    (made,) = policy.decide(replace(ASKED, baseline="y"), np.random.default_rng(0))
    assert (made.action, made.propensity, made.baseline_action, made.policy_action) == ("y", 1.0, "y", "z")
    (made,) = policy.decide(replace(ASKED, mask=[False, True, True]), np.random.default_rng(0))
    assert (made.action, made.probabilities) == ("y", [0.0, 1.0, 0.0])


def test_what_has_not_learned_prefers_nothing() -> None:
    """Else an apprentice whose caller chooses the first action would match it before it has learned anything."""
    (made,) = served({"mode": "apprentice"}).decide(ASKED, np.random.default_rng(0))
    assert (made.action, made.baseline_action, made.policy_action) == ("x", "x", None)


def test_too_much_to_choose_from_is_refused_at_once() -> None:
    rng = np.random.default_rng(0)
    with costs_at_most(1.0):
        with pytest.raises(ActionError, match="200000 actions"):
            served().decide(DecisionRequest([f"a{n % 1_000}" for n in range(200_000)]), rng)
        names = [f"a{n}" for n in range(1_000)]
        features = [{f"f{n}": "v" for n in range(14)}] * 1_000
        wide = {f"c{n}": "v" for n in range(990)}
        with pytest.raises(ContextError, match="pairs"):
            served().decide(DecisionRequest(names, wide, features), rng)
        slots = [Slot(f"s{n}", {"nested": [{"x": "y"}] * 10}) for n in range(100)]
        with pytest.raises(ContextError, match="over 100 slots"):
            served().decide(DecisionRequest(names[:300], {}, features[:300], slots=slots), rng)
    assert len(served().decide(DecisionRequest(names, {"c": 1.0}, features), rng)) == 1
    assert (
        len(
            served({"model": {"kind": "hashed", "interactions": False}}).decide(
                DecisionRequest(names, wide, features), rng
            )
        )
        == 1
    )


def test_a_context_cannot_hide_what_is_known_of_a_slot() -> None:
    with pytest.raises(ContextError, match="'slot'"):
        served().decide(replace(ASKED, context={"slot": 1}, slots=[Slot("top")]), np.random.default_rng(0))
    assert served().decide(replace(ASKED, context={"slot": 1}), np.random.default_rng(0))[0].context == {"slot": 1}


def test_a_network_wants_its_vector_and_its_actions() -> None:
    network = NetworkConfig(input_dim=3, actions=("x", "y"))
    policy = PolicySnapshot("a", "p", 1, DecisionSettings(model=network), None, "uniform", None, None)
    vector = np.zeros(3, np.float32)
    rng = np.random.default_rng(0)
    assert policy.decide(DecisionRequest(["y", "x"], vector=vector), rng)[0].vector == bytes(12)
    for asked, kind in (
        (DecisionRequest(["x"]), ContextError),
        (DecisionRequest(["x"], vector=np.zeros(4, np.float32)), ContextError),
        (DecisionRequest(["x"], vector=np.full(3, np.inf, np.float32)), ContextError),
        (DecisionRequest(["z"], vector=vector), ActionError),
    ):
        with pytest.raises(kind):
            policy.decide(asked, rng)


# What is served ----------------------------------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(f"sqlite:///{tmp_path}/log.db") as opened:
        yield opened


@pytest.fixture
def registry(store: Store, tmp_path: Path) -> Registry:
    return Registry(store, tmp_path / "policies")


def champion(registry: Registry) -> str:
    """Registers a policy that likes ``y``, and serves it."""
    samples = [Sample(f"u{n}", {}, ["x", "y"], None, "xy"[n % 2], 0.5, float(n % 2)) for n in range(40)]
    policy = HashedTrainer(HashedConfig()).train(samples, seed=0)
    version = registry.register(
        "shop.front", policy.to_artifact(), Proof(verdict=Verdict.LEARNED, reasons=[]), lineage={}
    )
    registry.set_alias("shop.front", "champion", version, actor="test", reason="it is better")
    return version.policy_version_id


def test_a_new_champion_and_new_settings_are_served_after_a_refresh(store: Store, registry: Registry) -> None:
    service = Policies(store, registry)
    assert service.find("shop", "front") is None
    first = service.load("shop", "front")
    assert (first.version_id, first.settings_version, first.algorithm) == (None, 0, "uniform")
    assert service.refresh() == []
    version_id = champion(registry)
    put(store, "shop", "front", read_settings({"mode": "frozen"}))
    put(store, "shop", "other", read_settings({"mode": "frozen"}))
    assert service.find("shop", "front") is first
    (changed,) = service.refresh()
    assert (changed.version_id, changed.settings_version) == (version_id, 1)
    assert changed.settings.mode is DecisionMode.FROZEN
    assert service.find("shop", "front") is changed
    (made,) = changed.decide(DecisionRequest(["y", "x"]), np.random.default_rng(0))
    assert made.policy_version_id == version_id
    assert made.probabilities is not None
    assert made.probabilities[0] > 0.6
    assert service.refresh() == []


def test_a_champion_that_cannot_be_read_leaves_the_old_one_in_place(
    store: Store, registry: Registry, tmp_path: Path
) -> None:
    service = Policies(store, registry)
    old = service.load("shop", "front")
    service.load("shop", "other")
    champion(registry)
    kept = {file: file.read_text() for file in (tmp_path / "policies").rglob("policy.json")}
    for file in kept:
        file.write_text("{}")
    put(store, "shop", "other", read_settings({"mode": "frozen"}))
    assert [each.policy for each in service.refresh()] == ["other"]  # the others follow all the same
    assert service.refresh() == []
    assert service.find("shop", "front") is old
    for file, text in kept.items():
        file.write_text(text)
    (again,) = service.refresh()  # it was tried again
    assert (again.policy, again.algorithm) == ("front", "joint")


def test_a_change_while_a_policy_is_read_is_not_passed_over(
    store: Store, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Policies(store, registry)
    refreshing = threading.Thread(target=service.refresh)
    read = service._snapshot

    def change_meanwhile(*known: Any) -> PolicySnapshot:
        if not refreshing.ident:
            put(store, "shop", "front", read_settings({"mode": "frozen"}))
            refreshing.start()
            refreshing.join(0.2)
        return read(*known)

    monkeypatch.setattr(service, "_snapshot", change_meanwhile)
    service.load("shop", "front")
    refreshing.join()
    service.refresh()
    found = service.find("shop", "front")
    assert found is not None
    assert found.settings_version == 1


def test_settings_of_two_servers_follow_each_other(postgres_url: str) -> None:
    with Store.open(postgres_url) as first, Store.open(postgres_url) as second:

        def put_some(store: Store) -> None:
            for _ in range(10):
                put(store, "shop", "front", DecisionSettings())

        with ThreadPoolExecutor(2) as pool:
            for done in [pool.submit(put_some, each) for each in (first, second)]:
                done.result()
        assert [each.version for each in history(first, "shop", "front")] == list(range(20, 0, -1))


def test_settings_of_two_writers_follow_each_other(store: Store) -> None:
    frozen = read_settings({"mode": "frozen"})
    assert put(store, "shop", "front", frozen, author="ada", expected_version=0).version == 1
    with pytest.raises(LearnloopError, match="version 1, not 0"):
        put(store, "shop", "front", DecisionSettings(), expected_version=0)
    assert put(store, "shop", "front", DecisionSettings()).version == 2
    assert current(store, "shop", "front") == (2, DecisionSettings())
    assert [(each.version, each.author) for each in history(store, "shop", "front")] == [(2, None), (1, "ada")]


@pytest.mark.parametrize(
    "given",
    [
        {"mode": "off"},
        {"exploration": {"epsilon": 1.5}},
        {"exploration": {"algorithm": "magic"}},
        {"model": {"kind": "hashed", "num_bits": 60}},
        {"learning": {"alpha": 0}},
        {"learning": {"held_out_share": 0.95}},
        {"reward_wait_seconds": 5},
        {"default_reward": 5},
        {"reward_wait_seconds": -1, "default_reward": 0},
        {"model": {"kind": "network", "actions": ["a"]}},
        {"model": {"kind": "network", "actions": ["a", "a"]}},
        {"model": {"kind": "network", "actions": ["a", "b"], "hidden": []}},
        {"model": {"kind": "network", "actions": ["a", "b"], "input_dim": 0}},
        {"unknown": 1},
        [],
    ],
)
def test_settings_without_a_meaning_are_refused(given: Any) -> None:
    with pytest.raises(UsageError):
        read_settings(given)


def test_a_champion_of_other_settings_is_not_served(store: Store, registry: Registry) -> None:
    champion(registry)
    service = Policies(store, registry)
    assert service.load("shop", "front").algorithm == "joint"
    put(store, "shop", "front", read_settings({"model": {"kind": "network", "actions": ["x", "y"], "input_dim": 3}}))
    (changed,) = service.refresh()
    assert (changed.algorithm, changed.version_id) == ("uniform", None)
    put(store, "shop", "front", read_settings({}))
    (again,) = service.refresh()
    assert again.algorithm == "joint"


# Online policies of one process -------------------------------------------------------------------------------------

ONLINE = read_settings({"model": {"kind": "online", "num_warm_up": 5}})


@pytest.fixture
def page_reads(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The statements that read a page of rewards; a page has ten."""
    monkeypatch.setattr("learnloop.decisions.online.learner._PAGE", 10)
    found: list[str] = []

    def note(connection: Any, cursor: Any, statement: str, *given: Any) -> None:
        if "FROM rewards" in statement and "rewards.sequence >" in statement:
            found.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    yield found
    event.remove(Engine, "before_cursor_execute", note)


def earn(service: Policies, store: Store, policy: str, count: int) -> None:
    """Has another process decide and learn, so that only the log tells of it."""
    for number in range(count):
        (made,) = service.decide("shop", policy, DecisionRequest(["x", "y"], {"n": number / count}))
        given = Reward(
            reward_id=f"{policy}-{made.decision_id}",
            episode_id=None,
            decision_id=made.decision_id,
            name="r",
            value=number / 10 + (made.action == "y"),
            created_at=made.created_at,
        )
        store.write([made, given])
        service.apply("shop", policy, [given])


def learned(service: Policies, policy: str) -> tuple[Any, dict[str, bytes]]:
    snapshot = service.find("shop", policy)
    assert snapshot is not None
    assert snapshot.learner is not None
    artifact = snapshot.learner.bandit.to_artifact()
    return artifact.config, {name: tensor.tobytes() for name, tensor in artifact.tensors.items()}


def test_the_log_is_read_once_for_all_online_policies(store: Store, registry: Registry, page_reads: list[str]) -> None:
    policies = ("front", "side", "back")
    for policy in policies:
        put(store, "shop", policy, ONLINE)
    other, service = Policies(store, registry, seed=1), Policies(store, registry)
    service.load_set_up()
    for policy, count in zip(policies, (15, 12, 8), strict=True):
        earn(other, store, policy, count)
    page_reads.clear()
    service.keep()
    assert len(page_reads) == 4  # 35 rewards: 10, 10, 10 and 5
    page_reads.clear()
    service.keep()
    assert len(page_reads) == 1
    page_reads.clear()
    restarted = Policies(store, registry)
    restarted.load_set_up()
    assert len(page_reads) == 4
    assert [each.policy for each in restarted.snapshots()] == [each.policy for each in service.snapshots()]
    for policy, count in zip(policies, (15, 12, 8), strict=True):
        alone = Policies(store, registry)
        alone.load("shop", policy)
        assert learned(alone, policy)[0]["num_updates"] == count
        assert learned(alone, policy) == learned(service, policy) == learned(restarted, policy)


def test_policies_at_different_places_of_the_log_learn_each_reward_once(
    store: Store, registry: Registry, page_reads: list[str]
) -> None:
    for policy in ("front", "side"):
        put(store, "shop", policy, ONLINE)
    other, service = Policies(store, registry, seed=1), Policies(store, registry)
    earn(other, store, "front", 12)
    earn(other, store, "side", 12)
    service.load("shop", "front")  # 24 rewards are learned
    earn(other, store, "front", 3)
    page_reads.clear()
    service.load("shop", "side")
    assert len(page_reads) == 3
    service.keep()
    assert [learned(service, policy)[0]["num_updates"] for policy in ("front", "side")] == [15, 12]
    assert all(learned(service, policy) == learned(other, policy) for policy in ("front", "side"))


def test_a_policy_that_cannot_learn_holds_up_no_other(
    store: Store, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    for policy in ("front", "side"):
        put(store, "shop", policy, ONLINE)
    other, service = Policies(store, registry, seed=1), Policies(store, registry)
    service.load_set_up()
    earn(other, store, "front", 7)
    earn(other, store, "side", 7)
    broken = service.find("shop", "front")
    assert broken is not None
    with monkeypatch.context() as patch:
        patch.setattr(broken.learner, "_ensure_loaded", failing)
        with pytest.raises(LearnloopError, match="the disk is away"):
            service.keep()
    assert [learned(service, policy)[0]["num_updates"] for policy in ("front", "side")] == [0, 7]
    service.keep()
    assert learned(service, "front")[0]["num_updates"] == 7


def test_a_policy_that_cannot_be_read_at_a_start_holds_up_no_other(
    store: Store, registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    """Two features of one name: hashed reads them, and online, which the policy is now, does not."""
    put(store, "shop", "front", read_settings({"model": {"kind": "hashed"}}))
    put(store, "shop", "side", ONLINE)
    other = Policies(store, registry, seed=1)
    earn(other, store, "side", 7)
    (made,) = other.decide("shop", "front", DecisionRequest(["x", "y"], {"a.b": 1.0, "a": {"b": 2.0}}))
    given = Reward(
        reward_id="r", episode_id=None, decision_id=made.decision_id, name="r", value=1.0, created_at=made.created_at
    )
    store.write([made, given])
    put(store, "shop", "front", ONLINE)
    service = Policies(store, registry)
    service.load_set_up()
    assert learned(service, "side")[0]["num_updates"] == 7
    assert service.find("shop", "front") is None
    assert "shop.front is not served" in caplog.text


def failing(rewards: object) -> None:
    raise LearnloopError("the disk is away")
