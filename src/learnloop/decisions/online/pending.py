"""The decisions of a point that rewards may still come for, in memory: bounded, and by their episode.

An episode is *whole* while all of the point's decisions in it are known to be here; only then does a reward for it find
its decisions without asking the log. Episodes are remembered longer than their decisions, so that one of which
something was forgotten is not taken for a new one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from learnloop.algorithms import Prepared
from learnloop.core.records import Reward
from learnloop.core.rewards import Parts, RewardParts, take_part


class Pending:
    """A decision with the parts of its reward, and what was learned of them."""

    __slots__ = ("action", "episode_id", "is_waiting", "learned", "parts", "prepared")

    def __init__(
        self,
        prepared: Prepared,
        action: str,
        episode_id: str | None,
        parts: RewardParts,
        *,
        is_waiting: bool = False,
    ) -> None:
        """Takes ``parts`` as learned already, unless it is a deferred decision that waits to be activated."""
        self.prepared = prepared
        self.action = action
        self.episode_id = episode_id
        self.parts = parts
        self.is_waiting = is_waiting
        self.learned = None if is_waiting else parts.total


class _Episode:
    __slots__ = ("decision_ids", "is_whole", "parts")

    def __init__(self) -> None:
        self.decision_ids: dict[str, None] = {}
        self.is_whole = False
        self.parts: Parts = {}
        """Of rewards for the whole episode, for decisions that are still to be made in it."""


class PendingDecisions:
    """Decisions by id, the oldest first; ``trim`` forgets those beyond ``limit``."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._decisions: OrderedDict[str, Pending] = OrderedDict()
        self._episodes: OrderedDict[str, _Episode] = OrderedDict()

    def __len__(self) -> int:
        return len(self._decisions)

    def __contains__(self, decision_id: object) -> bool:
        return decision_id in self._decisions

    def __getitem__(self, decision_id: str) -> Pending:
        return self._decisions[decision_id]

    def add(self, decision_id: str, pending: Pending) -> None:
        """Adds a decision."""
        self._decisions[decision_id] = pending
        if pending.episode_id is not None:
            self._episode(pending.episode_id).decision_ids[decision_id] = None

    def begin(self, episode_id: str) -> Parts:
        """Notes that a decision is about to be made in an episode of this process; returns the episode's parts.

        The episode is whole if this is the first that is heard of it.
        """
        if episode_id not in self._episodes:
            self._episode(episode_id).is_whole = True
        return self._episodes[episode_id].parts

    def note_episode_reward(self, episode_id: str, reward: Reward) -> None:
        """Keeps a part of an episode's reward for decisions that are still to be made in it."""
        if episode_id in self._episodes:
            take_part(self._episodes[episode_id].parts, reward)

    def is_whole(self, episode_id: str) -> bool:
        """Returns whether all of the point's decisions in this episode are here."""
        return episode_id in self._episodes and self._episodes[episode_id].is_whole

    def complete(self, episode_id: str, decision_ids: Iterable[str]) -> None:
        """Notes that these are all of the point's decisions in this episode; those that are here belong to it."""
        episode = self._episode(episode_id)
        episode.decision_ids.update(dict.fromkeys(each for each in decision_ids if each in self._decisions))
        episode.is_whole = True

    def of_episode(self, episode_id: str) -> list[Pending]:
        """Returns the decisions of an episode that are here."""
        episode = self._episodes.get(episode_id)
        return [] if episode is None else [self._decisions[each] for each in episode.decision_ids]

    def trim(self) -> None:
        """Forgets the oldest decisions beyond the limit, and the oldest episodes beyond ten times as many."""
        while len(self._decisions) > self._limit:
            decision_id, pending = self._decisions.popitem(last=False)
            episode = self._episodes.get(pending.episode_id or "")
            if episode is not None:
                episode.is_whole = False
                episode.decision_ids.pop(decision_id, None)
        while len(self._episodes) > 10 * self._limit:
            self._episodes.popitem(last=False)

    def _episode(self, episode_id: str) -> _Episode:
        return self._episodes.setdefault(episode_id, _Episode())
