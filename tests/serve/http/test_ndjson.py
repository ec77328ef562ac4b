"""Lines in, lines out: each on its own, as they arrive, within the limits."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.responses import Response

from learnloop.serve.http.calls import Body, Call, set_call
from learnloop.serve.http.ndjson import NDJSON, ndjson_answer, read_lines
from learnloop.serve.http.operations import Operations
from learnloop.serve.http.problems import Problem
from learnloop.serve.http.site import RequestLimits
from tests.serve.http.conftest import site
from tests.serve.http.probes import TakenError, Thing
from tests.serve.running import Reply, Running, Start, read_all
from tests.waiting import eventually, settled

lined = Operations("lined")
seen: list[str] = []
running = {"now": 0, "most": 0}


async def work(thing: Thing) -> dict[str, Any]:
    seen.append(thing.name)
    running["now"] += 1
    running["most"] = max(running["most"], running["now"])
    while running["most"] < thing.value:
        await asyncio.sleep(0.001)
    running["now"] -= 1
    if thing.name == "conflict":
        raise TakenError("it is taken")
    if thing.name == "bug":
        raise ValueError("the secret inside")
    return {"name": thing.name, "text": "x" * len(thing.parts)}


@lined.post("/lined", scope="ingest", accepts=(NDJSON,), produces=NDJSON)
async def add_lined(request: Request) -> Response:
    """Take things."""
    return ndjson_answer(request, Thing, work, status=201, line_bytes=1000, max_lines=300)


@lined.post("/lined/together", scope="ingest", accepts=(NDJSON,), produces=NDJSON)
async def add_lined_together(request: Request) -> Response:
    """Take things, eight at once."""
    return ndjson_answer(request, Thing, work, at_once=8)


@lined.post("/lined/large", scope="ingest", accepts=(NDJSON,), produces=NDJSON)
async def add_lined_large(request: Request) -> Response:
    """Answer with a megabyte for each item."""

    async def fill(thing: Thing) -> str:
        seen.append(thing.name)
        return "x" * 1_000_000

    return ndjson_answer(request, Thing, fill)


@pytest.fixture
def server(start: Start) -> Running:
    seen.clear()
    running.update(now=0, most=0)
    return start(lined, limits=RequestLimits(body_bytes=100_000))


def send(server: Running, body: str | bytes, path: str = "/lined", **headers: str) -> list[dict[str, Any]]:
    reply: Reply = server.ask("POST", path, body, content_type=NDJSON, **headers)
    assert (reply.status, reply.headers["content-type"]) == (200, NDJSON)
    return [json.loads(line) for line in reply.body.splitlines()]


def test_each_item_has_its_line(server: Running, caplog: pytest.LogCaptureFixture) -> None:
    lines = [
        '{"name": "a"}', "", '{"name": 1}', "{", '{"name":"b","name":"c"}', '{"name": "conflict"}', "[" * 50,
        '{"name": "bug"}', '{"name": "a", "value": NaN}', " ", '{"name": "é\\ud800"}', '{"name": "last"}',
    ]  # fmt: skip
    answers = send(server, "\r\n".join(lines))
    assert [each["status"] for each in answers] == [201, 422, 400, 400, 409, 400, 500, 400, 400, 201]
    assert [each["index"] for each in answers] == list(range(10))
    assert answers[0]["result"] == {"name": "a", "text": ""}
    assert "result" not in answers[1]
    assert answers[1]["problem"]["errors"][0]["pointer"] == "$.name"
    assert answers[4]["problem"]["type"] == "urn:tiny:taken"
    assert "secret" not in json.dumps(answers)
    assert "the secret inside" in caplog.text
    assert seen == ["a", "conflict", "bug", "last"]


def test_limits(server: Running) -> None:
    long = '{"name": "' + "x" * 1000 + '"}'
    answers = send(server, f'{long}\n{{"name": "a"}}\n{long}{long}\n{long}')
    assert [each["status"] for each in answers] == [413, 201, 413, 413]
    answers = send(server, '{"name": "a"}\n' * 301)
    assert [each["status"] for each in answers] == [201] * 300 + [413]
    assert "300 items" in answers[-1]["problem"]["detail"]
    assert send(server, "\n\n") == []
    assert server.ask("POST", "/lined", "x" * 100_001, content_type=NDJSON).status == 413
    assert server.ask("POST", "/lined", "{}").status == 415
    packed = gzip.compress(b'{"name": "a"}\n' * 5)
    assert [each["status"] for each in send(server, packed, content_encoding="gzip")] == [201] * 5


def test_a_body_that_breaks_off_is_the_last_line(server: Running, start: Start) -> None:
    head = f"POST /lined HTTP/1.1\r\nHost: localhost\r\nContent-Type: {NDJSON}\r\nTransfer-Encoding: chunked\r\n\r\n"
    with start(lined, limits=RequestLimits(body_seconds=1.0)).connect() as connection:
        connection.sendall(head.encode() + b'e\r\n{"name": "a"}\n\r\n')
        answer = read_all(connection)  # the rest never comes
    assert b'"index":0,"status":201' in answer
    assert b'"index":1,"status":408' in answer
    assert seen == ["a"]
    with server.connect() as connection:
        connection.sendall(head.encode() + b"%x\r\n" % 100_002 + b'{"name": "b"}\n' * 7143)
        answer = read_all(connection)
    assert b"413" in answer


def test_some_at_once_in_their_order(server: Running) -> None:
    """The first eight of them do not end before eight run."""
    body = "\n".join(json.dumps({"name": str(number), "value": 8 * (number < 8)}) for number in range(24))
    answers = send(server, body, "/lined/together")
    assert [each["result"]["name"] for each in answers] == [str(number) for number in range(24)]
    assert running["most"] == 8


def test_a_client_that_does_not_read_is_waited_for(server: Running) -> None:
    body = b'{"name": "a"}\n' * 200
    head = (
        f"POST /lined/large HTTP/1.1\r\nHost: localhost\r\nContent-Type: {NDJSON}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    with server.connect() as connection:
        connection.sendall(head.encode() + body)
        assert eventually(lambda: len(seen))
        num_done = settled(lambda: len(seen), 1.0)
        assert num_done < 100  # the sockets hold a few megabytes
        assert server.ask("GET", "/livez").status == 200
        time.sleep(0.3)
        assert len(seen) - num_done <= 1


def test_a_client_that_sends_all_before_it_reads_is_answered(server: Running) -> None:
    answers = send(server, '{"name": "a"}\n' * 6, "/lined/large")
    assert len(answers) == 6


class Stream:
    """An ASGI ``receive`` of given parts."""

    def __init__(self, parts: list[bytes]) -> None:
        self.parts = parts

    async def __call__(self) -> dict[str, Any]:
        part = self.parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(self.parts)}


def lines_of(parts: list[bytes], line_bytes: int) -> list[Any]:
    async def read() -> list[Any]:
        headers = {b"transfer-encoding": b"chunked"}
        scope: dict[str, Any] = {"type": "http", "headers": []}
        set_call(scope, Call(site(), headers, "r", Body(Stream([*parts, b""]), headers, RequestLimits())))
        return [line async for line in read_lines(Request(scope), Any, line_bytes=line_bytes)]  # type: ignore[type-var]

    return asyncio.run(read())


@given(st.lists(st.integers(0, 10**6), max_size=12), st.lists(st.integers(0, 60), max_size=6), st.integers(1, 8))
@settings(max_examples=150, deadline=None)
def test_however_the_lines_are_cut_they_are_the_same(numbers: list[int], cuts: list[int], line_bytes: int) -> None:
    body = "\n".join(str(number) for number in numbers).encode()
    places = sorted({min(cut, len(body)) for cut in cuts})
    parts = [body[start:end] for start, end in zip([0, *places], [*places, len(body)], strict=True)]
    found = lines_of(parts, line_bytes)
    for line, number in zip(found, numbers, strict=True):
        assert isinstance(line, Problem) is (len(str(number)) > line_bytes)
        assert isinstance(line, Problem) or line == number


def test_a_long_line_is_not_kept_in_memory() -> None:
    found = lines_of([b"x" * 1_000_000] * 7 + [b"\n1"], 1000)
    assert isinstance(found[0], Problem)
    assert found[1:] == [1]
