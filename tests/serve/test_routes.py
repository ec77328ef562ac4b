"""The first routes: health, info, episodes, the description of all; on both back ends, attacked by ids and filters."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from learnloop.compat.groups import COMPATIBLE_GROUPS
from learnloop.core.records import ApiScope, Reward
from learnloop.loop import Loop, Workspace
from learnloop.loop.workspace.settings import find_settings
from learnloop.serve import Operations, RequestLimits
from learnloop.serve.app import GROUPS
from learnloop.serve.http.openapi import describe
from learnloop.serve.http.site import Site
from learnloop.serve.service import ABOUT
from tests.docs_writer import API_PAGE, api_page
from tests.serve.conftest import Running, Start
from tests.serve.http.probes import Thing, plain, probes
from tests.serve.running import status_of
from tests.waiting import costs_at_most


@pytest.fixture(params=["sqlite_url", "postgres_url"])
def filled(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Workspace]:
    """A store with seven episodes of two agents."""
    url: str = request.getfixturevalue(request.param)
    for agent, number in (("bot", 5), ("cat", 2)):
        with Loop(agent, home=tmp_path / "filled", database=url) as loop:
            for task in range(number):
                with loop.episode(task=f"t{task}") as episode, loop.span("ls", "execute_tool"):
                    loop.choose("route", ["a", "b"])
                episode.reward(solved=1.0) if task % 2 else None
    with Workspace(find_settings(tmp_path / "filled", url)) as workspace:
        yield workspace


def test_health_and_info(start: Start) -> None:
    server = start()
    assert [server.ask("GET", path).json() for path in ("/livez", "/health")] == [{"status": "ok"}] * 2
    info = server.ask("GET", "/v1/info").json()
    assert info["capabilities"][:2] == ["server", "episodes"]
    assert (info["scopes"], info["schema_revision"]) == (None, server.workspace.store.revision)


def test_health_says_when_the_store_is_gone(start: Start, tmp_path: Path) -> None:
    workspace = Workspace(find_settings(tmp_path / "other"), create=True)
    server = start(on=workspace)
    workspace.close()
    reply = server.ask("GET", "/health")
    assert (reply.status, reply.json()["type"], "retry-after" in reply.headers) == (
        503,
        "urn:learnloop:problem:store",
        True,
    )
    assert server.ask("GET", "/livez").status == 200
    server.app.site.is_draining = True
    assert server.ask("GET", "/health").json()["type"] == "urn:learnloop:problem:stopping"


def test_episodes_in_pages(filled: Workspace, start: Start) -> None:
    server = start(on=filled)
    seen: list[str] = []
    after = ""
    while True:
        page = server.ask("GET", f"/v1/episodes?limit=3{after}").json()
        seen += [row["episode"]["episode_id"] for row in page["data"]]
        if page["next_cursor"] is None:
            break
        after = f"&after={page['next_cursor']}"
    assert len(seen) == len(set(seen)) == 7
    assert seen == sorted(seen, reverse=True)


def test_episodes_by_what_they_are(filled: Workspace, start: Start) -> None:
    server = start(on=filled)

    def count(query: str) -> int:
        return len(server.ask("GET", f"/v1/episodes?{query}").json()["data"])

    assert [count("agent=bot"), count("agent=cat&task=t1"), count("status=failed")] == [5, 1, 0]
    assert count("agent=%27%20OR%201=1--") == 0


def test_one_episode(filled: Workspace, start: Start) -> None:
    server = start(on=filled)
    rows = server.ask("GET", "/v1/episodes?agent=bot").json()["data"]
    for row in rows:
        found = server.ask("GET", f"/v1/episodes/{row['episode']['episode_id']}").json()
        assert found["episode"] == row["episode"]
        assert sorted(span["name"] for span in found["spans"]) == ["bot", "ls"]
        assert len(found["decisions"]) == 1
        assert [reward["value"] for reward in found["rewards"]] == ([] if row["reward"] is None else [row["reward"]])


@pytest.mark.parametrize(
    ("query", "pointer"),
    [
        ("limit=0", "query.limit"),
        ("limit=201", "query.limit"),
        ("limit=99999999999999999999", "query.limit"),
        ("limit=NaN", "query.limit"),
        ("limit=true", "query.limit"),
        ("limit=", "query.limit"),
        ("status=bogus", "query.status"),
        ("agent=" + "a" * 501, "query.agent"),
    ],
)
def test_wrong_filters(shared: Running, query: str, pointer: str) -> None:
    reply = shared.ask("GET", f"/v1/episodes?{query}")
    assert (reply.status, [error["pointer"] for error in reply.json()["errors"]]) == (422, [pointer])


CURSORS = ["x", "....", "%00", "%F0%9F%98%80", "-1", base64.urlsafe_b64encode(b"99999999999999999999999 x").decode(),
           base64.urlsafe_b64encode(b"nan x").decode(), base64.urlsafe_b64encode(b"\xff\xfe").decode()]  # fmt: skip


@pytest.mark.parametrize("cursor", CURSORS)
def test_wrong_cursors(shared: Running, cursor: str) -> None:
    reply = shared.ask("GET", f"/v1/episodes?after={cursor}")
    assert (reply.status, reply.json()["type"]) == (422, "urn:learnloop:problem:usage")


IDS = [
    "../x", "./../x", "a/../../x", "/etc/passwd", "..%2f", "%2e%2e%2f", "%252e%252e%252f", "..%5Cx", "C:%5Cx",
    "%5C%5Chost%5Cs", "file:///etc/passwd", "http://h/%3F/../..", "http:///%23/../../etc", "x;/../..", "a%00b",
    "a" * 300, ".", "..", "-rf", "%EF%BC%8E%EF%BC%8E%EF%BC%8F", "'%20OR%201=1--", "$%7Bjndi:ldap://x%7D",
    "a%0D%0ASet-Cookie:%20x=1", "%1B%5B31m", "%3Cscript%3E", "%7B%7B7*7%7D%7D", "1e308", "-0", "NaN",
    "9223372036854775808", "true", "%FF%FE", "%ED%A0%80", "%",
]  # fmt: skip


def test_ids_that_attack(filled: Workspace, start: Start, tmp_path: Path) -> None:
    """trust.md part 4: 4xx, no 5xx, little CPU, and nothing is written."""
    server = start(on=filled)
    before = sorted(str(path) for path in tmp_path.rglob("*") if "-wal" not in path.name and "-shm" not in path.name)
    num_events = len(filled.store.events(limit=1000))
    with costs_at_most(5):
        for attack in IDS:
            for path in (f"/v1/episodes/{attack}", f"/{attack}", f"/v1/episodes?after={attack}&agent={attack}"):
                answer = server.raw(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
                assert 400 <= status_of(answer) < 500, path
                body = json.loads(answer.partition(b"\r\n\r\n")[2])
                assert body["instance"] == path.partition("?")[0]
                assert b"Set-Cookie" not in answer.partition(b"\r\n\r\n")[0]
                assert b"\x1b" not in answer
    assert len(filled.store.events(limit=1000)) == num_events
    assert filled.store.count(Reward) == 3
    after = sorted(str(path) for path in tmp_path.rglob("*") if "-wal" not in path.name and "-shm" not in path.name)
    assert after == before


def test_a_busy_store_is_told(start: Start) -> None:
    server = start(limits=RequestLimits(num_threads=1, num_waiting=-1))
    reply = server.ask("GET", "/v1/episodes")
    assert (reply.status, reply.json()["type"]) == (503, "urn:learnloop:problem:busy")


# ------------------------------------------------------------------ the description


def test_the_description_is_up_to_date() -> None:
    assert API_PAGE.read_text(encoding="utf-8") == api_page(), (
        "docs/openapi.json is old; write it again with: make docs"
    )


def test_the_description_is_served(start: Start) -> None:
    assert start(*COMPATIBLE_GROUPS).ask("GET", "/openapi.json").json() == json.loads(api_page())


def test_the_description_of_every_route() -> None:
    document = describe(Site(about=ABOUT), (*GROUPS, *COMPATIBLE_GROUPS, probes, plain))
    assert document["openapi"].startswith("3.1")
    names = []
    for group in (*GROUPS, *COMPATIBLE_GROUPS, probes, plain):
        for operation in group.routes:
            for method in operation.methods or ():
                described = document["paths"][operation.path_format][method.lower()]
                names.append(described["operationId"])
                assert described["description"], operation.path
                assert ("requestBody" in described) is bool(operation.rules.accepts)
                refused = described["responses"]["400"]
                assert ("$ref" in refused) is (group.error_body is None)
                assert "default" not in described["responses"]
                scope = operation.rules.scope
                assert described.get("x-required-scope") == scope
    assert len(set(names)) == len(names)
    made = document["paths"]["/probe/things"]["post"]
    assert made["requestBody"]["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Thing"}
    assert made["responses"]["201"]["content"]["application/json"]["schema"] == {"$ref": "#/components/schemas/Thing"}
    assert document["components"]["schemas"]["Thing"]["required"] == ["name"]
    assert "content" not in document["paths"]["/probe/things"]["delete"]["responses"]["204"]


def test_every_reference_of_the_description_leads_somewhere() -> None:
    document = describe(Site(about=ABOUT), (*GROUPS, *COMPATIBLE_GROUPS))
    text = json.dumps(document)
    for name in {part.partition('"')[0] for part in text.split('"#/components/schemas/')[1:]}:
        assert name in document["components"]["schemas"], name


# ------------------------------------------------------------------ declaring


def test_a_body_parameter_is_refused() -> None:
    from pydantic import BaseModel

    class Model(BaseModel):
        a: int

    group = Operations("wrong")

    async def take(request: object, body: Model) -> None: ...

    take.__annotations__ = {"body": Model}
    with pytest.raises(TypeError, match=r"read_json\(request, type\)"):
        group.post("/wrong", scope=ApiScope.ACT, request=Thing)(take)  # type: ignore[arg-type]


def test_no_route_reads_its_body_past_the_limits(start: Start) -> None:
    server: Running = start(probes)
    assert all(operation.body_field is None for group in server.app.groups for operation in group.routes)
