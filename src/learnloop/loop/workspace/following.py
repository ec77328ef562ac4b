"""Follows what happens: episodes that start and end, and rewards, as they become durable."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

import msgspec

from learnloop.core.records import Decision, Episode, Event
from learnloop.loop.workspace.core import WorkspaceCore

KINDS = frozenset({"episode.started", "episode.ended", "episode.reopened", "episode.removed", "reward.recorded"})
_WAIT_SECONDS = 1.0
_PAGE = 200


class Happening(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened to an episode."""

    sequence: int
    kind: str
    at: datetime
    agent_id: str | None
    """None: a reward of something that is not stored."""
    episode_id: str | None
    task_id: str | None = None
    status: str | None = None
    name: str | None = None
    """Of a reward."""
    value: float | None = None
    """Of a reward; None: it could not be computed."""


def follow(workspace: WorkspaceCore, *, agent: str | None = None, last: int = 0) -> Iterator[Happening]:
    """Yields what happens from now on, and before that the last events of the feed; it does not end by itself.

    Args:
        workspace: whose.
        agent: only of this agent's episodes.
        last: how many of the events before now to begin with; of these, those of other kinds are not given.
    """
    store = workspace.store
    after = max(0, store.last_sequence(Event) - last)
    while True:
        events = store.events(after, _PAGE)
        for event in events:
            after = event.sequence
            if event.kind in KINDS:
                found = _happening(workspace, event)
                if agent is None or found.agent_id == agent:
                    yield found
        if not events:
            store.wait_for_events(after, _WAIT_SECONDS)


def _happening(workspace: WorkspaceCore, event: Event) -> Happening:
    said = {name: event.payload.get(name) for name in ("agent_id", "task_id", "status", "name", "value")}
    said["episode_id"] = event.subject
    if event.kind == "reward.recorded":
        ids = event.payload.get("episode_id"), event.payload.get("decision_id")
        said["agent_id"], said["episode_id"] = _target(workspace, *ids)
    return Happening(sequence=event.sequence, kind=event.kind, at=event.created_at, **said)


def _target(workspace: WorkspaceCore, episode_id: str | None, decision_id: str | None) -> tuple[str | None, str | None]:
    """Returns the agent and the episode that a reward is for, as far as they are stored."""
    if episode_id is not None:
        episode = workspace.store.find(Episode, episode_id)
        return None if episode is None else episode.agent_id, episode_id
    decision = None if decision_id is None else workspace.store.find(Decision, decision_id)
    return (None, None) if decision is None else (decision.agent_id, decision.episode_id)
