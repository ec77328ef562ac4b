"""What is to be decided: one request for all doors, and what is checked of it before a policy is asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec

from learnloop.algorithms.bandits.actions import check_actions
from learnloop.core.arrays import F32
from learnloop.core.errors import ActionError, ContextError, one_of
from learnloop.decisions.service.settings import MAX_ACTIONS

MAX_SLOTS = 100
MAX_PAIRS = 2**22
"""Features of the context times features of all actions, over all slots of a request."""
_FEW_CHOICES = 64
"""The limits of each context and each action keep fewer actions, times slots, below ``MAX_PAIRS`` or near it."""
_NOTHING: Mapping[str, Any] = {}


class Slot(NamedTuple):
    """One of several places that a request fills with different actions."""

    slot: str
    features: Mapping[str, Any] = _NOTHING
    excluded: frozenset[str] = frozenset()
    """Actions that may not be chosen here."""
    baseline: str | None = None


class DecisionRequest(msgspec.Struct, frozen=True, gc=False):
    """What is to be decided."""

    actions: list[str]
    context: Mapping[str, Any] = _NOTHING
    action_features: list[Mapping[str, Any]] | None = None
    vector: F32 | None = None
    """float32, shape ``(n,)``."""
    mask: list[bool] | None = None
    baseline: str | None = None
    """What the caller's own logic chooses; None in apprentice mode: the first allowed action."""
    is_deferred: bool = False
    decision_id: str | None = None
    episode_id: str | None = None
    span_id: str | None = None
    slots: Sequence[Slot] | None = None
    is_strict: bool = False
    """Whether an online policy refuses features that it does not know or misses, as a program's own call wants it."""

    @property
    def is_plain(self) -> bool:
        """Whether an online policy can read all of it: names of actions and a flat context."""
        if self.action_features is not None or self.vector is not None:
            return False
        return not any(value is None or isinstance(value, dict | list) for value in self.context.values())


def check_slots(slots: Sequence[Slot]) -> None:
    """Refuses slots that are empty, too many, or share an id.

    Raises:
        ActionError: they are.
    """
    if not 1 <= len(slots) <= MAX_SLOTS:
        raise ActionError(f"there are {len(slots)} slots; allowed are 1 to {MAX_SLOTS}, or none at all")
    ids = [slot.slot for slot in slots]
    if len(set(ids)) < len(ids) or not all(ids):
        raise ActionError(f"the slots are {ids}; give each an id of its own")


def check_request(request: DecisionRequest, *, interactions: bool) -> None:
    """Refuses what no policy can decide.

    Args:
        request: what is asked.
        interactions: whether the policy looks at pairs of features.

    Raises:
        ActionError: actions, their features, baselines or slots do not fit each other.
        ContextError: the context is too large, or has a feature of a reserved name.
    """
    actions = request.actions
    if len(actions) > MAX_ACTIONS:  # first: the other checks take their time with many
        raise ActionError(f"there are {len(actions)} actions; at most {MAX_ACTIONS} can be chosen from")
    if len(actions) > _FEW_CHOICES:
        check_actions(actions)
    else:
        _check_few(tuple(actions))
    if request.action_features is not None and len(request.action_features) != len(actions):
        raise ActionError(f"there are features of {len(request.action_features)} actions and {len(actions)} actions")
    if request.baseline is not None:
        _check_baseline(request.baseline, actions)
    if request.slots is not None:
        _check_filling(request, request.slots)
    if interactions and len(actions) * len(request.slots or (None,)) > _FEW_CHOICES:
        _check_size(request)


@lru_cache(4_096)
def _check_few(actions: tuple[str, ...]) -> None:
    """As ``check_actions``; the same few are given again and again."""
    check_actions(actions)


def _check_baseline(baseline: str, actions: Sequence[str]) -> None:
    if baseline not in actions:
        raise ActionError(f"the baseline {baseline!r} is none of the actions {one_of(actions)}")


def _check_filling(request: DecisionRequest, slots: Sequence[Slot]) -> None:
    for slot in slots:
        if slot.baseline is not None:
            _check_baseline(slot.baseline, request.actions)
        if slot.baseline in slot.excluded:
            raise ActionError(f"the slot {slot.slot!r} excludes its own baseline {slot.baseline!r}")
    if "slot" in request.context:
        raise ContextError("the context has a feature 'slot', which is where a slot's own features go; rename it")


def _check_size(request: DecisionRequest) -> None:
    """Refuses what would hold up the decisions of all others."""
    slots = request.slots or [Slot("")]
    num_context = sum(_num_features(request.context) + _num_features(slot.features) + 1 for slot in slots)
    num_action = sum(_num_features(features) for features in request.action_features or ()) + 2 * len(request.actions)
    if num_context * num_action > MAX_PAIRS:
        raise ContextError(
            f"{num_context} features of the context, over {len(slots)} slots, times {num_action} of the actions are "
            f"more than {MAX_PAIRS} pairs; give fewer features, actions or slots, or turn interactions off"
        )


def _num_features(features: Any) -> int:
    if isinstance(features, Mapping):
        return sum(map(_num_features, features.values()))
    return sum(map(_num_features, features)) if isinstance(features, list | tuple) else 1
