"""formats.benchmarks.toolbench: the chosen path as one episode, the other branches counted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.traces.formats.reading import check_damaged, check_wrong_values, imported, written

SYSTEM = {"role": "system", "content": "You are AutoGPT."}
USER = {"role": "user", "content": "\nWho is there?\nBegin!\n"}
FIRST = {"role": "assistant", "content": None, "function_call": {"name": "knock", "arguments": '{"n": 1}'}}
FAILED = {"role": "function", "name": "knock", "content": '{"error": "no door", "response": ""}'}
SECOND = {"role": "assistant", "content": "Again.", "function_call": {"name": "knock", "arguments": '{"n": 2}'}}
FOUND = {"role": "function", "name": "knock", "content": '{"error": "", "response": "Ann"}'}
LAST = {
    "role": "assistant",
    "content": None,
    "function_call": {"name": "Finish", "arguments": '{"final_answer": "Ann"}'},
}
PATH = [SYSTEM, USER, FIRST, FAILED, SECOND, FOUND, LAST]


def node(*children: dict[str, Any], pruned: bool = False) -> dict[str, Any]:
    return {"node_type": "Action", "description": "knock", "pruned": pruned, "children": list(children)}


FILE: dict[str, Any] = {
    "win": True,
    "tree": {"size": 5, "max_length": 4, "tree": node(node(node()), node(pruned=True))},
    "forward_args": {"tree_beam_size": 2},
    "compare_candidates": [],
    "answer_generation": {
        "valid_data": True,
        "query_count": 5,
        "total_tokens": 900,
        "final_answer": '{"return_type": "give_answer", "final_answer": "Ann"}',
        "function": [{"name": "knock", "parameters": {}}],
        "chain": [],
        "train_messages": [PATH[:3], PATH[:5], PATH],
        "query": "Who is there?",
        "finish_type": "give_answer",
    },
}


def with_answer(**changes: Any) -> dict[str, Any]:
    return {**FILE, "answer_generation": {**FILE["answer_generation"], **changes}}


@pytest.mark.parametrize("format_name", [None, "toolbench"])
@pytest.mark.parametrize("name", ["10_ChatGPT_DFS_woFilter_w2.json", "10_ChatGPT_DFS_woFilter_w2.json.gz"])
def test_the_chosen_path_is_the_episode(tmp_path: Path, name: str, format_name: str | None) -> None:
    got = imported(tmp_path, written(tmp_path / name, FILE), format_name=format_name)
    episode = got.episode
    assert (episode.status, episode.terminated, got.values()) == ("completed", True, {"win": 1.0})
    assert episode.metadata["tree"] == {"num_nodes": 4, "num_branches": 2, "num_pruned": 1}
    assert (episode.metadata["method"], episode.metadata["query_id"]) == ("DFS_woFilter_w2", "10")
    assert episode.metadata["verified"] is False
    assert episode.task_id is not None
    assert got.tasks[episode.task_id].metadata["query"] == "Who is there?"
    assert [step.model for step in got.steps()] == ["ChatGPT"] * 3


def test_steps_have_the_tools(tmp_path: Path) -> None:
    first, second, last = imported(tmp_path, written(tmp_path / "a.json", FILE)).steps()
    assert [said["role"] for said in first.messages] == ["system", "user"]
    assert [said["role"] for said in second.messages] == ["tool"]
    calls = [(call.name, call.arguments, call.error) for step in (first, second, last) for call in step.tool_calls]
    assert calls == [
        ("knock", {"n": 1}, "no door"),
        ("knock", {"n": 2}, None),
        ("Finish", {"final_answer": "Ann"}, None),
    ]
    assert first.attributes["tools"] == [{"name": "knock", "parameters": {}}]


def test_a_history_that_changed_is_kept_whole(tmp_path: Path) -> None:
    again = {"role": "user", "content": "This is not the first time you try this task."}
    messages = [[SYSTEM, USER, again, FIRST], [SYSTEM, USER, FIRST, FAILED, again, SECOND]]
    first, second = imported(tmp_path, written(tmp_path / "a.json", with_answer(train_messages=messages))).steps()
    assert [said["role"] for said in first.messages] == ["system", "user", "user"]
    assert [said["role"] for said in second.messages] == ["assistant", "tool", "user"]
    assert [call.error for call in first.tool_calls] == ["no door"]


def test_a_search_that_found_nothing_is_cut_off(tmp_path: Path) -> None:
    answer = {"valid_data": False, "final_answer": "", "finish_type": "give_answer", "query": "Who is there?"}
    got = imported(tmp_path, written(tmp_path / "a.json", {**FILE, "win": False, "answer_generation": answer}))
    assert (got.values(), got.episode.truncated, got.report.num_steps) == ({"win": 0.0}, True, 0)


def test_without_an_outcome_there_is_none(tmp_path: Path) -> None:
    got = imported(tmp_path, written(tmp_path / "a.json", {**FILE, "win": None}))
    assert (got.values(), got.report.num_episodes_without_reward) == ({}, 1)


def test_tries_at_one_query_are_a_group(tmp_path: Path) -> None:
    lost = {**with_answer(query=None), "win": False}
    paths = [written(tmp_path / "1_A_CoT@1.json", FILE), written(tmp_path / "1_B_CoT@1.json", {**FILE, "win": False})]
    got = imported(tmp_path, *paths)
    assert got.report.groups is not None
    assert (got.report.groups.num_groups, got.report.groups.num_mixed) == (1, 1)
    assert imported(tmp_path, written(tmp_path / "c.json", lost)).episode.task_id is not None


def test_wrong_values_are_refused_or_read(tmp_path: Path) -> None:
    check_wrong_values(tmp_path / "a.json", with_answer(train_messages=[PATH]), "toolbench")


def test_damage_is_refused_or_read(tmp_path: Path) -> None:
    check_damaged(written(tmp_path / "a.json", FILE), "toolbench")


def test_a_deep_tree_is_counted(tmp_path: Path) -> None:
    tree = node()
    for _ in range(200):
        tree = node(tree)
    got = imported(tmp_path, written(tmp_path / "a.json", {**FILE, "tree": {"tree": tree}}))
    assert got.episode.metadata["tree"] == {"num_nodes": 201, "num_branches": 1, "num_pruned": 0}
