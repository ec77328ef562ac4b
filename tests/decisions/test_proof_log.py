"""learnloop.decisions.proof_log: what of a log is learned from, judged on, missing or to come, on each back end."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
import numpy as np
import pytest

from learnloop.core.clock import now
from learnloop.core.errors import UsageError
from learnloop.core.records import Decision, Episode, EpisodeStatus, Reward
from learnloop.decisions.importing.choices import DROPPED
from learnloop.decisions.proof_log import ProofLog, read_log, split_log
from learnloop.decisions.service.settings import DecisionSettings
from learnloop.decisions.service.settings_store import put
from learnloop.evaluation.policies import FixedPolicy
from learnloop.store import Store

LONG_AGO = now() - timedelta(days=30)


def decision(key: str, episode_id: str | None = None, at: float = 0.0, **fields: Any) -> Decision:
    """Returns a decision that was made ``at`` seconds after a time long ago."""
    given = {"context": {"x": 1.0}, "action": "l", "propensity": 0.5, "created_at": LONG_AGO + timedelta(seconds=at)}
    return Decision(
        decision_id=key, episode_id=episode_id, agent_id="a", policy="p", algorithm="rules", actions=["l", "r"],
        **given | fields,
    )  # fmt: skip


def reward(key: str, value: float | None, after: datetime = LONG_AGO, **fields: Any) -> Reward:
    return Reward(
        reward_id=f"reward-{key}", name=fields.pop("name", "n"), value=value, created_at=after,
        **{"episode_id": None, "decision_id": key, **fields},
    )  # fmt: skip


def episode(key: str, task: str | None = None, **metadata: Any) -> Episode:
    return Episode(
        episode_id=key, trace_id=f"t{key}", agent_id="a", task_id=task, status=EpisodeStatus.COMPLETED,
        started_at=LONG_AGO, metadata=metadata,
    )  # fmt: skip


def of_episode(key: str, value: float) -> Reward:
    return reward(key, value, episode_id=key, decision_id=None)


def units(log: ProofLog) -> list[str]:
    return [each.unit for each in log.samples]


def ids(log: ProofLog) -> list[str]:
    return [each.decision_id for each in log.decisions]


# --- units ---


@pytest.fixture
def users(store: Store) -> Store:
    """Four rewarded decisions of three episodes: two of one task, two of one plan, three of one user."""
    store.write([episode("e1", "t1", plan="free"), episode("e2", "t1", plan="paid"), episode("e3", "t2", plan="free")])
    people = [("d1", "e1", "ann"), ("d2", "e1", "ann"), ("d3", "e2", "bob"), ("d4", "e3", "ann")]
    store.write([decision(key, of, at, context={"user": who}) for at, (key, of, who) in enumerate(people)])
    store.write([reward(key, 1.0) for key, _, _ in people])
    return store


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        ("episode", ["e1", "e1", "e2", "e3"]),
        ("task", ["task=t1", "task=t1", "task=t1", "task=t2"]),
        ("user", ["user=ann", "user=ann", "user=bob", "user=ann"]),
        ("plan", ["plan=free", "plan=free", "plan=paid", "plan=free"]),
    ],
)
def test_units_are_episodes_tasks_features_or_metadata(users: Store, unit: str, expected: list[str]) -> None:
    log = read_log(users, "a", "p", unit=unit)
    assert ids(log) == ["d1", "d2", "d3", "d4"]
    assert units(log) == expected
    assert [each.shared for each in log.samples] == [None] * 4


def test_all_decisions_of_an_episode_are_of_one_unit(store: Store) -> None:
    """Also where a later one says another user: they are not independent of each other."""
    store.write([decision("d1", "e", 0, context={"user": "ann"}), decision("d2", "e", 1, context={"user": "bob"})])
    store.write([reward("d1", 1.0), reward("d2", 0.0)])
    assert units(read_log(store, "a", "p", unit="user")) == ["user=ann", "user=ann"]


@pytest.mark.parametrize("unit", ["user", "task"])
def test_decisions_that_do_not_say_their_unit_are_refused_with_their_number(store: Store, unit: str) -> None:
    store.write([episode("e1", "t1", user="ann")])
    store.write([decision("d1", "e1"), decision("d2", "e2", 1), decision("d3", None, 2)])
    store.write([reward(f"d{i}", 1.0) for i in (1, 2, 3)])
    with pytest.raises(UsageError, match=f"2 of 3 decisions do not say which {unit} they are of; allowed units are"):
        read_log(store, "a", "p", unit=unit)


def test_one_unit_is_never_on_both_sides(store: Store) -> None:
    store.write([decision(f"d{i:03d}", None, i, context={"user": i % 37}) for i in range(200)])
    store.write([reward(f"d{i:03d}", float(i)) for i in range(200)])
    split = split_log(read_log(store, "a", "p", unit="user"))
    train = {each.unit for each in split.train}
    assert train
    assert split.held_out.units
    assert not train & set(split.held_out.units)
    assert len(train) + len(split.held_out.units) == 37
    assert len(split.train) + len(split.held_out.samples) == 200


# --- copies ---


def test_a_decision_under_two_ids_counts_once_and_is_told(store: Store) -> None:
    rows = [decision(f"d{i:03d}", None, i, context={"x": i}) for i in range(200)]
    again = [decision(f"copy{i}", None, i, context={"x": i}) for i in (3, 4)]
    store.write([*rows, *again, *(reward(f"d{i:03d}", 1.0) for i in range(200)), reward("copy3", 1.0)])
    log = read_log(store, "a", "p")
    assert len(log.samples) == len({each.context["x"] for each in log.samples}) == 200
    assert (log.num_copies, log.num_decisions, log.missing) == (2, 200, [])
    assert log.notes == ["2 decisions are in the log twice (same time, context and action); each counts once"]


def test_of_two_copies_the_one_with_a_reward_counts(store: Store) -> None:
    store.write([decision(f"d{i}", None, i) for i in range(100)])
    store.write(
        [decision("again", None, 7), reward("again", 0.25), *(reward(f"d{i}", 1.0) for i in range(100) if i != 7)]
    )
    log = read_log(store, "a", "p")
    assert len(log.samples) == 100
    assert sorted(each.reward for each in log.samples)[:2] == [0.25, 1.0]
    assert (log.missing, log.num_pending, log.num_copies) == ([], 0, 1)


@pytest.mark.parametrize(
    "other",
    [
        *({"at": 5.001}, {"context": {"x": 2.0}}, {"action": "r"}, {"slot": "side"}, {"vector": b"\0\0\0\0"}),
        {"action_features": [{"price": 1.0}, {"price": 2.0}]},
    ],
)
def test_what_differs_in_time_question_or_action_is_no_copy(store: Store, other: dict[str, Any]) -> None:
    store.write([decision(f"d{i:03d}", None, i) for i in range(200)])
    store.write([decision("other", None, **{"at": 5.0, **other})])
    store.write([reward(key, 1.0) for key in ("other", *(f"d{i:03d}" for i in range(200)))])
    log = read_log(store, "a", "p")
    assert (len(log.samples), log.num_copies, log.notes) == (201, 0, [])


@pytest.mark.parametrize(("per_second", "actions"), [(8, "lr"), (25, "l")])
def test_a_clock_that_is_too_coarse_merges_no_decisions_of_others(store: Store, per_second: int, actions: str) -> None:
    """Times are whole seconds, in which many decide: what is equal is of different people.

    That is seen by decisions of one time that differ, or by more of them than anybody writes copies.
    """
    store.write([decision(f"d{i:03d}", None, i // per_second, action=actions[i % len(actions)]) for i in range(100)])
    store.write([reward(f"d{i:03d}", float(i)) for i in range(100)])
    log = read_log(store, "a", "p")
    assert (len(log.samples), log.num_copies) == (100, 0)


def test_decisions_of_different_episodes_are_no_copies(store: Store) -> None:
    store.write([decision("d1", "e1"), decision("d2", "e2"), decision("d3", "e2")])
    store.write([reward(f"d{i}", 1.0) for i in (1, 2, 3)])
    log = read_log(store, "a", "p")
    assert (units(log), log.num_copies) == (["e1", "e2"], 1)


def test_a_decision_id_is_stored_once(store: Store) -> None:
    """What comes later under an id that is known changes nothing: neither the decision nor the number of them."""
    store.write([decision("d1"), reward("d1", 1.0)])
    store.write([decision("d1", None, 60.0, action="r", context={"x": 9.0})])
    log = read_log(store, "a", "p")
    assert [(each.action, each.context) for each in log.samples] == [("l", {"x": 1.0})]
    assert (log.num_decisions, log.num_copies) == (1, 0)


# --- shared, missing and pending ---


def test_a_reward_of_the_whole_episode_is_shared_by_its_decisions(store: Store) -> None:
    store.write([decision("d1", "e"), decision("d2", "e", 1), decision("d3", "e", 2), decision("d4", "f", 3)])
    store.write([of_episode("e", 0.5), reward("d3", 2.0), reward("d4", 1.0)])
    log = read_log(store, "a", "p", unit="x")
    assert [(each.reward, each.shared) for each in log.samples] == [(0.5, "e"), (0.5, "e"), (2.0, None), (1.0, None)]
    assert units(log) == ["x=1.0"] * 4


def test_missing_rewards_of_episodes_are_shared_too_where_known_ones_are(store: Store) -> None:
    store.write([decision(f"d{i}", f"e{i // 2}", i) for i in range(8)])
    store.write([of_episode(f"e{i}", 1.0) for i in range(3)])
    log = read_log(store, "a", "p")
    assert [(each.unit, each.shared) for each in log.missing] == [("e3", "e3"), ("e3", "e3")]
    assert all(math.isnan(each.reward) for each in log.missing)


def test_missing_rewards_of_decisions_are_their_own_where_known_ones_are(store: Store) -> None:
    store.write([decision(f"d{i}", f"e{i // 2}", i) for i in range(8)])
    store.write([reward(f"d{i}", 1.0) for i in range(7)])
    assert [(each.unit, each.shared) for each in read_log(store, "a", "p").missing] == [("e3", None)]


def chosen(key: str, age_seconds: float, **fields: Any) -> Decision:
    """Returns a decision of the service, made so long ago."""
    moment = now() - timedelta(seconds=age_seconds)
    return decision(key, created_at=moment, context={"x": key}, settings_version=1, **fields)


def test_what_may_still_come_by_the_settings_is_pending_and_not_missing(store: Store) -> None:
    """They say for how long, also where another reward took longer."""
    put(store, "a", "p", DecisionSettings(reward_wait_seconds=3_600.0, default_reward=0.0))
    late = chosen("late", 30_000)
    store.write([chosen("young", 600), chosen("old", 7_200), late])
    store.write([reward("late", 1.0, late.created_at + timedelta(seconds=20_000))])
    log = read_log(store, "a", "p")
    assert ids(log) == ["late"]
    assert [each.context for each in log.missing] == [{"x": "old"}]
    assert (log.num_pending, log.num_decisions) == (1, 3)


def test_what_may_still_come_by_the_time_that_others_took_is_pending(store: Store) -> None:
    """99 of 100 rewards came after 10 s, one after 1,000: the quantile of .9 is 10, and three times that is waited."""
    ages = [100_000.0 - i for i in range(100)]
    rows = [chosen(f"d{i:03d}", age) for i, age in enumerate(ages)]
    store.write(rows)
    store.write(
        [
            reward(each.decision_id, 1.0, each.created_at + timedelta(seconds=1_000 if i == 0 else 10))
            for i, each in enumerate(rows)
        ]
    )
    store.write([chosen("young", 15), chosen("late", 100), decision("imported", created_at=now())])
    log = read_log(store, "a", "p")
    assert log.num_pending == 1
    assert {str(each.context["x"]) for each in log.missing} == {"late", "1.0"}


def test_where_much_is_pending_all_of_its_time_is_left_out(store: Store) -> None:
    """Of the last 30 s, three times what rewards take, successes are told and failures are still to come."""
    rows = [chosen(f"d{i:03d}", 1_000.0 - i) for i in range(100)]
    store.write([*rows, *(reward(each.decision_id, 1.0, each.created_at + timedelta(seconds=10)) for each in rows)])
    early, late = [chosen(f"early{i}", 20 - i) for i in range(3)], [chosen(f"late{i}", 15 - i) for i in range(2)]
    store.write([*early, *late, *(reward(each.decision_id, 1.0, each.created_at) for each in early)])
    log = read_log(store, "a", "p")
    assert len(log.samples) == 100
    assert (log.num_pending, log.num_recent, log.missing, log.num_decisions) == (2, 3, [], 105)
    assert log.notes == [
        "3 newest decisions were left out: the rewards of 2 others of their time may still come, and what is answered "
        "early is not like the rest. Ask again later"
    ]


def test_without_any_reward_nothing_says_how_long_to_wait(store: Store) -> None:
    store.write([chosen("d1", 1)])
    log = read_log(store, "a", "p")
    assert (log.samples, log.num_pending, len(log.missing)) == ([], 0, 1)


def test_a_reward_that_is_said_to_be_unknown_is_missing(store: Store) -> None:
    store.write([decision("d1"), decision("d2", None, 1), reward("d1", None), reward("d2", 1.0)])
    log = read_log(store, "a", "p")
    assert (ids(log), len(log.missing)) == (["d2"], 1)


def test_dropped_lines_are_stood_for(store: Store) -> None:
    """With pdrop .75 a line stands for four; one of 1 or above says nothing."""
    store.write([decision(f"d{i}", None, i) for i in range(3)])
    store.write([reward(f"d{i}", 1.0) for i in range(3)])
    for key, value in (("d0", 0.75), ("d1", 1.0)):
        store.write([msgspec.structs.replace(reward(key, value, name=DROPPED, weight=0.0), reward_id=f"drop-{key}")])
    log = read_log(store, "a", "p")
    assert [each.importance for each in log.samples] == [4.0, 1.0, 1.0]
    assert [each.reward for each in log.samples] == [1.0] * 3


def test_what_shares_a_reward_with_a_decision_without_propensity_cannot_be_judged(store: Store) -> None:
    """Their weight is a product that is not known."""
    rows = [decision(f"d{i:03d}", f"e{i // 2}", i, propensity=None if i % 10 == 0 else 0.5) for i in range(200)]
    store.write([*rows, *(of_episode(f"e{i}", 1.0) for i in range(100))])
    log = read_log(store, "a", "p")
    split = split_log(log)
    held = {each.unit for each in log.samples} - {each.unit for each in split.train}
    broken = {f"e{i // 2}" for i in range(0, 200, 10)} & held
    assert broken
    assert split.num_without_propensity == 2 * len(broken)
    assert set(split.held_out.units) == held - broken


# --- windows ---


def test_a_window_has_the_newest_rewards_and_what_is_missing_since(store: Store) -> None:
    store.write([decision(f"d{i}", None, i) for i in range(10)])
    store.write([reward(f"d{i}", float(i)) for i in (0, 1, 2, 4, 5, 7, 9)])
    log = read_log(store, "a", "p", newest=4)
    assert ids(log) == ["d4", "d5", "d7", "d9"]
    assert sorted(each.made_at or 0 for each in log.missing) == [
        pytest.approx((LONG_AGO + timedelta(seconds=at)).timestamp()) for at in (6, 8)
    ]


def test_a_window_never_has_a_part_of_what_shares_a_reward(store: Store) -> None:
    """An episode at its edge is left out whole."""
    store.write([decision(f"d{i}", f"e{i // 2}", i) for i in range(8)])
    store.write([of_episode(f"e{i}", 1.0) for i in range(4)])
    for newest, number in ((8, 8), (7, 6), (6, 6), (5, 4), (1, 0)):
        assert ids(read_log(store, "a", "p", newest=newest)) == [f"d{i}" for i in range(8 - number, 8)]


@pytest.mark.parametrize(("bound", "left"), [("since", ["d4", "d5"]), ("until", ["d0", "d1"])])
def test_bounds_of_time_cut_nothing_that_shares_a_reward(store: Store, bound: str, left: list[str]) -> None:
    store.write([decision(f"d{i}", f"e{i // 2}", i) for i in range(6)])
    store.write([of_episode(f"e{i}", 1.0) for i in range(3)])
    log = read_log(store, "a", "p", **{bound: LONG_AGO + timedelta(seconds=3)})  # type: ignore[arg-type]
    assert ids(log) == left


def test_what_does_not_count_cuts_no_episode(store: Store) -> None:
    """Of another policy, never activated, or with a reward of its own: it shares nothing."""
    store.write([decision("d0", "e"), decision("d1", "e", 1, is_deferred=True), decision("d2", "e", 2)])
    store.write([decision("d3", "e", 3), decision("d4", "e", 4)])
    store.write([msgspec.structs.replace(decision("x", "e"), policy="other"), of_episode("e", 1.0)])
    store.write([reward("d0", 0.0)])
    log = read_log(store, "a", "p", newest=3)
    assert ids(log) == ["d2", "d3", "d4"]
    assert [each.shared for each in log.samples] == ["e"] * 3


def test_a_window_never_has_a_part_of_episodes_that_run_at_the_same_time(store: Store) -> None:
    """Decisions of e0 and e1 in turns, then two of e2."""
    order = ["e0", "e1", "e0", "e1", "e2", "e2"]
    for i, key in enumerate(order):
        store.write([decision(f"d{i}", key, i)])
    store.write([of_episode(key, 1.0) for key in ("e0", "e1", "e2")])
    for newest in range(1, 7):
        found = [order[int(key[1:])] for key in ids(read_log(store, "a", "p", newest=newest))]
        assert {key: found.count(key) for key in found} == dict.fromkeys(found, 2), f"the newest {newest}"


def test_times_bound_the_log(store: Store) -> None:
    store.write([decision(f"d{i}", None, i) for i in range(6)])
    store.write([reward(f"d{i}", 1.0) for i in (0, 2, 3, 5)])
    since, until = LONG_AGO + timedelta(seconds=1), LONG_AGO + timedelta(seconds=5)
    log = read_log(store, "a", "p", since=since, until=until)
    assert (ids(log), len(log.missing)) == (["d2", "d3"], 2)
    assert ids(read_log(store, "a", "p", newest=2, until=until)) == ["d2", "d3"]


# --- what is held out ---


def test_the_held_out_part_is_judged_as_by_hand(store: Store) -> None:
    """Rewards by context, equal propensities: what always l earns is 2 r - q in its rows and q in the others."""
    rng = np.random.default_rng(0)
    rows = [decision(f"d{i:03d}", None, i, action="lr"[int(rng.integers(2))]) for i in range(300)]
    store.write([*rows, *(reward(f"d{i:03d}", 3.0) for i in range(300))])
    split = split_log(read_log(store, "a", "p"))
    assert split.held_out.rewards(FixedPolicy("l")) == pytest.approx(np.full(len(split.held_out.units), 3.0))


def names_of(found: Sequence[Any]) -> list[str]:
    return [each.unit for each in found]


def test_missing_rewards_are_held_out_by_the_same_rule(store: Store) -> None:
    store.write([decision(f"d{i:03d}", f"e{i:03d}", i) for i in range(200)])
    store.write([reward(f"d{i:03d}", 1.0) for i in range(0, 200, 2)])
    log = read_log(store, "a", "p")
    some = split_log(log, 0.5)
    assert len(log.missing) == 100
    assert 20 <= len(some.held_out.missing) <= 80
    more = split_log(log, 0.9)
    assert set(names_of(some.held_out.missing)) <= set(names_of(more.held_out.missing))
