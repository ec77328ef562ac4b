"""Rewards: score a finished task, and look at who was credited.

``/api/v1/rewards/...`` are the paths of seed 4, ``/v1/rewards/...`` ours; they are the same.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

import msgspec
from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from learnloop.core.ids import check_cursor
from learnloop.core.records import ApiScope, RewardShare
from learnloop.loop.rewards.rewarding import RewardProcess
from learnloop.rewards.scoring.engine import Scored
from learnloop.serve.http.json_bodies import answer, read_json
from learnloop.serve.http.operations import Limit, ListBody, Operations, Text
from learnloop.serve.service import Service, service_of


@asynccontextmanager
async def _lifespan(service: Service) -> AsyncIterator[None]:
    process = RewardProcess(service.workspace)  # settings that cannot be used are told at the start
    process.check_needs_no_value()
    service.add(process)
    yield


operations = Operations("rewards", lifespan=_lifespan)


class CalculateRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A finished task."""

    task_id: str
    result: dict[str, Any]
    """Fields of an attempt: ``task_type``, ``output``, ``expected``, ``steps``, ``agents``, ``metadata`` ... With
    ``episode_id`` the reward is that episode's."""


class CalculatedReward(msgspec.Struct, frozen=True, kw_only=True):
    """What a task was worth, and who is credited with how much of it."""

    task_id: str
    raw_reward: float | None
    """None: it is not known; ``scored.reason`` says why, and nothing is shared out."""
    shaped_reward: float | None
    scored: Scored
    shares: list[RewardShare]


class RewardHistory(ListBody[RewardShare], frozen=True, kw_only=True):
    """A page of shares, what was booked last first."""


async def calculate_reward(request: Request) -> Response:
    """Score a finished task, share the reward out, and store both."""
    service = service_of(request)
    body = await read_json(request, CalculateRequest)
    process = service.part(RewardProcess)
    complete = service.workspace.rewards.process_task_completion
    done = await service.call(complete, body.task_id, body.result, process=process)
    return answer(
        CalculatedReward(
            task_id=body.task_id,
            raw_reward=done.raw_reward,
            shaped_reward=done.shaped_reward,
            scored=done.scored,
            shares=done.shares,
        )
    )


async def get_reward_history(
    request: Request,
    agent_id: Text = None,
    task_id: Text = None,
    episode_id: Text = None,
    span_id: Text = None,
    step: Annotated[int | None, Query(ge=0, le=2**31)] = None,
    limit: Limit = 50,
    after: Text = None,
) -> Response:
    """List who was credited with how much of which reward, what was booked last first."""
    check_cursor(after)
    service = service_of(request)
    page = await service.call(
        service.workspace.rewards.history,
        agent=agent_id,
        task=task_id,
        episode=episode_id,
        span=span_id,
        step=step,
        limit=limit,
        after=after,
    )
    return answer(RewardHistory(data=page, next_cursor=page.next_cursor))


for _prefix, _suffix in (("/v1", ""), ("/api/v1", "_as_seed_4")):
    operations.post(
        f"{_prefix}/rewards/calculate",
        scope=ApiScope.ACT,
        request=CalculateRequest,
        response=CalculatedReward,
        operation_id=f"calculate_reward{_suffix}",
    )(calculate_reward)
    operations.get(
        f"{_prefix}/rewards/history",
        scope=ApiScope.READ,
        response=RewardHistory,
        operation_id=f"get_reward_history{_suffix}",
    )(get_reward_history)
