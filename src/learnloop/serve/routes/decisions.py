"""Decisions: choose among actions, and say what the choice was worth."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from learnloop.core.records import ApiScope, Decision, DecisionActivation, Reward
from learnloop.loop.decisions.feedback import Feedback
from learnloop.loop.nouns.decisions import DecisionDetail
from learnloop.serve.decision_maker import DecisionMaker, keep_deciding
from learnloop.serve.http.calls import call_of
from learnloop.serve.http.json_bodies import answer, read_json
from learnloop.serve.http.ndjson import NDJSON, LineAnswer, ndjson_answer
from learnloop.serve.http.operations import Limit, Operations, Text
from learnloop.serve.http.problems import Problem
from learnloop.serve.routes.decision_bodies import ChoiceBody, DecisionBody, choice_of, read_request
from learnloop.serve.service import service_of

operations = Operations("decisions", lifespan=keep_deciding)

BATCH_AT_ONCE = 64
"""Items of a batch that are decided together, and so share a commit of the log."""


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


class DecisionList(msgspec.Struct, frozen=True, kw_only=True):
    """A page of decisions, the newest first."""

    data: list[Decision]
    next_cursor: str | None


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
