"""What a run or a decision was worth in all: one rule, over the parts of its reward.

Of each part the newest value counts; of a label the newest of each person. A part without a value (None: it could not
be computed) changes nothing, and one of weight 0 is a metric. Of what is left, the first of these that is there is the
whole, and what comes after it adds nothing:

1. ``label``: what people say; the mean over persons,
2. ``total``: what an engine of reward functions, or whoever else, says is the whole,
3. computed parts: scores of reward functions; the sum of value x weight,
4. all other parts, such as an outcome that an environment or an import told; the sum of value x weight,
5. ``default``: what a policy's settings give to a decision that nobody rewarded in time.

A decision is worth what its own parts say, else what its episode's do. ``store/queries/rewards.py`` says the same of
episodes in SQL, and a property test holds the two equal.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import IntEnum, StrEnum
from typing import Final, NamedTuple

from learnloop.core.records import DEFAULT, TOTAL, Reward

LABEL: Final = "label"
"""The name of the part that a person's label is. It stands for the whole."""
COMPUTED: Final = "rewards"
"""The source of parts that reward functions computed."""


class Rank(IntEnum):
    """What kind of part it is; the first kind that is known is the whole."""

    LABEL = 1
    TOTAL = 2
    COMPUTED = 3
    TOLD = 4
    DEFAULT = 5


class RewardState(StrEnum):
    """What is known of what something was worth."""

    KNOWN = "known"
    PENDING = "pending"
    """Not known yet, and the time in which it may come is not over."""
    MISSING = "missing"


class Part(NamedTuple):
    """One known part of a reward."""

    rank: Rank
    value: float
    """Value x weight."""


Parts = dict[str, Part]
"""The newest known parts of one episode or decision, by name, and of labels by person."""

_RANKS: Final[Mapping[str, Rank]] = {LABEL: Rank.LABEL, TOTAL: Rank.TOTAL, DEFAULT: Rank.DEFAULT}


def part_of(reward: Reward) -> Part | None:
    """Returns ``reward`` as a part; None: it changes nothing, since it has no value or is a metric (weight 0)."""
    if reward.value is None or reward.weight == 0.0:
        return None
    rank = _RANKS.get(reward.name) or (Rank.COMPUTED if reward.source == COMPUTED else Rank.TOLD)
    return Part(rank, reward.value * reward.weight)


def take_part(parts: Parts, reward: Reward) -> None:
    """Adds or replaces the part that ``reward`` is, if it is one that counts."""
    part = part_of(reward)
    if part is not None:
        parts[part_key(reward)] = part


def part_key(reward: Reward) -> str:
    """Returns what a later part must have in common with ``reward`` to replace it."""
    return f"{LABEL}\0{reward.author or ''}" if reward.name == LABEL else reward.name


def total_of(parts: Mapping[str, Part]) -> float | None:
    """Returns what parts come to in all; None: it is not known."""
    if not parts:
        return None
    first = min(part.rank for part in parts.values())
    values = [part.value for part in parts.values() if part.rank is first]
    return math.fsum(values) / len(values) if first is Rank.LABEL else math.fsum(values)


def worth(rewards: Iterable[Reward]) -> float | None:
    """Returns what one episode or decision was worth, whose rewards these are, oldest first; None: it is not known."""
    parts: Parts = {}
    for reward in rewards:
        take_part(parts, reward)
    return total_of(parts)


class RewardParts(NamedTuple):
    """The known parts of a decision's reward: those given for it, and those given for its whole episode."""

    own: Parts
    episode: Parts

    def take(self, reward: Reward) -> None:
        """Adds or replaces the part that ``reward`` is; the reward of a mere span is none of the episode's."""
        if reward.decision_id is not None:
            take_part(self.own, reward)
        elif reward.span_id is None:
            take_part(self.episode, reward)

    @property
    def own_total(self) -> float | None:
        """What the decision earned by its own parts; None: not known.

        A default counts only where nothing else is known, of the decision or of its episode.
        """
        if _is_rewarded(self.own) or not _is_rewarded(self.episode):
            return total_of(self.own)
        return None

    @property
    def total(self) -> float | None:
        """What the decision earned: by its own parts, else by its episode's; None: not known."""
        own = self.own_total
        return total_of(self.episode) if own is None else own


def _is_rewarded(parts: Parts) -> bool:
    return any(part.rank is not Rank.DEFAULT for part in parts.values())


def state_of(total: float | None, waits_until: datetime | None, moment: datetime) -> RewardState:
    """Returns what is known at ``moment`` of a reward.

    Args:
        total: what it comes to; None: not known.
        waits_until: until when it may come; None: nobody waits for it.
        moment: now.
    """
    if total is not None:
        return RewardState.KNOWN
    is_waiting = waits_until is not None and moment < waits_until
    return RewardState.PENDING if is_waiting else RewardState.MISSING
