"""A log of inspect_ai with one sample, as a document and as an archive."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

Json = dict[str, Any]
LONG = "Find the door. " * 10
USER = {"id": "m1", "role": "user", "content": "attachment://aa", "source": "input"}
ASKED = {
    "id": "m2",
    "role": "assistant",
    "content": [{"type": "reasoning", "reasoning": "Hm.", "signature": "s"}, {"type": "text", "text": "I knock."}],
    "tool_calls": [{"id": "c1", "function": "knock", "arguments": {"n": 1}, "type": "function"}],
    "model": "gpt-x-2026",
}
RESULT = {
    "id": "m3",
    "role": "tool",
    "content": "",
    "tool_call_id": "c1",
    "function": "knock",
    "error": {"type": "timeout", "message": "nobody came"},
}
SAID = {"id": "m4", "role": "assistant", "content": "Nobody.", "model": "gpt-x-2026"}


def at(second: float) -> str:
    return f"2026-01-01T10:00:{second:09.6f}+02:00"


def model_event(second: float, heard: list[Json], said: Json, **more: Any) -> Json:
    choice = {"message": said, "stop_reason": "stop"}
    usage = {"input_tokens": 100, "output_tokens": 5, "total_tokens": 145, "input_tokens_cache_read": 40}
    return {
        "event": "model",
        "timestamp": at(second),
        "completed": at(second + 1),
        "model": "openai/gpt-x",
        "input": heard,
        "tools": [{"name": "knock"}],
        "config": {"temperature": 0.5, "top_p": None},
        "output": {"model": "gpt-x-2026", "choices": [choice], "usage": usage},
        "call": {"request": {}, "response": {"id": "resp-1"}},
        **more,
    }


TOOL = {
    "event": "tool",
    "timestamp": at(2),
    "completed": at(2.5),
    "type": "function",
    "id": "c1",
    "function": "knock",
    "arguments": {"n": 1},
    "result": "",
    "error": {"type": "timeout", "message": "nobody came"},
}


def begin(key: str, parent: str | None, kind: str | None, name: str, second: float) -> Json:
    event = {"event": "span_begin", "id": key, "parent_id": parent, "type": kind, "name": name}
    return {**event, "span_id": key, "timestamp": at(second)}


def end(key: str, second: float) -> Json:
    return {"event": "span_end", "id": key, "span_id": key, "timestamp": at(second)}


EVENTS: list[Json] = [
    {"event": "sample_init", "timestamp": at(0), "sample": {}, "state": {}},
    begin("s1", None, "agent", "react", 0),
    model_event(0, [USER], ASKED, span_id="s1"),
    {**TOOL, "span_id": "s1"},
    {"event": "store", "timestamp": at(2.5), "span_id": "s1", "changes": []},
    model_event(3, [USER, ASKED, RESULT], SAID, span_id="s1"),
    end("s1", 4),
    begin("s2", None, "scorers", "scorers", 4),
    begin("s3", "s2", "scorer", "judge", 4),
    model_event(4, [{"id": "g1", "role": "user", "content": "Is it right?"}], {**SAID, "id": "g2"}, span_id="s3"),
    {"event": "score", "timestamp": at(5), "span_id": "s3", "score": {"value": "C"}, "intermediate": False},
    end("s3", 5),
    end("s2", 5),
]
SAMPLE: Json = {
    "id": 7,
    "epoch": 2,
    "input": LONG,
    "target": "door",
    "metadata": {"level": 1},
    "messages": [USER, ASKED, RESULT, SAID],
    "output": {"model": "gpt-x-2026", "choices": [{"message": SAID, "stop_reason": "stop"}]},
    "scores": {"judge": {"value": "C", "answer": "door", "explanation": "It is right."}},
    "events": EVENTS,
    "model_usage": {"openai/gpt-x": {"input_tokens": 100, "output_tokens": 5, "total_tokens": 105}},
    "attachments": {"aa": LONG},
    "uuid": "u-1",
    "started_at": at(0),
    "completed_at": at(6),
    "total_time": 6.0,
    "error_retries": [],
}
EVAL = {"task": "doors", "task_id": "t1", "run_id": "r1", "model": "openai/gpt-x", "created": at(0)}
LOG: Json = {
    "version": 2,
    "status": "success",
    "eval": EVAL,
    "plan": {"steps": []},
    "results": {"scores": [{"name": "judge"}]},
    "samples": [SAMPLE],
    "reductions": [],
}


def with_sample(**changes: Any) -> Json:
    sample = {name: value for name, value in {**SAMPLE, **changes}.items() if value is not ...}
    return {**LOG, "samples": [sample]}


def archive(path: Path, log: Json, *, method: int = zipfile.ZIP_DEFLATED, finished: bool = True) -> Path:
    """Writes a log as inspect_ai does: what it began with, its samples, and at its end the header."""
    header = {name: part for name, part in log.items() if name not in ("samples", "reductions")}
    with zipfile.ZipFile(path, "w", method) as packed:
        packed.writestr("_journal/start.json", json.dumps({name: log[name] for name in ("version", "eval", "plan")}))
        for sample in log["samples"]:
            packed.writestr(f"samples/{sample['id']}_epoch_{sample['epoch']}.json", json.dumps(sample))
        packed.writestr("_journal/summaries/1.json", "[]")
        if finished:
            packed.writestr("header.json", json.dumps(header))
    return path
