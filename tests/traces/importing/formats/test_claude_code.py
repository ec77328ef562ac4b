"""formats.claude_code: a session is an episode, a message a call, a sub-agent a conversation apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from learnloop.core.records import SpanStatus
from learnloop.traces.conversation.messages import text_of
from tests.traces.formats.reading import check_damaged, check_wrong_values, imported, written
from tests.traces.shared_traces import shared_trace

SESSION = "5a1f0000-0000-4000-8000-000000000001"


def entry(uuid: str, kind: str, content: Any, second: int, **more: Any) -> dict[str, Any]:
    message = {"role": kind, "content": content, **more.pop("message", {})}
    return {
        "type": kind,
        "uuid": uuid,
        "parentUuid": more.pop("parent", None),
        "isSidechain": False,
        "sessionId": SESSION,
        "cwd": "/repo",
        "gitBranch": "main",
        "version": "2.1.0",
        "timestamp": f"2026-01-01T10:00:{second:02}.000Z",
        "message": message,
        **more,
    }


def answer(uuid: str, number: int, content: list[Any], second: int, *, stop: str | None = None, **more: Any) -> Any:
    usage = {"input_tokens": 3, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 20, "output_tokens": 7}
    said = {"id": f"msg_0000000000{number:06}", "model": "claude-x", "stop_reason": stop, "usage": usage}
    return entry(uuid, "assistant", content, second, message=said, **more)


def use(call_id: str, name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def result(call_id: str, content: Any, **more: Any) -> list[dict[str, Any]]:
    return [{"type": "tool_result", "tool_use_id": call_id, "content": content, **more}]


def text(content: str) -> dict[str, Any]:
    return {"type": "text", "text": content}


LIST, GREP, TASK, READ = (f"toolu_{name}_0000000000" for name in ("list", "grep", "task", "read"))
OTHERS = [
    {"type": "summary", "summary": "A tour", "leafUuid": "a5"},
    {"type": "file-history-snapshot", "messageId": "m", "snapshot": {}},
    {"type": "queue-operation", "operation": "enqueue", "sessionId": SESSION, "timestamp": "2026-01-01T10:00:00Z"},
    {"type": "progress", "sessionId": SESSION, "data": {"type": "hook_progress"}},
    {"type": "made-up-tomorrow", "sessionId": SESSION, "timestamp": 5, "message": 7},
]
MAIN = [
    entry("u1", "user", "What is in this repository?", 1),
    # One message over three lines, with results of its tools between them, as parallel calls are written.
    answer("a1", 1, [{"type": "thinking", "thinking": "list, then search", "signature": "s"}], 2, parent="u1"),
    answer("a2", 1, [text("Let me look."), use(LIST, "LS", path=".")], 3, parent="a1"),
    entry("u2", "user", result(LIST, "src"), 4, parent="a2"),
    answer("a3", 1, [use(GREP, "Grep", pattern="x(")], 5, parent="a2", stop="tool_use"),
    entry("u3", "user", result(GREP, "bad pattern", is_error=True), 6, parent="a3"),
    answer("a4", 2, [use(TASK, "Task", prompt="Read it all", subagent_type="reader")], 7, parent="u3", stop="tool_use"),
    entry("u4", "user", result(TASK, [text("It has 3 files.")]), 20, parent="a4", toolUseResult={"agentId": "reader1"}),
    answer("a5", 3, [text("A library of 3 files.")], 21, parent="u4", stop="end_turn"),
]
AGENT = [
    entry("s1", "user", "Read it all", 8, isSidechain=True, agentId="reader1"),
    answer("s2", 4, [use(READ, "Read", file="a")], 9, parent="s1", isSidechain=True, agentId="reader1"),
    entry("s3", "user", result(READ, "1 2 3"), 10, parent="s2", isSidechain=True, agentId="reader1"),
    answer("s4", 5, [text("It has 3 files.")], 11, parent="s3", stop="end_turn", isSidechain=True, agentId="reader1"),
]
WHOLE = [*OTHERS, *MAIN[:7], *AGENT, *MAIN[7:]]


@pytest.mark.parametrize("format_name", [None, "claude-code"])
@pytest.mark.parametrize("name", ["s.jsonl", "s.jsonl.gz"])
def test_a_session(tmp_path: Path, name: str, format_name: str | None) -> None:
    got = imported(tmp_path, written(tmp_path / name, WHOLE), format_name=format_name)
    episode = got.episode
    assert (got.report.format, got.report.num_steps, got.report.num_bad_lines) == ("claude-code", 5, 0)
    assert got.report.num_episodes_with_outcome == 0  # a session that ended well has no reward
    assert (episode.terminated, episode.truncated, episode.error, episode.status) == (True, False, None, "completed")
    assert episode.metadata["session_id"] == SESSION
    assert {name: episode.metadata[name] for name in ("cwd", "git_branch", "version")} == {
        "cwd": "/repo",
        "git_branch": "main",
        "version": "2.1.0",
    }
    assert episode.metadata["titles"] == ["A tour"]
    assert episode.metadata["other_records"] == {
        "file-history-snapshot": 1,
        "queue-operation": 1,
        "progress": 1,
        "made-up-tomorrow": 1,
    }
    assert (episode.ended_at - episode.started_at).total_seconds() == 20


def test_an_answer_over_several_lines_is_one_call(tmp_path: Path) -> None:
    got = imported(tmp_path, written(tmp_path / "s.jsonl", WHOLE))
    first = got.steps()[0]
    assert [part["type"] for part in first.output["parts"]] == ["reasoning", "text", "tool_call", "tool_call"]
    assert first.attributes["usage"] == {
        "input_tokens": 123,  # 3 + 100 read from the cache + 20 written to it
        "output_tokens": 7,
        "cached_input_tokens": 100,
        "cache_write_input_tokens": 20,
    }
    assert [(call.name, call.result, call.error, call.duration_ms) for call in first.tool_calls] == [
        ("LS", "src", None, 1000),
        ("Grep", "bad pattern", "bad pattern", 1000),
    ]
    assert first.attributes["finish_reasons"] == ["tool_use"]
    assert first.attributes["response_id"] == "msg_0000000000000001"
    assert sum(step.attributes["usage"]["output_tokens"] for step in got.steps()) == 5 * 7


def test_steps_of_a_sub_agent_do_not_mix(tmp_path: Path) -> None:
    """F3.9: what two agents did at once is told apart, each with its own conversation."""
    got = imported(tmp_path, written(tmp_path / "s.jsonl", WHOLE))
    spans = {span.span_id: span for span in got.spans[got.episode.episode_id]}
    (agent,) = (span for span in spans.values() if span.operation == "invoke_agent" and span.parent_id)
    assert (agent.name, agent.attributes["input"], agent.attributes["output"]) == (
        "reader1",
        "Read it all",
        "It has 3 files.",
    )
    assert spans[agent.parent_id].name == "Task"
    steps = got.steps()
    of_agent = [step for step in steps if spans[step.span_id].parent_id == agent.span_id]
    heard = [[text_of(said) or said["role"] for said in step.messages] for step in of_agent]
    assert heard == [["Read it all"], ["tool"]]
    of_main = [step for step in steps if step not in of_agent]
    heard = [[text_of(said) or said["role"] for said in step.messages] for step in of_main]
    assert heard == [["What is in this repository?"], ["tool", "tool"], ["tool"]]


def test_a_sub_agent_without_an_id_is_found_by_its_prompt(tmp_path: Path) -> None:
    lines = [{name: value for name, value in each.items() if name != "agentId"} for each in AGENT]
    got = imported(tmp_path, written(tmp_path / "s.jsonl", [*MAIN[:7], *lines, *MAIN[7:]]))
    spans = {span.span_id: span for span in got.spans[got.episode.episode_id]}
    (agent,) = (span for span in spans.values() if span.operation == "invoke_agent" and span.parent_id)
    assert spans[agent.parent_id].attributes["call_id"] == TASK
    assert len([span for span in spans.values() if span.parent_id == agent.span_id]) == 3


def test_a_sub_agents_own_file_joins_its_session(tmp_path: Path) -> None:
    main, agent = written(tmp_path / "main.jsonl", MAIN), written(tmp_path / "agent-reader1.jsonl", AGENT)
    got = imported(tmp_path, main, agent)
    assert len(got.episodes) == 1
    assert len(got.steps()) == 5


def test_a_session_that_went_on_adds_only_what_is_new(tmp_path: Path) -> None:
    early, late = written(tmp_path / "early.jsonl", WHOLE[:-4]), written(tmp_path / "late.jsonl", WHOLE)
    got = imported(tmp_path, early, late)
    whole = imported(tmp_path, late)
    assert len(got.episodes) == 1
    assert [step.output for step in got.steps()] == [step.output for step in whole.steps()]
    assert got.reports[1].num_new > 0


def test_a_resumed_session_repeats_nothing(tmp_path: Path) -> None:
    """The head of the earlier session is in the file again, under the new session's id."""
    resumed = [
        *({**each, "sessionId": "other"} for each in MAIN),
        {**entry("u9", "user", "And now?", 30, parent="a5"), "sessionId": "other"},
        {**answer("a9", 9, [text("Nothing more.")], 31, parent="u9", stop="end_turn"), "sessionId": "other"},
    ]
    got = imported(tmp_path, written(tmp_path / "1.jsonl", MAIN), written(tmp_path / "2.jsonl", resumed))
    assert sorted(len(got.steps(each)) for each in got.episodes) == [1, 3]
    assert {each.metadata["session_id"] for each in got.episodes} == {SESSION, "other"}


def test_sessions_with_short_ids_are_kept_apart(tmp_path: Path) -> None:
    """Ids that are not unique, such as u1 and a1, name other records in another session."""
    plain = [entry("u1", "user", "hi", 1), entry("a1", "assistant", "ho", 2, parent="u1", message={"model": "m"})]
    other = [{**each, "sessionId": "other"} for each in plain]
    got = imported(tmp_path, written(tmp_path / "both.jsonl", [plain[0], other[0], plain[1], other[1]]))
    assert [len(got.steps(each)) for each in got.episodes] == [1, 1]


def test_records_that_come_again_count_once(tmp_path: Path) -> None:
    again = [*MAIN, *MAIN[:5], answer("a1-copy", 1, [text("Let me look.")], 40)]
    got = imported(tmp_path, written(tmp_path / "s.jsonl", again))
    assert len(got.steps()) == 3
    assert got.episode.metadata["other_records"]["repeated"] == 6


def test_going_back_begins_another_conversation(tmp_path: Path) -> None:
    lines = [
        entry("u1", "user", "Start", 1),
        answer("a1", 1, [text("Ready")], 2, parent="u1"),
        entry("u2", "user", "First try", 3, parent="a1"),
        answer("a2", 2, [text("One")], 4, parent="u2"),
        entry("u3", "user", "Second try", 5, parent="a1"),
        answer("a3", 3, [text("Two")], 6, parent="u3"),
        {**entry("c1", "system", "", 7), "subtype": "compact_boundary"},
        entry("u4", "user", "Summary so far", 8, isCompactSummary=True),
        answer("a4", 4, [text("Three")], 9, parent="u4", stop="end_turn"),
    ]
    got = imported(tmp_path, written(tmp_path / "s.jsonl", lines))
    steps = got.steps()
    assert [[text_of(each) for each in step.messages] for step in steps] == [
        ["Start"],
        ["First try"],
        ["Second try"],
        ["Summary so far"],
    ]
    assert steps[2].attributes["rewound_to"] == steps[0].span_id
    assert [step.attributes.get("input_offset") for step in steps] == [None, 2, None, None]
    assert got.episode.metadata["other_records"] == {"system.compact_boundary": 1}


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        ([], (True, False, None)),
        ([entry("x", "user", "[Request interrupted by user]", 30)], (False, True, None)),
        ([entry("x", "user", "more?", 30)], (False, False, None)),
        ([answer("x", 8, [text("cut")], 30, stop="max_tokens")], (False, True, None)),
        ([answer("x", 8, [use("t", "LS")], 30, stop="tool_use")], (False, False, None)),
        (
            [
                {
                    **entry("x", "assistant", [text("API Error: 529")], 30, message={"model": "<synthetic>"}),
                    "isApiErrorMessage": True,
                }
            ],
            (False, False, "API Error: 529"),
        ),
    ],
)
def test_how_a_session_ended(tmp_path: Path, last: list[Any], expected: tuple[bool, bool, str | None]) -> None:
    got = imported(tmp_path, written(tmp_path / "s.jsonl", [*MAIN, *last]))
    assert (got.episode.terminated, got.episode.truncated, got.episode.error) == expected
    assert got.episode.status == ("failed" if expected[2] else "completed")
    assert got.values() == {}


def test_an_api_error_is_a_call_that_failed(tmp_path: Path) -> None:
    failed = entry("x", "assistant", [text("API Error: 529")], 30, message={"model": "<synthetic>"})
    placeholder = entry("y", "assistant", [text("No response requested.")], 31, message={"model": "<synthetic>"})
    lines = [*MAIN, {**failed, "isApiErrorMessage": True}, placeholder, entry("z", "user", "again", 32)]
    got = imported(tmp_path, written(tmp_path / "s.jsonl", lines))
    last = got.steps()[-1]
    assert (last.error, last.output, last.model) == ("API Error: 529", None, "")
    failures = [span for span in got.spans[got.episode.episode_id] if span.status is SpanStatus.ERROR]
    assert {span.operation for span in failures} == {"chat", "execute_tool"}
    assert got.episode.metadata["other_records"]["synthetic"] == 1


def test_a_bad_record_is_named(tmp_path: Path) -> None:
    bad = [{"silly": 1}, entry("b1", "user", None, 30), {**entry("b2", "user", "x", 30), "message": "error"}]
    bad.append({**entry("b3", "user", "x", 30), "timestamp": "yesterday"})
    report = imported(tmp_path, written(tmp_path / "s.jsonl", [*MAIN, *bad])).report
    assert (report.num_steps, report.num_bad_lines) == (3, 4)
    reasons = [fault.reason for fault in report.bad_lines]
    assert ["type" in reasons[0], "content" in reasons[1], "message" in reasons[2], "yesterday" in reasons[3]] == [
        True
    ] * 4


def test_damage(tmp_path: Path) -> None:
    check_damaged(written(tmp_path / "s.jsonl", WHOLE), "claude-code", 60)


def test_wrong_values(tmp_path: Path) -> None:
    check_wrong_values(tmp_path / "s.jsonl", [MAIN[0], MAIN[2], MAIN[5], AGENT[1]], "claude-code")


def test_shared_sample(tmp_path: Path) -> None:
    got = imported(tmp_path, shared_trace("coding_cli/claude_code_sidechain.jsonl"))
    assert (len(got.episodes), len(got.steps()), got.report.num_episodes_with_outcome) == (1, 3, 0)
    assert got.report.num_bad_lines == 0
    usages = [step.attributes["usage"]["output_tokens"] for step in got.steps()]
    assert usages == [365, 183, 190]  # 183 stands on two lines of one message
    assert [[call.name for call in step.tool_calls] for step in got.steps()] == [["Task"], ["Grep"], []]
