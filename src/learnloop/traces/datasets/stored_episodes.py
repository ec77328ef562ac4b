"""Reads logged episodes from a store page by page; what a tool was given and gave back is not read at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from learnloop.core.clock import now
from learnloop.core.records import Decision, Episode, Span
from learnloop.store import Store
from learnloop.store.queries.records import all_records
from learnloop.store.queries.rewards import rewards_naming
from learnloop.store.queries.spans import bare_spans
from learnloop.store.queries.waiting import waiting_decisions, waiting_episodes
from learnloop.traces.conversation.steps import TOOL_OPERATION
from learnloop.traces.datasets.logged_episodes import EpisodeGatherer, LoggedEpisode

_PAGE = 250
"""Episodes that are read at once."""


def stored_episodes(
    store: Store, log: EpisodeGatherer, agent_id: str | None, progress: Callable[[int], None] | None
) -> Iterator[LoggedEpisode | str]:
    """Yields each episode of the store, or why it is left out.

    Args:
        store: where they lie.
        log: what they are gathered with.
        agent_id: whose; None: all.
        progress: told of the number of episodes read.
    """
    told = progress or (lambda number: None)
    mine = {} if agent_id is None else {"agent_id": agent_id}
    for page in _pages(store, Episode, mine):
        ids = [episode.episode_id for episode in page]
        for episode in page:
            log.add_episode(episode)
        _add_spans(store, log, page)
        _add_decisions(store, log, store.read(all_records, Decision, {"episode_id": ids}), ids)
        log.awaited = store.read(waiting_episodes, now(), ids)
        yield from log.take_all()
        told(len(page))
    for lone in _pages(store, Decision, {**mine, "episode_id": None}):
        _add_decisions(store, log, lone, ())
        log.awaited = store.read(waiting_decisions, now(), [decision.decision_id for decision in lone])
        yield from log.take_all()
        told(len(lone))


def _pages(store: Store, kind: type[Any], where: dict[str, Any]) -> Iterator[list[Any]]:
    key = kind.__struct_fields__[0]
    after: str | None = None
    while page := store.select(kind, where=where, after=after, limit=_PAGE):
        yield page
        after = getattr(page[-1], key)


def _add_spans(store: Store, log: EpisodeGatherer, episodes: Sequence[Episode]) -> None:
    for span in store.read(bare_spans, [episode.episode_id for episode in episodes]):
        log.add_span(span)
    nameless = [episode.episode_id for episode in episodes if episode.task_id is None]
    # Their goal is what the run was given: the input of its root.
    for root in store.read(all_records, Span, {"episode_id": nameless, "parent_id": None}):
        if root.operation != TOOL_OPERATION:
            log.add_span(root)


def _add_decisions(
    store: Store, log: EpisodeGatherer, decisions: Sequence[Decision], episode_ids: Sequence[str]
) -> None:
    """Takes decisions, and the rewards of them and of episodes, in the order in which they came."""
    for decision in decisions:
        log.add_decision(decision)
    ids = [decision.decision_id for decision in decisions]
    for sequence, reward in store.read(rewards_naming, episode_ids, ids):
        log.add_reward(reward, sequence)
