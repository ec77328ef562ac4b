"""Decisions: choose among actions, and say what the choice was worth."""

from __future__ import annotations

import struct
from typing import Any

import msgspec
import numpy as np
from starlette.requests import Request
from starlette.responses import Response

from learnloop.algorithms.hashed.features import MAX_VECTOR
from learnloop.core.arrays import F32
from learnloop.core.errors import ContextError
from learnloop.core.records import ApiScope, Decision, DecisionActivation, DecisionMode, Reward
from learnloop.decisions.service.request import DecisionRequest, Slot, check_slots
from learnloop.loop.decisions.feedback import Feedback
from learnloop.loop.nouns.decisions import DecisionDetail
from learnloop.serve.decision_maker import DecisionMaker, keep_deciding
from learnloop.serve.http.calls import call_of
from learnloop.serve.http.json_bodies import answer, read_json
from learnloop.serve.http.ndjson import NDJSON, LineAnswer, ndjson_answer
from learnloop.serve.http.operations import Limit, ListBody, Operations, Text
from learnloop.serve.http.problems import Problem
from learnloop.serve.service import service_of

operations = Operations("decisions", lifespan=keep_deciding)

BATCH_AT_ONCE = 64
"""Items of a batch that are decided together, and so share a commit of the log."""


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


class RewardBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a decision was worth: one number, or parts by name."""

    value: float | msgspec.UnsetType | None = msgspec.UNSET
    """The part ``reward``; null: it is known that it cannot be known."""
    values: dict[str, float | None] = {}
    """Parts by name; a part that is given again replaces the one before."""
    reason: str | None = None


class BatchRewardBody(RewardBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A reward in a batch."""

    decision_id: str


class FeedbackBody(Feedback, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a user says of a decision or an episode."""

    decision_id: str | None = None
    episode_id: str | None = None


class Rewarded(msgspec.Struct, frozen=True, kw_only=True):
    """Rewards as they were kept; the next update learns from them."""

    rewards: list[Reward]


class DecisionList(ListBody[Decision], frozen=True, kw_only=True):
    """A page of decisions, the newest first."""


@operations.post(
    "/v1/decisions", scope=ApiScope.ACT, request=DecisionBody, response=ChoiceBody, status=201, idempotent=True
)
async def make_decision(request: Request) -> Response:
    """Choose one of the actions, or one for each slot; what was chosen is logged before it is answered."""
    part = service_of(request).part(DecisionMaker)
    body = await read_json(request, DecisionBody)
    effect_id = call_of(request.scope).effect_id
    if effect_id is not None and body.decision_id is None:  # again after a crash: the same decision, not a second one
        body = msgspec.structs.replace(body, decision_id=effect_id)
    decisions = await part.decide(body.agent_id, body.policy, read_request(body))
    return answer(choice_of(decisions), 201)


@operations.post(
    "/v1/decisions/batch",
    scope=ApiScope.ACT,
    accepts=(NDJSON,),
    request=DecisionBody,
    response=LineAnswer,
    produces=NDJSON,
)
async def make_decisions(request: Request) -> Response:
    """Choose for many requests, one a line; a line that is wrong gets a problem and does not stop the others."""
    part = service_of(request).part(DecisionMaker)

    async def decide(body: DecisionBody) -> ChoiceBody:
        return choice_of(await part.decide(body.agent_id, body.policy, read_request(body)))

    return ndjson_answer(request, DecisionBody, decide, status=201, at_once=BATCH_AT_ONCE)


@operations.get("/v1/decisions", scope=ApiScope.READ, response=DecisionList)
async def get_decisions(
    request: Request,
    agent_id: Text = None,
    policy: Text = None,
    episode_id: Text = None,
    limit: Limit = 50,
    after: Text = None,
) -> Response:
    """List decisions, the newest first, narrowed by agent, policy and episode."""
    service = service_of(request)
    page = await service.call(
        service.workspace.decisions.list,
        agent=agent_id,
        policy=policy,
        episode=episode_id,
        limit=limit,
        after=after,
    )
    return answer(DecisionList(data=page, next_cursor=page.next_cursor))


@operations.get("/v1/decisions/{decision_id}", scope=ApiScope.READ, response=DecisionDetail)
async def get_decision(request: Request, decision_id: str) -> Response:
    """Show a decision with its rewards, and whether it counts."""
    service = service_of(request)
    return answer(await service.call(service.workspace.decisions.show, decision_id))


@operations.post(
    "/v1/decisions/{decision_id}/reward",
    scope=ApiScope.ACT,
    request=RewardBody,
    response=Rewarded,
    status=201,
    idempotent=True,
)
async def reward_decision(request: Request, decision_id: str) -> Response:
    """Say what a decision was worth: at any time later, again, and in parts."""
    body = await read_json(request, RewardBody)
    return answer(await _give(request, decision_id, body), 201)


@operations.post(
    "/v1/decisions/rewards/batch",
    scope=ApiScope.ACT,
    accepts=(NDJSON,),
    request=BatchRewardBody,
    response=LineAnswer,
    produces=NDJSON,
)
async def reward_decisions(request: Request) -> Response:
    """Say what many decisions were worth, one a line."""

    async def give(body: BatchRewardBody) -> Rewarded:
        return await _give(request, body.decision_id, body)

    return ndjson_answer(request, BatchRewardBody, give, status=201, at_once=8)


@operations.post("/v1/decisions/{decision_id}/activate", scope=ApiScope.ACT, accepts=(), response=DecisionActivation)
async def activate_decision(request: Request, decision_id: str) -> Response:
    """Say that the action of a deferred decision was used, so that it counts from now on."""
    service = service_of(request)
    return answer(await service.call(service.workspace.decisions.activate, decision_id))


@operations.post(
    "/v1/feedback", scope=ApiScope.ACT, request=FeedbackBody, response=Rewarded, status=201, idempotent=True
)
async def give_feedback(request: Request) -> Response:
    """Keep what a user says: thumbs, a rating, or what became of a text under their hands."""
    service = service_of(request)
    body = await read_json(request, FeedbackBody)
    rewards = await service.call(
        service.workspace.decisions.feedback,
        body,
        decision_id=body.decision_id,
        episode_id=body.episode_id,
        key=call_of(request.scope).effect_id,
    )
    return answer(Rewarded(rewards=list(rewards)), 201)


async def _give(request: Request, decision_id: str, body: RewardBody) -> Rewarded:
    """Keeps the reward of a decision.

    Raises:
        Problem: 422 where it says nothing, or the same twice.
    """
    values = dict(body.values)
    if body.value is not msgspec.UNSET:
        if "reward" in values:
            raise Problem(422, "value is the part 'reward', which values has too; give one of them")
        values["reward"] = body.value
    if not values:
        raise Problem(422, "the reward is empty; give value, or values by name")
    service = service_of(request)
    call = call_of(request.scope)
    author = None if call.caller is None else call.caller.name
    give = service.workspace.decisions.reward
    rewards = await service.call(give, decision_id, values, reason=body.reason, author=author, key=call.effect_id)
    return Rewarded(rewards=list(rewards))


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
