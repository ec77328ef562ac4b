"""A store as commit 38f3475 left it comes to the code of today by ``learnloop db upgrade``, and nothing of it is lost.

``tests/fixtures/make_store_38f3475.py`` made the store; its manifest is what that commit read in it. Only public doors
are used here: a release that renames one of them changes this file, one that changes what is stored must not.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import psycopg
import pytest

import learnloop as ll
from learnloop.algorithms import load_policy
from learnloop.cli.main import run
from learnloop.core import records
from learnloop.core.protocols import Question
from learnloop.rewards import load_learned_reward
from tests.conftest import PostgresServer
from tests.fixtures.word_embedder import WordEmbedder
from tests.serve.running import Reply
from tests.serve.server_process import ServerProcess
from tests.waiting import eventually

FIXTURES = Path(__file__).parents[1] / "fixtures"
DECLARED: dict[str, dict[str, Any]] = {
    "style": {"epsilon": 0.3},
    "tone": {"algorithm": "linucb", "features": {"question": "text", "customer": "category", "minutes": "number"}},
    "retry": {"algorithm": "thompson"},
}
"""How the agent ``support`` declared its policies; its others have the defaults."""
VECTOR = np.array([1.0, 0.5, -0.5, 0.0], np.float32)
"""What ``shop.walk`` was asked about."""
BANNER = "/v1/agents/shop/policies/banner"
NUM_NEW = 30
EXACT, CLOSE = 0.0, 1e-5
"""What was stored is the same; what is computed from it may differ by how this processor adds up."""


class Kept(NamedTuple):
    """A store that was upgraded, and what it held before."""

    folder: Path
    """With ``learnloop.toml`` and ``.learnloop``."""
    database: str | None
    """None: the file in the folder."""
    manifest: dict[str, Any]

    def serve(self, *arguments: str) -> ServerProcess:
        return ServerProcess(self.folder / ".learnloop", self.database, *arguments)


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the archive holds, as it was."""
    folder = tmp_path_factory.mktemp("38f3475")
    with tarfile.open(FIXTURES / "store_38f3475.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="module")
def manifest(unpacked: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((unpacked / "manifest.json").read_bytes())
    return found


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def upgraded(
    request: pytest.FixtureRequest, unpacked: Path, manifest: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> Kept:
    """The store on each back end after ``learnloop db upgrade``; nothing else has touched it."""
    folder = tmp_path_factory.mktemp(request.param) / "workspace"
    shutil.copytree(unpacked / "workspace", folder)
    fresh = "UPDATE idempotent_answers SET created_at = {}"  # answers are kept a day, and these are to be found
    if request.param == "sqlite":
        database = None
        with sqlite3.connect(folder / ".learnloop" / "learnloop.db") as file:
            file.execute(fresh.format(int(datetime.now(UTC).timestamp()) * 1_000_000))
        file.close()
    else:
        (folder / ".learnloop" / "learnloop.db").unlink()
        server: PostgresServer = request.getfixturevalue("postgres_server")
        server.execute("CREATE DATABASE kept_38f3475 TEMPLATE template0")
        database = server.url("kept_38f3475")
        with psycopg.connect(database, autocommit=True) as connection:
            connection.execute((unpacked / "postgresql.sql").read_bytes())
            connection.execute(f"SET search_path = public; {fresh.format('now()')}".encode())
    done = subprocess.run(
        [sys.executable, "-m", "learnloop", "db", "upgrade", "--json"],
        cwd=folder,
        env={**os.environ, **({} if database is None else {"LEARNLOOP_DATABASE": database})},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout)["before"] == "0005"
    return Kept(folder, database, manifest)


@pytest.fixture
def kept(
    request: pytest.FixtureRequest, upgraded: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Kept]:
    """A copy of the upgraded store for one test, which runs in its folder, as a user would."""
    folder = tmp_path / "workspace"
    shutil.copytree(upgraded.folder, folder)
    monkeypatch.chdir(folder)
    monkeypatch.delenv("LEARNLOOP_HOME", raising=False)
    monkeypatch.delenv("LEARNLOOP_DATABASE", raising=False)
    if upgraded.database is None:
        yield Kept(folder, None, upgraded.manifest)
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    server.execute("CREATE DATABASE copy_38f3475 TEMPLATE kept_38f3475")
    monkeypatch.setenv("LEARNLOOP_DATABASE", server.url("copy_38f3475"))
    yield Kept(folder, server.url("copy_38f3475"), upgraded.manifest)
    server.execute("DROP DATABASE copy_38f3475 WITH (FORCE)")


@pytest.fixture
def command(capfd: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Runs a command line that must succeed, and returns its JSON."""

    def called(*arguments: str) -> Any:
        capfd.readouterr()
        code = run([*arguments, "--json"])
        told = capfd.readouterr()
        assert code == 0, told.err
        return json.loads(told.out)

    return called


def differences(found: Any, before: Any, tolerance: float = EXACT, place: str = "") -> list[str]:
    """Returns where ``found`` is not ``before``; fields that are new are none."""
    if isinstance(before, dict) and isinstance(found, dict):
        pairs = [(f"{place}.{name}", found.get(name, "(gone)"), value) for name, value in before.items()]
    elif isinstance(before, list) and isinstance(found, list) and len(found) == len(before):
        pairs = [(f"{place}[{n}]", *pair) for n, pair in enumerate(zip(found, before, strict=True))]
    elif isinstance(before, float) and isinstance(found, float):
        is_same = found == before or math.isclose(found, before, rel_tol=tolerance, abs_tol=tolerance)
        return [] if is_same else [f"{place}: {found!r}, was {before!r}"]
    else:
        return [] if found == before else [f"{place}: {str(found)[:200]}, was {str(before)[:200]}"]
    return [each for where, new, old in pairs for each in differences(new, old, tolerance, where)]


def stored(workspace: ll.Workspace, kind: str) -> Any:
    return msgspec.to_builtins(list(workspace.store.iterate(getattr(records, kind))))


def assert_same_records(workspace: ll.Workspace, manifest: dict[str, Any], *, but: tuple[str, ...] = ()) -> None:
    before = {kind: rows for kind, rows in manifest["records"].items() if kind not in but}
    assert {kind for kind, rows in before.items() if not rows} == set()
    now = {kind: stored(workspace, kind) for kind in before}
    assert {kind: len(rows) for kind, rows in now.items()} == {kind: len(rows) for kind, rows in before.items()}
    assert differences(now, before)[:10] == []


# Records -----------------------------------------------------------------------------------------------------------


def test_every_record_is_kept(kept: Kept) -> None:
    with ll.Workspace() as workspace:
        assert_same_records(workspace, kept.manifest, but=("IdempotentAnswer",))
        (answer,) = stored(workspace, "IdempotentAnswer")
    (before,) = kept.manifest["records"]["IdempotentAnswer"]
    assert differences(answer, {**before, "created_at": answer["created_at"]}) == []


def test_a_second_upgrade_changes_nothing(kept: Kept, command: Callable[..., Any]) -> None:
    told = command("db", "upgrade")
    assert told["before"] == told["after"] == command("db", "current")["newest"]
    with ll.Workspace() as workspace:
        assert_same_records(workspace, kept.manifest, but=("IdempotentAnswer",))


@pytest.mark.parametrize("database", ["sqlite", "empty_postgres_url"])
def test_the_backup_of_then_is_restored(
    request: pytest.FixtureRequest, unpacked: Path, manifest: dict[str, Any], database: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    if database != "sqlite":
        monkeypatch.setenv("LEARNLOOP_DATABASE", request.getfixturevalue(database))
    assert run(["db", "restore", str(unpacked / "backup.tar")]) == 0
    with ll.Workspace() as workspace:
        assert_same_records(workspace, manifest)
        assert {f"{each.policy}@{each.version}" for each in workspace.registry.versions()} == {*manifest["registered"]}
        for version in workspace.registry.versions():
            workspace.registry.load(version)


def test_what_runs_were_worth(kept: Kept, command: Callable[..., Any]) -> None:
    rows = command("traces", "list", "--limit", "1000")["data"]
    now = {row["episode"]["episode_id"]: row["reward"] for row in rows}
    before = kept.manifest["episode_rewards"]
    assert now.keys() == before.keys()
    labels: dict[str, dict[str, float]] = {}
    for each in kept.manifest["records"]["Reward"]:
        if each["name"] == "label":
            labels.setdefault(each["episode_id"], {})[each["author"]] = each["value"]
    assert max(len(each) for each in labels.values()) == 2
    stands_for_all = {name: statistics.fmean(each.values()) for name, each in labels.items()}  # then it was added
    assert differences(now, {**before, **stands_for_all}, CLOSE) == []


def test_runs_are_found_by_their_words_and_mails_have_their_pseudonyms(kept: Kept, command: Callable[..., Any]) -> None:
    (found,) = command("traces", "list", "--search", '"order 1" results')["data"]
    (before,) = kept.manifest["found"]
    assert found["episode"]["episode_id"] == before["episode"]["episode_id"]
    (pseudonym,) = re.findall(r"\[email:\w+\]", before["snippet"]["text"])
    with ll.Loop("support") as loop, loop.episode(), loop.span("search", query="eva@example.com") as span:
        span.set(again=True)
    with ll.Workspace() as workspace:
        last = list(workspace.store.iterate(records.Span, where={"name": "search", "operation": "custom"}))[-1]
    assert last.attributes["query"] == pseudonym


def test_the_queue_of_labels_goes_on(kept: Kept, command: Callable[..., Any]) -> None:
    (shown,) = command("labels", "list")["data"]
    assert shown["request"]["episode_id"] == "n0"
    command("labels", "answer", shown["request"]["label_request_id"], "good", "--author", "eva")
    assert command("labels", "list")["data"] == []


def test_the_learned_reward_scores_as_before(kept: Kept) -> None:
    before = kept.manifest["learned_reward"]
    reward = load_learned_reward(Path(".learnloop") / "rewards" / before["content_hash"], WordEmbedder())
    reward.check_usable()
    attempts = msgspec.convert(before["attempts"], list[ll.Attempt])
    assert differences([reward(each).value for each in attempts], before["scores"], CLOSE) == []


# Policies ----------------------------------------------------------------------------------------------------------


def test_registered_policies_choose_as_before(kept: Kept) -> None:
    with ll.Workspace() as workspace:
        versions = workspace.registry.versions()
        assert [f"{each.policy}@{each.version}" for each in versions] == [*kept.manifest["registered"]]
        for version, before in zip(versions, kept.manifest["registered"].values(), strict=True):
            aliases = workspace.registry.aliases(version.policy)
            assert sorted(name for name, at in aliases.items() if at == version) == before["aliases"]
            certificates = [each.certificate_id for each in workspace.registry.certificates(version)]
            assert certificates == before["certificates"]
            name = f"{version.policy}@{version.version}"
            if "probabilities" in before:
                acting = ll.load_policy(name)
                probabilities = [acting.probabilities(each).tolist() for each in range(4)]
                assert differences(probabilities, before["probabilities"], CLOSE, name) == []
                continue
            policy = load_policy(workspace.registry.load(version))
            for asked in before["choices"]:
                question = Question(asked["context"], None, VECTOR if version.policy == "shop.walk" else None)
                probabilities = policy.probabilities(question, asked["actions"]).tolist()
                assert differences(probabilities, asked["probabilities"], CLOSE, name) == []


def test_versions_are_evaluated_as_before(kept: Kept, command: Callable[..., Any]) -> None:
    for before in kept.manifest["evaluations"]:
        baseline = before["comparison"]["baseline"].partition(" ")[0]
        now = command("policies", "evaluate", before["policy"], "--baseline", baseline)
        assert differences(now, before, CLOSE) == []


def test_choose_goes_on_with_what_was_learned(kept: Kept) -> None:
    for agent in ("support", "planner"):
        with ll.Loop(agent, seed=5) as loop:
            for name, options in DECLARED.items() if agent == "support" else ():
                loop.policy(name, **options)
            for before in (each for each in kept.manifest["online"] if each["agent"] == agent):
                choice = loop.choose(before["policy"], before["actions"], before["context"])
                loop.flush()
                made = loop.workspace.store.get(records.Decision, choice.decision_id)
                assert made.num_updates == before["num_updates"], before["policy"]
                assert differences(made.probabilities, before["probabilities"], CLOSE, before["policy"]) == []
            assert loop.counters().last_error is None  # the checkpoints were read, not the log in their place


def test_choose_learns_late_rewards_of_what_was_pending(kept: Kept) -> None:
    unknown = {name for name, reward in kept.manifest["decision_rewards"].items() if reward is None}
    before = {each["policy"]: each for each in kept.manifest["online"]}
    with ll.Loop("support") as loop:
        for name, options in DECLARED.items():
            loop.policy(name, **options)
        for name in ("tone", "retry", "size"):
            decisions = loop.workspace.store.iterate(records.Decision, where={"agent_id": "support", "policy": name})
            late = [each.decision_id for each in decisions if each.decision_id in unknown]
            assert len(late) >= 15
            for decision_id in late:
                loop.reward(decision_id, done=0.5)
            choice = loop.choose(name, before[name]["actions"], before[name]["context"])
            loop.reward(choice, done=1.0)
            loop.choose(name, before[name]["actions"], before[name]["context"])
            loop.flush()
            last = list(loop.workspace.store.iterate(records.Decision, where={"policy": name}))[-1]
            assert last.num_updates == before[name]["num_updates"] + len(late) + 1
        assert loop.counters().last_error is None


# Training ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("upgraded", ["sqlite"], indirect=True)  # a training does not touch the database
def test_trained_runs_are_read(kept: Kept) -> None:
    runs = [each for each in kept.manifest["runs"].items() if each[1]["record"]["status"] == "completed"]
    assert len(runs) == 2
    for run_id, before in runs:
        found = ll.open_run(run_id)
        assert differences(msgspec.to_builtins(found.record), before["record"]) == []
        if "probabilities" in before:
            probabilities = [found.best.policy.probabilities(each).tolist() for each in range(4)]
            assert differences(probabilities, before["probabilities"], CLOSE) == []


@pytest.mark.parametrize("algorithm", ["ppo", "dqn", "sac", "bc"])
@pytest.mark.parametrize("upgraded", ["sqlite"], indirect=True)
def test_trainings_that_were_killed_go_on(kept: Kept, algorithm: str) -> None:
    (run_id,) = (
        name
        for name, each in kept.manifest["runs"].items()
        if each["record"]["status"] == "running" and each["record"]["options"]["algorithm"] == algorithm
    )
    before = kept.manifest["runs"][run_id]
    written = [json.loads(line) for line in _metrics(run_id)]
    found = ll.resume(run_id)
    options = before["record"]["options"]
    assert found.record.status == "completed"
    assert differences(msgspec.to_builtins(found.record.options), options) == []
    (result,) = found.record.results
    assert options["steps"] in (None, result.num_steps)
    assert options["updates"] in (None, result.num_updates)
    rows = [json.loads(line) for line in _metrics(run_id)]
    kept_rows = [row for row in written if row["position"] <= before["checkpoints"][-1]]
    assert rows[: len(kept_rows)] == kept_rows
    assert all(row["position"] > before["checkpoints"][-1] for row in rows[len(kept_rows) :])
    evaluated = [row["eval/mean_reward"] for row in kept_rows if "eval/mean_reward" in row]
    assert [each.mean_return for each in result.curve[: len(evaluated)]] == evaluated


def _metrics(run_id: str) -> list[str]:
    return (Path(".learnloop") / "runs" / run_id / "seed-0" / "metrics.jsonl").read_text().splitlines()


# HTTP --------------------------------------------------------------------------------------------------------------


class Client:
    """Speaks to a server with a key of the store."""

    def __init__(self, server: ServerProcess, secret: str) -> None:
        self.server = server
        self._secret = secret

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        sent = None if body is None else json.dumps(body)
        return self.server.ask(method, path, sent, authorization=f"Bearer {self._secret}", **headers)

    def get(self, path: str) -> Any:
        reply = self.ask("GET", path)
        assert reply.status == 200, reply.body
        return reply.json()

    def post(self, path: str, body: Any, **headers: str) -> Any:
        reply = self.ask("POST", path, body, **headers)
        assert reply.status in (200, 201), reply.body
        return reply.json()


def test_a_server_goes_on(kept: Kept) -> None:
    server = kept.serve()
    try:
        client = Client(server, kept.manifest["secrets"]["boss"]["secret"])
        _keys_hold(kept, client)
        _settings_and_answers_are_as_before(kept, client)
        before = _reward_enough_to_learn(kept, client)
        _decisions_are_read_with_what_they_earned(kept, client)
        _checkpoints_of_seed_1_go_on(kept, client)
        _was_learned(client, before)
        server.stop()
    finally:
        server.process.kill()  # where something failed above; one that was stopped is gone


def _keys_hold(kept: Kept, client: Client) -> None:
    secrets, sent = kept.manifest["secrets"], kept.manifest["served"]["choices"][0]["sent"]
    assert Client(client.server, secrets["gone"]["secret"]).ask("GET", "/v1/decisions").status == 401
    reader = Client(client.server, secrets["reader"]["secret"])
    assert reader.ask("GET", "/v1/decisions").status == 200
    assert reader.ask("POST", "/v1/decisions", sent).status == 403


def _as_said_now(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Returns settings with the network, where there is one, as the model that it is."""
    rest = {name: value for name, value in settings.items() if name != "network"}
    network = settings["network"]
    model = {"kind": "hashed", **settings["model"]} if network is None else {"kind": "network", **network}
    return {**rest, "model": model}


def _settings_and_answers_are_as_before(kept: Kept, client: Client) -> None:
    served = kept.manifest["served"]
    for policy, settings in served["settings"].items():
        wanted = {**settings, "settings": _as_said_now(settings["settings"])}
        assert differences(client.get(f"/v1/agents/shop/policies/{policy}/settings"), wanted) == []
    assert served["match_rate"]["num_decisions"] == 8
    assert differences(client.get("/v1/agents/shop/policies/shadow/match-rate"), served["match_rate"], CLOSE) == []
    for before in served["choices"]:
        answer = client.post("/v1/decisions", before["sent"])
        drawn = {"decision_id", "action", "propensity"}
        asked = {name: value for name, value in before["answer"].items() if name not in drawn}
        assert differences(answer, asked, CLOSE, before["sent"]["policy"]) == []
    once = kept.manifest["idempotent"]
    reply = client.ask("POST", "/v1/decisions", once["sent"], idempotency_key=once["key"])
    assert reply.headers["idempotency-replayed"] == "true"
    assert reply.json() == once["answer"]


def _reward_enough_to_learn(kept: Kept, client: Client) -> Any:
    """Rewards a decision of then and new ones, so that an update is due; returns the one before."""
    (before,) = client.get(f"{BANNER}/updates")["data"]
    reply = client.ask("GET", f"{BANNER}/settings")
    settings = reply.json()["settings"]
    settings["learning"]["min_new_rewards"] = NUM_NEW
    assert client.ask("PUT", f"{BANNER}/settings", settings, if_match=reply.headers["etag"]).status == 200
    client.post("/v1/decisions/own-3/reward", {"values": {"click": 0.5}})
    for _ in range(NUM_NEW):
        answer = client.post("/v1/decisions", kept.manifest["served"]["choices"][0]["sent"])
        client.post(f"/v1/decisions/{answer['decision_id']}/reward", {"value": float(answer["action"] == "news")})
    return before


def _was_learned(client: Client, before: Any) -> None:
    assert eventually(lambda: len(client.get(f"{BANNER}/updates")["data"]) > 1)
    update = client.get(f"{BANNER}/updates")["data"][0]
    assert update["error"] is None
    assert update["parent_version_id"] == before["policy_version_id"]
    assert update["reward_sequence"] >= before["reward_sequence"] + NUM_NEW
    assert update["num_samples"] + update["num_held_out"] == 500  # the window: most of them are of then


def _decisions_are_read_with_what_they_earned(kept: Kept, client: Client) -> None:
    totals, decisions = kept.manifest["decision_rewards"], kept.manifest["records"]["Decision"]
    waiting = {each["decision_id"] for each in decisions if each["policy"] == "later"}
    assert len([name for name in waiting if totals[name] is None]) == 4
    assert eventually(lambda: all(client.get(f"/v1/decisions/{name}")["reward"] is not None for name in waiting))
    sizes = Counter(each["policy"] for each in decisions)
    for number, decision in enumerate(decisions):
        name = decision["decision_id"]
        if name == "own-3" or (number % 20 and sizes[decision["policy"]] > 20):
            continue
        shown = client.get(f"/v1/decisions/{name}")
        assert differences(shown["decision"], decision) == []
        due = 0.25 if name in waiting and totals[name] is None else totals[name]  # what its settings promised
        assert differences(shown["reward"], due, CLOSE, name) == []


def _checkpoints_of_seed_1_go_on(kept: Kept, client: Client) -> None:
    for name, before in kept.manifest["served"]["mutations"].items():
        client.post("/load", {"path": name})
        assert differences(client.get("/stats"), before["stats"], CLOSE) == []
        for state, spread in zip(before["states"], before["distributions"], strict=True):
            assert differences(client.post("/get_distribution", {"embedding": state}), spread, CLOSE) == []
    client.post("/load", {"path": "kept.pt"})
    state = kept.manifest["served"]["mutations"]["kept.pt"]["states"][0]
    for number in range(6):
        told = client.post("/select_action", {"embedding": state})
        sent = {"state": state, "action": told["action"], "reward": 0.5, "next_state": state, "done": number == 5}
        known = {"log_prob": told["log_prob"], "value": told["value"], "episode_id": "new"}
        size = client.post("/store_experience", {**sent, **known})["buffer_size"]
    assert size == 16  # 10 waited in the checkpoint
    assert client.post("/update", {})["update_count"] == 3
