"""Episodes that a gateway left open: its process ended before they did."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta

import msgspec

from learnloop.core.clock import now
from learnloop.core.records import Episode, EpisodeStatus
from learnloop.loop.workspace.core import WorkspaceCore
from learnloop.store.queries.episodes import running_episodes

GATEWAY_SOURCE = "gateway"
"""The source of the episodes that a gateway records."""


def close_left_open(workspace: WorkspaceCore, idle_seconds: float, own: Collection[str] = ()) -> int:
    """Ends the running episodes of gateways in which nothing has happened for ``idle_seconds``; returns how many.

    They end as cut off: what their agents did afterwards is not known.

    Args:
        workspace: whose episodes.
        idle_seconds: how long a run may ask nothing.
        own: the episodes that a gateway of this process still looks after.
    """
    latest = now() - timedelta(seconds=idle_seconds)
    left = []
    for episode, ended_at in workspace.store.read(running_episodes, GATEWAY_SOURCE):
        if (ended_at or episode.started_at) < latest and episode.episode_id not in own:
            left.append(_cut_off(episode, ended_at or episode.started_at))
    workspace.store.write(left)
    return len(left)


def _cut_off(episode: Episode, ended_at: object) -> Episode:
    metadata = {**episode.metadata, "cut_off": "the gateway stopped before the run was known to have ended"}
    return msgspec.structs.replace(
        episode, status=EpisodeStatus.COMPLETED, truncated=True, ended_at=ended_at, metadata=metadata
    )
