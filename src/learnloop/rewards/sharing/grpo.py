"""Group normalisation: what each of several attempts at one task was worth, relative to the others."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from learnloop.core.checks import check_choice
from learnloop.core.errors import RewardError, UsageError
from learnloop.core.records import MAX_REWARD, Record
from learnloop.rewards.scoring.engine import Scored

Scale = Literal["std", "none"]

MAX_DEGENERATE_SHARE = 0.5
MAX_LENGTH_CORRELATION = 0.5
MIN_PAIRS = 10
"""With fewer attempts a correlation of 0.5 is chance."""
_SAME = 1e-12
"""Rewards that differ by less, relative to their size, are rounding."""


class GroupAdvantages(Record, frozen=True, kw_only=True):
    """The advantages of the attempts of one group."""

    advantages: list[float]
    """In the order of the rewards; 0 for those without one."""
    mean: float | None
    """Of the rewards that are known; None: none is."""
    std: float | None
    num_scored: int
    num_unscored: int
    """How many had no reward; they are in neither the mean nor the deviation."""
    is_degenerate: bool
    """All advantages are 0: nothing can be learned from it, and data sets leave it out."""


class ComponentStatistics(Record, frozen=True, kw_only=True):
    """How one reward function scored many attempts."""

    num_scored: int
    num_unscored: int
    """Should have been scored and could not be."""
    num_not_applicable: int
    mean: float | None
    std: float | None
    length_correlation: float | None
    """Pearson's, with the length of the answers; None: fewer than 2 that differ."""


class RewardStatistics(Record, frozen=True, kw_only=True):
    """What to look at before learning from groups."""

    components: dict[str, ComponentStatistics]
    """By the name of the function; ``total`` is the total."""
    num_groups: int
    num_degenerate: int
    warnings: list[str]


def normalize_group(rewards: Sequence[float | None], scale: Scale = "std") -> GroupAdvantages:
    """Returns the advantage of each attempt over the others at the same task.

    ``std``: A_i = (r_i - mean(r)) / std(r), with the deviation of the whole group (divided by n).
    Source: Shao et al. 2024, DeepSeekMath, section 4.1.2.
    ``none``: A_i = r_i - mean(r), which does not favour groups that differ little.
    Source: Liu et al. 2025, Understanding R1-Zero-Like Training (Dr. GRPO), section 3.2.

    A reward of None has the advantage 0 and is left out of mean and deviation.

    Args:
        rewards: of all attempts of one group.
        scale: by what differences are divided.

    Raises:
        UsageError: there are fewer than 2 attempts: nothing to compare with; or ``scale`` is unknown.
        RewardError: a reward is not a finite number.
    """
    check_choice("scale", scale, ("std", "none"))
    if len(rewards) < 2:
        raise UsageError(f"a group of {len(rewards)} has nothing to compare with; give at least 2 attempts at a task")
    known = [_checked(value) for value in rewards if value is not None]
    mean = math.fsum(known) / max(len(known), 1)
    std = math.sqrt(math.fsum((value - mean) ** 2 for value in known) / max(len(known), 1))
    is_degenerate = std <= _SAME * max(map(abs, known), default=0.0)
    divisor = std if scale == "std" else 1.0
    advantages = [0.0 if value is None or is_degenerate else (value - mean) / divisor for value in rewards]
    return GroupAdvantages(
        advantages=advantages,
        mean=mean if known else None,
        std=std if known else None,
        num_scored=len(known),
        num_unscored=len(rewards) - len(known),
        is_degenerate=is_degenerate,
    )


def normalize_groups(
    groups: Mapping[str, Sequence[float | None]], scale: Scale = "std"
) -> tuple[dict[str, GroupAdvantages], list[str]]:
    """Returns the advantages of each group, by its key, and warnings.

    Raises:
        UsageError, RewardError: as ``normalize_group``.
    """
    found = {key: normalize_group(rewards, scale) for key, rewards in groups.items()}
    return found, _group_warnings(len(found), sum(group.is_degenerate for group in found.values()))


def reward_statistics(
    groups: Mapping[str, Sequence[Scored]], lengths: Mapping[str, Sequence[float]] | None = None
) -> RewardStatistics:
    """Returns figures of each reward function over groups of attempts, with warnings.

    Warned of are groups without differences (more than half) and scores that follow the length of the answers
    (a correlation beyond 0.5 either way).

    Args:
        groups: what an engine found of the attempts at each task.
        lengths: of the answers, such as numbers of tokens, in the same order; None: not known.

    Raises:
        UsageError: a group has another number of lengths than of attempts.
    """
    scored = [each for group in groups.values() for each in group]
    flat = None if lengths is None else [value for key in groups for value in _same_number(key, groups[key], lengths)]
    names = sorted({name for each in scored for name in each.scores})
    components = {name: _component(scored, name, flat) for name in names}
    components["total"] = _statistics([each.total for each in scored], 0, flat)
    totals = [[each.total for each in group] for group in groups.values()]
    num_degenerate = sum(len(group) < 2 or normalize_group(group).is_degenerate for group in totals)
    warnings = _group_warnings(len(totals), num_degenerate)
    for name, each in components.items():
        correlation = each.length_correlation
        if correlation is not None and abs(correlation) > MAX_LENGTH_CORRELATION and each.num_scored >= MIN_PAIRS:
            warnings.append(
                f"{name} follows the length of the answers (correlation {correlation:.2f}); it may be gamed"
            )
    return RewardStatistics(
        components=components, num_groups=len(totals), num_degenerate=num_degenerate, warnings=warnings
    )


def _checked(value: object) -> float:
    if not isinstance(value, int | float) or not abs(value) <= MAX_REWARD:  # NaN is not either
        allowed = f"a number of at most {MAX_REWARD:g} either way, or None for unknown"
        raise RewardError(f"a reward of the group is {value!r}; {allowed}, is needed")
    return float(value)


def _group_warnings(num_groups: int, num_degenerate: int) -> list[str]:
    if not num_groups or num_degenerate <= MAX_DEGENERATE_SHARE * num_groups:
        return []
    return [f"{num_degenerate} of {num_groups} groups have no differences in reward; nothing is learned from them"]


def _same_number(key: str, group: Sequence[Scored], lengths: Mapping[str, Sequence[float]]) -> Sequence[float]:
    found = lengths.get(key, ())
    if len(found) != len(group):
        raise UsageError(f"group {key!r} has {len(group)} attempts and {len(found)} lengths; one for each is needed")
    return found


def _component(scored: Sequence[Scored], name: str, lengths: Sequence[float] | None) -> ComponentStatistics:
    scores = [each.scores.get(name) for each in scored]
    num_not_applicable = sum(score is None or not score.is_applicable for score in scores)
    return _statistics([None if score is None else score.value for score in scores], num_not_applicable, lengths)


def _statistics(
    values: Sequence[float | None], num_not_applicable: int, lengths: Sequence[float] | None
) -> ComponentStatistics:
    places = [index for index, value in enumerate(values) if value is not None]
    known = np.array([values[index] for index in places], dtype=np.float64)
    beside = None if lengths is None else np.array([lengths[index] for index in places], dtype=np.float64)
    return ComponentStatistics(
        num_scored=len(places),
        num_unscored=len(values) - len(places) - num_not_applicable,
        num_not_applicable=num_not_applicable,
        mean=float(known.mean()) if places else None,
        std=float(known.std()) if places else None,
        length_correlation=None if beside is None else _correlation(known, beside),
    )


def _correlation(first: np.ndarray, second: np.ndarray) -> float | None:
    if any(len(set(values.tolist())) < 2 for values in (first, second)):
        return None
    return float(np.corrcoef(first, second)[0, 1])
