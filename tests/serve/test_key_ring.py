"""Keys on the wire: what is open without, what is not with them."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from learnloop.core.clock import now
from learnloop.core.errors import AuthError, UnreachableError
from learnloop.core.records import ApiKey, ApiScope
from learnloop.loop import Workspace
from learnloop.loop.workspace.api_keys import create_key, list_keys, revoke_key
from learnloop.serve import Problem, ServeOptions, serve
from learnloop.serve.key_ring import KeyRing
from tests.serve.conftest import Running, Start
from tests.serve.http.probes import plain, probes
from tests.waiting import eventually

BODIES = {"POST": "{}", "PUT": "{}", "PATCH": "{}"}
OTHER_SCOPE = {scope: next(each for each in ApiScope if each not in (scope, "admin")) for scope in ApiScope}


def bearer(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


def operations(server: Running) -> list[tuple[str, str, ApiScope | None]]:
    """Returns method, path and scope of every route."""
    return [
        (method, operation.path.replace("{", "").replace("}", ""), operation.rules.scope)
        for group in server.app.groups
        for operation in group.routes
        for method in operation.methods or ()
    ]


def test_every_route_needs_a_key_with_its_scope(start: Start, workspace: Workspace) -> None:
    """Also paths that are not there, so that nothing can be found out; only liveness and readiness are open."""
    by_scope = {scope: create_key(workspace, scope.value, [scope]).secret for scope in ApiScope}
    server = start(probes, plain)
    found = operations(server)
    assert len(found) == sum(len(route.methods or ()) for route in server.app.router.routes)  # type: ignore[attr-defined]
    assert {path for _, path, scope in found if scope is None} == {"/health", "/livez"}
    for method, path, scope in found:
        without = server.ask(method, path, BODIES.get(method))
        if scope is None:
            assert without.status == 200
            continue
        assert (method, path, without.status) == (method, path, 401)
        assert without.headers["www-authenticate"].startswith("Bearer")
        wrong = server.ask(method, path, BODIES.get(method), **bearer(by_scope[OTHER_SCOPE[scope]]))
        assert (method, path, wrong.status) == (method, path, 403)
        assert repr(str(scope)) in wrong.body.decode()
        for right in (scope, ApiScope.ADMIN):
            reply = server.ask(method, path, BODIES.get(method), **bearer(by_scope[right]))
            assert reply.status not in (401, 403), path
    for method, path in (
        ("GET", "/nothing"),
        ("POST", "/health"),
        ("GET", "/docs"),
        ("GET", "/livez/"),
        ("GET", "//health"),
    ):
        assert server.ask(method, path, BODIES.get(method)).status == 401, path
    assert server.ask("GET", "/nothing", **bearer(by_scope[ApiScope.READ])).status == 404


@pytest.mark.parametrize(
    "authorization",
    [
        "",
        "Bearer",
        "Bearer ",
        "Bearer llk_",
        "Basic bGxrOng=",
        "Bearer llk_" + "A" * 43,
        "Bearer " + "x" * 50_000,
        "Bearer \xff",
    ],
)
def test_what_is_no_key(start: Start, workspace: Workspace, authorization: str) -> None:
    create_key(workspace, "k", ["read"])
    reply = start().ask("GET", "/v1/info", authorization=authorization)
    assert (reply.status, reply.headers["content-type"]) == (401, "application/problem+json")


def test_a_key_of_another_store_and_almost_the_right_one(start: Start, workspace: Workspace, tmp_path: Path) -> None:
    secret = create_key(workspace, "k", ["read"]).secret
    with Workspace(msgspec.structs.replace(workspace.settings, database="sqlite:///:memory:"), create=True) as other:
        foreign = create_key(other, "k", ["read"]).secret
    server = start()
    assert server.ask("GET", "/v1/info", **bearer(secret)).status == 200
    assert server.ask("GET", "/v1/info", authorization=f"bearer {secret}").status == 200
    last = "A" if secret[-1] != "A" else "Q"
    for wrong in (foreign, secret[:-1], secret + "A", secret[:-1] + last, secret.upper()):
        assert server.ask("GET", "/v1/info", **bearer(wrong)).status == 401


def test_a_running_server_heeds_new_revoked_and_expired_keys(start: Start, workspace: Workspace) -> None:
    """The first key closes the server; revoking the last one does not open it again."""
    server = start()
    assert server.ask("GET", "/v1/info").json()["scopes"] is None
    made = create_key(workspace, "k", ["read", "act"])
    assert eventually(lambda: server.ask("GET", "/v1/info").status == 401)
    assert server.ask("GET", "/v1/info", **bearer(made.secret)).json()["scopes"] == ["read", "act"]
    revoke_key(workspace, made.key.api_key_id)
    assert eventually(lambda: server.ask("GET", "/v1/info", **bearer(made.secret)).status == 401)
    assert server.ask("GET", "/v1/info").status == 401


def test_an_expired_key(start: Start, workspace: Workspace) -> None:
    made = create_key(workspace, "k", ["read"])
    old = msgspec.structs.replace(made.key, api_key_id="old", expires_at=now() - timedelta(seconds=1))
    server = start(on=workspace)
    server.app.shared.keys.stop()
    server.app.shared.keys._by_prefix = {old.prefix: [old]}
    assert server.ask("GET", "/v1/info", **bearer(made.secret)).status == 401


def test_guesses_do_not_reach_the_store_and_an_outage_keeps_the_keys(workspace: Workspace) -> None:
    reads: list[int] = []
    made = create_key(workspace, "k", ["read"])

    def read() -> list[ApiKey]:
        reads.append(1)
        if len(reads) > 1:
            raise UnreachableError("away")
        return list_keys(workspace)

    ring = KeyRing(read, 0.01)
    for number in range(1000):
        with pytest.raises(Problem, match="unknown"):
            ring.identify({b"authorization": f"Bearer {made.key.prefix}{number:035}".encode()})
    assert len(reads) == 1
    ring.start()
    assert eventually(lambda: len(reads) > 3)
    assert ring.identify({b"authorization": f"Bearer {made.secret}".encode()}) == (made.key.api_key_id, "k", ("read",))
    ring.stop()


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_other_machines_are_not_served_without_a_key(workspace: Workspace, host: str) -> None:
    """S9: 0.0.0.0 without a key must refuse to start, and says how to make one."""
    with pytest.raises(AuthError, match="learnloop keys create"):
        serve(workspace, ServeOptions(host=host, port=0))


def test_other_machines_are_served_with_a_key(start: Start, workspace: Workspace) -> None:
    create_key(workspace, "k", ["read"])
    server = start(host="0.0.0.0", allow_hosts=("loop.example.com",))
    assert server.ask("GET", "/v1/info", host="loop.example.com").status == 401
    assert server.ask("GET", "/livez").status == 200


def test_the_answer_never_waits_for_the_store(start: Start, workspace: Workspace) -> None:
    assert asyncio.iscoroutinefunction(KeyRing.identify) is False
    secret = create_key(workspace, "k", ["read"]).secret
    server = start(probes)
    assert server.ask("GET", "/probe/call", **bearer(secret)).json()["caller"] == "k"
