"""learnloop.traces.importing.formats.otlp: JSON Lines, documents and protobuf give the same episodes."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from learnloop.core.clock import now
from learnloop.core.errors import FormatError
from learnloop.core.records import Episode, EpisodeStatus, Reward, Span
from learnloop.store import Store
from learnloop.traces.conversation.messages import message, text_part
from learnloop.traces.importing.exchange import import_file
from learnloop.traces.importing.files import format_of
from learnloop.traces.otlp.assembly import Assembler, AssemblyOptions
from learnloop.traces.otlp.decode import decode_traces
from learnloop.traces.otlp.mapping import map_spans
from tests.traces.formats.reading import (
    Imported,
    check_damaged,
    check_survives,
    check_wrong_values,
    imported,
    read_records,
)
from tests.traces.otlp import requests as otlp
from tests.traces.otlp.requests import Raw, event, log, ours, span, trace_id
from tests.traces.shared_traces import shared_trace
from tests.waiting import PATIENCE_SECONDS

CHAT = {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m", "gen_ai.response.id": "r1"}
SCORE = {"gen_ai.evaluation.name": "solved", "gen_ai.evaluation.score.value": 1.0}
AGENT = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "Finder", "learnloop.task_id": "t"}
SPANS = [
    span(
        1,
        2,
        1,
        attributes={
            **CHAT,
            "gen_ai.input.messages": '[{"role": "user", "parts": [{"type": "text", "content": "hi"}]}]',
        },
    ),
    span(1, 3, 1, attributes={"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "f"}),
    span(1, 1, attributes=AGENT),
    span(2, 1, status=(2, "no")),
    span(3, 2, 1),
]
LOGS = [
    log(1, 1, "gen_ai.evaluation.result", SCORE),
    log(
        None, None, "gen_ai.evaluation.result", {**SCORE, "gen_ai.evaluation.name": "kind", "gen_ai.response.id": "r1"}
    ),
    log(
        1,
        2,
        "gen_ai.client.inference.operation.details",
        {**CHAT, "gen_ai.output.messages": '[{"role": "assistant", "parts": [{"type": "text", "content": "hello"}]}]'},
    ),
]


def prefixed(*messages: bytes) -> bytes:
    return b"".join(len(each).to_bytes(4, "big") + each for each in messages)


def lines(*objects: Raw) -> bytes:
    return b"\n".join(json.dumps(each).encode() for each in objects) + b"\n"


FILES: dict[str, bytes] = {
    "lines.jsonl": lines(*(otlp.traces_object([each]) for each in SPANS), otlp.logs_object(LOGS)),
    "logs-first.jsonl.gz": gzip.compress(
        lines(otlp.logs_object(LOGS), {"resourceMetrics": []}, otlp.traces_object(SPANS))
    ),
    "one.otlp.json": json.dumps({**otlp.traces_object(SPANS), **otlp.logs_object(LOGS)}, indent=1).encode(),
    "prefixed.pb": prefixed(otlp.traces_pb(SPANS[:2]), otlp.logs_pb(LOGS), otlp.traces_pb(SPANS[2:])),
    "prefixed.pb.gz": gzip.compress(prefixed(otlp.logs_pb(LOGS), otlp.traces_pb(SPANS))),
}


def load(tmp_path: Path, *names: str) -> Imported:
    for name in names:
        (tmp_path / name).write_bytes(FILES[name])
    return imported(tmp_path, *(tmp_path / name for name in names))


@pytest.mark.parametrize("name", FILES)
def test_files_of_each_kind(tmp_path: Path, name: str) -> None:
    found = load(tmp_path, name)
    episodes = {each.episode_id: each for each in found.episodes}
    assert episodes.keys() == {trace_id(1), trace_id(2), trace_id(3)}
    first = episodes[trace_id(1)]
    assert (first.agent_id, first.task_id, first.source, first.terminated) == ("Finder", "t", "otlp", True)
    assert (episodes[trace_id(2)].status, episodes[trace_id(2)].error) == (EpisodeStatus.FAILED, "no")
    cut = episodes[trace_id(3)]
    assert (cut.truncated, cut.metadata) == (True, {"closed": "no root span is in the file"})
    given = found.rewards[trace_id(1)]
    assert {each: (given[each].span_id, given[each].value) for each in given} == {
        "solved": (None, 1.0),
        "kind": (ours(1, 2), 1.0),
    }
    (step,) = found.steps(first)
    assert step.messages == [message("user", text_part("hi"))]
    assert step.output == message("assistant", text_part("hello"))


def test_all_kinds_give_the_same_records_and_the_second_file_adds_nothing(tmp_path: Path) -> None:
    found = load(tmp_path, *FILES)
    assert [report.num_new > 0 for report in found.reports] == [True, False, False, False, False]
    assert [report.format for report in found.reports] == [
        "otlp",
        "otlp",
        "otlp-json",
        "otlp-protobuf",
        "otlp-protobuf",
    ]


def test_a_single_request_in_protobuf(tmp_path: Path) -> None:
    (tmp_path / "a.pb").write_bytes(otlp.traces_pb(SPANS))
    (tmp_path / "b.pb").write_bytes(otlp.logs_pb(LOGS[:1]))
    assert len(imported(tmp_path, tmp_path / "a.pb").episodes) == 3
    assert imported(tmp_path, tmp_path / "b.pb").rewards[trace_id(1)]["solved"].value == 1.0


def test_what_was_received_is_the_same_as_what_is_imported(tmp_path: Path, sqlite_url: str) -> None:
    (tmp_path / "a.pb").write_bytes(otlp.traces_pb(SPANS))
    with Store.open(sqlite_url) as store:
        with Assembler(store, AssemblyOptions(grace_seconds=60)) as assembler:
            mapped = map_spans(decode_traces(otlp.traces_pb(SPANS), "protobuf").spans, now())
            assembler.submit(mapped).result(PATIENCE_SECONDS)
        spans = list(store.iterate(Span))
        report = import_file(store, tmp_path / "a.pb", agent_id="agent")
        assert list(store.iterate(Span)) == spans
        assert report.num_new == 0
        assert {each.status for each in store.iterate(Episode)} == {EpisodeStatus.COMPLETED, EpisodeStatus.FAILED}


def test_a_span_that_is_rejected_leaves_the_others(tmp_path: Path) -> None:
    bad = {**span(1, 9), "trace_id": "ab"}
    (tmp_path / "a.jsonl").write_bytes(lines(otlp.traces_object([bad]), otlp.traces_object(SPANS)))
    found = imported(tmp_path, tmp_path / "a.jsonl")
    assert (len(found.episodes), found.report.num_bad_lines) == (3, 1)
    assert found.report.bad_lines[0].reason == "trace id 'ab' is not 32 hex digits"


def test_a_span_that_is_rejected_in_a_request_with_others_is_told(tmp_path: Path) -> None:
    bad = {**span(1, 9), "trace_id": "ab"}
    (tmp_path / "a.jsonl").write_bytes(lines(otlp.traces_object([bad, *SPANS])))
    found = imported(tmp_path, tmp_path / "a.jsonl")
    assert (len(found.episodes), found.report.num_bad_lines) == (3, 1)
    assert found.report.bad_lines[0].reason == "trace id 'ab' is not 32 hex digits"


@pytest.mark.parametrize("name", ["lines.jsonl", "one.otlp.json", "prefixed.pb"])
def test_damaged_files(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(FILES[name])
    check_damaged(path, format_of(path, None).name)


def test_wrong_values(tmp_path: Path) -> None:
    value = {**otlp.traces_object(SPANS[:2]), **otlp.logs_object(LOGS[:1])}
    check_wrong_values(tmp_path / "a.json", value, "otlp-json")


@pytest.mark.parametrize(
    "body",
    [
        b"\x0a\x7b\x22resourceSpans",
        b"\n\n\n{}",
        b"\x00\x00\x00\x05\x0a\x03abc",
        prefixed(otlp.traces_pb(SPANS))[:-5],
        b"\xff\xff\xff\xff\x0a",
    ],
)
def test_what_is_no_protobuf(tmp_path: Path, body: bytes) -> None:
    (tmp_path / "a.pb").write_bytes(body)
    assert not check_survives(tmp_path / "a.pb", "otlp-protobuf")
    with pytest.raises(FormatError):
        read_records(tmp_path / "a.pb", "otlp-protobuf")


@pytest.mark.parametrize(("name", "count"), [("otlp_genai", 5), ("otlp_openinference", 10)])
@pytest.mark.parametrize("suffix", ["otlp.json", "pb"])
def test_recorded_files(tmp_path: Path, name: str, count: int, suffix: str) -> None:
    found = imported(tmp_path, shared_trace(f"otlp/{name}.{suffix}"))
    assert (found.episode.agent_id, found.episode.terminated) == ("Weather agent", True)
    assert (len(found.spans[found.episode.episode_id]), len(found.steps())) == (count, 2)
    assert [call.name for step in found.steps() for call in step.tool_calls] == ["get_weather"]
    assert found.report.num_episodes_without_reward == 1


def test_an_event_of_the_root_is_of_the_episode(tmp_path: Path) -> None:
    scored = span(1, 1, attributes=AGENT, events=[event("gen_ai.evaluation.result", SCORE)])
    (tmp_path / "a.jsonl").write_bytes(lines(otlp.traces_object([scored])))
    found: dict[str, Reward] = imported(tmp_path, tmp_path / "a.jsonl").rewards[trace_id(1)]
    assert found["solved"].span_id is None
