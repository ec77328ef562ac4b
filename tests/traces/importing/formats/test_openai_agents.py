"""learnloop.traces.importing.formats.openai_agents: the SDK's own exports, made by the SDK, become episodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from agents.tracing import agent_span, function_span, generation_span, guardrail_span, response_span, trace
from agents.tracing.processor_interface import TracingProcessor
from agents.tracing.provider import DefaultTraceProvider
from agents.tracing.setup import set_trace_provider

from learnloop.core.errors import FormatError
from learnloop.traces.conversation.messages import text_of
from tests.traces.formats.reading import check_damaged, check_wrong_values, imported, written


class Exports(TracingProcessor):
    """Keeps what the SDK would send."""

    def __init__(self) -> None:
        self.items: list[dict[str, Any]] = []

    def on_trace_start(self, trace: Any) -> None:
        self.items.append(trace.export())

    def on_span_end(self, span: Any) -> None:
        self.items.append(span.export())

    def on_trace_end(self, trace: Any) -> None: ...

    def on_span_start(self, span: Any) -> None: ...

    def shutdown(self) -> None: ...

    def force_flush(self) -> None: ...


@pytest.fixture
def exported() -> list[dict[str, Any]]:
    """Returns what the real SDK exports of one run."""
    exports = Exports()
    provider = DefaultTraceProvider()
    provider.set_processors([exports])
    set_trace_provider(provider)
    with trace("Tour", group_id="chat-1", metadata={"tier": "free"}), agent_span("guide", tools=["ls"]):
        asked = [{"role": "user", "content": "What is here?"}]
        call = {"id": "c1", "type": "function", "function": {"name": "ls", "arguments": "{}"}}
        answer = [{"role": "assistant", "content": None, "tool_calls": [call]}]
        usage = {"input_tokens": 9, "output_tokens": 4}
        with generation_span(asked, answer, "gpt-x", {"temperature": 0.5}, usage):
            pass
        with function_span("ls", "{}", "src") as span:
            span.set_error({"message": "denied", "data": None})
        with guardrail_span("polite", triggered=False), response_span():
            pass
    return exports.items


@pytest.mark.parametrize("name", ["t.jsonl", "t.json", "t.jsonl.gz"])
def test_a_trace(tmp_path: Path, exported: list[dict[str, Any]], name: str) -> None:
    got = imported(tmp_path, written(tmp_path / name, exported))
    episode = got.episode
    assert got.report.format == ("openai-agents" if "jsonl" in name else "openai-agents-json")
    assert (episode.metadata["workflow_name"], episode.metadata["group_id"]) == ("Tour", "chat-1")
    assert episode.metadata["metadata"] == {"tier": "free"}
    operations = sorted(span.operation for span in got.spans[episode.episode_id])
    assert operations == ["chat", "chat", "execute_tool", "guardrail", "invoke_agent"]
    first, second = got.steps()
    assert (first.model, [text_of(each) for each in first.messages]) == ("gpt-x", ["What is here?"])
    assert first.attributes["usage"] == {"input_tokens": 9, "output_tokens": 4}
    assert first.attributes["request"] == {"temperature": 0.5}
    assert [(each.name, each.result, each.error) for each in first.tool_calls] == [("ls", "src", "denied")]
    assert (second.messages, second.output) == ([], None)  # a response has no text in the export


def test_traces_in_one_file_do_not_mix(tmp_path: Path, exported: list[dict[str, Any]]) -> None:
    """F3.9."""
    other = [
        {**each, "id": each["id"] + "x", **({"trace_id": each["trace_id"] + "x"} if "trace_id" in each else {})}
        for each in exported
    ]
    mixed = [each for pair in zip(exported, other, strict=True) for each in pair]
    got = imported(tmp_path, written(tmp_path / "t.jsonl", mixed))
    assert [len(got.spans[each.episode_id]) for each in got.episodes] == [5, 5]


def test_a_span_without_its_trace_is_named(tmp_path: Path, exported: list[dict[str, Any]]) -> None:
    with pytest.raises(FormatError, match="trace_id"):
        imported(tmp_path, written(tmp_path / "t.jsonl", [{**exported[1], "trace_id": None}]))


def test_damage(tmp_path: Path, exported: list[dict[str, Any]]) -> None:
    check_damaged(written(tmp_path / "t.jsonl", exported), "openai-agents", 80)


def test_wrong_values(tmp_path: Path, exported: list[dict[str, Any]]) -> None:
    check_wrong_values(tmp_path / "t.jsonl", exported[:3], "openai-agents")
