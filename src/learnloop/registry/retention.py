"""Which versions of a policy may be removed: a decision on records alone."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from learnloop.core.checks import check_range, is_number
from learnloop.core.records import PolicyVersion


def reward_of(version: PolicyVersion) -> float | None:
    """Returns the version's held-out reward, or None where it has none."""
    value = version.metrics.get("reward")
    return float(value) if is_number(value) else None


def removable(
    versions: Sequence[PolicyVersion], keep: int, referred: Collection[str], unproven: Collection[str] = ()
) -> list[PolicyVersion]:
    """Returns the versions beyond the ``keep`` newest that nothing needs, oldest first.

    Kept besides the newest: of the proven ones the newest and the best (highest held-out reward; all of them where
    several share it), those whose ids are in ``referred``, and the parents of all that is kept for these reasons. A
    parent is not a reason to keep its own parent, else an unbroken line of descent would keep everything.

    Args:
        versions: all versions of one policy.
        keep: how many of the newest to keep, at least 1.
        referred: the ids that aliases, alias moves, decisions or other policies' versions name.
        unproven: the ids of those whose learning is not proven.

    Raises:
        UsageError: ``keep`` is below 1.
    """
    check_range("keep", keep, 1)
    ordered = sorted(versions, key=lambda version: version.version)
    sound = [version for version in ordered if version.policy_version_id not in unproven]
    rewards = {version.policy_version_id: reward_of(version) for version in sound}
    best = max((reward for reward in rewards.values() if reward is not None), default=None)
    kept = {version.policy_version_id for version in [*ordered[-keep:], *sound[-1:]]} | set(referred)
    kept |= {key for key, reward in rewards.items() if best is not None and reward == best}
    kept |= {version.parent_id for version in ordered if version.policy_version_id in kept and version.parent_id}
    return [version for version in ordered if version.policy_version_id not in kept]
