"""Every attack input of the notes on trust, on every route, against ``learnloop serve`` in a process of its own.

Each: never 5xx, under 1 s of the server's CPU, no row of any table more or less, no file anywhere beside it. Routes are
taken from the application, so a new one is attacked without a change here.

Where the rest of the list is:

| input | test |
|---|---|
| ids, paths, SQL, ``${jndi}``, CRLF, ANSI, ``<script>``, ``{{7*7}}`` on a filled store of each kind | test_routes IDS |
| wrong cursors; a page walk while others write | test_routes, test_cursors |
| chunked without end, slow-loris in headers and bodies, 100 MB as it streams, gzip bombs in layers | test_calls |
| depth 10,000 to 4,000,000, keys twice, 8 MB of every shape, invalid UTF-8, NaN: each by itself | test_reading |
| Host and Origin in all spellings, preflights, what is no HTTP | test_gate |
| unknown, expired, revoked keys, wrong scopes, timing of the comparison | test_key_ring |
| 0.0.0.0 without a key | tests/cli/test_serve.py |
| OTLP bodies in protobuf | test_otlp |
| names that leave the data folder: symlinks, hard links, tar members, device nodes | tests/registry, tests/store |
"""

from __future__ import annotations

import gzip
import http.client
import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from learnloop.compat.groups import COMPATIBLE_GROUPS
from learnloop.core.records import ApiScope
from learnloop.loop import Loop, Workspace
from learnloop.loop.workspace.api_keys import create_key
from learnloop.loop.workspace.settings import find_settings
from learnloop.serve.app import GROUPS
from learnloop.serve.http.ndjson import NDJSON
from learnloop.serve.http.operations import Operation
from learnloop.store import schema
from tests.serve.running import Reply, read_all, status_of
from tests.serve.server_process import ServerProcess
from tests.serve.test_routes import IDS

JSON = "application/json"
OPERATIONS = [operation for group in (*GROUPS, *COMPATIBLE_GROUPS) for operation in group.routes]
TAKING = [operation for operation in OPERATIONS if operation.rules.accepts]
VARYING = [operation for operation in OPERATIONS if "{" in operation.path]
ASKED = [operation for operation in OPERATIONS if operation.dependant.query_params]
MIB = 1 << 20
UPKEEP = ("search_", "idempotent_answers")
"""Tables that the server fills beside: its index, and refusals of requests with an Idempotency-Key."""

TEXTS = [
    "../x", "a/../../x", "/etc/passwd", "..%2f", "..\\x", "C:\\x", "\\\\host\\s", "file:///etc/passwd",
    "x;/../..", "a\x00b", "x" * 300, ".", "..", "-rf", "．．／", "' OR 1=1--", "${jndi:ldap://x}",
    "a\r\nSet-Cookie: x=1", "\x1b[31m", "<script>alert(1)</script>", "{{7*7}}", "\u202e", "1e308", "NaN", "",
]  # fmt: skip
"""For fields and filters that are text."""
NUMBERS = ["1e308", "-1e308", "-0", "-0.0", "9223372036854775808", "18446744073709551616", "true", "1e999", "NaN",
           "Infinity", "-Infinity", '"1"', "null", "1e-320", "9" * 5000]  # fmt: skip
"""For fields that are numbers, as JSON or nearly so."""
BOMB = gzip.compress(b"\0" * (128 * MIB), 6)
"""128 MiB in 130 kB."""
BODIES: dict[str, bytes] = {
    "empty": b"",
    "arrays 10,000 deep": b"[" * 10_000 + b"]" * 10_000,
    "objects 10,000 deep": b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
    "brackets without end": b"[" * 8_000_000,
    "a key twice": b'{"context":{"a":1,"a":2}}',
    "a key twice, escaped": b'{"a":1,"\\u0061":2}',
    "NaN": b'{"value":NaN}',
    "Infinity": b'{"value":-Infinity}',
    "invalid UTF-8": b'{"policy":"\xff\xfe"}',
    "a lone surrogate": b'{"policy":"\xed\xa0\x80"}',
    "UTF-16": '{"a":1}'.encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf{}",
    "cut off": b'{"policy":"a","act',
    "two values": b"{}{}",
    "no object": b'"x"',
    "a number": b"9" * 100_000,
    "a million numbers": b'{"policy":"p","actions":["a"],"vector":[' + b"0.5," * 999_999 + b"0.5]}",
    "a million keys": b'{"policy":"p","context":{' + b",".join(b'"%d":1' % n for n in range(600_000)) + b"}}",
    "a million actions": b'{"policy":"p","actions":[' + b",".join(b'"%d"' % n for n in range(600_000)) + b"]}",
    "pickle": b"\x80\x04\x95\x1d\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93\x94\x8c\x02id\x94.",
}
FORMS = {
    "text/plain": b'{"policy":"p","actions":["a"]}',
    "application/x-www-form-urlencoded": "&".join(f"f{n}=1" for n in range(100_000)).encode(),
    "multipart/form-data; boundary=x": b'--x\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n' * 1000
    + b"--x--",
    "application/xml": b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a>&x;</a>',
    "": b"{}",
}


class Attacked(ServerProcess):
    """A server that is watched."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.home = home

    def rows(self) -> dict[str, int]:
        """Returns how many rows each table has."""
        with closing(sqlite3.connect(f"file:{self.home}/learnloop.db?mode=ro", uri=True)) as database:
            names = [name for name in schema.metadata.tables if not name.startswith(UPKEEP)]
            return {name: database.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for name in names}

    def outside(self) -> list[tuple[str, int]]:
        """Returns the files that are not in its folder."""
        return [each for each in self.files() if not each[0].startswith(f"{self.home}/")]

    def files(self) -> list[tuple[str, int]]:
        """Returns all files at its place and beside it, without those that a database changes all the time."""
        moving = (".db", ".db-wal", ".db-shm", ".errors")
        return sorted(
            (str(path), path.stat().st_size if path.is_file() else 0)
            for path in self.home.parent.rglob("*")
            if not path.name.endswith(moving)
        )

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """Demands that nothing is added, removed or changed."""
        rows, files, num_failures = self.rows(), self.files(), len(self.failures())
        yield
        assert self.rows() == rows
        assert self.files() == files
        assert self.failures()[num_failures:] == []

    def failures(self) -> list[str]:
        """Returns what the server has logged of requests that it failed to answer."""
        return [line for line in self.errors.read_text().splitlines() if " ERROR learnloop.serve" in line]

    def attack(self, method: str, path: str, body: bytes | str | None = None, **headers: str) -> Reply:
        """Returns the answer, which must be cheap and no failure of the server."""
        before = self.cpu_seconds()
        reply = self.ask(method, path, body, **headers)
        used = self.cpu_seconds() - before
        assert used < 1, (method, path, used)
        return reply


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Attacked]:
    home = tmp_path_factory.mktemp("attacked") / "home"
    with Loop("bot", home=home) as loop, loop.episode(task="t") as episode:
        loop.choose("route", ["a", "b"])
        episode.reward(solved=1.0)
    started = Attacked(home)
    yield started
    started.stop()


NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


def name_of(operation: Operation) -> str:
    return f"{method_of(operation)} {operation.path}"


def method_of(operation: Operation) -> str:
    return sorted(operation.methods or ())[0]


def path_of(operation: Operation, value: str = "known") -> str:
    return re.sub(r"\{[^}]*\}", value, operation.path)


def demand_refused(reply: Reply, operation: Operation, why: str) -> None:
    """Demands a 4xx; of a route that only says no (OTLP metrics), its own status; of many lines, that each is one."""
    if reply.status == operation.status_code >= 500:
        return
    if reply.status == 200 and reply.headers["content-type"] == NDJSON:
        statuses = [json.loads(line)["status"] for line in reply.body.splitlines()]
        assert all(400 <= status < 500 for status in statuses), (name_of(operation), why, statuses)
        return
    is_lenient = operation.path in ("/v1/traces", "/v1/logs") and reply.status == 200  # what is unknown is left out
    assert 400 <= reply.status < 500 or is_lenient, (name_of(operation), why, reply)


@pytest.mark.parametrize("operation", VARYING, ids=name_of)
def test_paths(server: Attacked, operation: Operation) -> None:
    has_body = bool(operation.rules.accepts)
    head = f"Content-Type: {operation.rules.accepts[0]}\r\nContent-Length: 2\r\n" if has_body else ""
    with server.unchanged():
        for attack in IDS:
            path = path_of(operation, attack)
            data = f"{method_of(operation)} {path} HTTP/1.1\r\nHost: localhost\r\n{head}Connection: close\r\n\r\n"
            before = server.cpu_seconds()
            with server.connect() as connection:
                connection.sendall(data.encode() + (b"{}" if has_body else b""))
                answer = read_all(connection)
            is_name = "{policy}" in operation.path and NAME.fullmatch(attack)  # any name is that of a policy
            assert 400 <= status_of(answer) < 500 or (is_name and status_of(answer) == 200), (path, answer)
            assert server.cpu_seconds() - before < 1
            assert b"set-cookie" not in answer.partition(b"\r\n\r\n")[0].lower()
            assert b"\x1b" not in answer


@pytest.mark.parametrize("operation", ASKED, ids=name_of)
def test_queries(server: Attacked, operation: Operation) -> None:
    with server.unchanged():
        for parameter in operation.dependant.query_params:
            for value in [*TEXTS, *NUMBERS]:
                query = f"{parameter.alias}={quote(value, safe='')}"
                reply = server.attack(method_of(operation), f"{path_of(operation)}?{query}")
                assert reply.status < 500, (query, reply)
                assert b"\x1b" not in reply.body
        for query in ("%", "&" * 50_000, "limit=1&limit=2", "limit%5B%5D=1", "a=%FF%FE", "after=" + "A" * 60_000):
            assert server.attack(method_of(operation), f"{path_of(operation)}?{query}").status < 500, query[:40]


@pytest.mark.parametrize("operation", TAKING, ids=name_of)
def test_bodies(server: Attacked, operation: Operation) -> None:
    method, path, media_type = method_of(operation), path_of(operation), operation.rules.accepts[0]
    kinds = [kind for kind in operation.rules.accepts if "json" in kind] or [media_type]
    with server.unchanged():
        for why, body in BODIES.items():
            if NDJSON in kinds and why == "empty":
                continue  # no line is no item
            demand_refused(server.attack(method, path, body, content_type=kinds[0]), operation, why)
        for form, body in FORMS.items():
            if "*/*" not in operation.rules.accepts:
                assert server.attack(method, path, body, content_type=form).status == 415, form
        for encoding, body in (
            ("gzip", BOMB),
            ("deflate", BOMB),
            ("br", b"{}"),
            ("gzip, gzip", b"{}"),
            ("x" * 99, b"{}"),
        ):
            reply = server.attack(method, path, body, content_type=kinds[0], content_encoding=encoding)
            demand_refused(reply, operation, encoding)


@pytest.mark.parametrize("operation", TAKING, ids=name_of)
def test_100_megabytes_are_refused_before_they_come(server: Attacked, operation: Operation) -> None:
    head = (
        f"{method_of(operation)} {path_of(operation)} HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
        f"Content-Type: {operation.rules.accepts[0]}\r\nContent-Length: 100000000\r\n\r\n"
    )
    before = server.cpu_seconds()
    with server.unchanged(), server.connect() as connection:
        connection.sendall(head.encode())
        answer = read_all(connection)
    assert (status_of(answer), b"100 Continue" in answer) == (413, False)
    assert server.cpu_seconds() - before < 1


def resolved(given: Any, schemas: Any) -> Any:
    """Returns what a schema refers to; the first of several that is not null."""
    while True:
        if "$ref" in given:
            given = schemas[given["$ref"].rpartition("/")[2]]
        elif "anyOf" in given:
            given = next((each for each in given["anyOf"] if each.get("type") != "null"), given["anyOf"][0])
        else:
            return given


def items_of(given: Any) -> list[Any]:
    """Returns the schemas of the items of an array: all of them where their number is fixed, else one."""
    return given.get("prefixItems") or [given.get("items", {})]


def sample(given: Any, schemas: Any, attack: str, place: str, depth: int = 0) -> str:
    """Returns JSON that fits a schema, with ``attack`` at ``place`` where there is such a leaf."""
    given = resolved(given, schemas)
    kind = given.get("type", "string")
    if kind == "object" and "properties" in given and depth < 4:
        members = (
            f"{json.dumps(name)}:{sample(each, schemas, attack, place.removeprefix(name + '.'), depth + 1)}"
            for name, each in given["properties"].items()
            if name in given.get("required", ()) or place.startswith(name + ".")
        )
        return "{" + ",".join(members) + "}"
    if kind == "array":
        items = enumerate(items_of(given))
        made = (sample(each, schemas, attack, place.removeprefix(f"{at}."), depth + 1) for at, each in items)
        return "[" + ",".join(made) + "]"
    if not place:
        return attack
    return {"object": "{}", "number": "1", "integer": "1", "boolean": "true"}.get(kind, '"known"')


def leaves(given: Any, schemas: Any, place: str = "", depth: int = 0) -> Iterator[str]:
    """Yields the places of all values in what a schema describes."""
    given = resolved(given, schemas)
    if given.get("type") == "object" and "properties" in given and depth < 4:
        for name, each in given["properties"].items():
            yield from leaves(each, schemas, f"{place}{name}.", depth + 1)
    elif given.get("type") == "array" and depth < 4:
        for at, each in enumerate(items_of(given)):
            yield from leaves(each, schemas, f"{place}{at}.", depth + 1)
    else:
        yield place


@pytest.mark.parametrize("operation", [each for each in TAKING if each.rules.request is not None], ids=name_of)
def test_fields(server: Attacked, operation: Operation) -> None:
    """Each field of a body that is right otherwise: refused or kept, never a failure, and no file of that name."""
    document = server.document()
    described = document["paths"][operation.path_format][method_of(operation).lower()]["requestBody"]["content"]
    media_type = operation.rules.accepts[0]
    wanted, schemas = described[media_type]["schema"], document["components"]["schemas"]
    outside, num_failures = server.outside(), len(server.failures())
    texts = [json.dumps(text) for text in TEXTS]
    for place in leaves(wanted, schemas):
        for attack in [*texts, *NUMBERS, '{"a":1,"a":2}', "[" * 40 + "]" * 40, '"\\ud800"']:
            body = sample(wanted, schemas, attack, place)
            reply = server.attack(method_of(operation), path_of(operation), body, content_type=media_type)
            assert reply.status < 500, (place, attack[:60], reply)
            assert b"\x1b" not in reply.body
            assert "\nset-cookie" not in "\n".join(reply.headers)
            if reply.headers.get("content-type") == NDJSON:
                assert all(json.loads(line)["status"] < 500 for line in reply.body.splitlines()), (place, attack[:60])
            if attack in ("NaN", "Infinity", "-Infinity", "1e999") or attack.startswith(('{"a":1,', "[[")):
                demand_refused(reply, operation, f"{attack[:20]} at {place}")
    assert server.outside() == outside
    assert server.failures()[num_failures:] == []


@pytest.mark.parametrize("operation", OPERATIONS, ids=name_of)
def test_the_network(server: Attacked, operation: Operation) -> None:
    method, path = method_of(operation), path_of(operation)
    media_type = next(iter(operation.rules.accepts), None)
    body = None if media_type is None else b"{"
    given = {} if media_type is None else {"content_type": media_type}
    with server.unchanged():
        assert server.attack(method, path, body, **given, host="evil.com").status == 421
        for header in ("idempotency_key", "if_match", "if_none_match", "x_request_id", "authorization", "accept"):
            for text in ("' OR 1=1--", "${jndi:ldap://x}", "\x1b[31m", "é", "x" * 5000, "../../x", '"'):
                reply = server.attack(method, path, body, **given, **{header: text.encode().decode("latin-1")})
                assert reply.status < 500 or reply.status == operation.status_code, (header, text)
                assert text not in reply.headers.values()
        ranges = "bytes=" + ",".join(f"{n}-{n}" for n in range(1000))
        assert server.attack(method, path, body, **given, range=ranges).status != 206
        if method != "GET":
            for origin in ("http://evil", "null"):
                assert server.attack(method, path, body, **given, origin=origin).status == 403


def test_every_route_needs_a_key_with_its_scope(tmp_path: Path) -> None:
    """S9: 401 without one, 403 with one of another scope; health alone is open."""
    with Workspace(find_settings(tmp_path / "home"), create=True) as workspace:
        secrets = {scope: create_key(workspace, scope, [scope]).secret for scope in ApiScope if scope != "admin"}
    server = Attacked(tmp_path / "home")
    try:
        described = server.ask("GET", "/openapi.json", authorization=f"Bearer {secrets[ApiScope.READ]}").json()["paths"]
        assert set(described) == {operation.path_format for operation in OPERATIONS}
        with server.unchanged():
            for operation in OPERATIONS:
                method, path = method_of(operation), path_of(operation)
                media_type = next(iter(operation.rules.accepts), None)
                body, given = (None, {}) if media_type is None else (b"{}", {"content_type": media_type})
                if operation.rules.scope is None:
                    assert path in ("/livez", "/health")
                    continue
                for wrong in ({}, {"authorization": "Bearer llk_" + "x" * 43}, {"authorization": "Basic eDp5"}):
                    assert server.attack(method, path, body, **given, **wrong).status == 401, name_of(operation)
                for scope, secret in secrets.items():
                    if scope != operation.rules.scope:
                        reply = server.attack(method, path, body, **given, authorization=f"Bearer {secret}")
                        assert reply.status == 403, (name_of(operation), scope)
    finally:
        server.stop()


def test_the_server_lives_on(server: Attacked) -> None:
    """After all of this; connections that broke off included."""
    for _ in range(50):
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        connection.putrequest("POST", "/v1/decisions")
        connection.putheader("content-length", "100")
        connection.endheaders(b"{")
        connection.close()
    assert server.ask("GET", "/health").status == 200
