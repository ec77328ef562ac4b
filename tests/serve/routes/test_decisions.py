"""The routes of the decision service, on a real server and its store."""

from __future__ import annotations

import base64
import json
import struct
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from learnloop.core.records import Decision, DecisionMode, Reward
from learnloop.decisions.online.learner import OnlineLearner
from learnloop.decisions.service.settings import read_settings
from learnloop.decisions.service.settings_store import put
from learnloop.loop import Workspace
from learnloop.loop.workspace.settings import find_settings
from learnloop.serve.decision_maker import DecisionMaker, find_made
from learnloop.serve.service import Service
from tests.serve.conftest import Running, Start
from tests.serve.running import Reply
from tests.waiting import eventually

ACTIONS = [{"id": "news", "features": {"topic": "news", "age": 3}}, {"id": "sport", "features": {"topic": "sport"}}]


def decide(server: Running, **fields: Any) -> Reply:
    body = {"policy": "front", "actions": ACTIONS, "context": {"user": {"age": 30, "tags": ["a", "b"]}}, **fields}
    return server.ask("POST", "/v1/decisions", json.dumps(body))


@pytest.fixture
def server(start: Start) -> Running:
    return start(learning=False)


def test_what_is_answered_is_in_the_log_with_its_propensity(server: Running) -> None:
    reply = decide(server, agent_id="shop", mask=[False, True])
    assert reply.status == 201
    answer = reply.json()
    assert (answer["action"], answer["propensity"]) == ("sport", 1.0)
    assert answer["probabilities"] == {"news": 0.0, "sport": 1.0}
    (kept,) = server.workspace.store.iterate(Decision)
    assert (kept.decision_id, kept.agent_id, kept.policy) == (answer["decision_id"], "shop", "front")
    assert kept.context == {"user": {"age": 30, "tags": ["a", "b"]}}
    assert kept.action_features == [action["features"] for action in ACTIONS]
    assert (kept.propensity, kept.mask, kept.mode) == (1.0, [False, True], DecisionMode.LEARNING)


def test_vectors_as_numbers_and_as_bytes_are_the_same(server: Running) -> None:
    numbers = [0.25, -3.5, 1e-3]
    packed = struct.pack("<3f", *numbers)
    for vector in (numbers, base64.b64encode(packed).decode()):
        answer = decide(server, vector=vector).json()
        assert server.workspace.store.get(Decision, answer["decision_id"]).vector == packed


@pytest.mark.parametrize(
    "fields",
    [
        {"vector": []},
        {"vector": [1e39]},
        {"vector": base64.b64encode(b"abc").decode()},
        {"vector": base64.b64encode(struct.pack("<f", float("nan"))).decode()},
        {"vector": "not base64!"},
        {"vector": [True]},
        {"actions": []},
        {"actions": ["a", "a"]},
        {"actions": ["a", ""]},
        {"actions": [f"a{n}" for n in range(1_001)]},
        {"mask": [True]},
        {"mask": [False, False]},
        {"mask": [1, 0]},
        {"policy": "../x"},
        {"policy": "a.b"},
        {"agent_id": "a b"},
        {"policy": "p" * 100, "agent_id": "a"},
        {"baseline": "weather"},
        {"baseline": "news", "mask": [False, True]},
        {"slots": []},
        {"slots": [{"id": "a"}, {"id": "a"}]},
        {"slots": [{"id": "a"}, {"id": "b"}, {"id": "c"}]},
        {"slots": [{"id": "a", "excluded": ["news", "sport"]}]},
        {"decision_id": "a b"},
        {"unknown": 1},
        {"context": {f"f{number}": number for number in range(1_001)}},
        {"context": {"a" * 5_000: 1}},
        {"context": []},
    ],
)
def test_bad_input_changes_nothing(server: Running, fields: dict[str, Any]) -> None:
    reply = decide(server, **fields)
    assert reply.status == 422, reply.body
    assert reply.headers["content-type"] == "application/problem+json"
    assert server.workspace.store.count(Decision) == 0


def test_slots_are_filled_with_different_actions(server: Running) -> None:
    slots = [{"id": "top", "features": {"size": 2}}, {"id": "side", "baseline": "sport"}]
    answer = decide(server, slots=[slots[0], {"id": "side"}], decision_id="order-1").json()
    assert answer["decision_id"] == "order-1"
    assert sorted(each["action"] for each in answer["slots"]) == ["news", "sport"]
    assert [each["slot"] for each in answer["slots"]] == ["top", "side"]
    kept = list(server.workspace.store.iterate(Decision))
    assert [each.request_id for each in kept] == ["order-1"] * 2
    assert kept[1].propensity == 1.0
    assert kept[1].mask == [action["id"] != kept[0].action for action in ACTIONS]
    assert kept[0].context["slot"] == {"size": 2, "id": "top"}
    again = decide(server, slots=slots, decision_id="order-1").json()
    assert again == answer
    assert server.workspace.store.count(Decision) == 2


def test_the_same_id_is_decided_once_by_many_at_once(server: Running) -> None:
    answers: list[Any] = []
    threads = [
        threading.Thread(target=lambda: answers.append(decide(server, decision_id="one").json())) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [answers[0]] * 8
    assert server.workspace.store.count(Decision) == 1
    other = decide(server, decision_id="one", policy="other")
    assert other.status == 409


ONLINE = read_settings({"model": {"kind": "online"}})


def learner_of(server: Running) -> OnlineLearner | None:
    """Returns what learns the policy of ``decide`` in a server."""
    service: Service = server.app.shared
    found = service.part(DecisionMaker).policies.find("default", "front")
    return None if found is None else found.learner


def test_of_two_servers_the_slower_one_learns_what_the_faster_one_logged(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = start(learning=False)
    put(first.workspace.store, "default", "front", ONLINE)
    with Workspace(find_settings(tmp_path / "home")) as other:
        second = start(on=other, learning=False)
        plain = {"actions": ["news", "sport"], "context": {"age": 30}, "decision_id": "one"}
        fast = decide(first, mask=[True, False], **plain).json()
        looks: list[list[Decision]] = [[]]  # the slower one has looked before the faster one wrote
        monkeypatch.setattr(
            "learnloop.serve.decision_maker.find_made",
            lambda store, decision_id: looks.pop() if looks else find_made(store, decision_id),
        )
        slow = decide(second, mask=[False, True], **plain).json()
        assert (fast["action"], slow) == ("news", fast)
        assert first.ask("POST", "/v1/decisions/one/reward", '{"value": 1.0}').status == 201
        for server in (first, second):
            learner = learner_of(server)
            assert learner is not None
            assert eventually(lambda learner=learner: learner.num_updates) == 1
            assert [each["action"] for each in learner.bandit.to_artifact().config["warm_up"]] == ["news"]
        second.stop()


def test_rewards_come_late_again_and_in_parts(server: Running) -> None:
    decision_id = decide(server).json()["decision_id"]
    path = f"/v1/decisions/{decision_id}/reward"
    assert server.ask("POST", path, '{"value": 0.25}').status == 201
    assert server.ask("POST", path, '{"values": {"click": 1.0, "reward": 0.5}}').status == 201
    shown = server.ask("GET", f"/v1/decisions/{decision_id}").json()
    assert shown["reward"] == 1.5
    assert [part["value"] for part in shown["rewards"]] == [0.25, 1.0, 0.5]
    assert server.ask("POST", path, '{"value": null}').status == 201
    for body in (
        "{}",
        '{"value": 1, "values": {"reward": 1}}',
        '{"value": true}',
        '{"values": {"default": 1}}',
        '{"value": 1e300}',
    ):
        assert server.ask("POST", path, body).status == 422, body
    assert server.ask("POST", path, '{"value": 1e400}').status in (400, 422)
    assert server.ask("POST", "/v1/decisions/none/reward", '{"value": 1}').status == 404
    assert server.workspace.store.count(Reward) == 4


def test_a_deferred_decision_counts_once_it_is_activated(server: Running) -> None:
    decision_id = decide(server, defer=True).json()["decision_id"]
    assert server.ask("GET", f"/v1/decisions/{decision_id}").json()["activated_at"] is None
    first = server.ask("POST", f"/v1/decisions/{decision_id}/activate")
    assert first.status == 200
    assert server.ask("POST", f"/v1/decisions/{decision_id}/activate").json() == first.json()
    shown = server.ask("GET", f"/v1/decisions/{decision_id}").json()
    assert shown["decision"]["is_deferred"] is True
    assert shown["activated_at"] == first.json()["created_at"]
    assert server.ask("POST", "/v1/decisions/none/activate").status == 404


def test_an_apprentice_returns_what_the_caller_chose(server: Running) -> None:
    put(server.workspace.store, "default", "front", read_settings({"mode": "apprentice"}), author=None)
    answer = decide(server, baseline="sport").json()
    assert (answer["action"], answer["propensity"], answer["mode"]) == ("sport", 1.0, "apprentice")
    assert "policy_action" not in answer  # it has not learned yet
    assert decide(server).json()["action"] == "news"
    rate = server.ask("GET", "/v1/agents/default/policies/front/match-rate").json()
    assert (rate["num_decisions"], rate["share"]) == (0, None)


def test_settings_are_versions_and_hold_at_once(server: Running) -> None:
    path = "/v1/agents/default/policies/front/settings"
    first = server.ask("GET", path)
    assert (first.status, first.headers["etag"], first.json()["version"]) == (200, '"0"', 0)
    assert server.ask("PUT", path, '{"mode": "frozen"}').status == 428
    assert server.ask("PUT", path, '{"mode": "frozen"}', if_match='"7"').status == 412
    for bad in ('{"mode": "off"}', '{"exploration": {"epsilon": 2}}', '{"default_reward": 1}', '{"no": 1}', "[]"):
        assert server.ask("PUT", path, bad, if_match='"0"').status in (400, 422), bad
    changed = server.ask("PUT", path, '{"mode": "frozen", "exploration": {"epsilon": 0.5}}', if_match='"0"')
    assert (changed.status, changed.headers["etag"]) == (200, '"1"')
    assert server.ask("PUT", path, "{}", if_match='"0"').status == 412
    assert server.ask("GET", path, if_none_match='"1"').status == 304
    assert decide(server).json()["settings_version"] == 1
    assert server.ask("PUT", path, '{"mode": "learning"}', if_match='"1"').status == 200
    assert eventually(lambda: decide(server).json()["settings_version"] == 2)
    history = server.ask("GET", f"{path}/history").json()["data"]
    assert [each["version"] for each in history] == [2, 1]


def test_default_rewards_only_where_configured_and_only_until_one_is_known(server: Running) -> None:
    silent = decide(server, policy="silent").json()["decision_id"]
    settings = read_settings({"reward_wait_seconds": 0.05, "default_reward": -1.0})
    put(server.workspace.store, "default", "front", settings, author=None)
    plain, late = (decide(server).json()["decision_id"] for _ in range(2))
    unused, used = (decide(server, defer=True).json()["decision_id"] for _ in range(2))
    server.ask("POST", f"/v1/decisions/{used}/activate")

    def rewards(decision_id: str) -> list[Any]:
        return server.ask("GET", f"/v1/decisions/{decision_id}").json()["rewards"]

    assert eventually(lambda: all(rewards(each) for each in (plain, late, used)))
    assert [(part["name"], part["value"], part["source"]) for part in rewards(plain)] == [("default", -1.0, "default")]
    assert rewards(silent) == rewards(unused) == []
    assert server.ask("POST", f"/v1/decisions/{late}/reward", '{"value": 0.5}').status == 201
    assert server.ask("GET", f"/v1/decisions/{late}").json()["reward"] == 0.5
    assert server.ask("GET", f"/v1/decisions/{plain}").json()["reward"] == -1.0


def test_default_rewards_go_on_after_a_restart(start: Start) -> None:
    """Also of a policy that nobody asks any more."""
    first = start(learning=False)
    decision_id = decide(first).json()["decision_id"]
    first.stop()
    settings = read_settings({"reward_wait_seconds": 0.05, "default_reward": -1.0})
    put(first.workspace.store, "default", "front", settings, author=None)
    second = start(learning=False)
    assert eventually(lambda: second.ask("GET", f"/v1/decisions/{decision_id}").json()["reward"] == -1.0)


def test_batches_have_an_answer_for_each_line(server: Running) -> None:
    lines = [json.dumps({"policy": "front", "actions": ["a", "b"]}), "{", '{"policy": "front", "actions": []}']
    reply = server.ask("POST", "/v1/decisions/batch", "\n".join(lines), content_type="application/x-ndjson")
    found = [json.loads(line) for line in reply.body.splitlines()]
    assert [(each["index"], each["status"]) for each in found] == [(0, 201), (1, 400), (2, 422)]
    decision_id = found[0]["result"]["decision_id"]
    lines = [json.dumps({"decision_id": decision_id, "value": 1.0}), json.dumps({"decision_id": "none", "value": 1.0})]
    reply = server.ask("POST", "/v1/decisions/rewards/batch", "\n".join(lines), content_type="application/x-ndjson")
    assert [json.loads(line)["status"] for line in reply.body.splitlines()] == [201, 404]
    assert server.workspace.store.count(Reward) == 1


def test_feedback_is_a_reward(server: Running) -> None:
    decision_id = decide(server).json()["decision_id"]
    reply = server.ask("POST", "/v1/feedback", json.dumps({"decision_id": decision_id, "thumbs": "up"}))
    assert reply.status == 201
    assert server.ask("GET", f"/v1/decisions/{decision_id}").json()["reward"] == 1.0
    assert server.ask("POST", "/v1/feedback", json.dumps({"decision_id": decision_id})).status in (400, 422)
    assert server.ask("POST", "/v1/feedback", json.dumps({"decision_id": "none", "thumbs": "up"})).status == 404


def test_pages_of_decisions(server: Running) -> None:
    made = [decide(server, policy=f"p{number % 2}").json()["decision_id"] for number in range(5)]
    first = server.ask("GET", "/v1/decisions?limit=2&policy=p0").json()
    assert [each["decision_id"] for each in first["data"]] == [made[4], made[2]]
    second = server.ask("GET", f"/v1/decisions?limit=2&policy=p0&after={first['next_cursor']}").json()
    assert ([each["decision_id"] for each in second["data"]], second["next_cursor"]) == ([made[0]], None)
    assert server.ask("GET", "/v1/decisions?after=nonsense").status == 422


def test_what_others_would_have_earned(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    seeded = np.random.default_rng(0)
    with monkeypatch.context() as patch:  # what is drawn is the same in each run
        patch.setattr("learnloop.serve.decision_maker.np.random.default_rng", lambda: seeded)
        server = start(learning=False)
    for _ in range(30):
        answer = decide(server).json()
        value = 1.0 if answer["action"] == "sport" else 0.0
        server.ask("POST", f"/v1/decisions/{answer['decision_id']}/reward", json.dumps({"value": value}))
    found = server.ask("POST", "/v1/agents/default/policies/front/evaluate", '{"targets": ["uniform", "best-fixed"]}')
    assert found.status == 200, found.body
    uniform, fixed = found.json()["targets"]
    assert uniform["estimate"]["value"] == pytest.approx(found.json()["logged_mean"], abs=0.3)
    assert fixed["estimate"]["value"] == pytest.approx(1.0, abs=0.35)
    path, targets = "/v1/agents/default/policies/front/evaluate", '{"targets": ["uniform"], '
    for more, number in (('"newest": 10}', 10), ('"held_out_share": 0.5}', None)):  # as versions were not trained on
        narrowed = server.ask("POST", path, targets + more)
        assert narrowed.status == 200, narrowed.body
        assert narrowed.json()["num_decisions"] < found.json()["num_decisions"]
        assert number in (None, narrowed.json()["num_decisions"])
    for refused in ('"newest": 0}', '"newest": 200001}', '"held_out_share": 1.5}'):
        assert server.ask("POST", path, targets + refused).status == 422
