"""Removes what is old, or what somebody names; takes secrets out of what is stored already."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta

from learnloop.core.clock import now
from learnloop.core.errors import UsageError
from learnloop.loop.traces.reading import resolve_episode
from learnloop.loop.workspace.core import WorkspaceCore
from learnloop.store.queries.episodes import EpisodeQuery
from learnloop.traces.privacy.removal import Removal, count_removal, remove_episodes
from learnloop.traces.privacy.rewriting import Rewriting, redact_stored

Progress = Callable[[int], None]


def remove_named(
    workspace: WorkspaceCore, episodes: Collection[str], *, dry_run: bool = False, progress: Progress | None = None
) -> Removal:
    """Removes episodes, running ones too, with all that belongs to them; returns how many of each.

    Args:
        workspace: whose.
        episodes: their ids, or beginnings of ids that only one has.
        dry_run: only count.
        progress: told of the number of episodes removed.

    Raises:
        NotFoundError: there is no such episode; nothing was removed.
    """
    which = EpisodeQuery(ids=[resolve_episode(workspace, each) for each in episodes])
    if dry_run:
        return count_removal(workspace.store, which)
    return remove_episodes(workspace.store, which, progress=progress)


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


def redact(
    workspace: WorkspaceCore,
    *,
    episodes: Collection[str] = (),
    agent: str | None = None,
    patterns: Mapping[str, str] | None = None,
    dry_run: bool = False,
    progress: Progress | None = None,
) -> Rewriting:
    """Takes out of stored records what the settings' rules find now, and returns what was changed.

    Args:
        workspace: whose.
        episodes: only these, by their ids or unique beginnings of them.
        agent: only this agent's episodes.
        patterns: regular expressions by name, besides those of the settings.
        dry_run: only look.
        progress: told of the number of records looked at.

    Raises:
        NotFoundError: there is no such episode.
        UsageError: a pattern cannot be used, or nothing is to be taken out.
    """
    redactor = workspace.redactor(patterns)
    if redactor.is_off:
        raise UsageError("redaction is switched off in learnloop.toml, so there is nothing to take out; give --pattern")
    which = EpisodeQuery(
        ids=[resolve_episode(workspace, each) for each in episodes] if episodes else None, agent_id=agent
    )
    chosen = None if which == EpisodeQuery() else which
    return redact_stored(workspace.store, redactor, chosen, dry_run=dry_run, progress=progress)
