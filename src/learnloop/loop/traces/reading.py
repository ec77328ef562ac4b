"""Reads episodes back: pages, details, files."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from sqlalchemy import Connection, Select, Text, cast, func, literal, select, tuple_

from learnloop.core.clock import from_micros, now, to_micros
from learnloop.core.errors import NotFoundError, UsageError, one_of
from learnloop.core.records import Decision, Episode, EpisodeStatus, Json, Reward, Span, SpanStatus
from learnloop.core.rewards import RewardState, state_of
from learnloop.loop.traces.exporting import export_as
from learnloop.loop.workspace.workspace import Workspace
from learnloop.store import schema
from learnloop.store.mapping import record_columns, to_record
from learnloop.store.queries.rewards import reward_of_episode
from learnloop.store.queries.waiting import waiting_episodes
from learnloop.store.words import Term, matches
from learnloop.traces.conversation.steps import MODEL_OPERATIONS, Step, steps_of
from learnloop.traces.search import Snippet, catch_up, parse_query, snippet

MAX_PAGE = 1_000
"""Episodes on one page."""
_LAST = "\U0010ffff"
"""Behind all other characters."""
_STATUSES = {status.value: status for status in SpanStatus}


class EpisodeRow(msgspec.Struct, frozen=True, kw_only=True):
    """An episode in a list."""

    episode: Episode
    reward: float | None
    """What it was worth by its own rewards, see ``core/rewards.py``; None: not known."""
    reward_state: RewardState
    """Whether that is known, may still come (``pending``) or is missing."""
    duration_seconds: float | None
    """None while it runs, and where its times are not known."""
    snippet: Snippet | None = None
    """Where what was searched for was found first."""


class EpisodeFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Which episodes are meant; what is None narrows nothing."""

    source: str | None = None
    """``loop``, or the format that they were imported from."""
    since: datetime | None = None
    """Those that started then or later."""
    until: datetime | None = None
    """Those that started before."""
    reward_below: float | None = None
    """Those whose reward is known and smaller."""
    reward_above: float | None = None
    """Those whose reward is known and larger."""
    search: str | None = None
    """Those with a span that holds all of these words, ``"phrases"`` and beginnings``*``; see traces/search.py."""


class EpisodePage(msgspec.Struct, frozen=True, kw_only=True):
    """Some episodes, and where the next ones begin."""

    rows: list[EpisodeRow]
    next_cursor: str | None


class EpisodeDetail(msgspec.Struct, frozen=True, kw_only=True):
    """An episode with all that was recorded in it."""

    episode: Episode
    spans: list[Span]
    decisions: list[Decision]
    rewards: list[Reward]


class SpanOutline(msgspec.Struct, frozen=True):
    """A span without what was said in it; positional, since there may be many."""

    span_id: str
    parent_id: str | None
    operation: str
    name: str
    status: SpanStatus
    error: str | None
    started_at: datetime
    ended_at: datetime


AnySpan = TypeVar("AnySpan", Span, SpanOutline)


def list_episodes(
    workspace: Workspace,
    *,
    agent: str | None = None,
    task: str | None = None,
    status: str | None = None,
    narrowed: EpisodeFilter = EpisodeFilter(),  # noqa: B008 - immutable
    limit: int = 50,
    after: str | None = None,
) -> EpisodePage:
    """Returns a page of episodes, those that started last first, narrowed by what is not None.

    Args:
        workspace: whose episodes.
        agent: only this agent's.
        task: only tries at this task.
        status: only these.
        narrowed: by what else.
        limit: the most to return, 1 to ``MAX_PAGE``.
        after: the cursor of the page before.

    Raises:
        UsageError: the limit is out of range, or the cursor is none.
    """
    if not 0 < limit <= MAX_PAGE:
        raise UsageError(f"limit is {limit}; allowed are 1 to {MAX_PAGE:,}")
    terms = None if narrowed.search is None else parse_query(narrowed.search)
    if terms == []:  # no word was asked for, so none is found
        return EpisodePage(rows=[], next_cursor=None)
    if terms:
        catch_up(workspace.store)
    query = _episodes(narrowed, {"agent_id": agent, "task_id": task, "status": status})
    place = (schema.episodes.c.started_at, schema.episodes.c.episode_id)
    if after is not None:
        query = query.where(tuple_(*place) < _read_cursor(after))
    query = query.order_by(*(column.desc() for column in place)).limit(limit + 1)
    found = workspace.store.read(lambda connection: _found(connection, query, terms))
    rows = _with_snippets(workspace, found[:limit], terms) if terms else [_row(*each) for each in found[:limit]]
    rows = _with_waiting(workspace, rows)
    return EpisodePage(rows=rows, next_cursor=_cursor(rows[-1].episode) if len(found) > limit else None)


def resolve_episode(workspace: Workspace, text: str) -> str:
    """Returns the id of the episode whose id is ``text``, or alone begins with it.

    Raises:
        NotFoundError: no id begins with it.
        UsageError: several do.
    """
    column = schema.episodes.c.episode_id
    query = select(column).where(column >= text, column <= text + _LAST).order_by(column).limit(4)
    read = workspace.store.read
    found: list[str] = read(lambda connection: list(connection.execute(query).scalars())) if text else []
    if text in found or len(found) == 1:
        return found[0]
    if found:
        raise UsageError(f"the ids {one_of(found)} and maybe others begin with {text!r}; give more of it")
    raise NotFoundError(f"there is no Episode whose episode_id is {text!r} or begins with it")


def trace_skeleton(workspace: Workspace, episode_id: str) -> list[SpanOutline]:
    """Returns the spans of an episode without their attributes, in the order in which they started.

    Raises:
        NotFoundError: there is no such episode.
    """
    workspace.store.get(Episode, episode_id)
    table = schema.spans.c
    columns = [table[name] for name in SpanOutline.__struct_fields__]
    query = select(*columns).where(table.episode_id == episode_id).order_by(table.started_at, table.span_id)
    rows = workspace.store.read(lambda connection: connection.execute(query).all())
    return [
        SpanOutline(span_id, parent_id, operation, name, _STATUSES[status], error, started_at, ended_at)
        for span_id, parent_id, operation, name, status, error, started_at, ended_at in rows
    ]


def token_usage(workspace: Workspace, episode_id: str) -> dict[str, Json]:
    """Returns what is known of the tokens of an episode's calls of models, by the id of the span."""
    table = schema.spans.c
    of_models = table.operation.in_(MODEL_OPERATIONS)

    def read(connection: Connection) -> dict[str, Json]:
        query = select(table.span_id, usage_column(connection)).where(table.episode_id == episode_id, of_models)
        return {row[0]: usage for row in connection.execute(query) if (usage := read_usage(row[1]))}

    return workspace.store.read(read)


def usage_column(connection: Connection) -> Any:
    """Returns a column of what spans say of their tokens, for ``read_usage``: the rest of them is not read."""
    attributes = schema.spans.c.attributes
    if connection.dialect.name == "sqlite":
        return func.json_quote(func.json_extract(attributes, "$.usage"))
    return cast(func.jsonb_extract_path(attributes, "usage"), Text)


def read_usage(value: str | None) -> Json:
    """Returns the counts in a value of ``usage_column``; none where there are none."""
    usage = None if value is None else msgspec.json.decode(value)
    return usage if isinstance(usage, dict) else {}


def show_steps(workspace: Workspace, episode_id: str) -> list[Step]:
    """Returns the steps of an episode; see ``traces/conversation/steps.py``.

    Raises:
        NotFoundError: there is no such episode.
    """
    workspace.store.get(Episode, episode_id)
    return steps_of(workspace.store.iterate(Span, where={"episode_id": episode_id}))


def show_episode(workspace: Workspace, episode_id: str) -> EpisodeDetail:
    """Returns an episode with its spans, its decisions, and the rewards of both.

    Raises:
        NotFoundError: there is no such episode.
    """
    where = {"episode_id": episode_id}
    store = workspace.store
    episode = store.get(Episode, episode_id)
    decisions = list(store.iterate(Decision, where=where))
    rewards = {reward.reward_id: reward for reward in store.iterate(Reward, where=where)}
    own = [decision.decision_id for decision in decisions]
    rewards |= {reward.reward_id: reward for reward in store.iterate(Reward, where={"decision_id": own})}
    return EpisodeDetail(
        episode=episode,
        spans=list(store.iterate(Span, where=where)),
        decisions=decisions,
        rewards=sorted(rewards.values(), key=lambda reward: (reward.created_at, reward.reward_id)),
    )


def span_tree(spans: Sequence[AnySpan]) -> Iterator[tuple[int, AnySpan]]:
    """Yields spans below their parents, earlier ones first, each with its depth; one without its parent is a root."""
    known = {span.span_id for span in spans}
    children: dict[str | None, list[AnySpan]] = {}
    for span in sorted(spans, key=lambda span: (span.started_at, span.span_id)):
        children.setdefault(span.parent_id if span.parent_id in known else None, []).append(span)
    waiting = [(0, span) for span in reversed(children.get(None, []))]
    while waiting:
        depth, span = waiting.pop()
        yield depth, span
        waiting.extend((depth + 1, child) for child in reversed(children.get(span.span_id, [])))


def export_to(workspace: Workspace, file: Path, *, agent_id: str | None = None) -> int:
    """Writes the store's records to ``file`` (``-``: standard output), which appears whole or not at all.

    A link is followed; a pipe or a device is written to, never replaced.

    Raises:
        StoreError: the file cannot be written.
    """
    return export_as(workspace, file, "learnloop", agent=agent_id).number


def _episodes(narrowed: EpisodeFilter, where: Mapping[str, str | None]) -> Select[Any]:
    """Returns the query of the ids of the episodes that are meant."""
    columns = schema.episodes.c
    given = {**where, "source": narrowed.source}
    conditions = [columns[name] == value for name, value in given.items() if value is not None]
    if narrowed.since is not None:
        conditions.append(columns.started_at >= narrowed.since)
    if narrowed.until is not None:
        conditions.append(columns.started_at < narrowed.until)
    if narrowed.reward_below is not None:
        conditions.append(reward_of_episode(columns.episode_id) < narrowed.reward_below)
    if narrowed.reward_above is not None:
        conditions.append(reward_of_episode(columns.episode_id) > narrowed.reward_above)
    return select(columns.episode_id).where(*conditions)


def _found(
    connection: Connection, query: Select[Any], terms: Sequence[Term] | None
) -> list[tuple[Episode, float | None, int]]:
    """Returns each episode with its reward and the number of the span that was searched for, 0 where none was."""
    number: Any = literal(0)
    if terms:
        found, numbers = matches(connection.dialect.name, terms), schema.search_episodes.c
        number = found.c.search_id
        query = query.join(schema.search_episodes, numbers.episode_id == schema.episodes.c.episode_id)
        query = query.join(found, found.c.number == numbers.number)
    page = query.add_columns(number.label("search_id")).subquery("page")
    columns = schema.episodes.c
    reward = reward_of_episode(columns.episode_id)  # of the page alone
    whole = select(*record_columns(Episode), reward, page.c.search_id)
    whole = whole.join(page, page.c.episode_id == columns.episode_id)
    whole = whole.order_by(columns.started_at.desc(), columns.episode_id.desc())
    return [(to_record(Episode, row[:-2]), row[-2], row[-1]) for row in connection.execute(whole)]


def _with_snippets(
    workspace: Workspace, found: Sequence[tuple[Episode, float | None, int]], terms: Sequence[Term]
) -> list[EpisodeRow]:
    known, spans = schema.search_spans.c, schema.spans
    query = select(*record_columns(Span), known.search_id).join(schema.search_spans, known.span_id == spans.c.span_id)
    query = query.where(known.search_id.in_([each[2] for each in found]))
    rows = workspace.store.read(lambda connection: connection.execute(query).all())
    snippets = {row[-1]: snippet(to_record(Span, row[:-1]), terms) for row in rows}
    return [_row(episode, reward, number, snippets.get(number)) for episode, reward, number in found]


def _with_waiting(workspace: Workspace, rows: list[EpisodeRow]) -> list[EpisodeRow]:
    """Returns the rows, those without a reward as pending where one of their decisions still waits for it."""
    missing = [row.episode.episode_id for row in rows if row.reward_state is RewardState.MISSING]
    waiting = workspace.store.read(waiting_episodes, now(), missing)
    return [
        msgspec.structs.replace(row, reward_state=state_of(row.reward, is_awaited=True))
        if row.episode.episode_id in waiting
        else row
        for row in rows
    ]


def _cursor(episode: Episode) -> str:
    """Returns the text by which the page after ``episode`` is asked for."""
    return base64.urlsafe_b64encode(f"{to_micros(episode.started_at)} {episode.episode_id}".encode()).decode()


def _read_cursor(cursor: str) -> tuple[datetime, str]:
    try:
        micros, _, episode_id = base64.b64decode(cursor, altchars=b"-_", validate=True).decode().partition(" ")
        return from_micros(int(micros)), episode_id
    except (ValueError, OverflowError) as error:
        raise UsageError(f"{cursor!r} is no cursor; give the one that the page before ended with") from error


def _row(episode: Episode, reward: float | None, _: int, found: Snippet | None = None) -> EpisodeRow:
    ended = None if episode.metadata.get("time_unknown") is True else episode.ended_at
    return EpisodeRow(
        episode=episode,
        reward=reward,
        reward_state=state_of(reward, is_awaited=episode.status is EpisodeStatus.RUNNING),
        duration_seconds=None if ended is None else (ended - episode.started_at).total_seconds(),
        snippet=found,
    )
