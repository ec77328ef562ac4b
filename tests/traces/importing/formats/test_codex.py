"""formats.codex: a rollout is an episode, what is told twice counts once, totals are split."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from learnloop.traces.conversation.messages import text_of
from tests.traces.formats.reading import check_damaged, check_wrong_values, imported, written
from tests.traces.shared_traces import shared_trace

SESSION = "6b2f0000-0000-4000-8000-000000000002"


def line(second: int, kind: str, payload: Any) -> dict[str, Any]:
    return {"timestamp": f"2026-01-01T10:00:{second:02}.500Z", "type": kind, "payload": payload}


def item(second: int, kind: str, **payload: Any) -> dict[str, Any]:
    return line(second, "response_item", {"type": kind, **payload})


def said(second: int, role: str, content: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return item(second, "message", role=role, content=[{"type": kind, "text": content}])


def event(second: int, kind: str, **payload: Any) -> dict[str, Any]:
    return line(second, "event_msg", {"type": kind, **payload})


def tokens(second: int, *total: int, last: tuple[int, ...] | None = None) -> dict[str, Any]:
    names = ("input_tokens", "cached_input_tokens", "output_tokens", "reasoning_output_tokens")
    info = {"total_token_usage": dict(zip(names, total, strict=True))}
    if last is not None:
        info["last_token_usage"] = dict(zip(names, last, strict=True))
    return event(second, "token_count", info=info)


META = line(
    0,
    "session_meta",
    {
        "id": SESSION,
        "timestamp": "2026-01-01T10:00:00Z",
        "cwd": "/repo",
        "cli_version": "0.77.0",
        "model_provider": "openai",
        "instructions": "Be brief.",
        "git": {"branch": "main", "commit_hash": "abc"},
        "new_field": [1],
    },
)
TURN = line(1, "turn_context", {"model": "gpt-x", "effort": "high", "approval_policy": "never", "cwd": "/repo"})
ROLLOUT = [
    META,
    said(1, "user", "<environment_context>sh</environment_context>"),
    said(2, "user", "List and patch."),
    event(2, "user_message", message="List and patch."),
    TURN,
    event(3, "token_count", info=None),
    item(3, "reasoning", summary=[{"type": "summary_text", "text": "look first"}], encrypted_content="SECRET"),
    event(4, "agent_message", message="Looking."),
    said(4, "assistant", "Looking."),
    item(5, "function_call", name="shell", arguments='{"command": ["ls"]}', call_id="c1"),
    item(5, "local_shell_call", call_id="c2", status="completed", action={"type": "exec", "command": ["pwd"]}),
    event(6, "exec_command_end", call_id="c1", exit_code=2, stdout="a"),
    item(6, "function_call_output", call_id="c1", output="a.txt"),
    item(7, "local_shell_call_output", call_id="c2", output="/repo"),
    tokens(7, 1000, 600, 50, 20),
    tokens(7, 1000, 600, 50, 20),  # the same again, for the screen
    item(8, "custom_tool_call", name="apply_patch", input="*** Begin Patch", call_id="c3"),
    item(9, "custom_tool_call_output", call_id="c3", output={"content": "no such file", "success": False}),
    tokens(9, 2500, 1600, 90, 20),
    item(10, "web_search_call", id="w1", status="completed", action={"type": "search", "query": "patch"}),
    said(11, "assistant", "Could not patch."),
    item(12, "ghost_snapshot", ghost_commit={}),
    tokens(12, 4000, 2600, 120, 30),
    line(12, "made_up_tomorrow", {"safe": 1}),
    event(13, "task_complete", last_agent_message="Could not patch."),
]


@pytest.mark.parametrize("format_name", [None, "codex"])
@pytest.mark.parametrize("name", ["r.jsonl", "r.jsonl.gz"])
def test_a_rollout(tmp_path: Path, name: str, format_name: str | None) -> None:
    got = imported(tmp_path, written(tmp_path / name, ROLLOUT), format_name=format_name)
    episode = got.episode
    assert (got.report.format, got.report.num_steps, got.report.num_bad_lines) == ("codex", 3, 0)
    assert (episode.terminated, episode.truncated, episode.error, got.values()) == (True, False, None, {})
    assert (episode.metadata["session_id"], episode.metadata["cwd"]) == (SESSION, "/repo")
    assert episode.metadata["git"] == {"branch": "main", "commit_hash": "abc"}
    assert episode.metadata["other_records"] == {"item.ghost_snapshot": 1, "made_up_tomorrow": 1}
    assert "SECRET" not in str(got.spans)


def test_what_the_user_and_the_model_said_counts_once(tmp_path: Path) -> None:
    steps = imported(tmp_path, written(tmp_path / "r.jsonl", ROLLOUT)).steps()
    assert [(each["role"], text_of(each)) for each in steps[0].messages] == [
        ("system", "Be brief."),
        ("user", "<environment_context>sh</environment_context>"),
        ("user", "List and patch."),
    ]
    assert [part["type"] for part in steps[0].output["parts"]] == ["reasoning", "text", "tool_call", "tool_call"]
    assert [step.model for step in steps] == ["gpt-x"] * 3
    assert steps[0].attributes["request"] == {"reasoning_effort": "high"}


def test_tools(tmp_path: Path) -> None:
    got = imported(tmp_path, written(tmp_path / "r.jsonl", ROLLOUT))
    calls = [call for step in got.steps() for call in step.tool_calls]
    assert [(call.name, call.arguments, call.result, call.error, call.duration_ms) for call in calls] == [
        ("shell", {"command": ["ls"]}, "a.txt", None, 1000),
        ("local_shell", {"type": "exec", "command": ["pwd"]}, "/repo", None, 2000),
        ("apply_patch", "*** Begin Patch", "no such file", "no such file", 1000),
        ("web_search", {"type": "search", "query": "patch"}, None, None, None),
    ]
    codes = [span.attributes.get("exit_code") for span in got.spans[got.episode.episode_id] if span.name == "shell"]
    assert codes == [2]


def test_tools_without_ids_are_all_kept(tmp_path: Path) -> None:
    searches = [item(2, "web_search_call", action={"query": query}) for query in ("a", "b")]
    results = [item(3, "function_call_output", output=text) for text in ("x", "y")]
    got = imported(tmp_path, written(tmp_path / "r.jsonl", [META, *searches, *results, *searches, *results]))
    tools = [each.attributes for each in got.spans[got.episode.episode_id] if each.operation == "execute_tool"]
    assert sorted(each["input"]["query"] for each in tools if "input" in each) == ["a", "a", "b", "b"]
    assert sorted(each["output"] for each in tools if "output" in each) == ["x", "x", "y", "y"]


def test_blocks_of_any_type_are_text(tmp_path: Path) -> None:
    result = item(3, "function_call_output", output=[{"text": "a"}, {"type": "x", "text": "b"}])
    got = imported(tmp_path, written(tmp_path / "r.jsonl", [META, result]))
    tools = [each.attributes for each in got.spans[got.episode.episode_id] if each.operation == "execute_tool"]
    assert [each["output"] for each in tools] == ["a\nb"]


def test_tokens_are_differences_of_totals(tmp_path: Path) -> None:
    usages = [step.attributes["usage"] for step in imported(tmp_path, written(tmp_path / "r.jsonl", ROLLOUT)).steps()]
    names = ("input_tokens", "cached_input_tokens", "output_tokens", "reasoning_tokens")
    assert [[usage[name] for name in names] for usage in usages] == [
        [1000, 600, 50, 20],
        [1500, 1000, 40, 0],
        [1500, 1000, 30, 10],
    ]


def test_totals_that_began_before_the_file(tmp_path: Path) -> None:
    """A session that goes on has totals of what came before; the first count says what its own call took."""
    lines = [META, said(1, "user", "x"), said(2, "assistant", "y"), tokens(3, 9000, 0, 900, 0, last=(10, 0, 5, 0))]
    lines += [said(4, "user", "x"), said(5, "assistant", "z"), tokens(6, 7, 0, 3, 0, last=(7, 0, 3, 0))]  # begun anew
    steps = imported(tmp_path, written(tmp_path / "r.jsonl", lines)).steps()
    assert [step.attributes["usage"]["output_tokens"] for step in steps] == [5, 3]


def test_what_only_events_tell(tmp_path: Path) -> None:
    lines = [META, event(1, "user_message", message="Hi"), event(2, "agent_message", message="Ho")]
    (step,) = imported(tmp_path, written(tmp_path / "r.jsonl", lines)).steps()
    assert [text_of(each) for each in step.messages] == ["Be brief.", "Hi"]
    assert text_of(step.output) == "Ho"


def test_the_same_words_in_two_turns_are_two_messages(tmp_path: Path) -> None:
    lines = [META]
    for second in (1, 11):
        lines += [event(second, "user_message", message="go on"), said(second, "user", "go on")]
        lines += [said(second + 1, "assistant", "done")]
    steps = imported(tmp_path, written(tmp_path / "r.jsonl", lines)).steps()
    assert [[text_of(each) for each in step.messages][-1:] for step in steps] == [["go on"], ["go on"]]
    assert len(steps[1].messages) == 1


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        ([], (True, False, None)),
        ([event(20, "turn_aborted", reason="interrupted")], (False, True, None)),
        (
            [event(20, "turn_aborted", reason="x"), said(21, "user", "again"), said(22, "assistant", "ok")],
            (True, False, None),
        ),
        ([event(20, "error", message="usage limit")], (False, False, "usage limit")),
        ([item(20, "function_call", name="f", arguments="{}", call_id="c9")], (False, False, None)),
    ],
)
def test_how_a_session_ended(tmp_path: Path, last: list[Any], expected: tuple[bool, bool, str | None]) -> None:
    got = imported(tmp_path, written(tmp_path / "r.jsonl", [*ROLLOUT[:-1], *last]))
    assert (got.episode.terminated, got.episode.truncated, got.episode.error) == expected


def test_compaction_begins_another_conversation(tmp_path: Path) -> None:
    lines = [
        *ROLLOUT,
        line(20, "compacted", {"message": "so far"}),
        said(21, "user", "go on"),
        said(22, "assistant", "ok"),
    ]
    last = imported(tmp_path, written(tmp_path / "r.jsonl", lines)).steps()[-1]
    assert [text_of(each) for each in last.messages] == ["so far", "go on"]
    assert "input_offset" not in last.attributes


def test_older_rollouts_without_an_envelope(tmp_path: Path) -> None:
    lines = [
        {"id": SESSION, "timestamp": "2025-05-07T17:24:21Z", "instructions": "Be brief.", "git": {"branch": "main"}},
        {"record_type": "state"},
        *(each["payload"] for each in ROLLOUT if each["type"] == "response_item"),
    ]
    got = imported(tmp_path, written(tmp_path / "r.jsonl", lines))
    assert (got.report.format, got.episode.metadata["session_id"], len(got.steps())) == ("codex", SESSION, 3)
    assert got.episode.started_at.isoformat() == "2025-05-07T17:24:21+00:00"
    document = {"session": lines[0], "items": lines[2:]}
    whole = imported(tmp_path, written(tmp_path / "r.json", document))
    assert whole.report.format == "codex-json"
    assert [step.output for step in whole.steps()] == [step.output for step in got.steps()]


def test_a_rollout_without_its_head_is_known_by_its_name(tmp_path: Path) -> None:
    name = f"rollout-2026-01-01T10-00-00-{SESSION}.jsonl"
    whole = imported(tmp_path, written(tmp_path / name, ROLLOUT))
    headless = imported(tmp_path, written(tmp_path / name, ROLLOUT[1:]))
    assert headless.episode.episode_id == whole.episode.episode_id


def test_forks_and_files_put_together(tmp_path: Path) -> None:
    """A fork repeats the head of the session that it came from; another session is another episode."""
    fork = line(0, "session_meta", {"id": "fork", "forked_from_id": SESSION})
    other = line(30, "session_meta", {"id": "other"})
    lines = [fork, *ROLLOUT, other, said(31, "user", "Hi"), said(32, "assistant", "Ho")]
    got = imported(tmp_path, written(tmp_path / "r.jsonl", lines))
    assert [(each.metadata["session_id"], len(got.steps(each))) for each in got.episodes] in (
        [("fork", 3), ("other", 1)],
        [("other", 1), ("fork", 3)],
    )


def test_a_session_that_went_on_adds_only_what_is_new(tmp_path: Path) -> None:
    early, late = written(tmp_path / "1.jsonl", ROLLOUT[:16]), written(tmp_path / "2.jsonl", ROLLOUT)
    got = imported(tmp_path, early, late)
    assert len(got.episodes) == 1
    assert [step.output for step in got.steps()] == [step.output for step in imported(tmp_path, late).steps()]


def test_a_bad_line_is_named(tmp_path: Path) -> None:
    bad = [line(1, "response_item", "text"), item(1, "message", role=1, content=[]), {"x": 1}, item(1, "message")]
    report = imported(tmp_path, written(tmp_path / "r.jsonl", [*ROLLOUT, *bad])).report
    assert (report.num_steps, report.num_bad_lines) == (3, 4)
    reasons = [fault.reason for fault in report.bad_lines]
    assert ["payload" in reasons[0], "role" in reasons[1], "type" in reasons[2], "None" in reasons[3]] == [True] * 4


def test_damage(tmp_path: Path) -> None:
    check_damaged(written(tmp_path / "r.jsonl", ROLLOUT), "codex", 60)


def test_wrong_values(tmp_path: Path) -> None:
    check_wrong_values(tmp_path / "r.jsonl", [ROLLOUT[n] for n in (0, 4, 6, 8, 9, 11, 17, 22)], "codex")


def test_shared_sample(tmp_path: Path) -> None:
    got = imported(tmp_path, shared_trace("coding_cli/codex_rollout_fixture.jsonl"))
    assert (len(got.episodes), len(got.steps()), got.report.num_bad_lines) == (1, 4, 0)
    calls = [(call.name, call.result) for step in got.steps() for call in step.tool_calls]
    assert calls == [
        ("exec_command", "./alpha.txt\n./beta.txt"),
        ("apply_patch", "Done!"),
        ("mcp__synthetic__lookup", '{"status":"ok"}'),
    ]
    assert got.episode.metadata["other_records"] == {"future_synthetic_record": 1}
