"""``ws.rewards``: what runs were worth, who is credited with how much of it, and whether the scores can be trusted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import msgspec

from learnloop.core.records import Reward, RewardShare
from learnloop.core.rewards import RewardTarget
from learnloop.loop.nouns.listing import Listing, Noun, Page, columns, newest_page
from learnloop.loop.rewards.recording import record_rewards
from learnloop.rewards.sharing.ledger import AgentTotal, Finding, RewardLedger

if TYPE_CHECKING:
    from learnloop.loop.rewards.attempts import Truths
    from learnloop.loop.rewards.rewarding import RewardProcess, TaskCompletion
    from learnloop.loop.rewards.scoring import Component, EpisodeChoice, Regraded, ScoredEpisode, Tried
    from learnloop.rewards.judge.agreement import CalibrationReport

MAX_DISAGREEMENT = 0.02
"""Share of rewards that may differ when they are worked out again: where reward hacking was seen to set in."""


class Audit(msgspec.Struct, frozen=True, kw_only=True):
    """What came of looking through the rewards."""

    findings: list[Finding]
    """Shares that do not add up, and what else is wrong in the ledger."""
    num_regraded: int
    """Rewards that were worked out again."""
    different: list[Regraded]
    """Those of them that came out otherwise."""

    @property
    def ok(self) -> bool:
        """Whether the ledger is sound, and no more than ``MAX_DISAGREEMENT`` of what was worked out again differs."""
        return not self.findings and len(self.different) <= MAX_DISAGREEMENT * self.num_regraded


class ShareFilter(TypedDict, total=False):
    """Which lines of the ledger are meant; what is left out, or None, narrows nothing."""

    completion: str | None
    """Only those of this sharing."""
    episode: str | None
    """Only those of the run with this id."""
    task: str | None
    agent: str | None
    span: str | None
    step: int | None
    """Only those of steps with this number, from 0."""
    limit: int
    """The most to list."""
    after: str | None
    """``next_cursor`` of the page before."""


class Rewards(Noun):
    """The rewards of a workspace, and the ledger of who is credited with them."""

    def list(
        self,
        *,
        episode: str | None = None,
        decision: str | None = None,
        name: str | None = None,
        source: str | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> Page[Reward]:
        """Returns rewards part by part, what became durable last first; those that were replaced are in it too.

        Args:
            episode: only those of the episode with this id, of its spans and its decisions that are stored with it.
            decision: only those of the decision with this id.
            name: only parts that are called so.
            source: only those from there, such as ``label``.
            limit: the most to list.
            after: ``next_cursor`` of the page before.

        Raises:
            UsageError: the limit is out of range, or the cursor is not valid.
        """
        given = {"episode_id": episode, "decision_id": decision, "name": name, "source": source}
        return newest_page(self._workspace.store, Reward, given, _REWARD, limit=limit, after=after)

    def record(self, target: RewardTarget, values: Mapping[str, float | None], **fields: Any) -> Sequence[Reward]:
        """Writes what an episode, a decision or a span was worth, in parts by name which add up, and returns them.

        Args:
            target: what it is for.
            values: the same part again replaces it; None: it is known that it cannot be known.
            fields: ``weights``, ``source``, ``author``, ``reason`` and ``key`` of ``new_rewards``.

        Raises:
            NotFoundError: there is no such target.
            UsageError: a part cannot be given.
        """
        return record_rewards(self._workspace, target, values, **fields)

    def make_process(self, weights: Mapping[str, float] | None = None, credit: str | None = None) -> RewardProcess:
        """Returns what scores finished tasks and shares their rewards out, as the settings say.

        Args:
            weights: of reward functions by name, in place of those of the settings.
            credit: how rewards are shared out, in place of how the settings say: ``last``, ``uniform`` ...

        Raises:
            UsageError, NotFoundError: there is no such function, or no such way to share out.
        """
        from learnloop.loop.rewards.rewarding import RewardProcess

        changes: dict[str, Any] = {"weights": dict(weights)} if weights else {}
        if credit is not None:
            changes |= {"credit": credit, "credit_options": {}}
        return RewardProcess(self._workspace, msgspec.structs.replace(self._workspace.settings.rewards, **changes))

    def calculate(
        self,
        choice: EpisodeChoice | None = None,
        *,
        process: RewardProcess | None = None,
        truths: Truths | None = None,
        dry_run: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> Listing[ScoredEpisode]:
        """Scores episodes, shares their rewards out, stores both, and returns what came of each.

        Args:
            choice: which episodes; None: all.
            process: how; None: as the settings say.
            truths: what is known of tasks beside the store.
            dry_run: store nothing.
            progress: told of the number of episodes scored.

        Raises:
            NotFoundError: a named episode is not there.
            UsageError: the credit method needs what no stored run tells.
        """
        from learnloop.loop.rewards.scoring import EpisodeChoice, score_episodes

        found = []
        how = process or self.make_process()
        for each in score_episodes(self._workspace, choice or EpisodeChoice(), how, truths, dry_run=dry_run):
            found.append(each)
            if progress is not None:
                progress(1)
        return Listing(found, columns("episode_id", "task_id", "scored.total", "scored.reason"))

    def process_task_completion(
        self, task_id: str, result: Mapping[str, Any], *, process: RewardProcess | None = None
    ) -> TaskCompletion:
        """Scores, shapes, credits and stores a finished task that is told as data, and returns what came of it.

        Args:
            task_id: of the task.
            result: fields of ``Attempt``; with ``episode_id`` the rewards are that episode's.
            process: how; None: as the settings say.

        Raises:
            FormatError: ``result`` cannot be read.
            NotFoundError, UsageError: there is no such episode, or its reward cannot be shared out.
        """
        from learnloop.loop.rewards.rewarding import process_task_completion

        return process_task_completion(self._workspace, task_id, result, process=process)

    def history(self, **narrowed: Unpack[ShareFilter]) -> Page[RewardShare]:
        """Returns who was credited with how much of which reward, what was booked last first.

        Args:
            narrowed: see ``ShareFilter``.

        Raises:
            UsageError: the limit is out of range.
        """
        page = RewardLedger(self._workspace.store).shares(**narrowed)
        return Page(page.rows, _SHARE, page.next_cursor)

    def totals(self, *, limit: int = 100, after: str | None = None, **narrowed: Any) -> Page[AgentTotal]:
        """Returns what agents were credited with in all, by name; of each run, only what counts.

        Args:
            limit: the most agents to list.
            after: ``next_cursor`` of the page before.
            narrowed: ``agent``, ``task`` and ``episode`` of ``RewardLedger.totals``.

        Raises:
            UsageError: the limit is out of range.
        """
        totals = partial(RewardLedger(self._workspace.store).totals, **narrowed)
        found = totals(limit=limit, after=after)
        last = found[-1].agent_id if len(found) == limit else None
        has_more = last is not None and totals(limit=1, after=last) != []
        return Page(found, columns(*AgentTotal.__struct_fields__), last if has_more else None)

    def components(self) -> Listing[Component]:
        """Returns the reward functions that can be used here, those in force, which have a weight, first."""
        from learnloop.loop.rewards.scoring import Component, list_components

        return Listing(list_components(self._workspace), columns(*Component.__struct_fields__))

    def test(self, file: Path | str, *, process: RewardProcess | None = None) -> Listing[Tried]:
        """Returns what the attempts of a JSON Lines file are worth, and whether that is what the file says.

        Each is scored once more with an empty answer, which is to earn no more.

        Args:
            file: a line is an attempt and what it is to be worth; see ``Example``.
            process: how; None: as the settings say.

        Raises:
            NotFoundError: there is no such file.
            FormatError: a line cannot be read.
        """
        from learnloop.loop.rewards.scoring import try_examples

        tried = try_examples((process or self.make_process()).engine, Path(file))
        return Listing(tried, columns("number", "scored.total", "is_wanted", "pays_for_nothing"))

    def calibrate(self, component: str, *, min_kappa: float = 0.6, seed: int = 0) -> CalibrationReport:
        """Returns how far the stored scores of a reward function, or ``total``, agree with the labels of people.

        Args:
            component: which function.
            min_kappa: what it must reach, -1 to 1.
            seed: of the bootstrap.

        Raises:
            UsageError: ``min_kappa`` has no meaning.
            NotFoundError: no episode has a score of that name, or none has a label.
        """
        from learnloop.loop.rewards.scoring import calibrate

        return calibrate(self._workspace, component, min_kappa=min_kappa, seed=seed)

    def audit(
        self,
        *,
        share: float = 0.0,
        process: RewardProcess | None = None,
        truths: Truths | None = None,
        seed: int = 0,
    ) -> Audit:
        """Returns whether all shares add up, and whether rewards that are worked out again come out the same.

        Args:
            share: of the stored rewards, how many are worked out again, chosen by chance; 0: none.
            process: how; None: as the settings say.
            truths: what is known of tasks beside the store.
            seed: of the choice.

        Raises:
            UsageError: ``share`` has no meaning.
        """
        from learnloop.loop.rewards.scoring import regrade

        num_regraded, different = 0, []
        if share:
            how = process or self.make_process()
            for each in regrade(self._workspace, how, share, seed=seed, truths=truths):
                num_regraded += 1
                different += [] if each.agrees else [each]
        findings = [*RewardLedger(self._workspace.store).audit()]
        return Audit(findings=findings, num_regraded=num_regraded, different=different)


_REWARD = columns(
    "reward_id", "episode_id", "decision_id", "span_id", "name", "value", "weight", "source", "author", "created_at"
)
_SHARE = columns(
    "created_at", "episode_id", "task_id", "agent_id", "span_id", "step", "raw_reward", "shaped_reward",
    "credit_assigned", "method",
)  # fmt: skip
