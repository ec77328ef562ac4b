"""``ws.decisions``: what was chosen, what it earned, how policies choose, and what others would have earned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from learnloop.core.clock import now
from learnloop.core.records import (
    ChampionTest,
    Decision,
    DecisionActivation,
    LearningUpdate,
    PolicySettings,
    Reward,
)
from learnloop.core.rewards import RewardParts, RewardState, RewardTarget, state_of
from learnloop.loop.decisions.changes import activate
from learnloop.loop.nouns.listing import Listing, Noun, Page, columns, keyed_page, newest_page
from learnloop.loop.rewards.recording import record_rewards
from learnloop.store.queries.rewards import earned_rewards
from learnloop.store.queries.waiting import waiting_decisions

if TYPE_CHECKING:
    from learnloop.decisions.learning.apprentice import MatchRate
    from learnloop.decisions.service.settings import DecisionSettings, VersionedSettings
    from learnloop.loop.decisions.counterfactual import Counterfactual, CounterfactualOptions
    from learnloop.loop.decisions.feedback import Feedback
    from learnloop.loop.decisions.importing import DecisionImport


class DecisionDetail(msgspec.Struct, frozen=True, kw_only=True):
    """A decision with what it earned."""

    decision: Decision
    rewards: list[Reward]
    """Its own, and those of its whole episode, in the order in which they became durable."""
    reward: float | None
    """What it counts as; None: not known."""
    reward_state: RewardState
    """Whether that is known, may still come (``pending``) or is missing."""
    activated_at: datetime | None
    """When a deferred decision was activated; None: it was not, or need not be."""


class Decisions(Noun):
    """The decisions of a workspace, and the settings of the policies that make them."""

    def import_(self, path: Path, *, agent: str, policy: str, **how: Any) -> DecisionImport:
        """Writes the decisions of a log of Azure Personalizer or Vowpal Wabbit; see ``import_decisions``."""
        from learnloop.loop.decisions.importing import import_decisions

        return import_decisions(self._workspace, path, agent=agent, policy=policy, **how)

    def list(
        self,
        *,
        agent: str | None = None,
        policy: str | None = None,
        episode: str | None = None,
        limit: int = 50,
        after: str | None = None,
    ) -> Page[Decision]:
        """Returns decisions, what was stored last first, narrowed by what is not None.

        Args:
            agent: only this agent's.
            policy: only of this policy.
            episode: only of this episode.
            limit: the most to list.
            after: ``next_cursor`` of the page before.

        Raises:
            UsageError: the limit is out of range, or the cursor is not valid.
        """
        given = {"agent_id": agent, "policy": policy, "episode_id": episode}
        return newest_page(self._workspace.store, Decision, given, _DECISION, limit=limit, after=after)

    def show(self, decision_id: str) -> DecisionDetail:
        """Returns a decision with its rewards.

        Raises:
            NotFoundError: there is no decision of this id.
        """
        store = self._workspace.store
        decision = store.get(Decision, decision_id)
        episodes = [] if decision.episode_id is None else [decision.episode_id]
        rewards = store.read(earned_rewards, [decision_id], episodes)
        parts = RewardParts({}, {})
        for reward in rewards:
            parts.take(reward)
        awaited = store.read(waiting_decisions, now(), [decision_id])
        activation = store.find(DecisionActivation, decision_id)
        return DecisionDetail(
            decision=decision,
            rewards=rewards,
            reward=parts.total,
            reward_state=state_of(parts.total, is_awaited=bool(awaited)),
            activated_at=None if activation is None else activation.created_at,
        )

    def reward(
        self,
        decision_id: str,
        values: Mapping[str, float | None],
        *,
        author: str | None = None,
        reason: str | None = None,
        key: str | None = None,
    ) -> Sequence[Reward]:
        """Writes what a decision was worth, in parts by name which add up, and returns them.

        Args:
            decision_id: which one.
            values: the same part again replaces it; None: it is known that it cannot be known.
            author: who says so.
            reason: why.
            key: the same for the same reward, so that telling it twice stores it once; None: each is a new one.

        Raises:
            NotFoundError: there is no such decision.
            UsageError: a part cannot be given.
        """
        target = RewardTarget(None, decision_id)
        return record_rewards(self._workspace, target, values, author=author, reason=reason, key=key)

    def feedback(
        self,
        feedback: Feedback,
        *,
        decision_id: str | None = None,
        episode_id: str | None = None,
        key: str | None = None,
    ) -> Sequence[Reward]:
        """Writes what a user says of a decision or an episode as parts of its reward; see ``record_feedback``."""
        from learnloop.loop.decisions.feedback import record_feedback

        return record_feedback(self._workspace, feedback, decision_id=decision_id, episode_id=episode_id, key=key)

    def activate(self, decision_id: str) -> DecisionActivation:
        """Says that a deferred decision was used; returns when that was said first.

        Raises:
            NotFoundError: there is no such decision.
        """
        return activate(self._workspace, decision_id)

    def evaluate(
        self,
        agent: str,
        policy: str,
        targets: Sequence[str] | None = None,
        options: CounterfactualOptions | None = None,
    ) -> Counterfactual:
        """Returns what other policies would have earned on the logged decisions; see ``evaluate_decisions``."""
        from learnloop.loop.decisions.counterfactual import DEFAULT_TARGETS, evaluate_decisions

        return evaluate_decisions(
            self._workspace, agent, policy, DEFAULT_TARGETS if targets is None else targets, options
        )

    def match_rate(self, agent: str, policy: str, *, newest: int | None = None) -> MatchRate:
        """Returns how often a policy would have chosen what the caller's own logic chose.

        Args:
            agent: whose policy.
            policy: which one.
            newest: of so many decisions, the newest; None: of all.
        """
        from learnloop.decisions.learning.apprentice import match_rate

        return match_rate(self._workspace.store, agent, policy, newest=newest)

    def updates(self, agent: str, policy: str, *, limit: int = 50, after: str | None = None) -> Page[LearningUpdate]:
        """Returns what the learner tried for a policy, the newest first, with its verdicts.

        Raises:
            UsageError: the limit is out of range.
        """
        given = {"agent_id": agent, "policy": policy}
        return keyed_page(self._workspace.store, LearningUpdate, given, _UPDATE, limit=limit, after=after)

    def champion_tests(
        self, agent: str, policy: str, *, limit: int = 50, after: str | None = None
    ) -> Page[ChampionTest]:
        """Returns how the versions of a policy fared while they were served, the newest first.

        Raises:
            UsageError: the limit is out of range.
        """
        given = {"agent_id": agent, "policy": policy}
        return keyed_page(self._workspace.store, ChampionTest, given, _CHAMPION, limit=limit, after=after)

    def settings(self, agent: str, policy: str) -> VersionedSettings:
        """Returns how a policy chooses and learns, with the version of these settings; version 0: the defaults."""
        from learnloop.decisions.service.settings_store import current

        return current(self._workspace.store, agent, policy)

    def change_settings(
        self,
        agent: str,
        policy: str,
        settings: DecisionSettings,
        *,
        author: str | None = None,
        expected_version: int | None = None,
    ) -> VersionedSettings:
        """Writes how a policy chooses and learns as the next version of its settings, and returns it.

        Args:
            agent: whose policy.
            policy: which one.
            settings: all of them.
            author: who says so.
            expected_version: the version that this replaces; None: whichever holds.

        Raises:
            ConflictError: another version holds.
        """
        from learnloop.decisions.service.settings_store import put

        return put(self._workspace.store, agent, policy, settings, author=author, expected_version=expected_version)

    def settings_history(
        self, agent: str, policy: str, *, limit: int | None = None, before: int | None = None
    ) -> Listing[PolicySettings]:
        """Returns the versions of a policy's settings, the newest first.

        Args:
            agent: whose policy.
            policy: which one.
            limit: the most to list; None: all.
            before: only versions before this one.
        """
        from learnloop.decisions.service.settings_store import history

        return Listing(history(self._workspace.store, agent, policy, limit=limit, before=before), _SETTINGS)


_DECISION = columns("decision_id", "agent_id", "policy", "episode_id", "action", "propensity", "mode", "created_at")
_UPDATE = columns("learning_update_id", "ended_at", "verdict", "num_samples", "num_held_out", "error")
_CHAMPION = columns(
    "champion_test_id", "policy_version_id", "num_decisions", "num_others", "num_missing", "evidence", "put_out_at"
)
_SETTINGS = columns("version", "created_at", "author")
