"""learnloop.store.queries.records: changes and removals by the values of columns, the same on both back ends."""

from __future__ import annotations

import pytest

from learnloop.core.errors import UsageError
from learnloop.core.records import Decision, Episode, EpisodeStatus, Event, Reward
from learnloop.store import Store
from learnloop.store.queries.records import all_records, change_records, remove_records
from learnloop.testing.contracts.store_examples import T0, decision, episode, reward


def test_what_fits_is_changed_and_counted(store: Store) -> None:
    store.write([episode(f"e{number}", agent_id=f"a{number % 2}") for number in range(5)])
    changes = {"status": EpisodeStatus.FAILED, "metadata": {"b": [1, None]}, "ended_at": T0, "error": "x"}
    assert store.run(change_records, Episode, {"agent_id": "a0"}, changes) == 3
    assert store.run(change_records, Episode, {"agent_id": "nobody"}, changes) == 0
    changed = store.select(Episode, where={"status": "failed"})
    assert [each.episode_id for each in changed] == ["e0", "e2", "e4"]
    assert {(each.error, each.ended_at, repr(each.metadata)) for each in changed} == {("x", T0, "{'b': [1, None]}")}


def test_what_fits_is_removed_and_counted(store: Store) -> None:
    store.write([reward(f"r{number}", decision_id="d" if number else None) for number in range(1_200)])
    many = [f"r{number}" for number in range(600)]  # more than a list of parameters holds
    assert store.run(remove_records, Reward, {"reward_id": many, "decision_id": "d"}) == 599
    assert store.run(remove_records, Reward, {"decision_id": None}) == 1
    assert store.count(Reward) == 600


def test_a_change_of_every_row_is_a_mistake(store: Store) -> None:
    store.write([reward("r1")])
    with pytest.raises(UsageError, match="where is empty"):
        store.run(remove_records, Reward, {})
    with pytest.raises(UsageError, match="where is empty"):
        store.run(change_records, Reward, {}, {"value": 0.0})
    with pytest.raises(UsageError, match="'nothing'"):
        store.run(remove_records, Reward, {"nothing": 1})
    assert store.get(Reward, "r1") == reward("r1")


def test_records_in_the_order_of_a_column(store: Store) -> None:
    store.write([reward("z"), reward("y")])
    store.write([reward("a"), reward("b", name="other")])
    where = {"name": reward("z").name}
    assert [each.reward_id for each in store.read(all_records, Reward, where, order="reward_id")] == ["a", "y", "z"]
    assert [each.reward_id for each in store.read(all_records, Reward, where, order="sequence")] == ["z", "y", "a"]


def test_the_last_sequence_of_each_kind(store: Store) -> None:
    assert [store.last_sequence(kind) for kind in (Decision, Reward, Event)] == [0, 0, 0]
    store.write([decision("d1"), reward("r1"), reward("r2")])
    assert store.last_sequence(Decision) == 1
    assert store.last_sequence(Reward) == 2
    assert store.last_sequence(Event) == len(store.events()) == 3


def test_iterating_goes_on_after_a_key(store: Store) -> None:
    store.write([reward(f"r{number}") for number in range(7)])
    assert [each.reward_id for each in store.iterate(Reward, after="r3", page=2)] == ["r4", "r5", "r6"]
