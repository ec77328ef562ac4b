"""What clients of the decision service send and get."""

from __future__ import annotations

import struct
from typing import Any

import msgspec
import numpy as np

from learnloop.algorithms.hashed.features import MAX_VECTOR
from learnloop.core.arrays import F32
from learnloop.core.errors import ContextError
from learnloop.core.records import Decision, DecisionMode
from learnloop.decisions.service.request import DecisionRequest, Slot, check_slots

Vector = list[float] | bytes
"""What a body's field of numbers is declared as: a list, or little-endian float32 in base64, which msgspec reads."""


class ActionBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An action with what is known of it."""

    id: str
    features: dict[str, Any] = {}


class SlotBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One of several places to fill."""

    id: str
    features: dict[str, Any] = {}
    excluded: list[str] = []
    """Actions that may not be chosen here."""
    baseline: str | None = None


class DecisionBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is to be decided."""

    policy: str
    agent_id: str = "default"
    actions: list[str | ActionBody]
    context: dict[str, Any] = {}
    vector: Vector | None = None
    """Numbers such as an embedding: a list, or little-endian float32 in base64."""
    mask: list[bool] | None = None
    baseline: str | None = None
    slots: list[SlotBody] | None = None
    defer: bool = False
    """It counts only once it is activated."""
    decision_id: str | None = None
    """The client's own id: the same one again gets the same answer."""
    episode_id: str | None = None


class SlotChoice(msgspec.Struct, frozen=True, kw_only=True):
    """What was chosen for a slot."""

    slot: str
    decision_id: str
    action: str
    propensity: float | None
    probabilities: dict[str, float]


class ChoiceBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was decided; it is in the log by now."""

    decision_id: str
    action: str
    """Of the first slot where there are slots."""
    propensity: float | None
    probabilities: dict[str, float]
    mode: DecisionMode | None
    policy_version_id: str | None
    settings_version: int | None
    baseline_action: str | None = None
    policy_action: str | None = None
    slots: list[SlotChoice] | None = None


def read_vector(name: str, given: Vector) -> F32:
    """Returns a vector of a request, float32 of shape ``(n,)``; it may hold what is not finite.

    Args:
        name: what the client calls it.
        given: as it was read.

    Raises:
        ContextError: the bytes are not whole numbers, or a number is too large for float32.
    """
    if isinstance(given, bytes):
        if len(given) % 4:
            raise ContextError(f"{name} has {len(given)} bytes; float32 in base64 has 4 for each number")
        return np.frombuffer(given, "<f4")
    try:
        packed = struct.pack(f"<{len(given)}f", *given)  # a third of what numpy takes for a list
    except OverflowError as error:
        raise ContextError(f"{name} holds a number that is too large for float32") from error
    return np.frombuffer(packed, "<f4")


def _vector(given: Vector | None) -> F32 | None:
    if given is None:
        return None
    vector = read_vector("the vector", given)
    if not 1 <= len(vector) <= MAX_VECTOR:
        raise ContextError(f"the vector has {len(vector)} numbers; allowed are 1 to {MAX_VECTOR}")
    return vector


def read_request(body: DecisionBody) -> DecisionRequest:
    """Returns what is asked.

    Raises:
        ContextError: the vector cannot be read.
        ActionError: slots are empty, too many, or two have one id.
    """
    names: list[str] = []
    features: list[Any] = []
    for action in body.actions:
        if isinstance(action, str):
            names.append(action)
            features.append({})
        else:
            names.append(action.id)
            features.append(action.features)
    return DecisionRequest(
        actions=names,
        context=body.context,
        action_features=features if any(features) else None,
        vector=_vector(body.vector),
        mask=body.mask,
        baseline=body.baseline,
        is_deferred=body.defer,
        decision_id=body.decision_id,
        episode_id=body.episode_id,
        slots=None if body.slots is None else _read_slots(body.slots),
    )


def _read_slots(bodies: list[SlotBody]) -> list[Slot]:
    slots = [Slot(body.id, body.features, frozenset(body.excluded), body.baseline) for body in bodies]
    check_slots(slots)
    return slots


def choice_of(decisions: list[Decision]) -> ChoiceBody:
    """Returns the answer for the decisions of one request."""
    first = decisions[0]
    slots = None
    if first.request_id is not None:
        slots = [
            SlotChoice(
                slot=each.slot or "",
                decision_id=each.decision_id,
                action=each.action,
                propensity=each.propensity,
                probabilities=_by_action(each),
            )
            for each in decisions
        ]
    return ChoiceBody(
        decision_id=first.decision_id if first.request_id is None else first.request_id,
        action=first.action,
        propensity=first.propensity,
        probabilities=_by_action(first),
        mode=first.mode,
        policy_version_id=first.policy_version_id,
        settings_version=first.settings_version,
        baseline_action=first.baseline_action,
        policy_action=first.policy_action,
        slots=slots,
    )


def _by_action(decision: Decision) -> dict[str, float]:
    return dict(zip(decision.actions, decision.probabilities or (), strict=False))
