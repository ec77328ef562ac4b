"""Episodes: what agents did."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from learnloop.core.records import ApiScope, EpisodeStatus
from learnloop.loop.nouns.episodes import EpisodeDetail, EpisodeRow
from learnloop.serve.http.json_bodies import answer
from learnloop.serve.http.operations import Limit, ListBody, Operations, Text
from learnloop.serve.service import service_of

operations = Operations("episodes")


class EpisodeList(ListBody[EpisodeRow], frozen=True, kw_only=True):
    """A page of episodes, the newest first."""


@operations.get("/v1/episodes", scope=ApiScope.READ, response=EpisodeList)
async def get_episodes(
    request: Request,
    agent: Text = None,
    task: Text = None,
    status: EpisodeStatus | None = None,
    limit: Limit = 50,
    after: Text = None,
) -> Response:
    """List episodes, the newest first, narrowed by agent, task and status."""
    service = service_of(request)
    listing = service.workspace.episodes.list
    page = await service.call(listing, agent=agent, task=task, status=status, limit=limit, after=after)
    return answer(EpisodeList(data=page, next_cursor=page.next_cursor))


@operations.get("/v1/episodes/{episode_id}", scope=ApiScope.READ, response=EpisodeDetail)
async def get_episode(request: Request, episode_id: str) -> Response:
    """Show an episode with its spans, decisions and rewards."""
    service = service_of(request)
    return answer(await service.call(service.workspace.episodes.show, episode_id))
