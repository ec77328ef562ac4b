"""learnloop.traces.importing.formats.inspect.log: samples and epochs are episodes, scores rewards, events steps."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from learnloop.core.errors import FormatError
from learnloop.traces.conversation.messages import text_of
from learnloop.traces.importing.formats.inspect.events import model_usage
from learnloop.traces.importing.formats.inspect.log import score_value
from tests.traces.formats.inspect_samples import (
    ASKED,
    EVENTS,
    LOG,
    LONG,
    RESULT,
    SAID,
    SAMPLE,
    TOOL,
    USER,
    Json,
    archive,
    at,
    model_event,
    with_sample,
)
from tests.traces.formats.reading import (
    Imported,
    check_damaged,
    check_wrong_values,
    imported,
    written,
)
from tests.traces.shared_traces import shared_trace


def import_sample(tmp_path: Path, **changes: Any) -> Imported:
    return imported(tmp_path, written(tmp_path / "log.json", with_sample(**changes)))


# ------------------------------------------------------------------ episodes


@pytest.mark.parametrize("format_name", [None, "inspect"])
@pytest.mark.parametrize("name", ["log.json", "log.json.gz"])
def test_a_sample_is_an_episode(tmp_path: Path, name: str, format_name: str | None) -> None:
    got = imported(tmp_path, written(tmp_path / name, LOG), format_name=format_name)
    episode = got.episode
    assert (episode.task_id, episode.attempt, episode.source) == ("inspect:doors:7", 1, "inspect")
    assert (episode.status, episode.terminated, episode.truncated) == ("completed", True, False)
    assert episode.started_at == datetime(2026, 1, 1, 8, tzinfo=UTC)
    assert episode.ended_at == datetime(2026, 1, 1, 8, 0, 6, tzinfo=UTC)
    assert got.values() == {"judge": 1.0}
    assert got.rewards[episode.episode_id]["judge"].reason == "It is right."
    assert (episode.metadata["eval_task"], episode.metadata["model"]) == ("doors", "openai/gpt-x")
    assert got.tasks["inspect:doors:7"].metadata == {"input": LONG, "target": "door", "metadata": {"level": 1}}


def test_epochs_are_attempts_at_one_task(tmp_path: Path) -> None:
    second = {**SAMPLE, "epoch": 1, "uuid": "u-2", "scores": {"judge": {"value": "I"}}}
    got = imported(tmp_path, written(tmp_path / "log.json", {**LOG, "samples": [SAMPLE, second]}))
    assert [(each.attempt, got.values(each)) for each in got.episodes] == [(0, {"judge": 0.0}), (1, {"judge": 1.0})]
    assert got.report.groups is not None
    assert got.report.groups.num_mixed == 1


@pytest.mark.parametrize("uuid", ["u-1", ...])
def test_a_log_in_two_forms_is_one_run(tmp_path: Path, uuid: Any) -> None:
    log = with_sample(uuid=uuid)
    got = imported(tmp_path, written(tmp_path / "log.json", log), archive(tmp_path / "log.eval", log))
    assert [report.num_new for report in got.reports] == [sum(got.reports[0].num_records.values()), 0]
    assert len(got.episodes) == 1


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({"limit": {"type": "token", "limit": 100.0}}, ("completed", True)),
        ({"error": {"message": "boom", "traceback": "Traceback"}, "scores": None}, ("failed", False)),
        ({"error": "boom", "scores": ...}, ("failed", False)),
    ],
)
def test_a_sample_that_was_stopped_has_no_score_of_its_own(
    tmp_path: Path, changes: Json, state: tuple[str, bool]
) -> None:
    got = import_sample(tmp_path, **changes)
    assert (got.episode.status, got.episode.truncated) == state
    assert got.episode.error == ("boom" if state[0] == "failed" else None)
    assert got.values() == ({} if "scores" in changes else {"judge": 1.0})
    assert got.report.num_steps == 2


def test_a_cancelled_evaluation_says_so(tmp_path: Path) -> None:
    got = imported(tmp_path, written(tmp_path / "log.json", {**LOG, "status": "cancelled"}))
    assert got.episode.metadata["eval_status"] == "cancelled"
    assert got.values() == {"judge": 1.0}


def test_a_log_without_samples_has_no_episodes(tmp_path: Path) -> None:
    assert imported(tmp_path, written(tmp_path / "log.json", {**LOG, "samples": None})).episodes == []


# ------------------------------------------------------------------ scores


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ("C", 1.0),
        ("I", 0.0),
        ("P", 0.5),
        ("N", 0.0),
        (True, 1.0),
        (3, 3.0),
        (-0.5, -0.5),
        ("Yes", 1.0),
        ("false", 0.0),
        ("0.25", 0.25),
        ("inf", None),
        ("nan", None),
        ("excellent", None),
        ("c", None),
        (None, None),
    ],
)
def test_what_a_score_is_worth(value: Any, number: float | None) -> None:
    found, why = score_value(value)
    assert found == number
    assert (why is None) is (number is not None)


def test_a_score_of_several_values_is_several_rewards(tmp_path: Path) -> None:
    scores = {
        "parts": {"value": {"a": 1, "b": "C", "c": None}},
        "list": {"value": [0.5, True]},
        "text": {"value": "A+"},
    }
    got = import_sample(tmp_path, scores=scores)
    assert got.values() == {"parts.a": 1.0, "parts.b": 1.0, "parts.c": None, "list.0": 0.5, "list.1": 1.0, "text": None}
    rewards = got.rewards[got.episode.episode_id]
    assert (rewards["text"].reason, rewards["parts.c"].reason) == ("the score 'A+' is no number", "not scored")


def test_a_sample_that_was_declared_invalid_has_no_value(tmp_path: Path) -> None:
    got = import_sample(tmp_path, invalidation={"author": "ann", "reason": "leak"})
    assert got.values() == {"judge": None}
    assert got.episode.metadata["invalidation"]["reason"] == "leak"


def test_the_score_of_the_oldest_logs(tmp_path: Path) -> None:
    assert import_sample(tmp_path, scores=..., score={"value": "I"}).values() == {"judge": 0.0}


def test_a_score_that_is_not_a_number_is_unscored(tmp_path: Path) -> None:
    log = with_sample(scores={"judge": {"value": float("nan")}})
    got = imported(tmp_path, written(tmp_path / "log.json", log), archive(tmp_path / "log.eval", log))
    assert got.values() == {"judge": None}


# ------------------------------------------------------------------ steps


def test_calls_of_the_agent_are_steps(tmp_path: Path) -> None:
    first, second = import_sample(tmp_path).steps()
    assert [text_of(said) for said in first.messages] == [LONG]
    assert [said["role"] for said in second.messages] == ["tool"]
    assert first.output is not None
    assert [part["type"] for part in first.output["parts"]] == ["reasoning", "text", "tool_call"]
    assert first.output["parts"][0]["content"] == "Hm."
    assert [(call.name, call.arguments, call.error, call.duration_ms) for call in first.tool_calls] == [
        ("knock", {"n": 1}, "nobody came", 500.0)
    ]
    attributes = first.attributes
    assert attributes["usage"] == {"input_tokens": 140, "output_tokens": 5, "cached_input_tokens": 40}
    assert (attributes["provider"], attributes["response_model"]) == ("openai", "gpt-x-2026")
    assert (attributes["finish_reasons"], attributes["response_id"]) == (["stop"], "resp-1")
    assert (attributes["request"], attributes["tools"]) == ({"temperature": 0.5}, [{"name": "knock"}])
    assert "tools" not in second.attributes  # the same as before
    assert second.attributes["input_offset"] == 2
    assert (first.ended_at - first.started_at).total_seconds() == 1


def test_the_calls_of_a_scorer_are_no_steps(tmp_path: Path) -> None:
    got = import_sample(tmp_path)
    spans = got.spans[got.episode.episode_id]
    by_id = {span.span_id: span for span in spans}
    judged = [span for span in spans if span.operation == "evaluate" and span.name == "openai/gpt-x"]
    assert [by_id[str(span.parent_id)].name for span in judged] == ["judge"]
    assert [text_of(said) for said in judged[0].attributes["input"]] == ["Is it right?"]
    react = next(span for span in spans if span.name == "react")
    assert (react.operation, (react.ended_at - react.started_at).total_seconds()) == ("invoke_agent", 4)
    assert {by_id[str(span.parent_id)].name for span in spans if span.operation == "chat"} == {"react"}


def test_messages_in_a_pool(tmp_path: Path) -> None:
    events = [
        {**event, "input": [], "input_refs": refs} if refs else event
        for event, refs in zip(EVENTS, [None, None, [[0, 1]], None, None, [[0, 1], [1, 3]], *[None] * 7], strict=True)
    ]
    pool = [USER, ASKED, RESULT]
    for changes in ({"message_pool": pool}, {"events_data": {"messages": pool, "calls": []}}):
        first, second = import_sample(tmp_path, events=events, **changes).steps()
        assert [text_of(said) for said in first.messages] == [LONG]
        assert [said["role"] for said in second.messages] == ["tool"]
    with pytest.raises(FormatError, match=r"input_refs has \[0, 1\]; two places in a pool of 0"):
        import_sample(tmp_path, events=events)


def test_older_logs_have_steps_and_a_transcript(tmp_path: Path) -> None:
    step = {"event": "step", "timestamp": at(0), "type": "solver", "name": "generate"}
    judge = {**step, "type": "scorer", "name": "judge"}
    old = [
        {**step, "action": "begin"},
        model_event(0, [USER], SAID, completed=None, output={"choices": [{"message": SAID}]}),
        {**step, "action": "end", "timestamp": at(1)},
        {**judge, "action": "begin"},
        model_event(2, [], SAID),
        {**judge, "action": "end"},
        {**judge, "action": "end"},
    ]
    got = import_sample(
        tmp_path,
        events=...,
        attachments=...,
        uuid=...,
        started_at=...,
        completed_at=...,
        transcript={"events": old, "content": {"aa": LONG}},
    )
    assert [text_of(said) for said in got.steps()[0].messages] == [LONG]
    assert got.report.num_steps == 1
    assert got.episode.started_at == datetime(2026, 1, 1, 8, tzinfo=UTC)


def test_events_inside_a_tool_belong_to_it(tmp_path: Path) -> None:
    nested = [model_event(2, [USER], SAID, model="openai/inner")]
    events = [model_event(0, [USER], ASKED), {**TOOL, "events": nested}, model_event(4, [USER, ASKED, RESULT], SAID)]
    got = import_sample(tmp_path, events=events)
    spans = {span.name: span for span in got.spans[got.episode.episode_id]}
    assert spans["openai/inner"].parent_id == spans["knock"].span_id
    assert [step.model for step in got.steps()] == ["openai/gpt-x", "openai/inner", "openai/gpt-x"]


def test_a_call_that_failed_and_one_without_an_end(tmp_path: Path) -> None:
    events = [
        model_event(0, [USER], SAID, output={"choices": [], "error": "refused"}),
        model_event(2, [USER], SAID, output={"choices": []}, completed=None, pending=True),
    ]
    first, second = import_sample(tmp_path, events=events).steps()
    assert (first.error, first.output) == ("refused", None)
    assert (second.attributes["pending"], second.attributes["duration_unknown"]) == (True, True)


def test_without_events_the_conversation_is_read(tmp_path: Path) -> None:
    got = import_sample(tmp_path, events=...)
    first, second = got.steps()
    assert (first.model, [text_of(said) for said in first.messages]) == ("openai/gpt-x", [LONG])
    assert [call.error for call in first.tool_calls] == ["the tool reported an error"]
    span = next(span for span in got.spans[got.episode.episode_id] if span.span_id == second.span_id)
    assert [part["error"] for said in span.attributes["input"] for part in said["parts"]] == ["nobody came"]


def test_a_reference_that_leads_nowhere_stays(tmp_path: Path) -> None:
    got = import_sample(tmp_path, attachments={})
    assert text_of(got.steps()[0].messages[0]) == "attachment://aa"


def test_references_cannot_grow_without_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("learnloop.traces.importing.formats.inspect.messages._MAX_RESOLVED", 3 * len(LONG))
    many = [{**USER, "id": f"n{number}"} for number in range(10)]
    got = import_sample(tmp_path, events=[model_event(0, many, SAID)])
    texts = [text_of(said) for said in got.steps()[0].messages]
    assert texts == [LONG] * 3 + ["attachment://aa"] * 7


def test_tokens_read_from_a_cache_are_input() -> None:
    older = {"input_tokens": 100, "output_tokens": 5, "total_tokens": 105, "input_tokens_cache_read": 40}
    newer = {**older, "input_tokens": 60}
    expected = {"input_tokens": 100, "output_tokens": 5, "cached_input_tokens": 40}
    assert model_usage(older) == model_usage(newer) == expected
    assert model_usage({}) is None


# ------------------------------------------------------------------ damage


def test_wrong_values_are_refused_or_read(tmp_path: Path) -> None:
    check_wrong_values(tmp_path / "log.json", LOG, "inspect")


def test_damage_is_refused_or_read(tmp_path: Path) -> None:
    check_damaged(written(tmp_path / "log.json", LOG), "inspect")


# ------------------------------------------------------------------ real logs


@pytest.mark.parametrize(
    ("name", "num_episodes", "num_steps", "correct"),
    [("browser.json", 1, 5, 1), ("popularity_cancelled.json", 3, 3, 2), ("popularity_10.eval", 10, 10, 8)],
)
def test_the_shared_samples(tmp_path: Path, name: str, num_episodes: int, num_steps: int, correct: int) -> None:
    got = imported(tmp_path, shared_trace(f"inspect_ai/{name}"))
    assert (len(got.episodes), got.report.num_steps) == (num_episodes, num_steps)
    values = [value for each in got.episodes for value in got.values(each).values()]
    assert (len(values), sum(value == 1.0 for value in values)) == (num_episodes, correct)
    texts = [text_of(said) for each in got.episodes for step in got.steps(each) for said in step.messages]
    assert not any("attachment://" in text for text in texts)
    assert {each.attempt for each in got.episodes} == {0}


def test_the_shared_browser_run_has_its_tools(tmp_path: Path) -> None:
    path = shared_trace("inspect_ai/browser.json")
    got = imported(tmp_path, path)
    sample = json.loads(path.read_text())["samples"][0]
    events = [event for event in sample["events"] if event["event"] == "tool"]
    calls = [call for step in got.steps() for call in step.tool_calls]
    assert [(call.name, call.arguments, call.duration_ms) for call in calls] == [
        (event["function"], event["arguments"], pytest.approx(duration(event))) for event in events
    ]
    usage = [step.attributes["usage"] for step in got.steps()]
    total = sample["model_usage"]["openai/gpt-4o-mini"]
    assert sum(each["input_tokens"] for each in usage) == total["input_tokens"]
    assert sum(each["output_tokens"] for each in usage) == total["output_tokens"]


def duration(event: Json) -> float:
    began, ended = (datetime.fromisoformat(event[name]) for name in ("timestamp", "completed"))
    return (ended - began).total_seconds() * 1000
