"""What a run or a decision was worth in all: one rule, over the parts of its reward; and the parts that may be given.

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
import numbers
from collections.abc import Iterable, Mapping
from enum import IntEnum, StrEnum
from typing import Final, NamedTuple

import msgspec

from learnloop.core.checks import is_number
from learnloop.core.clock import now
from learnloop.core.errors import RewardError, UsageError
from learnloop.core.ids import new_id
from learnloop.core.records import DEFAULT, MAX_REWARD, TOTAL, Reward

LABEL: Final = "label"
"""The name of the part that a person's label is. It stands for the whole."""
COMPUTED: Final = "rewards"
"""The source of parts that reward functions computed."""
MAX_NAME: Final = 200
"""Characters of a part's name."""


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


class Part(msgspec.Struct, frozen=True, gc=False):
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
    if len(parts) == 1:  # nearly always, at each reward of an online policy
        return next(iter(parts.values())).value
    first = min(part.rank for part in parts.values())
    values = [part.value for part in parts.values() if part.rank is first]
    return math.fsum(values) / len(values) if first is Rank.LABEL else math.fsum(values)


def worth(rewards: Iterable[Reward]) -> float | None:
    """Returns what one episode or decision was worth, whose rewards these are, oldest first; None: it is not known."""
    parts: Parts = {}
    for reward in rewards:
        take_part(parts, reward)
    return total_of(parts)


class RewardParts(msgspec.Struct, frozen=True, gc=False):
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
        if not self.episode:
            return total_of(self.own)
        own = self.own_total
        return total_of(self.episode) if own is None else own


def _is_rewarded(parts: Parts) -> bool:
    return any(part.rank is not Rank.DEFAULT for part in parts.values())


def state_of(total: float | None, *, is_awaited: bool) -> RewardState:
    """Returns what is known of a reward that comes to ``total``, and may still come if it ``is_awaited``."""
    if total is not None:
        return RewardState.KNOWN
    return RewardState.PENDING if is_awaited else RewardState.MISSING


# Given ---------------------------------------------------------------------------------------------------------------


class RewardTarget(NamedTuple):
    """What a reward is for: an episode, a decision, or a span of an episode."""

    episode_id: str | None
    """Of a decision the episode that it was made in."""
    decision_id: str | None = None
    span_id: str | None = None


def new_rewards(
    target: RewardTarget,
    values: Mapping[str, object],
    *,
    weights: Mapping[str, object] | None = None,
    source: str = "user",
    author: str | None = None,
    reason: str | None = None,
    key: str | None = None,
) -> list[Reward]:
    """Returns the parts of a reward that somebody gives, all of them checked: one set of rules for all doors.

    Args:
        target: what it is for.
        values: the parts by name; None: could not be computed.
        weights: by part, 1 where not given; 0 makes a metric.
        source: what gives it.
        author: the person who gives it; None: no person, or it is not known which.
        reason: why a value is None, or what else there is to say.
        key: the same for the same reward, so that giving it twice stores it once; None: each is a new one.

    Raises:
        UsageError: there is no part, a name is reserved or none, a weight is of no part, or the author is empty.
        RewardError: a value is neither None nor a finite number, a weight is not one, or their product is too large.
    """
    if not values:
        raise UsageError("a reward needs at least one named part, such as solved=1.0")
    if weights and not weights.keys() <= values.keys():
        strange = sorted(weights.keys() - values.keys())
        raise UsageError(f"weights name {strange}, which are no parts of this reward ({sorted(values)})")
    if author is not None and not author.strip():
        raise UsageError("author is empty; give the name of the person who says so, or leave it out")
    moment = now()
    rewards = []
    for name, given in values.items():
        check_part_name(name)
        value = None if given is None else _checked("reward", name, given)
        weight = 1.0 if not weights or name not in weights else _checked_weight(name, value, weights[name])
        rewards.append(
            Reward(
                reward_id=new_id() if key is None else f"{key}-{name}",
                episode_id=target.episode_id,
                decision_id=target.decision_id,
                span_id=target.span_id,
                name=name,
                value=value,
                weight=weight,
                source=source,
                author=author,
                reason=reason,
                created_at=moment,
            )
        )
    return rewards


def check_part_name(name: object) -> str:
    """Returns ``name`` if somebody may give a part of a reward that is called so.

    Raises:
        UsageError: it is not 1 to 200 printable characters, or is reserved.
    """
    if name == DEFAULT:
        raise UsageError(f"{name!r} is the part that a policy's settings give; choose another name for this reward")
    if not isinstance(name, str) or not name.strip() or not name.isprintable() or len(name) > MAX_NAME:
        raise UsageError(f"{name!r} cannot name a reward; give 1 to {MAX_NAME} printable characters")
    return name


def check_reward(reward: object) -> float:
    """Returns ``reward`` as a float; a boolean counts as 0 or 1.

    Raises:
        RewardError: it is not a finite number.
    """
    if type(reward) is float and math.isfinite(reward):
        return reward
    if not isinstance(reward, numbers.Real) and not _is_numpy_bool(reward):
        raise RewardError(f"{reward!r} is not a reward; give a finite number, or None where it is not known")
    try:
        number = float(reward)  # type: ignore[arg-type]
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise RewardError(f"a reward is {number}; give a finite number, or None where it is not known")
    return number


def is_learnable(value: object) -> bool:
    """Returns whether something is a number that can be learned from: finite, at most ``MAX_REWARD``, no boolean."""
    return is_number(value) and abs(float(value)) <= MAX_REWARD


def check_learnable(what: str, value: object) -> float:
    """Returns ``value`` as a float.

    Raises:
        RewardError: it is None, which is not 0, or no number that can be learned from.
    """
    if not is_learnable(value):
        raise RewardError(f"{what} is {value!r}; a finite number is needed, and None is never read as 0")
    return float(value)  # type: ignore[arg-type]


def _is_numpy_bool(value: object) -> bool:
    """Returns whether it is one, without loading numpy: it is no ``numbers.Real`` as numpy's other numbers are."""
    return type(value).__module__ == "numpy" and type(value).__name__ in ("bool", "bool_")


def _checked(what: str, name: str, value: object) -> float:
    try:
        number = check_reward(value)
    except RewardError as error:
        raise RewardError(f"{what} {name}: {error}") from error
    if abs(number) > MAX_REWARD:
        raise RewardError(f"{what} {name} is {number:g}; allowed are numbers up to {MAX_REWARD:g}")
    return number


def _checked_weight(name: str, value: float | None, weight: object) -> float:
    if weight is None:
        raise RewardError(f"the weight of {name} is None; give a number, 0 for a metric that is not learned from")
    number = _checked("the weight of", name, weight)
    if value is not None and not abs(value * number) <= MAX_REWARD:
        raise RewardError(f"reward {name} is {value} x {weight}; allowed are products up to {MAX_REWARD:g}")
    return number
