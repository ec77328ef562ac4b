"""inspect_ai logs: one evaluation of a model, as JSON or as an archive (``.eval``).

Each sample and epoch is an episode. Calls that a scorer makes are no steps of it.

A sample's epochs, counted from 1, are the attempts at it, counted from 0. A score is a reward with the scorer's name;
one that holds several values is a reward for each (``scorer.name``). Values are read as inspect_ai's own
``value_to_float`` does: C is 1, P is 0.5, I and N (no answer) are 0, numbers and truth values as they are. Any other
text is no number: such a reward, and one that inspect left unscored (NaN), has the value None and says why. Where there
is no score, there is no reward: of a sample that broke or was cancelled, nothing is made up.

A sample that met a limit is truncated; one with an ``error`` is ``failed``.

Source: inspect_ai, ``log/_log.py``, ``event/`` and ``scorer/_metric.py``, logs of version 1 to 3.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

import msgspec

from learnloop.core.records import Record
from learnloop.traces.conversation.messages import as_text
from learnloop.traces.importing.building import EpisodeBuilder
from learnloop.traces.importing.formats.inspect.archive import entries, is_archive
from learnloop.traces.importing.formats.inspect.events import Events, model_usage
from learnloop.traces.importing.formats.inspect.messages import Attachments, Reader
from learnloop.traces.importing.reader import (
    Count,
    ItemReader,
    TraceFormat,
    convert,
    known_time,
    parse_time,
    required_list,
)
from learnloop.traces.json_values import find, known_list, known_object, known_text, present

_LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}
_WORDS = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
_KEPT = ("total_time", "working_time", "sandbox", "files", "turn_count")


class _Sample(msgspec.Struct):
    id: str | int
    epoch: Count
    input: Any = None
    target: Any = None
    choices: Any = None
    metadata: Any = None
    messages: list[Any] | None = None
    scores: dict[str, Any] | None = None
    score: Any = None
    events: list[Any] | None = None
    transcript: dict[str, Any] | None = None
    attachments: dict[str, Any] | None = None
    message_pool: Any = None
    events_data: dict[str, Any] | None = None
    model_usage: Any = None
    uuid: str | None = None
    started_at: str | None = None
    completed_at: str | None = None
    error: Any = None
    error_retries: list[Any] | None = None
    limit: Any = None
    invalidation: Any = None


class InspectReader(ItemReader):
    """Reads each sample into an episode."""

    format_name = "inspect"

    def read(self, item: Any) -> list[Record]:
        """Returns the episode of one sample, with a step for each call of the model."""
        log, raw = item
        raw = raw() if callable(raw) else raw
        sample = convert(raw, _Sample)
        evaluation = known_object(log.get("eval"))
        older = sample.transcript or {}
        events = sample.events or required_list("transcript.events", older.get("events"))
        attachments = Attachments(sample.attachments or older.get("content"))
        task_id = f"inspect:{evaluation.get('task')}:{sample.id}"
        builder = EpisodeBuilder(
            self,
            self._episode_id(evaluation, sample, raw),
            task_id=task_id,
            attempt=sample.epoch - 1 if sample.epoch else None,
            started_at=_began(sample, events),
            metadata=_metadata(log, evaluation, sample, raw),
        )
        _add_steps(builder, evaluation, sample, events, attachments)
        _add_scores(builder, sample, log)
        records = builder.finish(**_ending(sample))
        definition = {name: getattr(sample, name) for name in ("input", "target", "choices", "metadata")}
        return [*self.task_records(task_id, attachments.resolve(definition)), *records]

    def _episode_id(self, evaluation: Mapping[str, Any], sample: _Sample, raw: Any) -> str:
        """Returns an id that a run has in every file that holds it: in the same log as JSON and as an archive."""
        if sample.uuid:
            return self.ids.derive("episode", sample.uuid)
        run, task, created = (known_text(evaluation.get(name)) for name in ("run_id", "task_id", "created"))
        if run and task:
            return self.ids.derive("episode", "log", run, task, created or "", str(sample.id), str(sample.epoch))
        return self.unnamed_id(raw)


def _add_steps(
    builder: EpisodeBuilder,
    evaluation: Mapping[str, Any],
    sample: _Sample,
    events: list[Any],
    attachments: Attachments,
) -> None:
    """Adds the events, or, where a log was written without them, the conversation."""
    pool = (sample.events_data or {}).get("messages", sample.message_pool)
    reader = Reader(attachments, pool)
    added = Events(builder, reader, attachments)
    added.add(events)
    if not added.num_calls:
        said = [reader.read(raw)[1] for raw in sample.messages or []]
        builder.conversation(said, model=known_text(evaluation.get("model")) or "")


def _add_scores(builder: EpisodeBuilder, sample: _Sample, log: Mapping[str, Any]) -> None:
    scores = dict(sample.scores or {})
    if sample.score is not None:  # the oldest logs have one, without a name
        scores.setdefault(_only_scorer(log), sample.score)
    for name, score in scores.items():
        value = score.get("value") if isinstance(score, dict) else score
        if isinstance(value, dict):
            parts = {f"{name}.{key}": part for key, part in value.items()}
        elif isinstance(value, list):
            parts = {f"{name}.{place}": part for place, part in enumerate(value)}
        else:
            parts = {name: value}
        for part, each in parts.items():
            number, why = score_value(each)
            if sample.invalidation is not None:
                number, why = None, "the sample was declared invalid"
            builder.reward(part, number, reason=why or known_text(find(score, "explanation")))


def score_value(value: Any) -> tuple[float | None, str | None]:
    """Returns what a score is worth, and why it is None where it is.

    Source: inspect_ai, ``scorer/_metric.py``, ``value_to_float``; what that reads as 0 with a warning is None here.
    """
    if value is None:
        return None, "not scored"
    if isinstance(value, int | float):
        return float(value), None
    if isinstance(value, str):
        known = _LETTERS.get(value, _WORDS.get(value.lower()))
        known = _number(value) if known is None else known
        if known is not None:
            return known, None
    return None, f"the score {as_text(value)[:200]!r} is no number"


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _only_scorer(log: Mapping[str, Any]) -> str:
    first = next(iter(known_list(find(log, "results", "scores"))), None)
    return known_text(find(first, "name")) or "score"


def _ending(sample: _Sample) -> dict[str, Any]:
    """Returns how a sample ended."""
    fault = known_object(sample.error).get("message", sample.error)
    error = as_text(fault) or "unknown" if sample.error is not None else None
    return {
        "terminated": error is None,
        "truncated": sample.limit is not None,
        "error": error,
        "ended_at": None if sample.completed_at is None else parse_time(sample.completed_at),
    }


def _began(sample: _Sample, events: list[Any]) -> datetime | None:
    """Returns when a sample began: older logs say it by their first event."""
    return known_time(sample.started_at) or next((known_time(find(event, "timestamp")) for event in events[:1]), None)


def _metadata(log: Mapping[str, Any], evaluation: Mapping[str, Any], sample: _Sample, raw: Any) -> dict[str, Any]:
    status = known_text(log.get("status"))
    usage = {model: model_usage(known_object(each)) for model, each in known_object(sample.model_usage).items()}
    answers = present({name: find(score, "answer") for name, score in (sample.scores or {}).items()})
    return {
        "eval_task": known_text(evaluation.get("task")),
        "eval_status": status if status != "success" else None,
        **{name: known_text(evaluation.get(name)) for name in ("model", "run_id", "created")},
        "task_args": evaluation.get("task_args") or None,
        "task_version": evaluation.get("task_version"),
        "sample_id": sample.id,
        "model_usage": usage or None,
        "answers": answers or None,
        "limit": sample.limit,
        "traceback": known_text(find(sample.error, "traceback")),
        "error_retries": [find(each, "message") for each in sample.error_retries or []] or None,
        "invalidation": sample.invalidation,
        **{name: raw.get(name) for name in _KEPT},
    }


def _samples(value: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], Any]]:
    log = {name: part for name, part in value.items() if name not in ("samples", "reductions")}
    return ((log, sample) for sample in required_list("samples", value.get("samples")))


def _fits(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("eval"), dict)
        and {"status", "samples", "plan"} & value.keys() != set()
    )


INSPECT = TraceFormat(
    "inspect",
    "an object with eval, status and samples",
    _fits,
    InspectReader,
    shape="document",
    items=_samples,
)
INSPECT_EVAL = TraceFormat(
    "inspect-eval",
    "a zip archive with header.json or _journal/start.json, and samples",
    is_archive,
    InspectReader,
    shape="archive",
    items=entries,
)
