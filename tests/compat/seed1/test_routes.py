"""Seed 1's endpoints over HTTP (S1.5)."""

from __future__ import annotations

import base64
import http.client
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from learnloop.compat.groups import COMPATIBLE_GROUPS
from learnloop.compat.seed1.learner import MutationLearner
from learnloop.compat.seed1.settings import MUTATIONS
from learnloop.core.errors import UnreachableError
from learnloop.core.records import ApiScope, Decision, LearningUpdate
from learnloop.loop import Workspace
from learnloop.loop.workspace.api_keys import create_key
from learnloop.system.state_file import State
from tests.serve.conftest import Running, Start
from tests.serve.running import Reply
from tests.waiting import PATIENCE_SECONDS, eventually

SIZE = 6
SETTINGS: dict[str, Any] = {
    "input_dim": SIZE,
    "min_transitions": 8,
    "buffer_size": 64,
    "seed": 3,
    "options": {"net_arch": [16, 8], "batch_size": 4},
}


def with_settings(workspace: Workspace, **fields: Any) -> Workspace:
    workspace.settings = msgspec.structs.replace(workspace.settings, mutations={**SETTINGS, **fields})
    return workspace


@pytest.fixture
def server(workspace: Workspace, start: Start) -> Running:
    return start(on=with_settings(workspace))


def states(count: int, seed: int = 0) -> list[list[float]]:
    found: list[list[float]] = np.random.default_rng(seed).normal(size=(count, SIZE)).astype(np.float32).tolist()
    return found


def post(server: Running, path: str, body: Any, **headers: str) -> Reply:
    return server.ask("POST", path, body if isinstance(body, str | bytes) else json.dumps(body), **headers)


def good(server: Running, path: str, body: Any, **headers: str) -> Any:
    reply = post(server, path, body, **headers)
    assert reply.status == 200, reply.body
    return reply.json()


def choose(server: Running, state: list[float], **headers: str) -> dict[str, Any]:
    """Returns an experience of one step, as a client would send it."""
    chosen = good(server, "/select_action", {"embedding": state}, **headers)
    return {
        "state": state,
        "action": chosen["action"],
        "reward": 0.0,
        "next_state": state,
        "done": True,
        "log_prob": chosen["log_prob"],
        "value": chosen["value"],
    }


def fill(server: Running, count: int, seed: int = 0) -> None:
    for number, state in enumerate(states(count, seed)):
        good(server, "/store_experience", {**choose(server, state), "reward": float(number % 3)})


def test_all_eight_endpoints(server: Running) -> None:
    assert server.ask("GET", "/health").json() == {"status": "ok"}
    assert server.ask("GET", "/stats").json() == {"message": "No training data yet"}
    state = states(1)[0]
    chosen = good(server, "/select_action", {"embedding": state})
    assert list(chosen) == ["action", "mutation_type", "log_prob", "value"]
    assert chosen["mutation_type"] == MUTATIONS[chosen["action"]]
    shown = good(server, "/get_distribution", {"embedding": state})
    assert shown["mutation_types"] == list(MUTATIONS)
    assert sum(shown["probabilities"]) == pytest.approx(1)
    assert shown["probabilities"][chosen["action"]] == pytest.approx(np.exp(chosen["log_prob"]), abs=1e-6)
    best = good(server, "/select_action", {"embedding": state, "deterministic": True})
    assert best["action"] == int(np.argmax(shown["probabilities"]))
    assert good(server, "/update", {}) == {"message": "Not enough experiences"}
    assert good(server, "/store_experience", choose(server, state)) == {"buffer_size": 1, "stored": True}
    fill(server, 8)
    updated = good(server, "/update", {})
    assert set(updated) == {
        "policy_loss",
        "value_loss",
        "entropy",
        "approx_kl",
        "clip_fraction",
        "learning_rate",
        "buffer_size",
        "update_count",
    }
    assert (updated["update_count"], updated["buffer_size"], updated["learning_rate"]) == (1, 0, 3e-4)
    stats = server.ask("GET", "/stats").json()
    assert set(stats) == {
        "total_updates",
        "total_episodes",
        "avg_reward",
        "max_reward",
        "avg_policy_loss",
        "avg_value_loss",
        "avg_entropy",
        "avg_kl",
    }
    assert (stats["total_updates"], stats["total_episodes"], stats["max_reward"]) == (1, 9, 2.0)  # F1.4
    assert stats["avg_reward"] == pytest.approx((0 + 0 + 1 + 2 + 0 + 1 + 2 + 0 + 1) / 9)
    assert good(server, "/save", {"path": "checkpoint.pt"}) == {"saved": True}
    assert good(server, "/save", {}) == {"saved": True}
    assert good(server, "/load", {"path": "checkpoint.pt"}) == {"loaded": True}
    missing = post(server, "/load", {"path": "nothing"})
    assert (missing.status, missing.json()["error"]) == (404, "File not found")
    record = server.workspace.store.select(LearningUpdate, limit=1)[0]
    assert record.num_samples == 9
    assert record.metrics["train/max_first_log_ratio"] <= 2e-6  # F1.1


def test_the_ratio_is_1_before_the_first_gradient_step(workspace: Workspace, start: Start) -> None:
    """F1.1: with one gradient step an update's figures are those of before it, and no ratio differs from 1."""
    options = {**SETTINGS["options"], "batch_size": 32, "n_epochs": 1}
    server = start(on=with_settings(workspace, min_transitions=32, options=options))
    for seed in range(3):
        fill(server, 32, seed)
        updated = good(server, "/update", {})
        assert abs(updated["approx_kl"]) < 1e-6
        assert updated["clip_fraction"] == 0
    for record in server.workspace.store.select(LearningUpdate, limit=10):
        assert record.metrics["train/max_first_log_ratio"] <= 2e-6
        assert record.metrics["train/num_stale_steps"] == 0


def test_each_choice_is_in_the_log_before_it_is_answered(server: Running) -> None:
    state = states(1)[0]
    for number in range(1, 6):
        chosen = good(server, "/select_action", {"embedding": state})
        logged = server.workspace.store.select(Decision, limit=10)
        assert len(logged) == number
        last = logged[-1]
        assert (last.agent_id, last.policy, last.action) == ("mutations", "prompt-mutation", chosen["mutation_type"])
        assert last.propensity == pytest.approx(np.exp(chosen["log_prob"]), abs=1e-6)
        assert last.vector == np.array(state, "<f4").tobytes()
        assert last.probabilities is not None
        assert sum(last.probabilities) == pytest.approx(1)


def test_base64_is_the_same_embedding(server: Running) -> None:
    state = states(1)[0]
    text = base64.b64encode(np.array(state, "<f4").tobytes()).decode()
    plain, packed = (good(server, "/get_distribution", {"embedding": each}) for each in (state, text))
    assert plain == packed


STATE = [0.5] * SIZE
EXPERIENCE: dict[str, Any] = {
    "state": STATE,
    "action": 1,
    "reward": 1.0,
    "next_state": STATE,
    "done": True,
    "log_prob": -1.6,
    "value": 0.0,
}


def without(name: str) -> dict[str, Any]:
    return {key: value for key, value in EXPERIENCE.items() if key != name}


def raw(name: str, text: str) -> str:
    return json.dumps({**EXPERIENCE, name: "@"}).replace('"@"', text)


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/select_action", {"embedding": STATE[:-1]}, 422),
        ("/select_action", {"embedding": [*STATE, 0.1]}, 422),
        ("/select_action", {"embedding": []}, 422),
        ("/select_action", {"embedding": [True] * SIZE}, 422),
        ("/select_action", {"embedding": ["0.5"] * SIZE}, 422),
        ("/select_action", {"embedding": [None] * SIZE}, 422),
        ("/select_action", {"embedding": [1e39] * SIZE}, 422),
        ("/select_action", {"embedding": [1e308] * SIZE}, 422),
        ("/select_action", {"embedding": "not base64!"}, 422),
        ("/select_action", {"embedding": "AAAA"}, 422),
        ("/select_action", {"embedding": base64.b64encode(np.full(SIZE, np.nan, "<f4").tobytes()).decode()}, 422),
        ("/select_action", {"embedding": STATE, "deterministic": 1}, 422),
        ("/select_action", {"embedding": STATE, "more": 1}, 422),
        ("/select_action", {}, 422),
        ("/select_action", "[]", 422),
        ("/select_action", '{"embedding": [NaN]}', 400),
        ("/select_action", '{"embedding": [1e999]}', (400, 422)),
        ("/select_action", "{", 400),
        ("/select_action", "", (400, 415)),
        ("/select_action", b"\xff\xfe", 400),
        ("/select_action", '{"embedding": [1], "embedding": [2]}', 400),
        ("/select_action", "[" * 10_000, 400),
        ("/get_distribution", {"embedding": STATE[:-1]}, 422),
        ("/get_distribution", {}, 422),
        *[("/store_experience", without(name), 422) for name in EXPERIENCE],
        ("/store_experience", raw("reward", "NaN"), 400),
        ("/store_experience", raw("reward", "Infinity"), 400),
        ("/store_experience", raw("reward", "1e999"), (400, 422)),
        ("/store_experience", raw("reward", "1e308"), 422),
        ("/store_experience", raw("reward", "true"), 422),
        ("/store_experience", raw("reward", "null"), 422),
        ("/store_experience", raw("reward", '"1"'), 422),
        ("/store_experience", raw("action", "7"), 422),
        ("/store_experience", raw("action", "-1"), 422),
        ("/store_experience", raw("action", "true"), 422),
        ("/store_experience", raw("action", "1.5"), 422),
        ("/store_experience", raw("action", str(2**63)), 422),
        ("/store_experience", raw("action", str(2**70)), (400, 422)),
        ("/store_experience", raw("done", "1"), 422),
        ("/store_experience", raw("log_prob", "0.5"), 422),
        ("/store_experience", raw("log_prob", "-1e308"), 422),
        ("/store_experience", raw("value", "1e308"), 422),
        ("/store_experience", raw("state", "[1]"), 422),
        ("/store_experience", raw("state", "[3e38,1,1,1,1,1]"), 422),
        ("/store_experience", raw("next_state", "[1]"), 422),
        ("/store_experience", {**EXPERIENCE, "episode_id": ""}, 422),
        ("/store_experience", {**EXPERIENCE, "episode_id": "x" * 300}, 422),
        ("/store_experience", {**EXPERIENCE, "truncated": "yes"}, 422),
        ("/update", {"more": 1}, 422),
        ("/update", "[1]", 422),
        ("/save", {"path": "../x"}, 422),
        ("/save", {"path": 3}, 422),
        ("/load", {}, 422),
        ("/load", {"path": "/etc/passwd"}, 422),
    ],
)
def test_what_is_wrong_is_told_and_changes_nothing(
    shared_learner: Running, path: str, body: Any, status: int | tuple[int, ...]
) -> None:
    """F1.5."""
    reply = post(shared_learner, path, body)
    allowed = status if isinstance(status, tuple) else (status,)
    assert reply.status in allowed, reply.body
    assert reply.headers["content-type"] == "application/problem+json"
    told = reply.json()
    assert told["status"] == reply.status
    assert told["error"]
    if reply.status == 400:
        assert told["error"] == "Invalid JSON"
    assert shared_learner.workspace.store.count(Decision) == 0
    learner = shared_learner.app.shared.part(MutationLearner)
    assert len(learner.buffer) == 0
    assert not (shared_learner.workspace.settings.home / "checkpoints").exists()


@pytest.fixture(scope="module")
def shared_learner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    from learnloop.loop.workspace.settings import find_settings
    from learnloop.serve import ServeOptions

    home: Path = tmp_path_factory.mktemp("mutations")
    with Workspace(find_settings(home), create=True) as opened:
        server = Running(with_settings(opened), ServeOptions(), *COMPATIBLE_GROUPS)
        yield server
        server.stop()


def test_another_method_and_media_type(server: Running) -> None:
    assert server.ask("GET", "/select_action").status == 405
    reply = post(server, "/update", "{}", content_type="text/plain")
    assert reply.status == 415
    assert reply.json()["error"]


def test_no_name_of_a_checkpoint_leads_out_of_the_folder(server: Running) -> None:
    """F1.9."""
    home = server.workspace.settings.home
    good(server, "/save", {"path": "good"})
    before = sorted(each.name for each in (home / "checkpoints").iterdir())
    outside = sorted(each.name for each in home.parent.iterdir())
    for name in (
        "../x",
        "a/../../x",
        "/etc/passwd",
        "..\\x",
        "C:\\x",
        "x\0",
        "..",
        "-rf",
        "．．／",
        "a" * 300,
        "%2e%2e",
    ):
        for path in ("/save", "/load"):
            reply = post(server, path, {"path": name})
            assert 400 <= reply.status < 500, (name, reply.body)
    for link in ("link.json", "link.safetensors"):
        (home / "checkpoints" / link).symlink_to("/etc/passwd")
        assert post(server, "/load", {"path": "link"}).status == 409
        (home / "checkpoints" / link).unlink()
    (home / "checkpoints" / "good.safetensors").write_bytes(b"changed")
    assert post(server, "/load", {"path": "good"}).status == 422
    assert sorted(each.name for each in (home / "checkpoints").iterdir()) == before
    assert sorted(each.name for each in home.parent.iterdir()) == outside


def test_a_full_buffer_refuses_until_the_next_update(server: Running) -> None:
    """F1.9: nothing is dropped."""
    for _ in range(64):
        good(server, "/store_experience", EXPERIENCE)
    refused = post(server, "/store_experience", EXPERIENCE)
    assert refused.status == 429
    assert int(refused.headers["retry-after"]) >= 1
    assert "update" in refused.json()["error"]
    good(server, "/update", {})
    assert server.workspace.store.select(LearningUpdate, limit=1)[0].num_samples == 64
    assert good(server, "/store_experience", EXPERIENCE)["buffer_size"] == 1


def advantages(server: Running) -> bytes:
    from learnloop.compat.seed1.transition_buffer import segments_of, steps_of

    learner = server.app.shared.part(MutationLearner)
    steps = steps_of(segments_of(learner.buffer.transitions), SIZE)
    batch = learner.ppo.prepare(steps).batch
    for row, total in zip(batch.observations, batch.advantages, strict=True):
        assert row.shape == (SIZE,)
        assert np.isfinite(total)
    return bytes(batch.advantages.tobytes())


@pytest.mark.parametrize("by", ["episode_id", "key"])
def test_clients_at_once_learn_as_one_after_the_other(workspace: Workspace, start: Start, by: str) -> None:
    """F1.3: bit-equal advantages, and a client without rewards gets none of another's."""
    server = start(on=with_settings(workspace))
    headers: list[dict[str, str]] = [{}, {}]
    names: list[dict[str, str]] = [{"episode_id": "a"}, {"episode_id": "b"}]
    if by == "key":
        secrets = [create_key(workspace, name, [ApiScope.ACT, ApiScope.TRAIN]).secret for name in ("one", "two")]
        headers = [{"authorization": f"Bearer {secret}"} for secret in secrets]
        names = [{}, {}]
        assert eventually(lambda: server.ask("GET", "/stats", **headers[1]).status == 403)  # that key was made last
    learner = server.app.shared.part(MutationLearner)

    def episodes() -> list[list[dict[str, Any]]]:
        found = []
        for each, (seed, reward) in enumerate(((1, 0.0), (2, 1000.0))):
            path = states(6, seed)
            steps = []
            for step in range(5):
                made = {**choose(server, path[step], **headers[each]), "next_state": path[step + 1], **names[each]}
                steps.append({**made, "done": step == 4, "reward": reward if step == 4 else 0.0})
            found.append(steps)
        return found

    poor, rich = episodes()
    mixed = [(who, step) for number in range(5) for who, step in ((0, poor[number]), (1, rich[number]))]
    apart = [(0, step) for step in poor] + [(1, step) for step in rich]
    found = []
    for order in (mixed, apart):
        for who, step in order:
            good(server, "/store_experience", step, **headers[who])
        found.append(advantages(server))
        learner.buffer.take()
        learner.buffer.settle(learned=True)
    assert found[0] == found[1]
    of_poor, of_rich = np.frombuffer(found[0], np.float32).reshape(2, 5)
    assert np.abs(of_poor).max() < 10 < of_rich.max()


def test_choices_go_on_while_it_learns_and_a_second_update_waits(workspace: Workspace, start: Start) -> None:
    options = {**SETTINGS["options"], "n_epochs": 400}
    server = start(on=with_settings(workspace, options=options))
    fill(server, 60)
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.append(good(server, "/update", {}))) for _ in range(2)]
    for each in threads:
        each.start()
    num_choices = 0
    while threads[0].is_alive() or threads[1].is_alive():
        good(server, "/select_action", {"embedding": STATE})
        num_choices += 1
    assert num_choices > 5
    assert sorted("message" in each for each in found) == [False, True]
    assert server.workspace.store.select(LearningUpdate, limit=5)[0].num_samples == 60


def test_an_update_whose_process_is_killed_tells_so_and_changes_nothing(server: Running) -> None:
    """A fault of ours: the answer blamed the store."""
    fill(server, 60)
    learner = server.app.shared.part(MutationLearner)
    learner.learn, learn = _gone, learner.learn
    reply = post(server, "/update", {})
    assert reply.status == 503
    assert "the experiences wait still" in reply.json()["error"]
    learner.learn = learn
    assert good(server, "/update", {})["update_count"] == 1


def _gone(job: State) -> State:
    raise UnreachableError("the process that learns ended before it was done (nothing more comes); try again")


def test_many_clients_at_once(server: Running) -> None:
    def run(number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE_SECONDS)
        for state in states(6, number):
            connection.request(
                "POST", "/select_action", json.dumps({"embedding": state}), {"content-type": "application/json"}
            )
            chosen = json.loads(connection.getresponse().read())
            body = {**EXPERIENCE, "state": state, "next_state": state, "episode_id": str(number), "done": False}
            body |= {name: chosen[name] for name in ("action", "log_prob", "value")}
            connection.request("POST", "/store_experience", json.dumps(body), {"content-type": "application/json"})
            assert connection.getresponse().read()
        connection.close()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert server.workspace.store.count(Decision) == 48
    assert good(server, "/update", {})["update_count"] == 1
    record = server.workspace.store.select(LearningUpdate, limit=1)[0]
    assert (record.num_samples, record.metrics["train/num_stale_steps"]) == (48, 0)


def test_scopes(server: Running) -> None:
    reader = create_key(server.workspace, "reader", [ApiScope.READ]).secret
    actor = create_key(server.workspace, "actor", [ApiScope.ACT]).secret
    assert eventually(lambda: server.ask("GET", "/stats", authorization=f"Bearer {actor}").status == 403)  # made last
    for secret, path, status in (
        (reader, "/select_action", 403),
        (actor, "/select_action", 200),
        (actor, "/update", 403),
        (actor, "/save", 403),
        (actor, "/load", 403),
    ):
        body: dict[str, Any] = {"embedding": STATE} if path == "/select_action" else {"path": "x"}
        reply = post(server, path, {} if path == "/update" else body, authorization=f"Bearer {secret}")
        assert reply.status == status, (path, reply.body)
    assert server.ask("GET", "/health").json() == {"status": "ok"}
