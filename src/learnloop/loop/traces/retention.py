"""Removes what is old, by a moment or by the settings."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from learnloop.core.clock import now
from learnloop.core.errors import UsageError
from learnloop.loop.workspace.core import WorkspaceCore
from learnloop.store.queries.episodes import EpisodeQuery
from learnloop.traces.privacy.removal import Removal, count_removal, remove_episodes

Progress = Callable[[int], None]


def remove_old(
    workspace: WorkspaceCore,
    before: datetime,
    *,
    agent: str | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Removal:
    """Removes episodes that ended before a moment, and what belongs to no episode and is older; returns how many.

    Running episodes stay.

    Args:
        workspace: whose.
        before: the moment.
        agent: only this agent's; then what belongs to no episode stays.
        dry_run: only count.
        progress: told of the number of episodes removed.
    """
    which = EpisodeQuery(agent_id=agent, ended_before=before)
    orphans_before = before if agent is None else None
    if dry_run:
        return count_removal(workspace.store, which, orphans_before)
    return remove_episodes(workspace.store, which, orphans_before=orphans_before, progress=progress)


def expiry(workspace: WorkspaceCore) -> datetime:
    """Returns the moment before which episodes are too old to be kept.

    Raises:
        UsageError: the settings keep them for ever.
    """
    days = workspace.settings.retention_days
    if days is None:
        raise UsageError("no retention_days is set, so nothing expires; set it in learnloop.toml, or say --older-than")
    return now() - timedelta(days=days)


def apply_retention(workspace: WorkspaceCore) -> Removal | None:
    """Removes what is older than the settings allow and returns how much; None where they keep everything.

    A server calls it every hour. Others may write meanwhile: a step holds the store for some hundredths of a second.
    """
    return None if workspace.settings.retention_days is None else remove_old(workspace, expiry(workspace))
