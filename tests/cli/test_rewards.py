"""learnloop rewards and learnloop labels, from recorded runs to an audit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from learnloop.core.records import Reward
from learnloop.loop import Settings, Workspace
from tests.cli.calling import Call
from tests.loop.recorded_runs import answered

QA = {"task_type": "qa", "expected": "Paris"}


@pytest.fixture
def store(call: Call, tmp_path: Path) -> Settings:
    """A store with a right and a wrong answer, and one whose truth is not known."""
    assert call("init").code == 0
    home = tmp_path / ".learnloop"
    settings = Settings(home=home, database=f"sqlite:///{home}/learnloop.db", origins={})
    with Workspace(settings) as workspace:
        workspace.store.write([
            *answered("right", "Capital of France?", "Paris", "france", metadata=QA),
            *answered("wrong", "Capital of France?", "Rome", "france", metadata=QA),
            *answered("open", "Capital of Peru?", "Lima", "peru", metadata={"task_type": "qa"}),
        ])  # fmt: skip
    return settings


def test_calculate_history_and_audit(call: Call, store: Settings, tmp_path: Path) -> None:
    planned = call("rewards", "calculate", "--all", "--weight", "correctness", "--dry-run", "--json").json()
    assert (planned["dry_run"], planned["num_scored"], planned["num_unknown"], planned["mean"]) == (True, 2, 1, 0.5)
    assert call("rewards", "history", "--json").json()["data"] == []
    done = call("rewards", "calculate", "--all", "--weight", "correctness=2", "--json").json()
    totals = {each["episode_id"]: each["scored"]["total"] for each in done["data"]}
    assert totals == {"right": 1.0, "wrong": 0.0, "open": None}
    unknown = next(each["scored"]["reason"] for each in done["data"] if each["episode_id"] == "open")
    assert "expected" in unknown or "ground truth" in unknown
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text('{"task_id": "peru", "expected": ["Lima"]}\n')
    filled = call("rewards", "calculate", "--all", "--missing", "--tasks", str(tasks), "--weight", "correctness")
    assert filled.code == 0
    assert "1.0000" in filled.out
    assert "1 scored, 0 unknown, mean 1.0000" in filled.err
    page = call("rewards", "history", "--limit", "2", "--json").json()
    assert [each["episode_id"] for each in page["data"]] == ["open", "wrong"]
    rest = call("rewards", "history", "--after", page["next_cursor"], "--json").json()
    assert [(each["episode_id"], each["credit_assigned"]) for each in rest["data"]] == [("right", 1.0)]
    assert call("rewards", "history", "--totals", "--json").json()["data"] == [
        {"agent_id": "solver", "credit": 2.0, "num_shares": 3, "num_completions": 3}
    ]
    assert "solver" in call("rewards", "history", "--episode", "right").out
    assert len(call("rewards", "history", "--step", "0", "--json").json()["data"]) == 3
    assert call("rewards", "history", "--step", "1", "--json").json()["data"] == []
    assert "more" not in call("rewards", "history", "--totals", "--limit", "1").err
    audit = call("rewards", "audit", "--json").json()
    assert (audit["ok"], audit["findings"]) == (True, [])


def test_an_audit_that_works_rewards_out_again(call: Call, store: Settings) -> None:
    Path("learnloop.toml").write_text('home = ".learnloop"\n[rewards]\nweights = { correctness = 1.0 }\n')
    call("rewards", "calculate", "right", "wrong")
    assert call("rewards", "audit", "--regrade", "1", "--json").json()["num_regraded"] == 2
    with Workspace(store) as workspace:
        forged = next(workspace.store.iterate(Reward, where={"episode_id": "wrong", "name": "total"}))
        import msgspec

        workspace.store.write([msgspec.structs.replace(forged, reward_id=forged.reward_id + "x", value=1.0)])
    outcome = call("rewards", "audit", "--regrade", "1", "--json")
    assert outcome.code == 7
    assert [each["episode_id"] for each in outcome.json()["different"]] == ["wrong"]


def test_components_are_listed_with_their_weights(call: Call, store: Settings) -> None:
    found = {each["name"]: each for each in call("rewards", "components", "--json").json()["data"]}
    assert found["correctness"]["weight"] == 1.0
    assert {"correctness", "tool_success", "efficiency", "code_execution"} <= set(found)
    text = call("rewards", "components").out
    assert "correctness" in text


def test_a_file_of_examples(call: Call, store: Settings, tmp_path: Path) -> None:
    file = tmp_path / "attempts.jsonl"
    good = {"attempt": {**QA, "output": "Paris"}, "want": 1.0}
    file.write_text(json.dumps(good) + "\n")
    assert call("rewards", "test", str(file), "--weight", "correctness").code == 0
    file.write_text(json.dumps(good) + "\n" + json.dumps({"attempt": {**QA, "output": "Rome"}, "want": 1.0}))
    outcome = call("rewards", "test", str(file), "--weight", "correctness", "--json")
    assert outcome.code == 7
    assert [each["is_wanted"] for each in outcome.json()["data"]] == [True, False]
    assert "lines 2" in outcome.err


def test_labels_are_asked_for_answered_and_held_against(call: Call, store: Settings) -> None:
    call("rewards", "calculate", "right", "wrong", "--weight", "correctness")
    with Workspace(store) as workspace:
        from learnloop.rewards.learned.label_queue import LabelAsk, LabelQueue

        LabelQueue(workspace.store).ask([
            LabelAsk(episode_id="right", reason="asked", priority=2.0, suggested_value=0.9, suggested_by="ab"),
            LabelAsk(episode_id="wrong", reason="asked", priority=1.0),
        ])  # fmt: skip
    listed = call("labels", "list", "--json").json()["data"]
    assert [(each["request"]["episode_id"], each["output"]) for each in listed] == [
        ("right", "Paris"),
        ("wrong", "Rome"),
    ]
    text = call("labels", "list").out
    assert "Capital of France?" in text
    assert "suggested: 0.90" in text
    first, second = (each["request"]["label_request_id"] for each in listed)
    reward = call("labels", "answer", first, "--accept", "--author", "ada", "--json").json()["reward"]
    assert (reward["value"], reward["author"], reward["source"]) == (0.9, "ada", "label")
    assert call("labels", "answer", first, "good", "--author", "bob").code == 5
    assert call("labels", "skip", second, "--author", "bob").code == 0
    assert call("labels", "list", "--json").json()["data"] == []
    again = call("rewards", "calculate", "right", "wrong", "--weight", "correctness")
    assert again.err == "2 scored, 0 unknown, mean 0.5000\n"
    assert "2.0000" not in call("traces", "list").out  # the total stands for the label too
    report = call("rewards", "calibrate", "correctness", "--json")
    assert report.code == 7
    assert report.json()["report"]["num_pairs"] == 1
    assert report.json()["report"]["verdict"] == "inconclusive"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("rewards", "calculate"), 2),
        (("rewards", "calculate", "right", "--all"), 2),
        (("rewards", "calculate", "nothing"), 3),
        (("rewards", "calculate", "--all", "--weight", "corectness"), 3),
        (("rewards", "calculate", "--all", "--weight", "correctness=much"), 2),
        (("rewards", "calculate", "--all", "--weight", "correctness=-1"), 2),
        (("rewards", "calculate", "--all", "--weight", "correctness=nan"), 2),
        (("rewards", "calculate", "--all", "--credit", "fair"), 2),
        (("rewards", "calculate", "--all", "--credit", "shapley"), 2),
        (("rewards", "history", "--totals", "--step", "1"), 2),
        (("rewards", "history", "--after", "x", "--limit", "0"), 2),
        (("rewards", "calibrate", "style"), 3),
        (("rewards", "calibrate", "correctness", "--min-kappa", "nan"), 2),
        (("rewards", "calibrate", "correctness", "--min-kappa", "2"), 2),
        (("rewards", "test", "none.jsonl"), 2),
        (("labels", "answer", "none", "good", "--author", "ada"), 3),
        (("labels", "answer", "none", "--author", "ada"), 2),
        (("labels", "answer", "none", "maybe", "--author", "ada"), 2),
        (("labels", "skip", "none", "--author", " "), 2),
        (("labels", "list", "--after", "x"), 2),
        (("labels", "ask", "0"), 2),
    ],
)
def test_wrong_calls(call: Call, store: Settings, arguments: tuple[str, ...], code: int) -> None:
    outcome = call(*arguments)
    assert (outcome.code, outcome.out) == (code, ""), outcome.err
    assert "Traceback" not in outcome.err
