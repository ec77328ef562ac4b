"""``Idempotency-Key`` over the wire: once, the same answer again, also by another server and after a restart."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import update
from starlette.requests import Request
from starlette.responses import Response

from learnloop.core.clock import now
from learnloop.core.errors import ConflictError
from learnloop.core.records import Agent, ApiScope, IdempotentAnswer
from learnloop.loop import Workspace
from learnloop.loop.workspace.api_keys import create_key
from learnloop.loop.workspace.idempotent_answers import (
    CLAIM_SECONDS,
    KEPT_HOURS,
    RequestClaim,
    claim_request,
    keep_answer,
    release_request,
    remove_old_answers,
)
from learnloop.loop.workspace.settings import find_settings
from learnloop.serve import Operations, Problem, answer, call_of, read_json, service_of
from learnloop.serve.http.ndjson import NDJSON, ndjson_answer
from learnloop.serve.http.openapi import describe
from learnloop.serve.http.site import Site
from learnloop.serve.service import ABOUT
from learnloop.store import schema
from tests.serve.conftest import Running, Start
from tests.serve.http.probes import Thing, plain_error
from tests.serve.running import Reply
from tests.waiting import eventually

made: list[str] = []
effects: list[str | None] = []
may_end = threading.Event()
counting = Operations("counting")
odd = Operations("odd", error_body=plain_error)


async def work(thing: Thing) -> dict[str, int]:
    made.append(thing.name)
    while thing.name == "slow" and not may_end.is_set():
        await asyncio.sleep(0.01)
    await asyncio.sleep(thing.value)
    if thing.name == "bug":
        raise ValueError("a bug")
    if thing.name.isdigit():
        raise Problem(int(thing.name), "so it was asked")
    return {"number": len(made)}


@counting.post("/counting", scope=ApiScope.ACT, request=Thing, idempotent=True, status=201)
async def add_counting(request: Request) -> Response:
    """Count."""
    thing = await read_json(request, Thing)
    effects.append(call_of(request.scope).effect_id)
    done = await work(thing)
    service = service_of(request)
    agent = Agent(agent_id=call_of(request.scope).effect_id or "none", created_at=now())
    await service.call(service.workspace.store.write, [agent])
    return answer(done, 201)


@counting.post("/counting/{name}", scope=ApiScope.ACT, request=Thing, idempotent=True)
async def add_counting_named(request: Request, name: str) -> Response:
    """Count under a name."""
    return answer(await work(await read_json(request, Thing)))


@counting.post("/counting/lines/all", scope=ApiScope.ACT, idempotent=True, accepts=(NDJSON,), produces=NDJSON)
async def add_counting_lines(request: Request) -> Response:
    """Count lines."""
    return ndjson_answer(request, Thing, work)


@counting.post("/plain-counting", scope=ApiScope.ACT, request=Thing)
async def add_plain_counting(request: Request) -> Response:
    """Count, whatever the key."""
    return answer(await work(await read_json(request, Thing)))


@counting.route("DELETE", "/counting", scope=ApiScope.ADMIN, idempotent=True, status=204)
async def delete_counting(request: Request) -> Response:
    """Delete nothing."""
    await work(Thing("d"))
    return Response(status_code=204)


@odd.post("/odd", scope=ApiScope.ACT, request=Thing, idempotent=True)
async def add_odd(request: Request) -> Response:
    """Count, with errors of its own form."""
    return answer(await work(await read_json(request, Thing)))


@pytest.fixture(autouse=True)
def clean() -> None:
    made.clear()
    effects.clear()


@pytest.fixture(params=["sqlite_url", "postgres_url"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Workspace]:
    url: str = request.getfixturevalue(request.param)
    with Workspace(find_settings(tmp_path / "place", url), create=True) as opened:
        yield opened


def post(server: Running, body: str, key: str | None, path: str = "/counting", **headers: str) -> Reply:
    given = {} if key is None else {"idempotency_key": key}
    return server.ask("POST", path, body, **given, **headers)


def is_replayed(reply: Reply) -> bool:
    return reply.headers.get("idempotency-replayed") == "true"


A = '{"name": "a"}'


def test_the_same_request_again_gets_the_same_answer(place: Workspace, start: Start) -> None:
    server = start(counting, on=place)
    first = post(server, A, "k1")
    again = post(server, A, "k1")
    assert (first.status, first.body) == (201, b'{"number":1}')
    assert (again.status, again.body, again.headers["content-type"]) == (201, first.body, "application/json")
    assert (is_replayed(first), is_replayed(again)) == (False, True)
    assert again.headers["x-request-id"] != first.headers["x-request-id"]
    assert post(server, A, "k2").json() == {"number": 2}
    assert post(server, A, None).json() == {"number": 3}
    assert made == ["a"] * 3
    assert place.store.count(IdempotentAnswer) == 2


def test_another_request_under_the_same_key_is_refused(place: Workspace, start: Start) -> None:
    server = start(counting, on=place)
    post(server, A, "k")
    for path, body in (("/counting", '{"name":"a"}'), ("/counting/x", A), ("/counting?q=1", A)):
        reply = post(server, body, "k", path)
        assert (reply.status, reply.json()["type"]) == (422, "urn:learnloop:problem:idempotency-key-reused")
    assert server.ask("DELETE", "/counting", idempotency_key="k").status == 422
    assert made == ["a"]


def test_while_it_runs_it_is_a_conflict(place: Workspace, start: Start) -> None:
    """Two servers on one store: the first one works, the other one says so."""
    one, two = start(counting, on=place), start(counting, on=place)
    slow = '{"name": "slow"}'
    may_end.clear()
    thread = threading.Thread(target=post, args=(one, slow, "k"))
    thread.start()
    assert eventually(lambda: made == ["slow"])
    for server in (one, two):
        reply = post(server, slow, "k")
        assert (reply.status, reply.headers["retry-after"]) == (409, "1")
    may_end.set()
    thread.join()
    assert is_replayed(post(two, slow, "k"))
    assert made == ["slow"]


def test_many_at_once_run_once(place: Workspace, start: Start) -> None:
    servers = [start(counting, on=place), start(counting, on=place)]
    replies: list[Reply] = []
    body = '{"name": "a", "value": 0.2}'
    threads = [
        threading.Thread(target=lambda server=server: replies.append(post(server, body, "k"))) for server in servers * 6
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == ["a"]
    assert sorted({reply.status for reply in replies}) in ([201], [201, 409])
    assert sum(reply.status == 201 and not is_replayed(reply) for reply in replies) == 1


def test_it_outlives_the_server(start: Start, workspace: Workspace) -> None:
    first = post(start(counting), A, "k")
    again = post(start(counting), A, "k")
    assert (again.body, is_replayed(again)) == (first.body, True)


@pytest.mark.parametrize(
    ("body", "status", "is_kept"),
    [
        ("{", 400, True),
        ('{"name": 1}', 422, True),
        ('{"name": "404"}', 404, True),
        ('{"name": "409"}', 409, True),
        ('{"name": "429"}', 429, False),
        ('{"name": "503"}', 503, False),
        ('{"name": "bug"}', 500, False),
    ],
)
def test_which_answers_are_kept(start: Start, body: str, status: int, is_kept: bool) -> None:
    server = start(counting)
    first, again = post(server, body, "k"), post(server, body, "k")
    assert (first.status, again.status, is_replayed(again)) == (status, status, is_kept)
    assert again.headers["content-type"] == "application/problem+json"
    assert (first.body == again.body) is is_kept
    assert server.workspace.store.count(IdempotentAnswer) == is_kept


def test_all_forms_of_answers(start: Start) -> None:
    server = start(counting, odd)
    for _ in range(2):
        deleted = server.ask("DELETE", "/counting", idempotency_key="d")
        assert (deleted.status, deleted.body, "content-type" in deleted.headers) == (204, b"", False)
        wrong = post(server, "{", "o", "/odd")
        assert (wrong.status, wrong.headers["content-type"]) == (400, "text/x-error")
        lines = post(server, f"{A}\n{A}\n3", "l", "/counting/lines/all", content_type=NDJSON)
        assert [json.loads(line)["status"] for line in lines.body.splitlines()] == [200, 200, 422]
        assert lines.headers["content-type"] == NDJSON
    assert all(map(is_replayed, (deleted, wrong, lines)))
    assert sorted(made) == ["a", "a", "d"]


@pytest.mark.parametrize("key", ["", "a b", "x" * 256, "é", "a\tb"])
def test_what_is_no_key(start: Start, key: str) -> None:
    reply = post(start(counting), A, key)
    assert (reply.status, reply.json()["type"]) == (400, "urn:learnloop:problem:idempotency-key")
    assert made == []


def test_keys_at_the_edge(start: Start) -> None:
    server = start(counting)
    for key in ("x" * 255, "!", '"8e03978e-40d5-43dd-bc93-6894a57f9324"', "' OR 1=1--", "../../x"):
        status = 400 if " " in key else 201
        assert [post(server, A, key).status for _ in range(2)] == [status] * 2
    twice = (
        b"POST /counting HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 13\r\n"
        b"Idempotency-Key: a\r\nIdempotency-Key: b\r\nConnection: close\r\n\r\n" + A.encode()
    )
    assert b" 400 " in server.raw(twice).split(b"\r\n")[0]


def test_routes_that_do_not_declare_it_ignore_it(start: Start) -> None:
    server = start(counting)
    assert [post(server, A, "k", "/plain-counting").json()["number"] for _ in range(2)] == [1, 2]
    assert server.workspace.store.count(IdempotentAnswer) == 0


def test_one_clients_key_is_none_of_anothers(start: Start, workspace: Workspace) -> None:
    secrets = [create_key(workspace, name, [ApiScope.ACT]).secret for name in ("one", "two")]
    server = start(counting)
    replies = [post(server, A, "k", authorization=f"Bearer {secret}") for secret in secrets]
    assert [reply.json()["number"] for reply in replies] == [1, 2]
    assert post(server, A, "k").status == 401
    assert is_replayed(post(server, A, "k", authorization=f"Bearer {secrets[0]}"))


def test_a_server_that_dies_in_between(place: Workspace, start: Start) -> None:
    """The effect is on the disk, the answer is not: 409 for a while, then it runs again under the same id."""
    server = start(counting, on=place)
    post(server, A, "k")
    claimed = place.store.select(IdempotentAnswer)[0]
    table = schema.idempotent_answers
    died = {"status": 0, "body": f"{effects[0]} its-run".encode()}  # as it was before the answer was kept
    place.store.run(lambda connection: connection.execute(update(table).values(**died)))
    assert post(server, A, "k").status == 409
    assert post(server, '{"name": "b"}', "k").status == 422
    earlier = claimed.created_at - timedelta(seconds=CLAIM_SECONDS + 1)
    place.store.run(lambda connection: connection.execute(update(table).values(created_at=earlier)))
    assert post(server, A, "k").json() == {"number": 2}
    assert is_replayed(post(server, A, "k"))
    assert len(set(effects)) == 1
    assert place.store.count(Agent) == 1  # the store ignored what it had


def test_a_run_that_took_too_long_does_not_overwrite(place: Workspace) -> None:
    table = schema.idempotent_answers
    first = claim_request(place, "id", "print")
    assert isinstance(first, RequestClaim)
    earlier = now() - timedelta(seconds=CLAIM_SECONDS + 1)
    place.store.run(lambda connection: connection.execute(update(table).values(created_at=earlier)))
    second = claim_request(place, "id", "print")
    assert isinstance(second, RequestClaim)
    assert (second.effect_id, second.run_id == first.run_id) == (first.effect_id, False)
    release_request(place, first)
    with pytest.raises(ConflictError, match="took so long"):
        keep_answer(place, first, 200, "text/plain", b"first")
    keep_answer(place, second, 200, "text/plain", b"second")
    found = claim_request(place, "id", "print")
    assert isinstance(found, IdempotentAnswer)
    assert found.body == b"second"


def test_old_answers_go(place: Workspace) -> None:
    table = schema.idempotent_answers
    assert remove_old_answers(place) == 0
    for name in ("old", "new"):
        claim = claim_request(place, name, "print")
        assert isinstance(claim, RequestClaim)
        keep_answer(place, claim, 200, "text/plain", b"")
    earlier = now() - timedelta(hours=KEPT_HOURS, seconds=1)
    only = update(table).where(table.c.idempotent_answer_id == "old").values(created_at=earlier)
    place.store.run(lambda connection: connection.execute(only))
    # Not kept any longer, also before it is removed.
    assert isinstance(claim_request(place, "old", "other"), RequestClaim)
    place.store.run(lambda connection: connection.execute(only))
    assert remove_old_answers(place) == 1
    assert [each.idempotent_answer_id for each in place.store.select(IdempotentAnswer)] == ["new"]


def test_a_server_removes_old_answers(start: Start, workspace: Workspace) -> None:
    claim_request(workspace, "old", "print")
    earlier = now() - timedelta(hours=KEPT_HOURS, seconds=1)
    workspace.store.run(
        lambda connection: connection.execute(update(schema.idempotent_answers).values(created_at=earlier))
    )
    start()
    assert eventually(lambda: workspace.store.count(IdempotentAnswer) == 0)


def test_without_the_header_the_store_is_not_asked(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    server = start(counting)

    async def refuse(*arguments: object) -> None:
        raise Problem(503, "the store is not to be asked")

    monkeypatch.setattr(server.app.shared.threads, "call", refuse)
    assert post(server, A, None, "/counting/x").status == 200
    assert post(server, A, "k", "/counting/x").status == 503
    assert made == ["a"]


def test_the_description_tells_of_it() -> None:
    described = describe(Site(about=ABOUT), [counting])["paths"]["/counting"]["post"]
    assert [(each["name"], each["required"]) for each in described["parameters"]] == [("Idempotency-Key", False)]
    assert {"409", "422"} <= set(described["responses"])
