"""Writes what came in one transaction: each span once, parts joined, scores given to what they are for.

All of it is safe to repeat: a span that is there already changes nothing and a reward has the same id each time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import reduce

import msgspec

from learnloop.core.lifecycles import EPISODE_TRANSITIONS
from learnloop.core.records import Record, Reward, Span
from learnloop.store import Connection, insert_records
from learnloop.store.insert import reopen_episodes
from learnloop.store.queries.episodes import episode_states
from learnloop.store.queries.records import all_records, change_records, remove_records
from learnloop.store.queries.rewards import span_rewards
from learnloop.store.queries.spans import spans_of_responses
from learnloop.traces.conversation.steps import MODEL_OPERATIONS
from learnloop.traces.otlp.mapping import Mapped
from learnloop.traces.otlp.parts import is_root, join_spans
from learnloop.traces.otlp.scores import UNRESOLVED
from learnloop.traces.otlp.summary import TraceSummary, summary_of
from learnloop.traces.search import forget_words


class Written(msgspec.Struct, frozen=True):
    """What a batch changed."""

    added: list[Span]
    """Spans that were not there."""
    changed: list[Span]
    """Spans of which more is known now."""
    new_traces: dict[str, TraceSummary]
    """Traces of which nothing was there, with all of their spans."""


def write_mapped(
    connection: Connection,
    arrived: Iterable[Mapped],
    responses: Mapping[str, Span],
    default_agent: str,
    moment: datetime,
) -> Written:
    """Writes what arrived; an episode begins to run with its first span, and runs again where it had ended.

    Args:
        connection: a transaction that holds the store's write lock.
        arrived: what came.
        responses: of ``find_responses``.
        default_agent: whose the runs are that do not say it.
        moment: now.
    """
    parts: dict[str, list[Span]] = {}
    rewards: list[Reward] = []
    for each in arrived:
        if each.span is not None:
            parts.setdefault(each.span.span_id, []).append(each.span)
        rewards.extend(each.rewards)
    spans = {span_id: reduce(join_spans, each) for span_id, each in parts.items()}
    known = {span.span_id: span for span in all_records(connection, Span, {"span_id": list(spans)})}
    added = [span for span in spans.values() if span.span_id not in known]
    # Part by part: one that was joined with a span sent again would be taken for that span, which is there already.
    changed = [after for span in known.values() if (after := reduce(join_spans, parts[span.span_id], span)) != span]
    forget_words(connection, [span.span_id for span in changed])  # writing them queues them for their new words
    if changed:
        remove_records(connection, Span, {"span_id": [span.span_id for span in changed]})
    fresh = [*added, *changed]
    by_trace: dict[str, list[Span]] = {}
    for span in fresh:
        by_trace.setdefault(span.trace_id, []).append(span)
    states = episode_states(connection, by_trace)
    reopen_episodes(connection, [trace_id for trace_id, status in states.items() if not EPISODE_TRANSITIONS[status]])
    new_traces = {
        trace_id: summary_of(trace_id, of_trace, default_agent)
        for trace_id, of_trace in by_trace.items()
        if trace_id not in states
    }
    records: list[Record] = [summary.running(moment) for summary in new_traces.values()]
    insert_records(connection, [*records, *fresh, *_place_rewards(connection, rewards, spans, responses)])
    _settle_waiting(connection, fresh)
    return Written(added, changed, new_traces)


def _place_rewards(
    connection: Connection, rewards: Sequence[Reward], spans: Mapping[str, Span], responses: Mapping[str, Span]
) -> Iterator[Reward]:
    """Yields rewards with what they are for, as far as it is known: of a root span it is the whole episode."""
    targets = {reward.span_id for reward in rewards if reward.span_id is not None} - spans.keys()
    named = [target for target in targets if not target.startswith(UNRESOLVED)]
    homes = {reward.episode_id or "" for reward in rewards if (reward.span_id or "").startswith(UNRESOLVED)}
    of_traces = all_records(connection, Span, {"trace_id": homes}) if homes else []
    of_batch = spans.values() if homes else ()
    known = dict(responses) | {name: span for span in (*of_traces, *of_batch) if (name := response_name(span))}
    if named:
        known |= {span.span_id: span for span in all_records(connection, Span, {"span_id": named})}
    known |= spans
    for reward in rewards:
        span = None if reward.span_id is None else known.get(reward.span_id)
        if span is not None:
            yield msgspec.structs.replace(reward, episode_id=span.trace_id, span_id=_place(span))
        else:
            yield reward


def _place(span: Span) -> str | None:
    """Returns what a reward of ``span`` names: of the root it is one of the episode as a whole."""
    return None if is_root(span) else span.span_id


def response_name(span: Span) -> str | None:
    """Returns what rewards call a span of which they know the response id only; None: it has none."""
    response_id = span.attributes.get("response_id")
    return f"{UNRESOLVED}{response_id}" if isinstance(response_id, str) else None


def lone_responses(arrived: Iterable[Mapped]) -> set[str]:
    """Returns what rewards of no known trace name."""
    return {
        reward.span_id
        for each in arrived
        for reward in each.rewards
        if reward.span_id is not None and reward.span_id == reward.episode_id
    }


def find_responses(connection: Connection, names: Collection[str]) -> dict[str, Span]:
    """Returns the spans with these response ids, wherever they are, by ``response_name``.

    There is no index on it: this reads all calls of models. Only scores that come without a trace need it.
    """
    response_ids = [name.removeprefix(UNRESOLVED) for name in names]
    found: dict[str, Span] = {}
    for span in spans_of_responses(connection, MODEL_OPERATIONS, response_ids):
        found.setdefault(response_name(span) or "", span)
    return found


def _settle_waiting(connection: Connection, spans: Sequence[Span]) -> None:
    """Gives rewards that came before the spans that they are for to these spans."""
    by_name = {span.span_id: span for span in spans if is_root(span)}
    by_name |= {name: span for span in spans if (name := response_name(span)) is not None}
    if not by_name:
        return
    homes = {span.trace_id for span in spans} | by_name.keys()
    for reward_id, span_id in span_rewards(connection, homes):
        span = by_name.get(span_id)
        if span is not None:
            changes = {"episode_id": span.trace_id, "span_id": _place(span)}
            change_records(connection, Reward, {"reward_id": reward_id}, changes)
