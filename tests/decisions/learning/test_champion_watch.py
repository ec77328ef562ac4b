"""learnloop.decisions.learning.champion_watch: a champion that becomes bad is put out, a good one stays, by real parts.

Decisions are made by the service's own policies over a real store; the watch reads the log that they leave.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from learnloop.algorithms.bandits.config import ExplorationConfig
from learnloop.core.clock import now
from learnloop.core.records import (
    ChampionTest,
    Decision,
    DecisionActivation,
    DecisionMode,
    LearningUpdate,
    Reward,
    Verdict,
)
from learnloop.decisions.learning import champion_watch
from learnloop.decisions.learning.champion_watch import ACTOR, ChampionWatch
from learnloop.decisions.learning.learner import Learner
from learnloop.decisions.service.request import DecisionRequest
from learnloop.decisions.service.settings import DecisionSettings
from learnloop.decisions.service.settings_store import current
from learnloop.registry import Registry
from learnloop.store import Store
from tests.decisions.champion_world import ACTIONS, NAME, SETTINGS, World, told


@pytest.fixture
def places(tmp_path: Path) -> Iterator[tuple[Store, Registry]]:
    with Store.open(f"sqlite:///{tmp_path}/learnloop.db") as store:
        yield store, Registry(store, tmp_path / "policies")


@pytest.fixture
def world(places: tuple[Store, Registry]) -> World:
    return World(*places)


@pytest.fixture(autouse=True)
def _always_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(champion_watch, "KEEP_EVERY", 1)
    monkeypatch.setattr(champion_watch, "QUIET_SECONDS", 0.0)


def only_test(world: World) -> ChampionTest:
    (test,) = world.store.select(ChampionTest)
    return test


def test_a_champion_that_falls_goes_and_the_policy_chooses_as_before_it_had_one(world: World) -> None:
    world.earns["a0"] = 0.7
    bad = world.champion("a0")
    assert world.until_out(600) is None
    assert world.serving() == bad
    world.earns["a0"] = 0.05
    assert world.until_out(500) is not None
    assert world.serving() is None
    (decision,) = world.policies.decide("bot", "p", DecisionRequest(actions=ACTIONS, context={}))
    assert decision.policy_version_id is None
    assert decision.probabilities == pytest.approx([0.1] * 10)
    test = only_test(world)
    assert test.evidence >= 20
    assert test.put_out_at is not None
    assert "worse than what was tried besides it" in (test.reason or "")
    removal = world.registry.alias_history(NAME)[1]
    assert (removal.is_removal, removal.actor, removal.policy_version_id) == (True, ACTOR, bad.policy_version_id)
    (update,) = world.store.select(LearningUpdate)
    assert (update.verdict, update.parent_version_id) == (Verdict.REGRESSED, bad.policy_version_id)
    assert "worse" in update.reasons[0]
    assert update.metrics["champion_test/evidence"] == test.evidence
    assert world.watch.look() == []
    world.registry.set_alias(NAME, "champion", bad, actor="ann", reason="I know better")  # a person may
    assert world.serving() == bad


def test_it_goes_back_to_the_one_before_it_and_never_to_one_that_was_put_out(world: World) -> None:
    first, second = world.champion("a1"), world.champion("a0", 2)
    world.earns = {**dict.fromkeys(ACTIONS, 0.5), "a0": 0.0, "a1": 0.7}
    assert world.until_out(600) is not None
    assert world.serving() == first
    assert world.until_out(300) is None
    world.earns["a1"] = 0.0
    assert world.until_out(600) is not None
    assert world.serving() is None  # ``previous`` is the second, which was put out
    champions = [move for move in world.registry.alias_history(NAME) if move.alias == "champion"]
    assert [move.policy_version_id for move in champions[2:]] == [first.policy_version_id] * 2
    assert {second.policy_version_id, first.policy_version_id} == {
        each.policy_version_id for each in world.store.select(ChampionTest) if each.put_out_at is not None
    }


def test_what_was_put_out_is_not_proven_again_by_what_is_older(world: World) -> None:
    """The log is full of an action's good days; once it is bad, what is learned is learned from what follows."""
    learner = Learner(world.store, world.registry)
    world.earns["a0"] = 0.9
    world.live(4_000)
    learned = learner.update("bot", "p", current(world.store, "bot", "p"))
    assert learned is not None
    assert learned.verdict is Verdict.LEARNED
    world.policies.refresh()
    world.live(400)
    world.watch.look()
    world.earns["a0"] = 0.05
    assert world.until_out(500) is not None
    assert world.serving() is None
    world.live(390)
    assert learner.update("bot", "p", current(world.store, "bot", "p")) is None
    world.live(20)
    again = learner.update("bot", "p", current(world.store, "bot", "p"))
    assert again is not None
    assert again.verdict is not Verdict.LEARNED, again
    assert again.num_samples + again.num_held_out == 410
    assert world.serving() is None


def test_each_decision_is_counted_once_by_whichever_process_looks(world: World) -> None:
    world.champion("a0")
    other = ChampionWatch(world.store, world.registry)
    for _ in range(5):
        world.live(40)
        world.watch.look()
        other.look()
        other.look("bot", "q")
    whole = only_test(world)
    assert whole.num_decisions == 200
    assert world.watch.look() == []
    later = world.store.run(lambda connection: connection.exec_driver_sql("DELETE FROM champion_tests").rowcount)
    assert later == 1
    ChampionWatch(world.store, world.registry).look()  # all at once, from the log alone
    again = only_test(world)
    assert again.evidence == pytest.approx(whole.evidence, rel=1e-12)
    assert again.num_others == whole.num_others


def test_rewards_in_any_order_come_to_the_same(places: tuple[Store, Registry]) -> None:
    """What comes early waits for what was decided before it."""
    world = World(*places)
    world.champion("a0")
    world.live(60, lambda made, reward: False)
    decisions = list(world.store.iterate(Decision))
    rng = np.random.default_rng(1)
    values = {each.decision_id: float(rng.random() < 0.5) for each in decisions}
    world.watch.look()
    assert only_test(world).num_decisions == 0
    for row in rng.permutation(60):
        world.store.write([told(decisions[row], values[decisions[row].decision_id])])
    world.watch._pauses.clear()
    world.watch.look()
    test = only_test(world)
    assert (test.num_decisions, test.num_missing) == (60, 0)


def test_a_reward_that_stays_unknown_holds_up_no_more_than_a_hundred(world: World) -> None:
    world.champion("a0")
    world.live(1, lambda made, reward: False)
    world.live(99)
    world.watch.look()
    assert only_test(world).num_decisions == 0
    world.live(1)
    world.watch._pauses.clear()
    world.watch.look()
    assert (only_test(world).num_decisions, only_test(world).num_missing) == (101, 1)


def test_a_good_champion_whose_successes_go_unreported_stays(world: World) -> None:
    """Read as failures, or left out, these would put it out."""
    world.champion("a0")
    world.earns = dict.fromkeys(ACTIONS, 0.5)
    hide = np.random.default_rng(4)
    for _ in range(6):
        world.live(200, lambda made, reward: made.action != "a0" or reward == 0.0 or bool(hide.random() < 0.4))
        world.watch._pauses.clear()
        assert world.watch.look()[0].put_out_at is None
    assert only_test(world).num_missing > 200


def test_where_a_default_is_waited_for_nothing_is_missing_before(places: tuple[Store, Registry]) -> None:
    settings = msgspec.structs.replace(SETTINGS, reward_wait_seconds=3_600.0, default_reward=0.0)
    world = World(*places, settings)
    world.champion("a0")
    world.live(1, lambda made, reward: False)
    world.live(150)
    world.watch.look()
    assert only_test(world).num_decisions == 0


def test_without_exploration_it_says_that_nothing_can_be_tested(places: tuple[Store, Registry]) -> None:
    still = msgspec.structs.replace(SETTINGS, exploration=ExplorationConfig(algorithm="epsilon_greedy", epsilon=0.0))
    world = World(*places, still)
    world.champion("a0")
    world.earns["a0"] = 0.0
    world.live(30, lambda made, reward: False)
    world.watch.look()
    test = only_test(world)
    assert (test.num_decisions, test.num_untested, test.evidence) == (0, 30, 0.0)
    assert "cannot be tested" in (test.reason or "")


@pytest.mark.parametrize(
    "changes", [{"mode": DecisionMode.FROZEN}, {"champion_test": {"enabled": False}}, {"mode": DecisionMode.APPRENTICE}]
)
def test_what_is_not_to_be_tested_is_not(places: tuple[Store, Registry], changes: dict[str, Any]) -> None:
    settings = msgspec.convert({**msgspec.to_builtins(SETTINGS), **changes}, DecisionSettings)
    world = World(*places, settings)
    world.champion("a0")
    world.live(30)
    assert world.watch.look() == []
    assert world.store.count(ChampionTest) == 0


def test_a_look_that_ended_half_way_is_made_good(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found worse and kept, and then the process is gone: the next look puts it out, and tells it once."""
    bad = world.champion("a0")
    world.earns["a0"] = 0.0

    def fail(*args: object, **more: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Registry, "remove_alias", fail)
    with pytest.raises(KeyboardInterrupt):
        world.until_out(600)
    assert world.serving() == bad
    assert only_test(world).put_out_at is not None
    monkeypatch.undo()
    ChampionWatch(world.store, world.registry).look()
    assert world.serving() is None
    assert world.store.count(LearningUpdate) == 1


def test_who_was_faster_is_left_alone(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """An operator who moves the alias while the watch is about to."""
    world.champion("a0")
    world.earns["a0"] = 0.0
    told_by = ChampionWatch._record_of

    def tell_slowly(self: ChampionWatch, *args: Any) -> LearningUpdate:
        world.champion("a5", 3)
        return told_by(self, *args)

    monkeypatch.setattr(ChampionWatch, "_record_of", tell_slowly)
    assert world.until_out(600) is not None
    served = world.serving()
    assert served is not None
    assert served.version == 2


def test_a_reward_beyond_the_known_range_widens_it(places: tuple[Store, Registry]) -> None:
    """For the champion it costs all that speaks against it."""
    world = World(*places)
    world.champion("a0")
    world.live(30)
    world.watch.look()
    assert only_test(world).evidence > 0.0
    assert only_test(world).state["high"] == 1.0
    (own,) = world.policies.decide("bot", "p", DecisionRequest(actions=["a0"], context={}))
    probabilities = [0.91, *[0.01] * 9]
    large = msgspec.structs.replace(own, actions=ACTIONS, probabilities=probabilities, propensity=0.91)
    world.store.write([large, told(large, 40.0)])
    world.watch.look()
    assert only_test(world).evidence == 0.0
    assert only_test(world).state["high"] == 40.0


def test_deferred_decisions_count_once_they_are_activated(world: World) -> None:
    world.champion("a0")
    world.fields = {"is_deferred": True}
    world.live(10)
    world.watch.look()
    assert only_test(world).num_decisions == 0
    for each in world.store.select(Decision):
        world.store.write([DecisionActivation(decision_id=each.decision_id, created_at=now())])
    world.watch._pauses.clear()
    world.watch.look()
    assert only_test(world).num_decisions == 10


def test_of_decisions_with_their_episodes_reward_the_first_counts(world: World) -> None:
    world.champion("a0")
    world.fields = {"episode_id": "e1"}
    world.live(5, lambda made, reward: False)
    world.store.write(
        [Reward(reward_id="whole", episode_id="e1", decision_id=None, name="r", value=1.0, created_at=now())]
    )
    world.watch.look()
    assert (only_test(world).num_decisions, only_test(world).num_untested) == (1, 4)


def test_where_nothing_comes_nothing_is_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """But now and then: what is waited for may be over."""
    monkeypatch.setattr(champion_watch, "QUIET_SECONDS", 3_600.0)
    world.champion("a0")
    world.live(20)
    assert world.watch.look()[0].num_decisions == 20
    looks: list[object] = []
    monkeypatch.setattr(ChampionWatch, "_look_at", lambda self, *args: looks.append(args))
    assert world.watch.look() == []
    assert looks == []
    world.live(1)
    world.watch.look()
    monkeypatch.setattr(champion_watch, "QUIET_SECONDS", 0.0)
    world.watch.look()
    assert len(looks) == 2
