"""Scores that come with traces, as rewards: evaluation events, annotations, evaluator spans, agent-lightning's rewards.

A score that is missing stays missing: its reward has no value and says why; a label is never turned into a number.
What is said of the root span is said of the episode as a whole; that is settled when the root is known.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from learnloop.core.clock import from_micros
from learnloop.core.records import MAX_REWARD, Reward
from learnloop.traces.conversation.messages import as_text, parsed
from learnloop.traces.otlp.aliases import EVALUATION_EVENT
from learnloop.traces.otlp.content import nested
from learnloop.traces.otlp.wire import WireEvent, WireSpan

SOURCE = "otlp"
UNRESOLVED = "response:"
"""What stands before the response id in ``span_id`` until the span of that response is known; where its trace is not
known either, ``episode_id`` says the same."""
_EVALUATE = frozenset({"evaluate", "evaluation"})
_SCORE_GROUPS = frozenset(
    (
        "annotation", "evaluation", "annotations", "evaluations", "trace_annotations", "trace_evaluations",
        "lightning_rewards",
    )
)  # fmt: skip
_MAX_REASON = 2_000
_MAX_NAME = 200


class TraceScore(NamedTuple):
    """A score as it was given."""

    name: str
    value: Any
    label: Any
    explanation: Any
    made_by: Any = None


def rewards_of(
    wire: WireSpan,
    operation: str,
    groups: Mapping[str, Mapping[str, Any]],
    events: list[WireEvent],
    output: Any,
    moment: datetime,
) -> list[Reward]:
    """Returns the rewards that a span carries: for itself, or, where it is a scorer's, for the span that it lies in.

    Args:
        wire: the span.
        operation: ours.
        groups: its attributes that are spread over several names.
        events: its events.
        output: what it gave back.
        moment: when it ended.
    """
    is_scorer = operation in _EVALUATE
    results = [each for each in events if each.name == EVALUATION_EVENT]
    if not (is_scorer or results or not _SCORE_GROUPS.isdisjoint(groups)):
        return []
    trace_id = wire.trace_id
    own = f"{trace_id}.{wire.span_id}"
    around = f"{trace_id}.{wire.parent_id}" if wire.parent_id else None
    target = around if is_scorer else own
    made = [_event_reward(each, trace_id, target, moment) for each in results]
    said = [(score, target) for score in annotation_scores(groups)]
    said += [(score, None) for score in annotation_scores(groups, "trace_")]
    linked = _linked_span(trace_id, groups.get("lightning_links", {})) or around
    said += [(score, linked) for score in lightning_scores(groups.get("lightning_rewards", {}))]
    if is_scorer and not made and not said:
        said = [(evaluator_score(wire.name, output), target)]
    made += [
        reward_of(score, trace_id=trace_id, span_id=place, moment=moment, key=own + str(number))
        for number, (score, place) in enumerate(said)
    ]
    return made


def evaluation_reward(
    attributes: Mapping[str, Any], trace_id: str | None, span_id: str | None, moment: datetime, key: str
) -> Reward:
    """Returns the reward of a ``gen_ai.evaluation.result``: of the span that it lies in, else of the response named."""
    response_id = attributes.get("gen_ai.response.id")
    if span_id is None and isinstance(response_id, str) and response_id:
        span_id = UNRESOLVED + response_id
        trace_id = trace_id or span_id
    return reward_of(evaluation_score(attributes), trace_id=trace_id, span_id=span_id, moment=moment, key=key)


def _event_reward(event: WireEvent, trace_id: str, span_id: str | None, moment: datetime) -> Reward:
    given = from_micros(event.time // 1000) if event.time else moment
    response_id = event.attributes.get("gen_ai.response.id")
    home = None if span_id is None and response_id else trace_id  # a scorer's own trace is not what it judged
    return evaluation_reward(event.attributes, home, span_id, given, str(event.time))


def _linked_span(trace_id: str, group: Mapping[str, Any]) -> str | None:
    """Returns the span that agent-lightning's ``agentlightning.link.N.{key_match,value_match}`` names; None: none."""
    for raw in nested(group):
        key, value = (raw.get("key_match"), raw.get("value_match")) if isinstance(raw, dict) else (None, None)
        if key == "span_id" and isinstance(value, str):
            return f"{trace_id}.{value.lower()}"
        if key == "gen_ai.response.id" and isinstance(value, str):
            return UNRESOLVED + value
    return None


def reward_of(score: TraceScore, *, trace_id: str | None, span_id: str | None, moment: datetime, key: str) -> Reward:
    """Returns a score as a reward of a span, of an episode (no span), or of a response whose span is not known yet.

    Args:
        score: what was given.
        trace_id: of the episode; None: only the response is named.
        span_id: our id of the span.
        moment: when it was given.
        key: what tells this score from others of the same span.
    """
    value, fault = _number(score.value)
    name = str(score.name)[:_MAX_NAME] or "score"
    parts = (trace_id or "", span_id or "", key, name, repr(value), str(score.label))
    return Reward(
        reward_id=hashlib.sha256("\x1f".join((SOURCE, *parts)).encode("utf-8", "replace")).hexdigest()[:32],
        episode_id=trace_id,
        span_id=span_id,
        name=name,
        value=value,
        source=SOURCE,
        reason=_reason(score, fault),
        created_at=moment,
    )


def evaluation_score(attributes: Mapping[str, Any]) -> TraceScore:
    """Returns the score of a ``gen_ai.evaluation.result`` event."""
    get = attributes.get
    return TraceScore(
        str(get("gen_ai.evaluation.name") or "score"),
        get("gen_ai.evaluation.score.value"),
        get("gen_ai.evaluation.score.label"),
        get("gen_ai.evaluation.explanation"),
    )


def annotation_scores(groups: Mapping[str, Mapping[str, Any]], scope: str = "") -> Iterator[TraceScore]:
    """Yields OpenInference's annotations and evaluations of a span; with ``scope`` ``trace_`` those of its trace."""
    for word in ("annotation", "evaluation"):
        found = nested(groups.get(f"{scope}{word}s", {}))
        for raw in found:
            inner = raw.get(word) if isinstance(raw, dict) else None
            if isinstance(inner, dict):
                yield _annotation(inner)
        single = groups.get(word, {}) if not scope else {}
        if "score" in single or "label" in single or "name" in single:
            yield _annotation(single)


def lightning_scores(group: Mapping[str, Any]) -> Iterator[TraceScore]:
    """Yields agent-lightning's ``agentlightning.reward.N.{name,value}``."""
    for raw in nested({path: value for path, value in group.items() if path[:1].isdigit()}):
        if isinstance(raw, dict) and ("value" in raw or "name" in raw):
            yield TraceScore(str(raw.get("name") or "reward"), raw.get("value"), None, None, "agentlightning")


def evaluator_score(name: str, output: Any) -> TraceScore:
    """Returns the score that an evaluator span's output says: a number, or an object with ``score``."""
    said = parsed(output)
    if isinstance(said, Mapping):
        value = said.get("score", said.get("value"))
        return TraceScore(str(said.get("name") or name), value, said.get("label"), said.get("explanation"))
    value, _ = _number(said)
    return TraceScore(name, value, None if value is not None or said is None else as_text(said), None)


def _annotation(raw: Mapping[str, Any]) -> TraceScore:
    get = raw.get
    return TraceScore(
        str(get("name") or "annotation"), get("score"), get("label"), get("explanation"), get("annotator_kind")
    )


def _number(value: Any) -> tuple[float | None, str | None]:
    """Returns a score as a number; where it is not one, why."""
    if value is None:
        return None, "no score was given"
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None, f"the score {str(value)[:100]!r} is no number"
    if not math.isfinite(number) or abs(number) > MAX_REWARD:
        return None, f"the score {str(value)[:100]} is no number that can be learned from"
    return number, None


def _reason(score: TraceScore, fault: str | None) -> str | None:
    said = {"label": score.label, "explanation": score.explanation, "by": score.made_by}
    parts = [fault] if fault else []
    parts += [f"{name}: {as_text(value)}" for name, value in said.items() if value not in (None, "")]
    return "; ".join(parts)[:_MAX_REASON] or None
