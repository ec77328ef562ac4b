"""learnloop.store.queries.champions: what is served, what it decided and how its test stands, on each back end."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from learnloop.core.records import AliasMove, ChampionTest, DecisionMode, PolicyVersion, Record
from learnloop.store import Store
from learnloop.store.queries.champions import (
    decisions_of_champion,
    first_decisions,
    keep_test,
    newest_put_out,
    put_out_versions,
    served_champions,
)
from learnloop.testing.contracts.store_examples import decision

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def version(key: str, number: int = 1, policy: str = "bot.p") -> PolicyVersion:
    return PolicyVersion(
        policy_version_id=key, policy=policy, version=number, content_hash=key, algorithm="joint", created_at=T0
    )


def move(key: str, to: str, policy: str = "bot.p", **more: Any) -> AliasMove:
    given = {"alias": "champion", "actor": "ann", "reason": "test", "created_at": T0, **more}
    return AliasMove(alias_move_id=key, policy=policy, policy_version_id=to, **given)


def made(key: str, by: str | None, **more: Any) -> Record:
    given = {"agent_id": "bot", "policy": "p", "mode": DecisionMode.LEARNING, "created_at": T0, **more}
    return decision(key, policy_version_id=by, **given)


def test_champions_that_decided_something_are_found(store: Store) -> None:
    assert store.read(served_champions, "champion") == []
    store.write([version("v1"), version("v2", 2), version("w1", policy="other.q"), version("x1", policy="un.used")])
    store.write([move("m1", "v1"), move("m2", "v2"), move("m3", "v1", alias="previous")])
    store.write([move("m4", "w1", "other.q"), move("m5", "x1", "un.used")])
    store.write([made("d1", "v1"), made("d2", "v2"), made("d3", "w1", agent_id="other", policy="q")])
    found = store.read(served_champions, "champion")
    assert [(each.move.alias_move_id, each.agent_id, each.policy) for each in found] == [
        ("m2", "bot", "p"),
        ("m4", "other", "q"),
    ]
    store.write([move("m6", "v2", is_removal=True)])
    assert [each.move.alias_move_id for each in store.read(served_champions, "champion")] == ["m4"]


def test_what_a_champion_decided_since_it_is_one(store: Store) -> None:
    later = T0 + timedelta(seconds=1)
    store.write([version("v1"), version("v2", 2), move("m1", "v1", created_at=later)])
    store.write([
        made("early", "v1"),
        made("d1", "v1", created_at=later),
        made("d2", "v2", created_at=later),
        made("d3", None, created_at=later),
        made("d4", "v1", created_at=later, mode=DecisionMode.APPRENTICE),
        made("d5", "v1", created_at=later, agent_id="other"),
        made("d6", "v1", created_at=later),
    ])  # fmt: skip
    (champion,) = store.read(served_champions, "champion")
    champion = champion._replace(agent_id="bot", policy="p")
    found = store.read(decisions_of_champion, champion, 0, 10)
    assert [each.decision_id for _, each in found] == ["d1", "d6"]
    assert store.read(decisions_of_champion, champion, 0, 1) == found[:1]
    assert store.read(decisions_of_champion, champion, found[0][0], 10) == found[1:]


def test_the_first_decisions_of_episodes(store: Store) -> None:
    store.write([
        made("other", None, policy="q", episode_id="e1"), made("d1", None, episode_id="e1"),
        made("d2", None, episode_id="e1"), made("d3", None, episode_id="e2"), made("d4", None, episode_id="e3"),
    ])  # fmt: skip
    assert store.read(first_decisions, "bot", "p", {"e1", "e2"}) == {"d1", "d3"}
    assert store.read(first_decisions, "bot", "p", set()) == set()


def champion_test(key: str, sequence: int = 0, **more: Any) -> ChampionTest:
    given = {"policy_version_id": "v1", "num_decisions": sequence, "num_others": 0, "num_missing": 0, **more}
    return ChampionTest(
        champion_test_id=key, agent_id="bot", policy="p", decision_sequence=sequence, num_untested=0, evidence=0.5,
        state={"test": {"capitals": [0.1, 0.2]}}, started_at=T0, updated_at=T0, **given,
    )  # fmt: skip


def test_a_test_only_goes_on_and_ends_once(store: Store) -> None:
    store.write([made("d1", None)])
    first, further = champion_test("m1"), champion_test("m1", 7)
    for each in (first, further, champion_test("m1", 3)):
        store.run(keep_test, each)
    assert store.get(ChampionTest, "m1") == further
    assert store.read(newest_put_out, "bot", "p") is None
    assert store.read(put_out_versions, "bot", "p") == set()
    out = msgspec.structs.replace(further, put_out_at=T0, reason="worse", state={"low": 0.0}, decision_sequence=9)
    store.run(keep_test, out)
    store.run(keep_test, champion_test("m1", 20))
    assert store.get(ChampionTest, "m1") == out
    later = T0 + timedelta(days=1)
    store.run(keep_test, champion_test("m2", 5, put_out_at=later, policy_version_id="v2"))
    assert store.read(newest_put_out, "bot", "p") == later
    assert store.read(put_out_versions, "bot", "p") == {"v1", "v2"}
    assert store.read(newest_put_out, "bot", "q") is None
