"""The attempts at one task, as a group: learning by comparison needs groups whose outcomes differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

import msgspec

from learnloop.store import Store
from learnloop.store.queries.episodes import attempt_groups


class GroupReport(msgspec.Struct, frozen=True, kw_only=True):
    """How many groups of attempts there are, of which kind. A group is one agent's attempts at one task."""

    num_groups: int
    """Tasks with at least one attempt."""
    num_repeated: int
    """Of these, with two attempts and more."""
    num_mixed: int
    """Of the repeated ones, those whose known outcomes differ."""
    num_without_signal: int
    """Of the repeated ones, those in which all outcomes are known and the same: nothing to compare."""
    num_unknown: int
    """Of the repeated ones, those whose known outcomes do not differ, and not all are known."""
    sizes: Mapping[int, int]
    """How many groups have so many attempts."""


def count_groups(store: Store, agents: Collection[str] | None = None) -> GroupReport:
    """Returns the groups of ``agents`` in a store; of all agents where None.

    The outcome of an attempt is what it was worth by its own rewards; see ``core/rewards.py``.
    """
    found = store.read(attempt_groups, agents)
    sizes = Counter[int]()
    for group in found:
        sizes[group.size] += group.number
    repeated = [group for group in found if group.size > 1]
    return GroupReport(
        num_groups=sum(sizes.values()),
        num_repeated=sum(group.number for group in repeated),
        num_mixed=sum(group.number for group in repeated if group.is_mixed),
        num_without_signal=sum(group.number for group in repeated if not group.is_mixed and group.is_known),
        num_unknown=sum(group.number for group in repeated if not group.is_mixed and not group.is_known),
        sizes=dict(sorted(sizes.items())),
    )
