"""Policies of the decision service: how they choose and learn, what became of their updates, what others would earn."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import Query
from starlette.requests import Request
from starlette.responses import Response

from learnloop.core.errors import ConflictError
from learnloop.core.ids import check_cursor
from learnloop.core.records import ApiScope, ChampionTest, LearningUpdate, PolicySettings
from learnloop.decisions.learning.apprentice import MatchRate
from learnloop.decisions.service.policies import registered_name
from learnloop.decisions.service.settings import DecisionSettings, VersionedSettings, read_settings
from learnloop.loop.decisions.counterfactual import (
    DEFAULT_TARGETS,
    MAX_DECISIONS,
    Counterfactual,
    CounterfactualOptions,
)
from learnloop.serve.decision_maker import DecisionMaker
from learnloop.serve.http.calls import call_of
from learnloop.serve.http.conditional import demand_match, etag_of, tagged
from learnloop.serve.http.json_bodies import answer, read_json
from learnloop.serve.http.operations import Limit, ListBody, Operations, Text
from learnloop.serve.service import service_of

operations = Operations("decision policies")

MAX_TARGETS = 20
_PATH = "/v1/agents/{agent_id}/policies/{policy}"


class SettingsBody(msgspec.Struct, frozen=True, kw_only=True):
    """Settings as they hold."""

    agent_id: str
    policy: str
    version: int
    """0: nothing was set, these are the defaults."""
    settings: DecisionSettings


class SettingsHistory(ListBody[PolicySettings], frozen=True, kw_only=True):
    """A page of the versions of a policy's settings, the newest first."""


class UpdateList(ListBody[LearningUpdate], frozen=True, kw_only=True):
    """A page of updates, the newest first."""


class ChampionTestList(ListBody[ChampionTest], frozen=True, kw_only=True):
    """A page of tests, the newest first."""


class EvaluationBody(CounterfactualOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whose earnings are asked for, and on which decisions.

    Give ``learning.held_out_share`` as ``held_out_share`` for only those decisions that versions made from this log
    were not trained on; without it such versions look better than they are.
    """

    targets: Annotated[tuple[str, ...], msgspec.Meta(max_length=MAX_TARGETS)] = tuple(DEFAULT_TARGETS)
    """``champion``, ``uniform``, ``baseline``, ``best-fixed``, or a registered version such as ``NAME@3``."""
    newest: Annotated[int, msgspec.Meta(ge=1, le=MAX_DECISIONS)] = 20_000
    """Of so many decisions, the newest; many take their time, beside which the server decides."""


@operations.get(f"{_PATH}/settings", scope=ApiScope.READ, response=SettingsBody, has_etag=True)
async def get_settings(request: Request, agent_id: str, policy: str) -> Response:
    """Show how a policy chooses and learns; its ETag is what a change has to name."""
    service = service_of(request)
    registered_name(agent_id, policy)
    found = await service.call(service.workspace.decisions.settings, agent_id, policy)
    return _tagged(request, agent_id, policy, found)


@operations.route(
    "PUT",
    f"{_PATH}/settings",
    scope=ApiScope.ADMIN,
    accepts=("application/json",),
    request=DecisionSettings,
    response=SettingsBody,
    if_match="must",
    has_etag=True,
)
async def put_settings(request: Request, agent_id: str, policy: str) -> Response:
    """Set how a policy chooses and learns, as its next version; what was left out has its default."""
    service = service_of(request)
    registered_name(agent_id, policy)
    settings = read_settings(await read_json(request, dict[str, Any]))
    decisions = service.workspace.decisions
    before = await service.call(decisions.settings, agent_id, policy)
    demand_match(request, etag_of(before.version))
    caller = call_of(request.scope).caller
    try:
        now = await service.call(
            decisions.change_settings,
            agent_id,
            policy,
            settings,
            author=None if caller is None else caller.name,
            expected_version=before.version,
        )
    except ConflictError:  # somebody else was faster since the look above
        latest = await service.call(decisions.settings, agent_id, policy)
        demand_match(request, etag_of(latest.version))
        raise
    await service.call(
        service.part(DecisionMaker).policies.load, agent_id, policy
    )  # what comes next is decided by them
    return _tagged(request, agent_id, policy, now)


@operations.get(f"{_PATH}/settings/history", scope=ApiScope.READ, response=SettingsHistory)
async def get_settings_history(
    request: Request,
    agent_id: str,
    policy: str,
    limit: Limit = 50,
    after: Annotated[str | None, Query(max_length=20, pattern="^[1-9][0-9]{0,17}$")] = None,
) -> Response:
    """List the versions of a policy's settings, the newest first."""
    service = service_of(request)
    registered_name(agent_id, policy)
    before = None if after is None else int(after)
    history = service.workspace.decisions.settings_history
    found = await service.call(history, agent_id, policy, limit=limit + 1, before=before)
    cursor = str(found[limit - 1].version) if len(found) > limit else None
    return answer(SettingsHistory(data=found[:limit], next_cursor=cursor))


@operations.get(f"{_PATH}/updates", scope=ApiScope.READ, response=UpdateList)
async def get_updates(
    request: Request,
    agent_id: str,
    policy: str,
    limit: Limit = 50,
    after: Text = None,
) -> Response:
    """List what the learner tried, the newest first: its diagnostics, its verdict, and what came of it."""
    service = service_of(request)
    registered_name(agent_id, policy)
    check_cursor(after)
    page = await service.call(service.workspace.decisions.updates, agent_id, policy, limit=limit, after=after)
    return answer(UpdateList(data=page, next_cursor=page.next_cursor))


@operations.get(f"{_PATH}/champion-tests", scope=ApiScope.READ, response=ChampionTestList)
async def get_champion_tests(
    request: Request,
    agent_id: str,
    policy: str,
    limit: Limit = 50,
    after: Text = None,
) -> Response:
    """List how versions fared, while they were served, against what was tried besides them, the newest first."""
    service = service_of(request)
    registered_name(agent_id, policy)
    check_cursor(after)
    tests = service.workspace.decisions.champion_tests
    page = await service.call(tests, agent_id, policy, limit=limit, after=after)
    return answer(ChampionTestList(data=page, next_cursor=page.next_cursor))


@operations.get(f"{_PATH}/match-rate", scope=ApiScope.READ, response=MatchRate)
async def get_match_rate(
    request: Request,
    agent_id: str,
    policy: str,
    newest: Annotated[int | None, Query(ge=1, le=10_000_000)] = None,
) -> Response:
    """Show how often the policy's own choice was the caller's: what apprentice mode is judged by."""
    service = service_of(request)
    registered_name(agent_id, policy)
    return answer(await service.call(service.workspace.decisions.match_rate, agent_id, policy, newest=newest))


@operations.post(f"{_PATH}/evaluate", scope=ApiScope.READ, request=EvaluationBody, response=Counterfactual)
async def evaluate_policy(request: Request, agent_id: str, policy: str) -> Response:
    """Estimate what others would have earned on the logged decisions of a policy."""
    service = service_of(request)
    registered_name(agent_id, policy)
    body = await read_json(request, EvaluationBody)
    found = await service.call(service.workspace.decisions.evaluate, agent_id, policy, body.targets, body)
    return answer(found)


def _tagged(request: Request, agent_id: str, policy: str, found: VersionedSettings) -> Response:
    body = SettingsBody(agent_id=agent_id, policy=policy, version=found.version, settings=found.settings)
    return tagged(request, body, etag_of(found.version))
