"""Every route that lists something: pages by keyset cursors, none twice and none left out while others write."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from learnloop.compat.groups import COMPATIBLE_GROUPS
from learnloop.core.clock import now
from learnloop.core.ids import new_id
from learnloop.core.records import (
    Agent,
    ChampionTest,
    Decision,
    Episode,
    EpisodeStatus,
    LearningUpdate,
    PolicySettings,
    Record,
    RewardShare,
)
from learnloop.loop import Workspace
from learnloop.loop.workspace.settings import find_settings
from learnloop.serve.app import GROUPS
from learnloop.serve.http.operations import Operation
from tests.serve.conftest import Running, Start
from tests.serve.test_routes import CURSORS

LISTS = [
    operation
    for group in (*GROUPS, *COMPATIBLE_GROUPS)
    for operation in group.routes
    if "GET" in operation.methods
    if {"limit", "after"} & {parameter.alias for parameter in operation.dependant.query_params}
    or "data" in getattr(operation.rules.response, "__struct_fields__", ())
]


def episode(number: int) -> list[Record]:
    moment = now() + timedelta(microseconds=number)
    return [
        Episode(
            episode_id=new_id(),
            trace_id=new_id(),
            agent_id="a",
            task_id=None,
            status=EpisodeStatus.COMPLETED,
            terminated=True,
            started_at=moment,
            ended_at=moment,
        )
    ]


def decision(number: int) -> list[Record]:
    return [
        Decision(
            decision_id=new_id(),
            agent_id="a",
            episode_id=None,
            policy="p",
            context={},
            actions=["x", "y"],
            action="x",
            propensity=0.5,
            algorithm="uniform",
            created_at=now(),
        )
    ]


def share(number: int) -> list[Record]:
    return [
        RewardShare(
            reward_share_id=new_id(),
            completion_id=new_id(),
            task_id=None,
            agent_id="a",
            raw_reward=1.0,
            shaped_reward=1.0,
            credit_assigned=1.0,
            method="last",
            created_at=now(),
        )
    ]


def learning_update(number: int) -> list[Record]:
    return [
        LearningUpdate(
            learning_update_id=new_id(),
            agent_id="a",
            policy="p",
            settings_version=1,
            reward_sequence=number,
            num_samples=1,
            num_held_out=1,
            verdict=None,
            reasons=[],
            started_at=now(),
            ended_at=now(),
        )
    ]


def champion_test(number: int) -> list[Record]:
    return [
        ChampionTest(
            champion_test_id=new_id(),
            agent_id="a",
            policy="p",
            policy_version_id="v",
            decision_sequence=number,
            num_decisions=1,
            num_others=0,
            num_missing=0,
            num_untested=0,
            evidence=0.2,
            state={},
            started_at=now(),
            updated_at=now(),
        )
    ]


def settings(number: int) -> list[Record]:
    return [
        PolicySettings(
            policy_settings_id=new_id(),
            agent_id="a",
            policy="p",
            version=next(_versions),
            settings={},
            created_at=now(),
        )
    ]


_versions = itertools.count(1)
MAKERS: dict[str, Callable[[int], list[Record]]] = {
    "/v1/episodes": episode,
    "/v1/decisions": decision,
    "/v1/rewards/history": share,
    "/api/v1/rewards/history": share,
    "/v1/agents/{agent_id}/policies/{policy}/updates": learning_update,
    "/v1/agents/{agent_id}/policies/{policy}/champion-tests": champion_test,
    "/v1/agents/{agent_id}/policies/{policy}/settings/history": settings,
}
"""What makes something new in the list of that route; a new route needs its own."""


_KEYS = ("policy_settings_id", "reward_share_id", "learning_update_id", "champion_test_id", "decision_id", "episode_id")


def key_of(row: dict[str, Any]) -> str:
    """Returns the id of what a row of a list shows."""
    for name in ("episode", "decision"):
        if isinstance(row.get(name), dict):
            row = row[name]
    return str(next(row[name] for name in _KEYS if name in row))


@pytest.fixture(params=["sqlite_url", "postgres_url"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Workspace]:
    url: str = request.getfixturevalue(request.param)
    with Workspace(find_settings(tmp_path / "place", url), create=True) as opened:
        opened.store.write([Agent(agent_id="a", created_at=now())])
        yield opened


def test_every_list_has_pages() -> None:
    for operation in LISTS:
        names = {parameter.alias for parameter in operation.dependant.query_params}
        assert {"limit", "after"} <= names, operation.path
        assert operation.path in MAKERS, f"{operation.path} is a list; say above what makes something new in it"


def path_of(operation: Operation) -> str:
    return operation.path.replace("{agent_id}", "a").replace("{policy}", "p")


def page(server: Running, operation: Operation, limit: int, after: str | None) -> dict[str, Any]:
    more = "" if after is None else f"&after={quote(after, safe='')}"
    reply = server.ask("GET", f"{path_of(operation)}?limit={limit}{more}")
    assert reply.status == 200, reply
    found: dict[str, Any] = json.loads(reply.body)
    assert len(found["data"]) <= limit
    return found


@pytest.mark.parametrize("operation", LISTS, ids=lambda operation: operation.path)
def test_a_walk_while_others_write(place: Workspace, start: Start, operation: Operation) -> None:
    """All that was there before is seen once, whatever comes in between; nothing is seen twice."""
    make = MAKERS[operation.path]
    server = start(on=place)
    before = [record for number in range(23) for record in make(number)]
    place.store.write(before)
    seen: list[str] = []
    after: str | None = None
    for number in range(100):
        found = page(server, operation, 3, after)
        seen += [key_of(row) for row in found["data"]]
        after = found["next_cursor"]
        if after is None:
            break
        if number < 10:
            place.store.write(make(1000 + number))
    assert len(seen) == len(set(seen))
    ids = {getattr(record, record.__struct_fields__[0]) for record in before}
    assert ids <= set(seen)


@pytest.mark.parametrize("operation", LISTS, ids=lambda operation: operation.path)
def test_wrong_cursors_and_limits(start: Start, operation: Operation) -> None:
    server = start()
    for cursor in CURSORS:
        reply = server.ask("GET", f"{path_of(operation)}?after={cursor}")
        assert (reply.status, reply.headers["content-type"]) == (422, "application/problem+json"), cursor
    for limit in ("0", "-1", "201", "99999999999999999999", "NaN", "true", ""):
        assert server.ask("GET", f"{path_of(operation)}?limit={limit}").status == 422, limit
