"""Scores that come with traces: what they are for, and that one which is missing stays missing."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from learnloop.core.records import Reward
from learnloop.traces.otlp.decode import decode_logs, decode_traces
from learnloop.traces.otlp.mapping import map_logs, map_spans
from tests.traces.otlp import requests as otlp
from tests.traces.otlp.requests import T0, Raw, event, log, ours, span, trace_id

RECEIVED = datetime(2026, 11, 28, 12, tzinfo=UTC)
RESULT = "gen_ai.evaluation.result"


def rewards(*spans: Raw) -> list[Reward]:
    found = map_spans(decode_traces(otlp.traces_pb(spans), "protobuf").spans, RECEIVED)
    return [reward for each in found for reward in each.rewards]


def one(attributes: Raw, **fields: Any) -> Reward:
    (found,) = rewards(span(1, 5, 4, attributes=attributes, **fields))
    return found


def logged(attributes: Raw, trace: int | None = 1, number: int | None = 5) -> Reward:
    body = otlp.logs_pb([log(trace, number, RESULT, attributes)])
    ((found,),) = [each.rewards for each in map_logs(decode_logs(body, "protobuf").logs, RECEIVED)]
    return found


SCORE = {
    "gen_ai.evaluation.name": "helpful",
    "gen_ai.evaluation.score.value": 0.0,
    "gen_ai.evaluation.score.label": "fail",
    "gen_ai.evaluation.explanation": "rude",
}


def test_an_evaluation_event_is_of_its_span() -> None:
    found = one({"gen_ai.operation.name": "chat"}, events=[event(RESULT, SCORE)])
    assert (found.episode_id, found.span_id, found.name, found.value) == (trace_id(1), ours(1, 5), "helpful", 0.0)
    assert (found.reason, found.source, found.weight) == ("label: fail; explanation: rude", "otlp", 1.0)


def test_an_evaluation_event_of_an_evaluator_is_of_what_it_lies_in() -> None:
    found = one({"openinference.span.kind": "EVALUATOR"}, events=[event(RESULT, SCORE)])
    assert found.span_id == ours(1, 4)


def test_an_evaluation_log_record() -> None:
    found = logged(SCORE)
    assert (found.episode_id, found.span_id, found.value) == (trace_id(1), ours(1, 5), 0.0)


def test_an_evaluation_that_names_a_response_only() -> None:
    attributes = {**SCORE, "gen_ai.response.id": "r1"}
    assert logged(attributes).span_id == ours(1, 5)
    found = logged(attributes, None, None)
    assert (found.episode_id, found.span_id) == ("response:r1", "response:r1")
    # A scorer with a trace of its own: that is not what it judged.
    (lone,) = rewards(
        span(9, 1, attributes={"openinference.span.kind": "EVALUATOR"}, events=[event(RESULT, attributes)])
    )
    assert lone.episode_id == "response:r1"


@pytest.mark.parametrize("wanted", [None, "nan", "high", 1e200, "inf", []])
def test_a_missing_score_is_never_zero(wanted: Any) -> None:
    """Agent Lightning issues 308 and 74: None became 0.0. A label is no number either."""
    attributes = {name: value for name, value in SCORE.items() if name != "gen_ai.evaluation.score.value"}
    if wanted is not None:
        attributes["gen_ai.evaluation.score.value"] = wanted
    found = one({}, events=[event(RESULT, attributes)])
    assert found.value is None
    assert found.reason is not None
    assert found.reason.startswith("no score was given" if wanted is None else "the score")
    assert "label: fail" in found.reason


@pytest.mark.parametrize(("given", "value"), [(1, 1.0), (True, 1.0), ("0.85", 0.85), (0, 0.0), (-2.5, -2.5)])
def test_scores_as_numbers(given: Any, value: float) -> None:
    found = one({}, events=[event(RESULT, {**SCORE, "gen_ai.evaluation.score.value": given})])
    assert found.value == value


def test_openinference_annotations_and_evaluations() -> None:
    attributes = {
        "openinference.span.kind": "LLM",
        "annotations.0.annotation.name": "clear",
        "annotations.0.annotation.score": 0.5,
        "annotations.0.annotation.annotator_kind": "HUMAN",
        "annotations.1.annotation.name": "kind",
        "annotations.1.annotation.label": "yes",
        "evaluations.0.evaluation.name": "true",
        "evaluations.0.evaluation.score": 1,
        "trace.evaluations.0.evaluation.name": "solved",
        "trace.evaluations.0.evaluation.score": 1,
        "annotation.name": "single",
        "annotation.score": 2,
    }
    found = {each.name: each for each in rewards(span(1, 5, 4, attributes=attributes))}
    assert {name: each.value for name, each in found.items()} == {
        "clear": 0.5,
        "kind": None,
        "true": 1.0,
        "solved": 1.0,
        "single": 2.0,
    }
    assert {each.span_id for name, each in found.items() if name != "solved"} == {ours(1, 5)}
    assert found["solved"].span_id is None
    assert found["clear"].reason == "by: HUMAN"


@pytest.mark.parametrize(
    ("output", "value", "name"),
    [
        ('{"score": 0.25, "label": "bad", "name": "style"}', 0.25, "style"),
        ("0.75", 0.75, "judge"),
        ('{"label": "good"}', None, "judge"),
        ("looks fine", None, "judge"),
        (None, None, "judge"),
    ],
)
def test_an_evaluator_span_says_its_score(output: str | None, value: float | None, name: str) -> None:
    attributes = {"openinference.span.kind": "EVALUATOR"} | ({} if output is None else {"output.value": output})
    found = one(attributes, name="judge")
    assert (found.value, found.name, found.span_id) == (value, name, ours(1, 4))


def test_an_evaluator_that_says_its_score_twice_says_it_once() -> None:
    attributes = {
        "openinference.span.kind": "EVALUATOR",
        "output.value": '{"score": 1}',
        "evaluation.name": "a",
        "evaluation.score": 1,
    }
    assert len(rewards(span(1, 5, 4, attributes=attributes))) == 1


def test_agent_lightning() -> None:
    attributes = {
        "agentlightning.reward.0.name": "total",
        "agentlightning.reward.0.value": 0.5,
        "agentlightning.reward.1.name": "speed",
        "agentlightning.reward.1.value": "0.25",
        "agentlightning.reward.2.name": "unknown",
    }
    found = rewards(span(1, 5, 4, name="agentlightning.annotation", attributes=attributes))
    assert [(each.name, each.value, each.span_id) for each in found] == [
        ("total", 0.5, ours(1, 4)),
        ("speed", 0.25, ours(1, 4)),
        ("unknown", None, ours(1, 4)),
    ]


@pytest.mark.parametrize(
    ("key", "value", "place"),
    [
        ("span_id", "00000000000000AA", ours(1, 0xAA)),
        ("gen_ai.response.id", "r1", "response:r1"),
        ("x", "y", ours(1, 4)),
    ],
)
def test_agent_lightning_says_which_step_a_reward_is_for(key: str, value: str, place: str) -> None:
    """Agent Lightning issue 392: which reward goes to which step."""
    attributes = {
        "agentlightning.reward.0.value": 1,
        "agentlightning.link.0.key_match": key,
        "agentlightning.link.0.value_match": value,
    }
    found = one(attributes)
    assert (found.name, found.span_id, found.episode_id) == ("reward", place, trace_id(1))


def test_the_same_score_has_the_same_id_and_others_have_others() -> None:
    events = [
        event(RESULT, SCORE),
        event(RESULT, SCORE, T0 + 1),
        event(RESULT, {**SCORE, "gen_ai.evaluation.name": "x"}),
    ]
    first = [each.reward_id for each in rewards(span(events=events))]
    assert first == [each.reward_id for each in rewards(span(events=events))]
    assert len(set(first)) == 3
    assert first[0] != rewards(span(2, events=events))[0].reward_id


def test_long_reasons_and_names_are_bounded() -> None:
    found = one(
        {},
        events=[
            event(RESULT, {**SCORE, "gen_ai.evaluation.name": "n" * 999, "gen_ai.evaluation.explanation": "e" * 9_999})
        ],
    )
    assert len(found.name) == 200
    assert found.reason is not None
    assert len(found.reason) == 2_000
