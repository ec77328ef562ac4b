"""What every request passes, over the wire."""

from __future__ import annotations

import json
import logging

import pytest

from learnloop.serve.http.problems import Problem
from learnloop.serve.http.site import Caller, Headers, RequestLimits
from tests.serve.http.probes import plain, probes
from tests.serve.running import Running, Start, status_of
from tests.waiting import eventually

GET = b"GET /livez HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n"


def test_every_answer_has_the_headers(shared: Running) -> None:
    server = shared
    for path in ("/livez", "/nothing", "/probe/fail/bug"):
        headers = server.ask("GET", path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["content-security-policy"].startswith("default-src 'self'")
        assert headers["cache-control"] == "no-store"
        assert "server" not in headers
        assert len(headers["x-request-id"]) == 36


def test_request_ids_are_taken_over_where_they_are_well_formed(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    server = start(probes)
    with caplog.at_level(logging.INFO, "learnloop.serve.http"):
        reply = server.ask("GET", "/probe/call", x_request_id="order-7.a_b")
        assert eventually(lambda: "order-7.a_b GET /probe/call 200" in caplog.text)
    assert reply.headers["x-request-id"] == reply.json()["id"] == "order-7.a_b"
    for bad in ("a b", "x" * 200, "-rf", "é", "${jndi:ldap://x}"):
        found = server.ask("GET", "/probe/call", x_request_id=bad.encode("utf-8").decode("latin-1"))
        assert found.headers["x-request-id"] == found.json()["id"] != bad


@pytest.mark.parametrize(
    ("host", "status"),
    [
        (b"localhost", 200),
        (b"LOCALHOST:8700", 200),
        (b"127.0.0.1:1", 200),
        (b"[::1]:8700", 200),
        (b"loop.example.com:443", 200),
        (b"loop.example.com.", 200),
        (b"evil.com", 421),
        (b"127.0.0.1.evil.com", 421),
        (b"localhost@evil.com", 421),
        (b"evil.com:localhost", 421),
        (b"169.254.169.254", 421),
        (b"", 400),
    ],
)
def test_host(shared: Running, host: bytes, status: int) -> None:
    """DNS rebinding: a page's own name that points here is not one of ours."""
    answer = shared.raw(GET % host)
    assert status_of(answer) == status
    assert status == 200 or b"application/problem+json" in answer


def test_no_host_or_two(shared: Running) -> None:
    server = shared
    assert status_of(server.raw(b"GET /livez HTTP/1.0\r\n\r\n")) == 400
    assert status_of(server.raw(b"GET /livez HTTP/1.1\r\nHost: localhost\r\nHost: evil.com\r\n\r\n")) == 400


@pytest.mark.parametrize("origin", ["http://evil", "null", "https://127.0.0.1.evil", "http://localhost", "file://"])
def test_pages_of_other_sites_may_not_write(shared: Running, origin: str) -> None:
    server = shared
    for method, path in (("POST", "/probe/things"), ("DELETE", "/probe/things"), ("PUT", "/nothing")):
        reply = server.ask(method, path, '{"name": "a"}', origin=origin)
        assert (reply.status, reply.json()["type"]) == (403, "urn:tiny:origin")
    assert "access-control-allow-origin" not in server.ask("GET", "/probe/call", origin=origin).headers


def test_own_pages_and_allowed_ones_may_write(start: Start) -> None:
    server = start(probes, origins=("https://dash.example.com",))
    for origin in (f"http://127.0.0.1:{server.port}", f"https://127.0.0.1:{server.port}", "https://dash.example.com"):
        assert server.ask("POST", "/probe/things", '{"name": "a"}', origin=origin).status == 201
    reply = server.ask("POST", "/probe/things", "{", origin="https://dash.example.com")
    assert (reply.status, reply.headers["access-control-allow-origin"]) == (400, "https://dash.example.com")
    asked = {"origin": "https://dash.example.com", "access_control_request_method": "POST"}
    preflight = server.ask("OPTIONS", "/probe/things", **asked)
    assert (preflight.status, preflight.headers["access-control-allow-origin"]) == (204, "https://dash.example.com")
    assert server.ask("OPTIONS", "/probe/things", **{**asked, "origin": "http://evil"}).status == 405


def test_what_is_not_there_is_a_problem(shared: Running) -> None:
    server = shared
    reply = server.ask("GET", "/nothing/at%20all")
    assert reply.headers["content-type"] == "application/problem+json"
    assert reply.json() == {
        "type": "urn:tiny:not-found",
        "title": "Not Found",
        "status": 404,
        "detail": "there is no such path; look around",
        "instance": "/nothing/at%20all",
        "request_id": reply.headers["x-request-id"],
    }
    assert server.ask("GET", "/livez/").status == 404
    wrong = server.ask("PUT", "/probe/things", "{}")
    assert (wrong.status, wrong.headers["allow"]) == (405, "DELETE, POST")
    assert "DELETE, POST" in wrong.json()["detail"]


@pytest.mark.parametrize(
    ("name", "status", "kind", "detail"),
    [
        ("taken", 409, "taken", "the secret inside of home: taken"),
        ("taken-twice", 409, "taken-twice", "the secret inside of home: taken-twice"),
        ("shy", 503, "shy", "it does not work now"),
        ("bug", 500, "internal-server-error", "the server failed; its log has the reason under this request id"),
    ],
)
def test_each_error_has_its_status(
    shared: Running, name: str, status: int, kind: str, detail: str, caplog: pytest.LogCaptureFixture
) -> None:
    reply = shared.ask("GET", f"/probe/fail/{name}")
    assert reply.status == status
    assert reply.headers["content-type"] == "application/problem+json"
    assert (reply.json()["type"], reply.json()["detail"]) == (f"urn:tiny:{kind}", detail)
    assert ("retry-after" in reply.headers) is (status == 503)
    assert (reply.json()["request_id"] in caplog.text) is (status >= 500)
    assert ("Traceback" in caplog.text) is (name == "bug")


def test_a_bug_tells_the_log_and_not_the_client(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    server = start(probes)
    reply = server.ask("GET", "/probe/fail/bug")
    assert reply.status == 500
    assert "secret" not in reply.body.decode()
    assert "Traceback" not in reply.body.decode()
    assert "the secret inside" in caplog.text
    assert reply.json()["request_id"] in caplog.text


def test_a_stream_passes_and_one_that_breaks_is_cut(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    server = start(probes)
    assert server.ask("GET", "/probe/stream").body == b"0\n1\n2\n"
    answer = server.raw(b"GET /probe/stream?break=1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert b"0\n" in answer
    assert not answer.endswith(b"0\r\n\r\n")  # the last chunk, which says that all is there
    assert "half way" in caplog.text


def test_a_group_has_errors_of_its_own_form(start: Start) -> None:
    server = start(plain)
    for method, body, status in (("POST", "{", 400), ("POST", '{"x": 1}', 422), ("GET", None, 405)):
        reply = server.ask(method, "/plain/things/a", body)
        assert (reply.status, reply.headers["content-type"]) == (status, "text/x-error")
        assert reply.body.startswith(str(status).encode())
    assert server.ask("POST", "/plain/things/a", '{"name": "b"}').json()["thing"]["name"] == "b"
    assert server.ask("GET", "/plain").headers["content-type"] == "application/problem+json"


def test_a_group_keeps_a_part(start: Start) -> None:
    assert start(probes).ask("GET", "/probe/call").json()["part"] is True


def test_too_many_requests_at_once(start: Start) -> None:
    server = start(limits=RequestLimits(num_active=0))
    reply = server.ask("GET", "/livez")
    assert (reply.status, reply.json()["type"], reply.headers["retry-after"]) == (
        503,
        "urn:tiny:busy",
        "1",
    )


def test_not_http(shared: Running) -> None:
    server = shared
    for data in (
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 20 + b"\r\n\r\n",
        b"GET /livez\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: a\rb\r\n\r\n",
        b"POST /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST /livez HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 1_000_000 + b"\r\n\r\n",
    ):
        answer = server.raw(data)
        assert status_of(answer) == 400, data[:60]
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["status"] == 400
    assert server.ask("GET", "/livez").status == 200


def key_holder(headers: Headers) -> Caller:
    """Says whose key a request shows."""
    scopes = {b"r": ("read",), b"a": ("all",)}.get(headers.get(b"x-tiny-key", b""))
    if scopes is None:
        raise Problem(401, "no key", headers={"www-authenticate": "Bearer"})
    return Caller("1", "my key", scopes)


def test_who_may_do_what(start: Start) -> None:
    server = start(probes, identify=key_holder, credentials=(b"x-tiny-key",), full_scope="all")
    assert server.ask("GET", "/livez").status == 200
    assert [server.ask("GET", path).status for path in ("/probe/call", "/nothing")] == [401, 401]
    assert server.ask("GET", "/probe/call", x_tiny_key="r").json()["caller"] == "my key"
    refused = server.ask("POST", "/probe/things", '{"name": "a"}', x_tiny_key="r")
    assert refused.status == 403
    assert refused.json()["detail"] == "this needs a key with the scope 'act'; 'my key' has read"
    assert refused.headers["www-authenticate"] == 'Bearer realm="api", error="insufficient_scope", scope="act"'
    assert server.ask("POST", "/probe/things", '{"name": "a"}', x_tiny_key="a").status == 201
    twice = server.raw(b"GET /probe/call HTTP/1.1\r\nHost: localhost\r\nX-Tiny-Key: r\r\nX-Tiny-Key: a\r\n\r\n")
    assert status_of(twice) == 400
