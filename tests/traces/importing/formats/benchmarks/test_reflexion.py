"""formats.benchmarks.reflexion: runs at programming tasks, and trials that are no independent tries."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.traces.formats.reading import check_damaged, check_wrong_values, imported, written
from tests.traces.shared_traces import shared_trace

ROW: dict[str, Any] = {
    "name": "mbpp_1_add",
    "language": "py",
    "prompt": "def add(a, b):\n",
    "entry_point": "add",
    "test": "assert add(1, 2) == 3",
    "solution": "def add(a, b):\n    return a + b",
    "is_solved": True,
}
REFLECTED = {**ROW, "is_solved": False, "reflections": ["I forgot b.", "I forgot a."]}
WHOLE = {
    **ROW,
    "reflections": ["I forgot b."],
    "implementations": ["first", ROW["solution"]],
    "test_feedback": ["1!=3", "ok"],
}


@pytest.mark.parametrize("format_name", [None, "reflexion"])
@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz"])
def test_a_line_is_a_run(tmp_path: Path, name: str, format_name: str | None) -> None:
    got = imported(tmp_path, written(tmp_path / name, [ROW, REFLECTED]), format_name=format_name)
    one, two = got.episodes
    assert one.task_id == two.task_id
    assert one.task_id is not None
    assert one.task_id.startswith("reflexion:mbpp_1_add:")
    assert one.attempt is None  # the file does not say
    assert {each.get("is_solved") for each in map(got.values, got.episodes)} == {0.0, 1.0}
    assert got.tasks[one.task_id].metadata == {name: ROW[name] for name in ROW if name not in ("solution", "is_solved")}
    assert got.report.groups is not None
    assert got.report.groups.num_mixed == 1


def test_what_the_file_does_not_hold_is_not_made_up(tmp_path: Path) -> None:
    got = imported(tmp_path, written(tmp_path / "a.jsonl", [REFLECTED]))
    steps = got.steps()
    assert [step.attributes["purpose"] for step in steps] == ["reflection", "reflection", "implementation"]
    assert got.episode.metadata["num_implementations_unknown"] == 2
    assert steps[0].messages == []


def test_all_implementations_are_steps(tmp_path: Path) -> None:
    got = imported(tmp_path, written(tmp_path / "a.jsonl", [WHOLE]))
    steps = got.steps()
    texts = [step.output["parts"][0]["content"] for step in steps if step.output]
    assert texts == ["first", "I forgot b.", ROW["solution"]]
    assert [part["content"] for said in steps[1].messages for part in said["parts"]] == ["first", "1!=3"]
    assert [said["role"] for said in steps[2].messages] == ["assistant", "user", "assistant", "user"]


def test_a_name_with_two_prompts_is_two_tasks(tmp_path: Path) -> None:
    rust = {**ROW, "language": "rs", "prompt": "fn add(a: i32, b: i32)"}
    got = imported(tmp_path, written(tmp_path / "a.jsonl", [ROW, rust, {**ROW, "task_id": 3, "name": None}]))
    assert len({each.task_id for each in got.episodes}) == 3


def test_an_outcome_that_is_missing_stays_missing(tmp_path: Path) -> None:
    got = imported(tmp_path, written(tmp_path / "a.jsonl", [{**ROW, "is_solved": None}]))
    assert (got.values(), got.report.num_episodes_without_reward) == ({}, 1)


def test_equal_lines_of_two_files_are_two_attempts(tmp_path: Path) -> None:
    paths = [written(tmp_path / name, [ROW, ROW]) for name in ("a.jsonl", "b.jsonl")]
    assert len(imported(tmp_path, *paths).episodes) == 4


def test_the_name_of_a_file_says_the_model(tmp_path: Path) -> None:
    name = "mbpp-py._reflexion_5_gpt-4_pass_at_k_1_py.jsonl"
    got = imported(tmp_path, written(tmp_path / name, [ROW]))
    assert [step.model for step in got.steps()] == ["gpt-4"]
    assert got.episode.metadata["strategy"] == "reflexion"


TRIALS = [
    {"name": "env_0", "memory": [], "is_success": True},
    {"name": "env_1", "memory": ["Look first."], "is_success": True},
    {"name": "env_2", "memory": ["Look first.", "Then go."], "is_success": False},
]


@pytest.mark.parametrize("format_name", [None, "reflexion-trials"])
def test_a_trial_is_an_episode_for_each_environment(tmp_path: Path, format_name: str | None) -> None:
    got = imported(tmp_path, written(tmp_path / "env_results_trial_1.json", TRIALS), format_name=format_name)
    assert [each.task_id for each in got.episodes] == [f"reflexion:3-environments:env_{n}" for n in range(3)]
    assert {each.attempt for each in got.episodes} == {1}
    assert [got.values(each)["is_success"] for each in got.episodes] == [1.0, 1.0, 0.0]
    assert got.episodes[2].metadata["memory"] == ["Look first.", "Then go."]
    assert got.report.num_steps == 0


def test_a_success_of_an_earlier_trial_is_marked(tmp_path: Path) -> None:
    got = imported(tmp_path, written(tmp_path / "trial_1.json.gz", TRIALS))
    assert [each.metadata.get("carried_over") for each in got.episodes] == [True, None, None]
    assert got.episodes[0].metadata["solved_in_trial"] == 0


def test_nothing_is_marked_where_memories_do_not_grow(tmp_path: Path) -> None:
    got = imported(tmp_path, written(tmp_path / "trial_3.json", TRIALS))
    assert not any("carried_over" in each.metadata for each in got.episodes)


def test_without_a_number_in_its_name_a_trial_has_none(tmp_path: Path) -> None:
    got = imported(tmp_path, written(tmp_path / "results.json", TRIALS))
    assert {each.attempt for each in got.episodes} == {None}


def test_wrong_values_are_refused_or_read(tmp_path: Path) -> None:
    check_wrong_values(tmp_path / "a.jsonl", [WHOLE, REFLECTED], "reflexion")
    check_wrong_values(tmp_path / "trial_1.json", TRIALS, "reflexion-trials")


def test_damage_is_refused_or_read(tmp_path: Path) -> None:
    check_damaged(written(tmp_path / "a.jsonl", [ROW, REFLECTED, WHOLE]), "reflexion")
    check_damaged(written(tmp_path / "trial_1.json", TRIALS), "reflexion-trials")


def test_the_shared_programming_runs(tmp_path: Path) -> None:
    names = ("simple_mbpp_py", "simple_mbpp_py2", "reflexion_mbpp_py", "reflexion_mbpp_py3")
    paths = [shared_trace(f"reflexion_mbpp/{name}.jsonl") for name in names]
    got = imported(tmp_path, *paths)
    assert [report.num_records["episode"] for report in got.reports] == [397, 397, 397, 257]
    groups = got.report.groups
    assert groups is not None
    assert groups.sizes == {3: 140, 4: 257}  # the two simple files have 193 equal texts, and both attempts stay
    outcomes: dict[str, list[float | None]] = {}
    for episode in got.episodes:
        outcomes.setdefault(str(episode.task_id), []).append(got.values(episode)["is_solved"])
    common = [values for values in outcomes.values() if len(values) == 4]
    assert (len(common), sum(len(set(values)) > 1 for values in common)) == (257, 41)
    assert groups.num_mixed == sum(len(set(values)) > 1 for values in outcomes.values())
    rows = [json.loads(line) for path in paths for line in path.read_text().splitlines()]
    assert sum(report.num_steps for report in got.reports) == sum(1 + len(row.get("reflections") or []) for row in rows)


@pytest.mark.parametrize(("policy", "num_trials", "last"), [("reflexion", 15, 134), ("base", 4, 98)])
def test_the_shared_trials(tmp_path: Path, policy: str, num_trials: int, last: int) -> None:
    paths = [shared_trace(f"reflexion_alfworld/{policy}_trial_{number}.json") for number in range(num_trials)]
    got = imported(tmp_path, *paths)
    assert [report.num_records["episode"] for report in got.reports] == [134] * num_trials
    solved = [0] * num_trials
    first: dict[str, int] = {}
    for episode in got.episodes:
        assert episode.attempt is not None
        if got.values(episode)["is_success"]:
            solved[episode.attempt] += 1
            since = first.setdefault(str(episode.task_id), episode.attempt)
            assert episode.metadata.get("carried_over", False) is (episode.attempt > since)
    assert (solved[0], solved[-1], solved) == (84, last, sorted(solved))
