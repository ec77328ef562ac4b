"""Watches what is served: a champion that is worse than what is tried besides it goes back to the one before it.

Each look reads what the champion decided since the last one, in the order in which it was decided, as far as the
rewards are known, and goes on with the test of ``evaluation/champion_test.py``. How far it has come is a record, so a
look may end at any time, in any process; a decision is counted once.

A reward that is not known holds up what comes after it, since the order of decisions must be kept, until it comes or
stays missing: where the settings wait for rewards, when that wait is over, else when 100 later ones are known or a day
has passed. Missing ones count as whatever speaks most for the champion. Of decisions that share the reward of their
episode the first one counts, and a deferred decision once it is activated.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

import msgspec

from learnloop.core.clock import now
from learnloop.core.errors import CheckFailedError, ConflictError, CorruptError, NotFoundError
from learnloop.core.ids import new_id
from learnloop.core.records import (
    ChampionTest,
    Decision,
    DecisionActivation,
    DecisionMode,
    LearningUpdate,
    PolicyVersion,
    Reward,
    Verdict,
)
from learnloop.core.rewards import RewardParts
from learnloop.decisions.learning.champion_outcomes import ChampionProgress, drawn_of
from learnloop.decisions.log import LogFilter, newest_decisions, rewards_of
from learnloop.decisions.service.settings import DecisionSettings, VersionedSettings
from learnloop.decisions.service.settings_store import current
from learnloop.registry import Registry
from learnloop.registry.references import CHAMPION
from learnloop.store import Store
from learnloop.store.queries.champions import (
    ServedChampion,
    decisions_of_champion,
    first_decisions,
    keep_test,
    put_out_versions,
    served_champions,
)

ACTOR: Final = "champion-test"
"""Who moves the alias."""
DECISION_SEQUENCE: Final = "log/decision_sequence"
"""The metric that says up to which decision of the log an update looked; apprentices learn from decisions."""
OVERTAKEN: Final = 100
"""So many later decisions with a known reward make one without a missing one, where the settings do not wait."""
MAX_WAIT: Final = timedelta(days=1)
GRACE: Final = timedelta(minutes=1)
"""Beyond the wait of the settings, for the default reward to be written."""
MAX_RANGE_DECISIONS: Final = 2_000
"""The newest rewarded decisions from before a champion was served, whose rewards say between what others may lie."""
KEEP_EVERY: Final = 50
"""Decisions after which a test is kept; fewer are kept when it was last kept ``KEEP_SECONDS`` ago."""
KEEP_SECONDS: Final = 5.0
QUIET_SECONDS: Final = 10.0
"""So long nothing is looked at where neither decisions nor rewards have come."""
MAX_PAUSE_SECONDS: Final = 30.0
"""Between two looks at a test that is held up, at the most."""
_PAGE = 1_000

_log = logging.getLogger(__name__)


class _Page(NamedTuple):
    """What a champion decided, and what is known of it."""

    decisions: Sequence[tuple[int, Decision]]
    earned: Mapping[str, RewardParts]
    firsts: set[str]
    """The first of their episodes."""
    unused: set[str]
    """Deferred ones that are not activated."""

    def num_known_after(self) -> list[int]:
        """Returns how many of the decisions after each have a known reward."""
        counts, number = [], 0
        for _, decision in reversed(self.decisions):
            counts.append(number)
            number += self.earned[decision.decision_id].total is not None
        return counts[::-1]

    def counts(self, decision: Decision) -> bool:
        """Returns whether a decision is one by itself: used, and not a later one with its episode's reward."""
        parts = self.earned[decision.decision_id]
        is_shared = parts.own_total is None and parts.total is not None
        return decision.decision_id not in self.unused and (not is_shared or decision.decision_id in self.firsts)


class ChampionWatch:
    """Tests champions while they are served, and puts out those that are worse than what is tried besides them.

    Args:
        store: the log.
        registry: whose alias ``champion`` says what is served.
    """

    def __init__(self, store: Store, registry: Registry) -> None:
        self._store = store
        self._registry = registry
        self._pauses: dict[str, tuple[float, float]] = {}  # of tests that are held up: how long, and until when
        self._seen = (-1, -1)  # the last decision and the last reward at the last look
        self._looked_at = 0.0

    def look(self, agent_id: str | None = None, policy: str | None = None) -> list[ChampionTest]:
        """Looks at what champions have decided since the last look; returns the tests that went on.

        Args:
            agent_id: only at this agent's; None: at all.
            policy: only at this policy's; None: at all.

        Raises:
            StoreError, UnreachableError: the store refuses; the next look goes on from what was kept.
        """
        found: list[ChampionTest] = []
        if not self._has_news():
            return found
        for champion in self._store.read(served_champions, CHAMPION):
            if agent_id not in (None, champion.agent_id) or policy not in (None, champion.policy):
                continue
            try:
                settings = current(self._store, champion.agent_id, champion.policy)
                test = self._look_at(champion, settings)
            except CorruptError as error:  # the others are looked at all the same
                _log.warning("%s is not tested: %s", champion.move.policy, error)
                continue
            if test is not None:
                found.append(test)
        return found

    def _has_news(self) -> bool:
        """Returns whether something came since the last time that it said so, or that was long ago."""
        seen = (self._store.last_sequence(Decision), self._store.last_sequence(Reward))
        if seen == self._seen and time.monotonic() - self._looked_at < QUIET_SECONDS:
            return False
        self._seen, self._looked_at = seen, time.monotonic()
        return True

    def _look_at(self, champion: ServedChampion, settings: VersionedSettings) -> ChampionTest | None:
        if not is_tested(settings.settings):
            return None
        key = champion.move.alias_move_id
        pause, until = self._pauses.get(key, (0.0, 0.0))
        if time.monotonic() < until:
            return None
        test = self._store.find(ChampionTest, key) or self._begin(champion, settings.settings)
        kept = test
        while test.put_out_at is None:
            page = self._page(champion, test.decision_sequence)
            before, test = test, _advance(test, page, settings.settings)
            if page.decisions and test is before:
                pause = min(max(1.0, 2 * pause), MAX_PAUSE_SECONDS)
                self._pauses[key] = (pause, time.monotonic() + pause)
            else:
                self._pauses.pop(key, None)
            if len(page.decisions) < _PAGE or test is before:
                break
        if test is kept and test.put_out_at is None:
            return None
        self._keep(kept, test)
        if test.put_out_at is not None:  # now, or by a look that ended before it was done
            self._put_out(champion, test, settings)
        return test

    def _begin(self, champion: ServedChampion, settings: DecisionSettings) -> ChampionTest:
        low, high = settings.champion_test.reward_range or self._known_range(champion, settings)
        moment = now()
        test = ChampionTest(
            champion_test_id=champion.move.alias_move_id,
            agent_id=champion.agent_id,
            policy=champion.policy,
            policy_version_id=champion.move.policy_version_id,
            decision_sequence=0,
            num_decisions=0,
            num_others=0,
            num_missing=0,
            num_untested=0,
            evidence=0.0,
            state=msgspec.to_builtins(ChampionProgress(low=low, high=high)),
            started_at=moment,
            updated_at=moment,
        )
        self._store.run(keep_test, test)
        return test

    def _known_range(self, champion: ServedChampion, settings: DecisionSettings) -> tuple[float, float]:
        """Returns the lowest and the highest reward from before the champion was served; 0 and 1 where none is known.

        Where all are equal, 0 and 1 are within it too.
        """
        before = LogFilter(until=champion.move.created_at)
        found = newest_decisions(self._store, champion.agent_id, champion.policy, MAX_RANGE_DECISIONS, before)
        rewards = [each.reward for each in found if each.reward is not None]
        if settings.default_reward is not None:
            rewards.append(settings.default_reward)
        low, high = min(rewards, default=0.0), max(rewards, default=1.0)
        return (low, high) if low < high else (min(low, 0.0), max(high, 1.0))

    def _page(self, champion: ServedChampion, after: int) -> _Page:
        found = self._store.read(decisions_of_champion, champion, after, _PAGE)
        decisions = [decision for _, decision in found]
        earned = rewards_of(self._store, decisions)
        episodes = {each.episode_id for each in decisions if each.episode_id is not None}
        firsts = self._store.read(first_decisions, champion.agent_id, champion.policy, episodes)
        deferred = {each.decision_id for each in decisions if each.is_deferred}
        if deferred:
            activated = self._store.iterate(DecisionActivation, where={"decision_id": deferred})
            deferred -= {each.decision_id for each in activated}
        return _Page(found, earned, firsts, deferred)

    def _keep(self, kept: ChampionTest, test: ChampionTest) -> None:
        """Writes a test that has come far enough since it was kept; else the next look reads the same again."""
        num_new = test.num_decisions + test.num_untested - kept.num_decisions - kept.num_untested
        is_old = (test.updated_at - kept.updated_at).total_seconds() >= KEEP_SECONDS
        if num_new >= KEEP_EVERY or is_old or (test is not kept and test.put_out_at is not None):
            self._store.run(keep_test, test)

    def _put_out(self, champion: ServedChampion, test: ChampionTest, settings: VersionedSettings) -> None:
        """Tells what was found and moves the alias, unless somebody else has moved it; all of it may be done again."""
        target = self._version_before(champion)
        where = "the policy chooses as it did before it had one" if target is None else f"back to @{target.version}"
        self._store.write([self._record_of(test, settings, where)])
        _log.warning("%s: %s; %s", champion.move.policy, test.reason, where)
        name, reason = champion.move.policy, f"{test.reason}; {where}"
        try:
            if target is not None:
                self._registry.set_alias(
                    name, CHAMPION, target, actor=ACTOR, reason=reason, expected=test.policy_version_id
                )
                return
        except (CheckFailedError, CorruptError, NotFoundError) as error:
            _log.warning(
                "%s@%d cannot be served again, so nothing is: %s", name, target.version if target else 0, error
            )
        except ConflictError as error:
            _log.warning("%s: %s", name, error)
            return
        try:
            self._registry.remove_alias(name, CHAMPION, actor=ACTOR, reason=reason, expected=test.policy_version_id)
        except ConflictError as error:
            _log.warning("%s: %s", name, error)

    def _version_before(self, champion: ServedChampion) -> PolicyVersion | None:
        """Returns the champion before this one that was never put out itself; None: there is none."""
        out = self._store.read(put_out_versions, champion.agent_id, champion.policy)
        out.add(champion.move.policy_version_id)
        versions = {each.policy_version_id: each for each in self._registry.versions(champion.move.policy)}
        for move in reversed(self._registry.alias_history(champion.move.policy)):
            is_before = move.alias == CHAMPION and move.alias_move_id < champion.move.alias_move_id
            if is_before and not move.is_removal and move.policy_version_id not in out:
                return versions.get(move.policy_version_id)
        return None

    def _record_of(self, test: ChampionTest, settings: VersionedSettings, where: str) -> LearningUpdate:
        """Returns the record that stands among the updates of the policy; the same each time."""
        progress = _progress(test)
        figures: dict[str, Any] = {
            "evidence": test.evidence,
            "num_others": test.num_others,
            "num_missing": test.num_missing,
            "num_falls": progress.test.num_falls,
        }
        return LearningUpdate(
            learning_update_id=progress.learning_update_id or new_id(),
            agent_id=test.agent_id,
            policy=test.policy,
            settings_version=settings.version,
            reward_sequence=self._store.last_sequence(Reward),
            num_samples=0,
            num_held_out=test.num_decisions,
            verdict=Verdict.REGRESSED,
            reasons=[f"the champion is {test.reason}", where],
            metrics={
                DECISION_SEQUENCE: self._store.last_sequence(Decision),
                **{f"champion_test/{name}": value for name, value in figures.items()},
            },
            parent_version_id=test.policy_version_id,
            started_at=test.started_at,
            ended_at=test.updated_at,
        )


def is_tested(settings: DecisionSettings) -> bool:
    """Returns whether a policy's champion is tested: it learns, chooses one-step actions, and the test is wanted."""
    return settings.champion_test.enabled and settings.mode is DecisionMode.LEARNING and settings.network is None


def _progress(test: ChampionTest) -> ChampionProgress:
    return msgspec.convert(test.state, ChampionProgress)


def _advance(test: ChampionTest, page: _Page, settings: DecisionSettings) -> ChampionTest:
    """Returns the test after as much of a page as is known; the very same where that is nothing."""
    progress, reached, num_untested = _progress(test), test.decision_sequence, test.num_untested
    if settings.champion_test.reward_range is not None:
        low, high = settings.champion_test.reward_range
        progress = msgspec.structs.replace(progress, low=min(low, progress.low), high=max(high, progress.high))
    moment, is_out = now(), False
    for (sequence, decision), num_known in zip(page.decisions, page.num_known_after(), strict=True):
        reward, drawn = page.earned[decision.decision_id].total, drawn_of(decision)
        is_open = reward is None or decision.decision_id in page.unused
        if drawn is not None and is_open and _may_come(decision, num_known, settings, moment):
            break
        reached = sequence
        if drawn is None or not page.counts(decision):
            num_untested += 1
            continue
        progress = progress.after(drawn, reward)
        is_out = progress.test.evidence >= 1 / settings.champion_test.alpha
        if is_out:
            progress = msgspec.structs.replace(progress, learning_update_id=new_id())
            break
    if reached == test.decision_sequence:
        return test
    done = progress.test
    return msgspec.structs.replace(
        test,
        decision_sequence=reached,
        num_decisions=done.num_decisions,
        num_others=done.num_others,
        num_missing=done.num_missing,
        num_untested=num_untested,
        evidence=done.evidence,
        state=msgspec.to_builtins(progress),
        reason=_reason(progress, num_untested, settings) if is_out or not done.num_decisions else None,
        put_out_at=moment if is_out else None,
        updated_at=moment,
    )


def _may_come(decision: Decision, num_known: int, settings: DecisionSettings, moment: datetime) -> bool:
    """Returns whether what is not known of a decision is still waited for."""
    age = moment - decision.created_at
    if settings.reward_wait_seconds is not None:
        return age <= timedelta(seconds=settings.reward_wait_seconds) + GRACE
    return num_known < OVERTAKEN and age <= MAX_WAIT


def _reason(progress: ChampionProgress, num_untested: int, settings: DecisionSettings) -> str:
    test = progress.test
    if not test.num_decisions:
        return (
            f"none of {num_untested:,} decisions could have been another than the champion's own, so it cannot be "
            "tested; explore, as with exploration.epsilon=0.1"
        )
    return (
        f"worse than what was tried besides it, by {test.num_decisions:,} decisions of which {test.num_others:,} were "
        f"others and {test.num_missing:,} have no known reward (evidence {test.evidence:.3g}, "
        f"{1 / settings.champion_test.alpha:g} is enough)"
    )
