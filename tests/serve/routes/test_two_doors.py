"""One policy behind both doors: a program's ``Loop.choose`` and ``POST /v1/decisions`` over the same store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import learnloop as ll
from learnloop.core.errors import ContextError, UsageError
from learnloop.core.records import Decision, DecisionMode, LearningUpdate, Verdict
from learnloop.decisions.online.learner import OnlineLearner
from learnloop.decisions.service.settings import read_settings
from learnloop.decisions.service.settings_store import current, put
from learnloop.registry.references import CHAMPION
from tests.serve.conftest import Running, Start
from tests.waiting import eventually

ACTIONS = ["left", "right"]


@pytest.fixture
def server(start: Start) -> Running:
    return start(learning=False)


@pytest.fixture
def loop(server: Running, monkeypatch: pytest.MonkeyPatch) -> Iterator[ll.Loop]:
    monkeypatch.setattr("learnloop.loop.agent.policy_sync.SYNC_SECONDS", 0.05)
    with ll.Loop("bot", home=server.workspace.settings.home, seed=3) as opened:
        yield opened


def post(server: Running, path: str, **body: Any) -> Any:
    reply = server.ask("POST", path, json.dumps(body))
    assert reply.status == 201, reply.body
    return reply.json()


def decide(server: Running, policy: str = "p", **fields: Any) -> Any:
    return post(server, "/v1/decisions", agent_id="bot", policy=policy, **{"actions": ACTIONS, **fields})


def learner(loop: ll.Loop, policy: str = "p") -> OnlineLearner:
    found = loop.snapshot(policy).learner
    assert found is not None
    return found


def live(loop: ll.Loop, number: int, policy: str = "p", **more: Any) -> None:
    """Lives through choices of which the right one is told by the sign of x."""
    rng = np.random.default_rng(5)
    for _ in range(number):
        x = float(rng.normal())
        choice = loop.choose(policy, ACTIONS, {"x": x}, **more)
        loop.reward(choice, v=float((choice == "right") == (x > 0)))
    loop.flush()


def test_what_the_server_decides_the_program_learns_from(server: Running, loop: ll.Loop) -> None:
    """Once, a nested context by HTTP on a policy of a program was never learned and left an error for good."""
    live(loop, 60)
    made = decide(server, context={"x": 1.5, "user": {"age": 30, "tags": ["a", "b"], "plan": None}})
    assert made["settings_version"] == 1
    post(server, f"/v1/decisions/{made['decision_id']}/reward", value=1.0)
    assert eventually(lambda: learner(loop).num_updates == 61)
    assert loop.counters().last_error is None
    kept = loop.workspace.store.get(Decision, made["decision_id"])
    assert kept.context == {"x": 1.5, "user": {"age": 30, "tags": ["a", "b"], "plan": None}}
    assert kept.num_updates == 60  # by what the program had learned until then
    assert made["propensity"] != 0.5


def test_what_the_program_decides_the_server_learns_from(server: Running, loop: ll.Loop) -> None:
    decide(server, context={"x": 1.0})  # the first to ask: the policy learns in updates
    # One update, of all of it: the server's own learner would make earlier ones of less, as fast as the machine is.
    put(loop.workspace.store, "bot", "p", read_settings({"learning": {"min_new_rewards": 900}}))
    live(loop, 900)
    assert loop.snapshot("p").learner is None
    loop.learn("p")  # or the server has done it already
    assert eventually(lambda: loop.workspace.store.count(LearningUpdate) == 1)
    (record,) = loop.workspace.store.iterate(LearningUpdate)
    assert record.verdict is Verdict.LEARNED, record.reasons
    assert eventually(lambda: loop.snapshot("p").version_id == record.policy_version_id)
    assert eventually(lambda: decide(server, context={"x": 2.0})["policy_version_id"] == record.policy_version_id)
    answers = [decide(server, context={"x": x})["probabilities"]["right"] > 0.5 for x in (-2.0, 2.0)]
    assert answers == [False, True]
    assert [loop.choose("p", ACTIONS, {"x": 2.0}).propensity > 0.5 for _ in range(3)].count(True) >= 1


def test_a_version_proven_by_a_program_is_served_by_both_once_it_is_the_champion(
    server: Running, loop: ll.Loop
) -> None:
    live(loop, 900)
    version = loop.prove("p").version
    assert version is not None
    assert loop.workspace.registry.aliases("bot.p")["candidate"] == version
    assert decide(server, context={"x": 2.0})["policy_version_id"] is None  # a candidate is not served
    loop.workspace.registry.set_alias("bot.p", CHAMPION, version, actor="me", reason="looks good")
    assert eventually(lambda: decide(server, context={"x": 2.0})["policy_version_id"] == version.policy_version_id)
    assert eventually(lambda: loop.snapshot("p").version_id == version.policy_version_id)
    loop.reward(loop.choose("p", ACTIONS, {"x": 2.0}), v=1.0)
    assert learner(loop).num_updates == 901  # which goes on learning beside it


def test_settings_of_one_door_hold_at_the_other(server: Running, loop: ll.Loop) -> None:
    loop.policy("p", algorithm="linucb", epsilon=0.5)
    reply = server.ask("GET", "/v1/agents/bot/policies/p/settings")
    settings = reply.json()["settings"]
    assert (settings["exploration"]["algorithm"], settings["model"]["kind"]) == ("linucb", "online")
    settings["mode"] = "frozen"
    put = server.ask("PUT", "/v1/agents/bot/policies/p/settings", json.dumps(settings), if_match=reply.headers["etag"])
    assert put.status == 200
    assert eventually(lambda: loop.snapshot("p").settings.mode is DecisionMode.FROZEN)


def test_vectors_slots_baselines_and_deferral_at_the_program_s_door(server: Running, loop: ll.Loop) -> None:
    loop.policy("p", settings={"model": {"kind": "hashed"}, "mode": "apprentice"})
    features = [{"colour": "red"}, {"colour": "blue"}]
    choice = loop.choose(
        "p", ACTIONS, {"user": {"age": 3}}, action_features=features, vector=[1, 2], baseline="right", deferred=True
    )
    loop.flush()
    kept = loop.workspace.store.get(Decision, choice.decision_id)
    assert (choice, choice.propensity, kept.baseline_action) == ("right", 1.0, "right")
    assert (kept.action_features, kept.vector) == (features, np.array([1, 2], "<f4").tobytes())
    assert (kept.mode, kept.is_deferred) == (DecisionMode.APPRENTICE, True)
    server.ask("POST", f"/v1/decisions/{choice.decision_id}/activate")
    detail = server.ask("GET", f"/v1/decisions/{choice.decision_id}").json()
    assert detail["activated_at"] is not None
    slots = loop.choose_slots("q", ["a", "b", "c"], ["top", ll.Slot("side", excluded=frozenset({"a", "b"}))], {"x": 1})
    assert slots[1] == "c"
    assert slots[0] in {"a", "b"}
    assert slots[0].decision_id.rpartition(".")[0] == slots[1].decision_id.rpartition(".")[0]


def test_an_online_policy_says_what_it_cannot_read(loop: ll.Loop) -> None:
    live(loop, 3)
    with pytest.raises(ContextError, match=r"vector.*model\.kind"):
        loop.choose("p", ACTIONS, {"x": 1.0}, vector=[1.0])
    with pytest.raises(UsageError, match="epsilon_greedy"):
        loop.policy("h", settings={"model": {"kind": "hashed"}, "exploration": {"algorithm": "thompson"}})
    assert current(loop.workspace.store, "bot", "h").version == 0
    assert learner(loop).num_updates == 3
