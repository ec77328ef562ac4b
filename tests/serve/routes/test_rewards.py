"""The routes of rewards: ours and those of seed 4."""

from __future__ import annotations

import json
from typing import Any

import pytest

from learnloop.core.records import ApiScope, RewardShare
from learnloop.loop.workspace.api_keys import create_key
from tests.loop.recorded_runs import answered
from tests.serve.conftest import Running, Start
from tests.waiting import eventually

QA = {"task_type": "qa", "expected": "Paris"}


@pytest.fixture
def server(start: Start) -> Running:
    return start()


def body(**fields: Any) -> str:
    return json.dumps({"task_id": "capital", **fields})


@pytest.mark.parametrize("prefix", ["/v1", "/api/v1"])
def test_a_task_is_scored_shared_out_and_found_again(server: Running, prefix: str) -> None:
    result = {
        **QA,
        "output": "Paris",
        "agents": ["a", "b"],
        "steps": [{"agent_id": "a"}, {"agent_id": "b"}],
        "completed": True,
    }
    found = server.ask("POST", f"{prefix}/rewards/calculate", body(result=result))
    assert found.status == 200
    told = found.json()
    assert (told["task_id"], told["raw_reward"], told["shaped_reward"]) == ("capital", 1.0, 1.0)
    assert [(each["agent_id"], each["credit_assigned"]) for each in told["shares"]] == [("a", 0.5), ("b", 0.5)]
    page = server.ask("GET", f"{prefix}/rewards/history?agent_id=a&limit=1").json()
    assert [each["reward_share_id"] for each in page["data"]] == [told["shares"][0]["reward_share_id"]]
    assert page["next_cursor"] is None


def test_the_reward_of_a_stored_episode(server: Running) -> None:
    server.workspace.store.write(answered("e", "q", "Paris", "capital"))
    result = {**QA, "output": "Paris", "agents": ["solver"], "episode_id": "e", "completed": True}
    assert server.ask("POST", "/v1/rewards/calculate", body(result=result)).status == 200
    shown = server.ask("GET", "/v1/episodes/e").json()
    assert {each["name"]: each["value"] for each in shown["rewards"]}["total"] == 1.0
    assert len(server.ask("GET", "/v1/rewards/history?episode_id=e").json()["data"]) == 1


def test_an_episode_that_is_not_stored_or_of_another_task(server: Running) -> None:
    server.workspace.store.write(answered("e", "q", "Paris", "france"))
    for name, status in (("nope", 404), ("e", 422)):
        reply = server.ask("POST", "/v1/rewards/calculate", body(result={**QA, "output": "Paris", "episode_id": name}))
        assert reply.status == status, reply.body
    assert server.workspace.store.count(RewardShare) == 0


def test_shares_of_one_step(server: Running) -> None:
    result = {**QA, "output": "Paris", "agents": ["a"], "steps": [{"agent_id": "a"}, {"agent_id": "a"}]}
    server.ask("POST", "/v1/rewards/calculate", body(result=result))
    page = server.ask("GET", "/v1/rewards/history?step=1").json()
    assert [(each["step"], each["credit_assigned"]) for each in page["data"]] == [(1, 0.5)]
    assert server.ask("GET", "/v1/rewards/history?step=-1").status == 422


def test_what_is_not_known_is_null_with_the_reason(server: Running) -> None:
    told = server.ask("POST", "/v1/rewards/calculate", body(result={"task_type": "qa", "output": "Paris"})).json()
    assert (told["raw_reward"], told["shares"]) == (None, [])
    assert told["scored"]["reason"]


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (body(), 422),
        (body(result=[]), 422),
        (body(result={}, more=1), 422),
        (body(result={"output": 3}), 400),
        (body(result={"output": "x", "task_type": "poetry"}), 400),
        (body(result={"output": "x", "expected": None, "steps": 7}), 400),
        ('{"task_id": "t", "result": {"output": "x", "num_output_tokens": 1e999}}', 422),
        ('{"task_id": 1, "result": {}}', 422),
        ("{", 400),
    ],
)
def test_a_wrong_call_changes_nothing(server: Running, text: str, status: int) -> None:
    reply = server.ask("POST", "/v1/rewards/calculate", text)
    assert reply.status == status, reply.body
    assert reply.headers["content-type"] == "application/problem+json"
    assert server.workspace.store.count(RewardShare) == 0


def test_scopes(server: Running) -> None:
    reader = create_key(server.workspace, "reader", [ApiScope.READ]).secret
    actor = create_key(server.workspace, "actor", [ApiScope.ACT]).secret

    def status(method: str, path: str, secret: str) -> int:
        text = body(result={"output": "x"}) if method == "POST" else None
        return server.ask(method, path, text, authorization=f"Bearer {secret}").status

    assert eventually(lambda: status("GET", "/v1/rewards/history", actor) == 403)  # that key was made last
    assert status("GET", "/v1/rewards/history", reader) == 200
    assert status("POST", "/v1/rewards/calculate", reader) == 403
    assert status("POST", "/v1/rewards/calculate", actor) == 200
