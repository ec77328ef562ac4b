"""``ws.episodes``: what agents did, listed, shown, counted, imported, exported, followed and removed."""

from __future__ import annotations

import base64
import builtins
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import msgspec

from learnloop.core.checks import check_range
from learnloop.core.clock import from_micros, now, to_micros
from learnloop.core.errors import UsageError
from learnloop.core.records import Decision, Episode, EpisodeStatus, Reward, Span
from learnloop.core.rewards import RewardState, state_of
from learnloop.loop.nouns.listing import MAX_PAGE, Noun, Page, columns
from learnloop.loop.traces.reading import resolve_episode
from learnloop.store.full_text import found_spans
from learnloop.store.queries.episodes import EpisodeQuery, FoundEpisode, newest_episodes
from learnloop.store.queries.waiting import waiting_episodes
from learnloop.traces.conversation.steps import Step, steps_of
from learnloop.traces.search import Snippet, catch_up, parse_query, snippet

if TYPE_CHECKING:
    from learnloop.loop.traces.exporting import Exported, ExportFormat
    from learnloop.loop.traces.importing import Imports
    from learnloop.loop.traces.stats import TraceStats
    from learnloop.loop.workspace.following import Happening
    from learnloop.traces.privacy.removal import Removal
    from learnloop.traces.privacy.rewriting import Rewriting


class EpisodeFilter(TypedDict, total=False):
    """Which episodes are meant; what is left out, or None, narrows nothing."""

    agent: str | None
    task: str | None
    status: str | None
    source: str | None
    """``loop``, or the format that they were imported from."""
    since: datetime | None
    """Those that started then or later."""
    until: datetime | None
    """Those that started before."""
    reward_below: float | None
    """Those whose reward is known and smaller."""
    reward_above: float | None
    """Those whose reward is known and larger."""
    search: str | None
    """Those with a span that holds all of these words, ``"phrases"`` and beginnings``*``; see traces/search.py."""


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


class EpisodeDetail(msgspec.Struct, frozen=True, kw_only=True):
    """An episode with all that was recorded in it."""

    episode: Episode
    spans: list[Span]
    decisions: list[Decision]
    rewards: list[Reward]


class Episodes(Noun):
    """The episodes of a workspace. Commands take the beginning of an id that no other has; ``find`` returns the id."""

    def list(self, *, limit: int = 50, after: str | None = None, **which: Unpack[EpisodeFilter]) -> Page[EpisodeRow]:
        """Returns episodes with what they were worth, those that started last first.

        Args:
            limit: the most to list, 1 to ``MAX_PAGE``.
            after: ``next_cursor`` of the page before.
            which: narrowed by these; see ``EpisodeFilter``.

        Raises:
            UsageError: the limit is out of range, or the cursor is not valid.
        """
        check_range("limit", limit, 1, MAX_PAGE)
        search = which.pop("search", None)
        terms = None if search is None else parse_query(search)
        if terms == []:  # no word was asked for, so none is found
            return Page([], _ROW, None)
        store = self._workspace.store
        if terms:
            catch_up(store)
        names = {"agent": "agent_id", "task": "task_id"}
        asked = EpisodeQuery(**{names.get(name, name): value for name, value in which.items()})  # type: ignore[arg-type]
        found = store.read(newest_episodes, asked, terms, None if after is None else _read_cursor(after), limit + 1)
        listed = found[:limit]
        spans = store.read(found_spans, [each.search_id for each in listed]) if terms else {}
        snippets = {number: snippet(span, terms) for number, span in spans.items()} if terms else {}
        unknown = [each.episode.episode_id for each in listed if each.reward is None]
        waiting = store.read(waiting_episodes, now(), unknown) if unknown else ()
        rows = [_row(each, waiting, snippets.get(each.search_id)) for each in listed]
        return Page(rows, _ROW, _cursor(rows[-1].episode) if len(found) > limit else None)

    def find(self, beginning: str) -> str:
        """Returns the id of the episode whose id is ``beginning``, or alone begins with it.

        Raises:
            NotFoundError: no id begins with it.
            UsageError: several do.
        """
        return resolve_episode(self._workspace, beginning)

    def show(self, episode_id: str) -> EpisodeDetail:
        """Returns an episode with its spans, its decisions, and the rewards of both.

        Raises:
            NotFoundError: there is no such episode.
        """
        where = {"episode_id": episode_id}
        store = self._workspace.store
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

    def steps(self, episode_id: str) -> builtins.list[Step]:
        """Returns the steps of an episode: what was said, tools and their results; see traces/conversation/steps.py.

        Raises:
            NotFoundError: there is no such episode.
        """
        self._workspace.store.get(Episode, episode_id)
        return steps_of(self._workspace.store.iterate(Span, where={"episode_id": episode_id}))

    def stats(self, *, agent: str | None = None) -> TraceStats:
        """Returns figures of all episodes, or of one agent's: steps, tools, tokens, rewards, groups, durations."""
        from learnloop.loop.traces.stats import trace_stats

        return trace_stats(self._workspace, agent=agent)

    def follow(self, *, agent: str | None = None, last: int = 0) -> Iterator[Happening]:
        """Yields what happens from now on, and before that the last events of the feed; it does not end by itself.

        Args:
            agent: only of this agent's episodes.
            last: how many of the events before now to begin with; of these, those of other kinds are not given.
        """
        from learnloop.loop.workspace.following import follow

        return follow(self._workspace, agent=agent, last=last)

    def import_(
        self,
        *paths: Path | str,
        agent: str = "imported",
        files: Sequence[tuple[Path, str]] | None = None,
        **how: Any,
    ) -> Imports:
        """Imports files of traces, and those in folders, and returns what was found; a second time adds nothing.

        Args:
            paths: of files, gzipped or not, and of folders.
            agent: whose runs, where a file does not say.
            files: what ``find_files`` found at the paths; None: they are looked at now.
            how: ``format_name``, ``source``, ``strict`` and ``progress`` of ``import_files``.

        Raises:
            NotFoundError: a path is not there, or a folder holds no file.
            FormatError: no file could be imported; the message says why.
        """
        from learnloop.loop.traces.importing import find_files, import_files

        found = find_files([Path(each) for each in paths]) if files is None else files
        return import_files(self._workspace, found, agent=agent, **how)

    def export(
        self, target: Path | str, export_format: ExportFormat = "learnloop", *, agent: str | None = None
    ) -> Exported:
        """Writes all, or one agent's part, to files, and returns how much that was; see ``export_as``.

        Args:
            target: a file or a folder, as the format asks; ``-``: standard output.
            export_format: ``learnloop``, ``atif`` or ``execution-trace``.
            agent: only this agent's.

        Raises:
            UsageError: the format needs a folder and ``target`` is not one.
            StoreError: a file cannot be written.
        """
        from learnloop.loop.traces.exporting import export_as

        return export_as(self._workspace, Path(target), export_format, agent=agent)

    def redact(
        self,
        *,
        episodes: Collection[str] | None = None,
        agent: str | None = None,
        patterns: Mapping[str, str] | None = None,
        dry_run: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> Rewriting:
        """Takes out of stored records what the settings' rules find now, and returns what was changed.

        Args:
            episodes: only these, by their ids or unique beginnings of them; None: all, and an empty list is none.
            agent: only this agent's episodes.
            patterns: regular expressions by name, besides those of the settings.
            dry_run: only look.
            progress: told of the number of records looked at.

        Raises:
            NotFoundError: there is no such episode.
            UsageError: a pattern cannot be used, or nothing is to be taken out.
        """
        from learnloop.traces.privacy.rewriting import redact_stored

        redactor = self._workspace.redactor(patterns)
        if redactor.is_off:
            raise UsageError(
                "redaction is switched off in learnloop.toml, so there is nothing to take out; give --pattern"
            )
        ids = None if episodes is None else [self.find(each) for each in episodes]
        chosen = None if ids is None and agent is None else EpisodeQuery(ids=ids, agent_id=agent)
        return redact_stored(self._workspace.store, redactor, chosen, dry_run=dry_run, progress=progress)

    def remove(self, *episodes: str, dry_run: bool = False, progress: Callable[[int], None] | None = None) -> Removal:
        """Removes episodes, running ones too, with all that belongs to them, and returns how many of each.

        Args:
            episodes: their ids, or beginnings of ids that only one has.
            dry_run: only count.
            progress: told of the number of episodes removed.

        Raises:
            NotFoundError: there is no such episode; nothing was removed.
        """
        from learnloop.traces.privacy.removal import count_removal, remove_episodes

        which = EpisodeQuery(ids=[self.find(each) for each in episodes])
        if dry_run:
            return count_removal(self._workspace.store, which)
        return remove_episodes(self._workspace.store, which, progress=progress)

    def remove_old(
        self,
        before: datetime | timedelta | None = None,
        *,
        agent: str | None = None,
        dry_run: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> Removal:
        """Removes episodes that ended before then, and what belongs to no episode and is older; returns how many.

        Running episodes stay.

        Args:
            before: a moment, or how long ago; None: the ``retention_days`` of the settings ago.
            agent: only this agent's; then what belongs to no episode stays.
            dry_run: only count.
            progress: told of the number of episodes removed.

        Raises:
            UsageError: the settings keep episodes for ever.
        """
        from learnloop.loop.traces.retention import expiry, remove_old

        if before is None:
            before = expiry(self._workspace)
        elif isinstance(before, timedelta):
            before = now() - before
        return remove_old(self._workspace, before, agent=agent, dry_run=dry_run, progress=progress)


_ROW = columns(
    "episode.episode_id", "episode.agent_id", "episode.task_id", "episode.status", "reward", "reward_state",
    "episode.started_at", "duration_seconds",
)  # fmt: skip


def _row(found: FoundEpisode, waiting: Collection[str], where: Snippet | None) -> EpisodeRow:
    """Returns an episode as it is listed; one without a reward is pending while it, or a decision in it, awaits one."""
    episode = found.episode
    awaited = episode.status is EpisodeStatus.RUNNING or episode.episode_id in waiting
    ended = None if episode.metadata.get("time_unknown") is True else episode.ended_at
    return EpisodeRow(
        episode=episode,
        reward=found.reward,
        reward_state=state_of(found.reward, is_awaited=awaited),
        duration_seconds=None if ended is None else (ended - episode.started_at).total_seconds(),
        snippet=where,
    )


def _cursor(episode: Episode) -> str:
    """Returns the text by which the page after ``episode`` is asked for."""
    return base64.urlsafe_b64encode(f"{to_micros(episode.started_at)} {episode.episode_id}".encode()).decode()


def _read_cursor(cursor: str) -> tuple[datetime, str]:
    try:
        micros, _, episode_id = base64.b64decode(cursor, altchars=b"-_", validate=True).decode().partition(" ")
        return from_micros(int(micros)), episode_id
    except (ValueError, OverflowError) as error:
        raise UsageError(f"{cursor!r} is not a valid cursor; give the one that the page before ended with") from error
