"""learnloop.decisions.online.learner: the log is the truth, and what was learned is what it says."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from msgspec.structs import replace

from learnloop.algorithms import build_config
from learnloop.core.errors import ActionError, ContextError
from learnloop.core.ids import new_id
from learnloop.core.records import Decision, DecisionActivation, DecisionMode, ModelCheckpoint, Reward
from learnloop.core.seeding import generator
from learnloop.decisions.inputs import plain_actions, plain_context, plain_mask
from learnloop.decisions.online.learner import OnlineLearner
from learnloop.decisions.service.request import DecisionRequest, Slot
from learnloop.decisions.service.settings import DecisionSettings
from learnloop.decisions.service.snapshot import PolicySnapshot
from learnloop.store import Store

ACTIONS = ["left", "right", "up"]


def settings_of(algorithm: str = "squarecb", **options: Any) -> DecisionSettings:
    config = build_config(algorithm, num_warm_up=10, **options)
    return DecisionSettings(model=config.model, exploration=config.exploration)


SETTINGS = settings_of()


class Point(OnlineLearner):
    """A learner that is asked as a program asks its policy."""

    def __init__(
        self, store: Store, agent_id: str, policy: str, settings: DecisionSettings = SETTINGS, *, seed: int = 1
    ) -> None:
        super().__init__(store, agent_id, policy, settings)
        self.sync()
        algorithm = settings.exploration.algorithm
        self.snapshot = PolicySnapshot(agent_id, policy, 1, settings, None, algorithm, None, None, self)
        self.rng = generator(seed, agent_id, policy, self.num_updates)

    def choose(
        self, actions: Any, context: Any, mask: Any = None, *, episode_id: str | None = None, **fields: Any
    ) -> Decision:
        request = DecisionRequest(
            plain_actions(actions),
            plain_context(context),
            mask=None if mask is None else plain_mask(mask),
            episode_id=episode_id,
            is_strict=True,
        )
        return self.snapshot.decide(replace(request, **fields), self.rng)[0]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(f"sqlite:///{tmp_path}/learnloop.db", blobs=tmp_path / "blobs") as opened:
        yield opened


def open_point(store: Store, *, seed: int = 1, name: str = "p", **options: Any) -> Point:
    return Point(store, "agent", name, options.get("settings", SETTINGS), seed=seed)


def reward_for(decision_id: str | None, value: float | None, *, name: str = "r", **fields: Any) -> Reward:
    return Reward(
        reward_id=new_id(),
        episode_id=fields.pop("episode_id", None),
        decision_id=decision_id,
        name=name,
        value=value,
        created_at=datetime.now(UTC),
        **fields,
    )


def choose(point: Point, store: Store, x: float, episode_id: str | None = None) -> Decision:
    decision = point.choose(ACTIONS, {"x": x}, None, episode_id=episode_id)
    store.offer(decision)
    return decision


def give(point: Point, store: Store, reward: Reward) -> None:
    store.offer(reward)
    point.apply(reward)


def run(point: Point, store: Store, count: int, seed: int = 0) -> list[Decision]:
    rng = np.random.default_rng(seed)
    decisions = []
    for _ in range(count):
        x = float(rng.normal())
        decision = choose(point, store, x)
        give(point, store, reward_for(decision.decision_id, x if decision.action == "right" else 0.1))
        decisions.append(decision)
    return decisions


def state(point: Point) -> tuple[Any, dict[str, bytes]]:
    artifact = point.bandit.to_artifact()
    return artifact.config, {name: tensor.tobytes() for name, tensor in artifact.tensors.items()}


def close_to(first: Point, second: Point) -> bool:
    """Whether both predict the same, to rounding, after the same number of updates."""
    one, two = first.bandit.to_artifact(), second.bandit.to_artifact()
    same = [one.config[name] == two.config[name] for name in ("num_updates", "actions", "warm_up")]
    weights = [artifact.tensors.get("weights", np.zeros(0)) for artifact in (one, two)]
    return all(same) and np.allclose(*weights, atol=1e-9)


def test_a_crash_loses_nothing_that_is_in_the_log(store: Store) -> None:
    point = open_point(store)
    run(point, store, 60)
    store.flush()
    again = open_point(store)  # no checkpoint was made: all of it comes from the log
    assert again.bandit.num_updates == 60
    assert state(again) == state(point)


def test_a_checkpoint_and_what_came_after_give_the_same_state(store: Store) -> None:
    point = open_point(store)
    run(point, store, 40, seed=0)
    record = point.checkpoint()
    assert record is not None
    assert record.training_iteration == 40
    run(point, store, 30, seed=1)
    store.flush()
    assert state(open_point(store)) == state(point)
    assert store.count(ModelCheckpoint) == 1


def test_old_checkpoints_are_removed_with_their_blobs(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("learnloop.decisions.online.checkpoints.GRACE", timedelta(0))
    point = open_point(store)
    for seed in range(5):
        run(point, store, 12, seed=seed)
        point.checkpoint()
    assert store.count(ModelCheckpoint) == 2
    assert store.blobs is not None
    assert len(list(store.blobs.addresses())) == 2
    assert state(open_point(store)) == state(point)


@pytest.mark.parametrize("damage", [b"other bytes", b"", None])
def test_a_damaged_checkpoint_is_said_and_the_log_is_learned_anew(store: Store, damage: bytes | None) -> None:
    point = open_point(store)
    run(point, store, 30)
    record = point.checkpoint()
    assert record is not None
    assert store.blobs is not None
    path = store.blobs.path(record.checkpoint_path)
    path.unlink() if damage is None else path.write_bytes(damage)
    again = open_point(store)
    assert again.damage is not None
    assert "the log was" in again.damage
    assert state(again) == state(point)


def test_a_checkpoint_without_news_is_not_made(store: Store) -> None:
    point = open_point(store)
    run(point, store, 20)
    assert point.checkpoint() is not None
    assert point.checkpoint() is None


def test_a_checkpoint_of_another_model_is_not_used(store: Store) -> None:
    point = open_point(store)
    run(point, store, 20)
    point.checkpoint()
    other = open_point(store, settings=settings_of(l2_weight=3.0))
    assert other.bandit.num_updates == 20  # relearned from the log
    assert not close_to(other, point)


def test_who_explores_otherwise_has_learned_the_same(store: Store) -> None:
    point = open_point(store)
    run(point, store, 20)
    point.checkpoint()
    other = open_point(store, settings=settings_of("linucb"))
    assert other.bandit.tag == "linucb"
    assert close_to(other, point)
    assert point.follow(settings_of("linucb"))
    assert point.bandit.tag == "linucb"
    assert not point.follow(settings_of("linucb", l2_weight=3.0))


def test_late_reward_of_a_decision_of_an_earlier_process(store: Store) -> None:
    point = open_point(store)
    run(point, store, 20)
    waiting = choose(point, store, 0.5)
    point.checkpoint()
    again = open_point(store)
    give(again, store, reward_for(waiting.decision_id, 0.5))
    assert again.bandit.num_updates == 21
    point.apply(reward_for(waiting.decision_id, 0.5))
    assert close_to(again, point)


def test_none_is_not_learned_from(store: Store) -> None:
    point = open_point(store)
    decision = choose(point, store, 0.5)
    give(point, store, reward_for(decision.decision_id, None, reason="grader failed"))
    give(point, store, reward_for(decision.decision_id, 1.0, weight=0.0, name="metric"))
    assert point.bandit.num_updates == 0
    store.flush()
    assert open_point(store).bandit.num_updates == 0


def test_parts_of_a_reward_add_up_in_any_order(store: Store, tmp_path: Path) -> None:
    """Three parts one after the other, one of them replaced, teach what their sum at once does."""
    with Store.open(f"sqlite:///{tmp_path}/other.db") as other:
        first, second = open_point(store), open_point(other)
        run(first, store, 20)
        run(second, other, 20)
        one, two = choose(first, store, 0.7), choose(second, other, 0.7)
        assert one.action == two.action
        for name, value in (("a", 0.5), ("b", 9.0), ("c", 0.25), ("b", 0.125)):
            give(first, store, reward_for(one.decision_id, value, name=name))
        give(second, other, reward_for(two.decision_id, 0.875))
        assert first.bandit.num_updates == second.bandit.num_updates == 21
        assert close_to(first, second)


def test_episode_reward_reaches_each_decision_without_one_of_its_own(store: Store) -> None:
    point = open_point(store)
    first, second = choose(point, store, 0.1, "e"), choose(point, store, 0.2, "e")
    other = choose(point, store, 0.3, "f")
    give(point, store, reward_for(first.decision_id, 0.9))
    give(point, store, reward_for(None, 0.5, episode_id="e"))
    learned = {each["context"]["x"]: each["reward"] for each in point.bandit.to_artifact().config["warm_up"]}
    assert learned == {0.1: 0.9, 0.2: 0.5}
    give(point, store, reward_for(second.decision_id, 0.7))  # its own reward takes the place of the episode's
    give(point, store, reward_for(None, 0.4, episode_id="f"))
    learned = {each["context"]["x"]: each["reward"] for each in point.bandit.to_artifact().config["warm_up"]}
    assert learned == pytest.approx({0.1: 0.9, 0.2: 0.7, 0.3: 0.4})
    assert other.episode_id == "f"
    store.flush()
    again = open_point(store)
    relearned = {each["context"]["x"]: each["reward"] for each in again.bandit.to_artifact().config["warm_up"]}
    assert relearned == pytest.approx(learned)


def test_two_processes_share_a_point(store: Store) -> None:
    """Each learns at once from its own rewards, and at sync from the other's; nothing counts twice."""
    first, second = open_point(store, seed=1), open_point(store, seed=2)
    run(first, store, 30, seed=1)
    run(second, store, 30, seed=2)
    store.flush()
    for point in (first, second):
        point.sync()
        point.sync()
    assert first.bandit.num_updates == second.bandit.num_updates == 60


def test_a_checkpoint_counts_the_other_process_too(store: Store) -> None:
    first, second = open_point(store, seed=1), open_point(store, seed=2)
    run(first, store, 30, seed=1)
    run(second, store, 30, seed=2)
    first.checkpoint()
    again = open_point(store)
    assert again.bandit.num_updates == 60
    run(second, store, 5, seed=3)
    store.flush()
    assert open_point(store).bandit.num_updates == 65


def test_old_decisions_are_forgotten_and_still_rewarded(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("learnloop.decisions.online.learner.MAX_PENDING", 5)
    point = open_point(store)
    decisions = [choose(point, store, i / 10, f"e{i}") for i in range(12)]
    store.flush()
    assert [point.knows(each.decision_id) for each in decisions] == [False] * 7 + [True] * 5
    give(point, store, reward_for(decisions[0].decision_id, 1.0))
    give(point, store, reward_for(None, 0.5, episode_id="e1"))
    assert point.bandit.num_updates == 2


def test_what_was_forgotten_is_not_learned_twice(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decisions that were rewarded and then forgotten are read again at sync, with what was learned of them."""
    monkeypatch.setattr("learnloop.decisions.online.learner.MAX_PENDING", 5)
    point = open_point(store)
    for number in range(200):
        decision = choose(point, store, number / 200)
        if number % 10 == 0:
            give(point, store, reward_for(decision.decision_id, 1.0, name="a"))
            give(point, store, reward_for(decision.decision_id, 0.5, name="b"))
    point.checkpoint()
    assert point.bandit.num_updates == 20
    assert open_point(store).bandit.num_updates == 20
    assert close_to(point, Point(store, "agent", "p"))


def test_interleaved_episodes_are_forgotten_one_decision_at_a_time(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("learnloop.decisions.online.learner.MAX_PENDING", 3)
    point = open_point(store)
    for number in range(10):
        choose(point, store, number / 10, f"e{number % 2}")
    for episode_id in ("e0", "e1"):
        store.flush()
        give(point, store, reward_for(None, 1.0, episode_id=episode_id))
    assert point.bandit.num_updates == 10
    point.checkpoint()
    assert open_point(store).bandit.num_updates == 10


def test_an_episode_of_which_a_part_is_in_memory_is_loaded_whole(store: Store) -> None:
    point = open_point(store)
    decisions = [choose(point, store, i / 10, "e") for i in range(4)]
    store.flush()
    again = open_point(store)
    give(again, store, reward_for(decisions[0].decision_id, 1.0, name="own"))
    give(again, store, reward_for(None, 0.5, episode_id="e"))
    assert again.bandit.num_updates == 4


def test_a_choice_after_its_episode_was_rewarded_learns_at_once(store: Store) -> None:
    point = open_point(store)
    choose(point, store, 0.1, "e")
    give(point, store, reward_for(None, 0.5, episode_id="e"))
    choose(point, store, 0.2, "e")
    assert point.bandit.num_updates == 2
    store.flush()
    assert open_point(store).bandit.num_updates == 2


@pytest.mark.parametrize("before", [0, 40])
def test_two_processes_give_parts_to_one_decision(store: Store, before: int) -> None:
    """In the warm-up and after it; both end with what the log says, and nothing is learned twice or not at all."""
    first = open_point(store, seed=1)
    run(first, store, before)
    store.flush()
    second = open_point(store, seed=2)
    decision = choose(first, store, 0.5)
    give(first, store, reward_for(decision.decision_id, 0.25, name="a"))
    store.flush()
    give(second, store, reward_for(decision.decision_id, 0.5, name="b"))
    give(first, store, reward_for(decision.decision_id, 0.125, name="a"))
    store.flush()
    for point in (first, second):
        point.sync()
        assert point.bandit.num_updates == before + 1
    third = open_point(store, seed=3)
    assert close_to(first, second)
    assert close_to(first, third)


def test_the_last_part_in_the_log_counts_whoever_gave_it(store: Store) -> None:
    first, second = open_point(store, seed=1), open_point(store, seed=2)
    decision = choose(first, store, 0.5)
    store.flush()
    for point, value in ((first, 1.0), (second, 2.0), (first, 3.0), (second, 4.0)):
        give(point, store, reward_for(decision.decision_id, value))
        store.flush()
    for point in (first, second):
        point.sync()
        assert [each["reward"] for each in point.bandit.to_artifact().config["warm_up"]] == [4.0]


def test_a_context_that_is_changed_later_changes_nothing(store: Store) -> None:
    point = open_point(store)
    run(point, store, 20)
    context = {"x": 0.5}
    decision = point.choose(ACTIONS, context, None)
    store.offer(decision)
    context["x"] = 0.9
    context["y"] = 1.0
    give(point, store, reward_for(decision.decision_id, 1.0, name="a"))
    give(point, store, reward_for(decision.decision_id, 5.0, name="b"))
    store.flush()
    assert close_to(point, open_point(store))


@pytest.mark.parametrize(
    "value",
    [
        np.float64(0.5),
        np.float32(0.5),
        np.int64(3),
        np.bool_(True),
        Fraction(1, 2),
        2**70,
        "\ud800",
        "a\0b",
        np.str_("t"),
    ],
)
def test_what_is_learned_is_what_the_log_says(store: Store, value: Any) -> None:
    """Numbers of other libraries and text that cannot be stored are made plain before they are encoded."""
    point = open_point(store)
    other = "t" if isinstance(value, str) else type(value)(0)
    for number in range(15):
        decision = point.choose(["l\ud800", "r\ud801x"], {"x\0": value if number % 2 else other}, None)
        store.offer(decision)
        give(point, store, reward_for(decision.decision_id, float(number % 3)))
    point.checkpoint()
    assert store.counters().num_failed == 0
    again = Point(store, "agent", "p", settings_of("linucb", l2_weight=2.0))  # relearned from the log
    assert again.damage is None
    assert again.bandit.num_updates == 15


def test_actions_that_become_the_same_in_the_log_are_refused(store: Store) -> None:
    with pytest.raises(ActionError, match="more than once"):
        open_point(store).choose(["\ud800", "\ud801"], {}, None)


def test_a_logged_reward_that_cannot_be_learned_does_not_close_the_policy(store: Store) -> None:
    point = open_point(store)
    run(point, store, 20)
    decision = choose(point, store, 0.5)
    store.write([reward_for(decision.decision_id, 1e200)])
    point.sync()
    assert point.damage is not None
    assert "1e+200" in point.damage
    assert point.bandit.num_updates == 20
    assert open_point(store).bandit.num_updates == 20
    choose(point, store, 0.5)


def test_another_declaration_learns_the_log_anew(store: Store) -> None:
    point = Point(store, "agent", "p", settings_of(features={"x": "number"}))
    run(point, store, 20)
    point.checkpoint()
    again = Point(store, "agent", "p", settings_of(features={"x": "category"}))
    assert again.bandit.schema is not None
    assert again.bandit.schema.features == {"x": "category"}
    assert again.bandit.num_updates == 20


def test_checkpoints_of_a_clock_that_went_back(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("learnloop.decisions.online.checkpoints.GRACE", timedelta(0))
    point = open_point(store)
    for days in (0, 0, 0, 1, 1, 1):
        run(point, store, 12, seed=days)
        monkeypatch.setattr(
            "learnloop.decisions.online.checkpoints.now", lambda days=days: datetime.now(UTC) - timedelta(days)
        )
        record = point.checkpoint()
        assert record is not None
        assert store.find(ModelCheckpoint, record.checkpoint_id) is not None
    assert open_point(store).bandit.num_updates == 72


def test_checkpoints_of_two_agents_never_share_a_blob(store: Store) -> None:
    points = [Point(store, agent, "p") for agent in ("a", "b")]
    for point in points:
        for _ in range(3):
            decision = point.choose(["only"], {}, None)
            store.offer(decision)
            give(point, store, reward_for(decision.decision_id, 1.0))
    first, second = (point.checkpoint() for point in points)
    assert first is not None
    assert second is not None
    assert first.checkpoint_path != second.checkpoint_path


def test_a_new_policy_does_not_read_the_rewards_of_others(store: Store) -> None:
    run(open_point(store), store, 30)
    store.flush()
    assert open_point(store, name="new")._sequence == store.last_sequence(Reward) == 30


def test_rewards_from_many_threads_are_each_learned_once(store: Store) -> None:
    point = open_point(store)

    def work(seed: int) -> None:
        run(point, store, 25, seed)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    point.checkpoint()
    for thread in threads:
        thread.join()
    assert point.bandit.num_updates == 200
    store.flush()
    assert open_point(store).bandit.num_updates == 200


def test_same_seed_same_choices(tmp_path: Path) -> None:
    found = []
    for run_number in range(2):
        with Store.open(f"sqlite:///{tmp_path}/{run_number}.db") as store:
            point = open_point(store, seed=7)
            found.append(([each.action for each in run(point, store, 80)], state(point)))
    assert found[0] == found[1]


def test_wrong_input_changes_nothing(store: Store) -> None:
    point = open_point(store)
    run(point, store, 15)
    before = state(point)
    for context, mask in (({}, None), ({"x": float("nan")}, None), ({"x": "text"}, None), ({"x": 1.0, "y": 2.0}, None)):
        with pytest.raises(ContextError):
            point.choose(ACTIONS, context, mask)
    for actions, mask in ((["a", "a"], None), ([], None), (ACTIONS, [False] * 3), (ACTIONS, [True])):
        with pytest.raises(ActionError):
            point.choose(actions, {"x": 1.0}, mask)
    assert state(point) == before


def test_masked_actions_are_never_chosen(store: Store) -> None:
    point = open_point(store)
    run(point, store, 40)
    for _ in range(300):
        decision = point.choose(ACTIONS, {"x": 2.0}, [True, False, True])
        assert decision.action != "right"
        assert decision.probabilities is not None
        assert decision.probabilities[1] == 0.0
        assert decision.propensity == decision.probabilities[ACTIONS.index(decision.action)] > 0.0


def activate(store: Store, decision: Decision) -> None:
    store.write([DecisionActivation(decision_id=decision.decision_id, created_at=datetime.now(UTC))])


def test_a_deferred_decision_is_learned_once_it_is_activated(store: Store) -> None:
    point = open_point(store)
    run(point, store, 12)
    used, unused = (point.choose(ACTIONS, {"x": 1.0}, is_deferred=True) for _ in range(2))
    for decision in (used, unused):
        store.offer(decision)
        give(point, store, reward_for(decision.decision_id, 1.0))
    point.sync()
    assert point.num_updates == 12
    activate(store, used)
    point.sync()
    assert point.num_updates == 13
    give(point, store, reward_for(used.decision_id, 0.5))  # the part again: corrected, not learned twice
    assert point.num_updates == 13
    store.flush()
    assert close_to(open_point(store), point)  # from the log alone


def test_a_checkpoint_knows_which_deferred_decisions_wait(store: Store) -> None:
    point = open_point(store)
    run(point, store, 12)
    waiting = point.choose(ACTIONS, {"x": 1.0}, is_deferred=True)
    store.offer(waiting)
    give(point, store, reward_for(waiting.decision_id, 1.0))
    run(point, store, 5)
    assert point.checkpoint() is not None
    activate(store, waiting)
    again = open_point(store)
    assert again.num_updates == 18
    point.sync()
    assert close_to(again, point)
    assert close_to(open_point(store, settings=settings_of(l2_weight=1.0)), point)


def test_frozen_it_learns_nothing_and_later_all_of_it(store: Store) -> None:
    point = open_point(store)
    run(point, store, 20)
    frozen = msgspec.structs.replace(SETTINGS, mode=DecisionMode.FROZEN)
    assert point.follow(frozen)
    run(point, store, 10)
    assert point.num_updates == 20
    store.flush()
    again = open_point(store, settings=frozen)
    assert again.num_updates == 20
    for each in (point, again):
        assert each.follow(SETTINGS)
        each.sync()
        assert each.num_updates == 30
    assert close_to(point, again)


def test_of_two_decisions_with_a_client_s_id_the_first_is_learned_from(store: Store) -> None:
    point = open_point(store)
    second = point.choose(["right"], {"x": 2.0}, decision_id="mine")  # it was slower, and the log does not keep it
    first = point.choose(["left"], {"x": 1.0}, decision_id="mine")
    for decision in (first, second):
        store.write([decision])
        point.expect_kept([store.get(Decision, "mine")])
    give(point, store, reward_for("mine", 1.0))
    assert [each["action"] for each in point.bandit.to_artifact().config["warm_up"]] == ["left"]
    store.flush()
    assert state(open_point(store)) == state(point)


def test_of_a_client_s_id_another_policy_s_decision_is_not_expected(store: Store) -> None:
    first, second = open_point(store), open_point(store, name="other")
    kept = first.choose(["left"], {"x": 1.0}, decision_id="mine")
    second.choose(["right"], {"x": 1.0}, decision_id="mine")
    store.write([kept])
    for point in (first, second):
        point.expect_kept([store.get(Decision, "mine")])
    store.write([reward_for("mine", 1.0)])
    for point in (first, second):
        point.sync()
    assert (first.num_updates, second.num_updates) == (1, 0)


def test_a_reward_that_is_heard_of_before_the_own_choice_is_given_up_is_learned_once(store: Store) -> None:
    """Another server decided, and its client rewarded it, while this one was about to log its own choice."""
    point = open_point(store)
    point.choose(["right"], {"x": 2.0}, decision_id="mine")
    kept = open_point(store).choose(["left"], {"x": 1.0}, decision_id="mine")
    store.write([kept, reward_for("mine", 1.0)])
    point.sync()
    point.expect_kept([kept])
    give(point, store, reward_for("mine", 0.5, name="more"))
    assert [(each["action"], each["reward"]) for each in point.bandit.to_artifact().config["warm_up"]] == [
        ("left", 1.5)
    ]
    store.flush()
    assert state(open_point(store)) == state(point)


def test_a_request_that_is_refused_half_way_decides_nothing(store: Store) -> None:
    point = open_point(store)
    asked = DecisionRequest(["a", "b"], {"x": 1.0})
    with pytest.raises(ActionError, match="no action is left"):
        point.snapshot.decide(replace(asked, slots=[Slot("one"), Slot("two"), Slot("three")]), point.rng)
    assert len(point._pending) == 0
    made = point.snapshot.decide(replace(asked, slots=[Slot("one"), Slot("two")]), point.rng)
    assert [point.knows(each.decision_id) for each in made] == [True, True]


def test_what_others_decided_is_learned_as_far_as_it_can_be_read(store: Store) -> None:
    point = open_point(store)
    run(point, store, 20)
    request = DecisionRequest(list(ACTIONS), {"user": {"age": 3.0}, "x": 1.0, "tags": ["a"], "none": None})
    for asked in (request, replace(request, vector=np.ones(3, np.float32)), replace(request, context={})):
        (decision,) = point.snapshot.decide(asked, point.rng)  # another program, which knows other features
        store.offer(decision)
        give(point, store, reward_for(decision.decision_id, 1.0))
    assert point.num_updates == 23
    assert point.damage is None
    store.flush()
    assert close_to(open_point(store), point)
