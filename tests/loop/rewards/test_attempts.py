"""Episodes as attempts: what was asked, what came out, who did what, what it cost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from learnloop.core.attempts import Attempt, TaskType
from learnloop.core.errors import FormatError
from learnloop.core.records import Episode, EpisodeStatus, Record, SpanStatus, Task
from learnloop.loop import Loop, Settings, Workspace, find_settings
from learnloop.loop.rewards.attempts import TaskTruth, attempt_of
from tests.loop.recorded_runs import T0, answered, episode, said, span


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    settings = Settings(home=tmp_path, database=f"sqlite:///{tmp_path}/l.db", origins={})
    with Workspace(settings, create=True) as opened:
        yield opened


def read(workspace: Workspace, records: list[Record], truths: dict[str, TaskTruth] | None = None) -> Attempt:
    workspace.store.write(records)
    stored = workspace.store.get(Episode, next(each.episode_id for each in records if isinstance(each, Episode)))
    return attempt_of(workspace, stored, truths)


def test_a_run_of_two_agents_with_tools(workspace: Workspace) -> None:
    call = {"type": "tool_call", "id": "c1", "name": "add", "arguments": {"a": 1}}
    asked = [said("system", "Be brief."), said("user", "What is 1 + 2?")]
    wants = {"role": "assistant", "parts": [call]}
    reply = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "3"}]}
    found = read(
        workspace,
        [
            episode("e", task_id="sum", metadata={"split": "train"}),
            Task(task_id="sum", created_at=T0, metadata={"task_type": "math", "expected": 3, "level": 2}),
            span("e", 0, "invoke_agent", "solver"),
            span("e", 1, "chat", "m", 0, attributes={
                "input": asked, "output": [wants], "usage": {"input_tokens": 10, "output_tokens": 2}}),
            span("e", 2, "execute_tool", "add", 0, attributes={"input": {"a": 1}, "output": "3", "call_id": "c1"}),
            span("e", 3, "invoke_agent", "writer", 0),
            span("e", 4, "chat", "m", 3, attributes={
                "input": [*asked, wants, reply], "output": [said("assistant", "It is 3.")],
                "usage": {"input_tokens": 15, "output_tokens": 4}}),
        ],
    )  # fmt: skip
    assert (found.task_type, found.expected, found.prompt, found.output) == (
        TaskType.MATH,
        3,
        "What is 1 + 2?",
        "It is 3.",
    )
    assert found.agents == ["solver", "writer"]
    assert [(step.agent_id, [each.name for each in step.tool_calls]) for step in found.steps] == [
        ("solver", ["add"]),
        ("writer", []),
    ]
    assert found.tool_calls[0].result == "3"
    assert (found.num_input_tokens, found.num_output_tokens, found.num_model_calls) == (25, 6, 2)
    assert (found.duration_seconds, found.completed, found.error) == (10.0, True, None)
    assert found.metadata == {"level": 2, "split": "train"}


def test_what_is_not_known_is_none(workspace: Workspace) -> None:
    found = read(workspace, [episode("e", status=EpisodeStatus.RUNNING, terminated=False, ended_at=None)])
    assert (found.task_type, found.expected, found.prompt, found.output) == (None, None, None, None)
    assert (found.num_input_tokens, found.num_output_tokens, found.duration_seconds) == (None, None, None)
    assert (found.completed, found.steps, found.documents, found.agents) == (None, [], [], ["solver"])


def test_tokens_of_which_a_part_is_missing_are_not_known(workspace: Workspace) -> None:
    run = answered("e", "q", "a")
    more = {"input": [said("user", "again")], "usage": {"input_tokens": 3, "output_tokens": 1}}
    found = read(workspace, [*run, span("e", 2, "chat", "m", 0, attributes=more)])
    assert (found.num_model_calls, found.num_input_tokens) == (2, None)


@pytest.mark.parametrize(
    ("fields", "completed"),
    [
        ({}, True),
        ({"status": EpisodeStatus.FAILED, "terminated": False, "error": "it broke"}, False),
        ({"terminated": False, "truncated": True}, False),
    ],
)
def test_whether_it_came_to_its_end(workspace: Workspace, fields: dict[str, object], completed: bool) -> None:
    assert read(workspace, [episode("e", **fields)]).completed is completed


def test_the_answer_is_the_last_text_of_a_model_that_did_not_fail(workspace: Workspace) -> None:
    run = answered("e", "q", "first")
    failed = span("e", 2, "chat", "m", 0, status=SpanStatus.ERROR, error="no", attributes={"input": "x"})
    assert read(workspace, [*run, failed]).output == "first"


def test_without_models_it_is_what_the_outermost_span_gave_back(workspace: Workspace) -> None:
    spans = [
        span("e", 0, "custom", "main", attributes={"output": {"sum": 3}}),
        span("e", 1, "execute_tool", "add", 0, attributes={"output": "3"}),
    ]
    found = read(workspace, [episode("e"), *spans])
    assert found.output == '{"sum":3}'
    assert [each.name for each in found.tool_calls] == ["add"]


def test_what_loop_records_of_a_function_is_the_answer(tmp_path: Path) -> None:
    """An episode of ``Loop`` has a span of its own around all others, which has no output."""
    with Loop("solver", home=tmp_path / "home") as loop:

        @loop.agent
        def solve(question: str) -> str:
            return look_up(question)

        @loop.tool
        def look_up(question: str) -> str:
            return "Paris"

        with loop.episode(task="capital"):
            solve("Capital of France?")
    with Workspace(find_settings(tmp_path / "home")) as opened:
        (stored,) = opened.store.select(Episode)
        assert attempt_of(opened, stored).output == "Paris"


def test_documents_come_from_retrieval_unless_the_task_names_them(workspace: Workspace) -> None:
    retrieval = span("e", 2, "retrieval", "index", 0, attributes={"output": ["Paris is in France.", {"id": 2}]})
    found = read(workspace, [*answered("e", "q", "a", "t"), retrieval])
    assert found.documents == ["Paris is in France.", '{"id":2}']
    truth = TaskTruth(task_id="t", documents=["Rome is in Italy."])
    stored = workspace.store.get(Episode, "e")
    assert attempt_of(workspace, stored, {"t": truth}).documents == ["Rome is in Italy."]


def test_a_truth_given_beside_the_store_wins(workspace: Workspace) -> None:
    task = Task(task_id="t", created_at=T0, metadata={"task_type": "qa", "expected": "old", "level": 1})
    run = answered("e", "q", "a", "t")
    truth = TaskTruth(task_id="t", expected="new", metadata={"level": 2})
    found = read(workspace, [task, *run], {"t": truth})
    assert (found.task_type, found.expected, found.metadata["level"]) == (TaskType.QA, "new", 2)


def test_an_unknown_type_is_named(workspace: Workspace) -> None:
    with pytest.raises(FormatError, match=r"'poetry'.*'math'"):
        read(workspace, [episode("e", metadata={"task_type": "poetry"})])


def test_a_loop_of_parents_has_the_agent_of_the_episode(workspace: Workspace) -> None:
    spans = [span("e", 0, "custom", "a", 1), span("e", 1, "chat", "m", 0, attributes={"output": "x"})]
    assert [step.agent_id for step in read(workspace, [episode("e"), *spans]).steps] == ["solver"]


def test_calls_of_a_model_whose_name_is_not_recorded_are_calls(workspace: Workspace) -> None:
    call = {"input": [said("user", "q")], "output": "a", "usage": {"input_tokens": 3, "output_tokens": 1}}
    found = read(workspace, [episode("e"), span("e", 0, "chat", "", attributes=call)])
    assert (found.num_model_calls, found.num_input_tokens, found.num_output_tokens) == (1, 3, 1)
    workspace.store.write([episode("tools"), span("tools", 0, "execute_tool", "add"), episode("none")])
    counts = [attempt_of(workspace, workspace.store.get(Episode, name)).num_model_calls for name in ("tools", "none")]
    assert counts == [0, None]


def test_a_run_cannot_change_what_its_task_asks_for(workspace: Workspace) -> None:
    asked = {"format": {"max_chars": 10}, "milestones": ["search"]}
    task = Task(task_id="t", created_at=T0, metadata=asked)
    run = answered("e", "q", "a", "t", metadata={"format": {}, "milestones": ["add"], "split": "train"})
    assert read(workspace, [task, *run]).metadata == {**asked, "split": "train"}
    truth = TaskTruth(task_id="t", metadata={"milestones": ["book"]})
    found = attempt_of(workspace, workspace.store.get(Episode, "e"), {"t": truth})
    assert found.metadata == {"format": {"max_chars": 10}, "milestones": ["book"], "split": "train"}


def test_whoever_only_looks_is_not_stopped_by_an_unknown_type(workspace: Workspace) -> None:
    workspace.store.write(answered("e", "q", "a", metadata={"task_type": "poetry"}))
    found = attempt_of(workspace, workspace.store.get(Episode, "e"), is_graded=False)
    assert (found.task_type, found.output) == (None, "a")
