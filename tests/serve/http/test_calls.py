"""Bodies: too large, too slow, bombs, and what they claim to be."""

from __future__ import annotations

import gc
import gzip
import json
import socket
import time
import zlib

import pytest

from learnloop.serve.http.calls import Body
from learnloop.serve.http.site import RequestLimits
from tests.serve.http.probes import probes
from tests.serve.running import Running, Start, read_all, status_of
from tests.waiting import costs_at_most

HEAD = b"POST /probe/size HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
MIB = 1 << 20


def chunked(data: bytes, size: int = 65_536) -> bytes:
    parts = [data[start : start + size] for start in range(0, len(data), size)]
    return b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in parts)


@pytest.fixture
def server(shared: Running) -> Running:
    return shared


def test_bodies_up_to_the_limit(server: Running) -> None:
    for size in (0, 1, MIB, 8 * MIB):
        assert server.ask("POST", "/probe/size", b"x" * size).json() == size
    assert server.ask("POST", "/probe/large", b"x" * (20 * MIB)).json() == 20 * MIB


def test_a_body_goes_with_its_request_and_not_when_the_collector_comes(server: Running) -> None:
    server.ask("POST", "/probe/size", b"x")
    gc.collect()
    gc.disable()
    try:
        for _ in range(50):
            assert server.ask("POST", "/probe/size", b"x" * 1000).json() == 1000
        assert sum(type(each) is Body for each in gc.get_objects()) < 10
    finally:
        gc.enable()


def test_a_body_that_says_itself_to_be_too_large_is_not_read(server: Running) -> None:
    """100 MB of JSON: answered before it was sent, and the connection ends."""
    with costs_at_most(1):
        answer = server.raw(HEAD + b"Content-Length: 100000000\r\nExpect: 100-continue\r\n\r\n")
    assert status_of(answer) == 413
    assert b"100 Continue" not in answer
    assert b"connection: close" in answer.lower()
    assert server.ask("POST", "/probe/size", b"x" * (8 * MIB + 1)).status == 413
    assert server.ask("POST", "/probe/large", b"x" * (20 * MIB + 1)).status == 413


def test_a_chunked_body_without_end_is_cut_off(server: Running) -> None:
    with costs_at_most(2), server.connect() as connection:  # this process sends, too
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        sent = 0
        try:
            while sent < 100 * MIB:
                connection.sendall(chunked(b"x" * MIB))
                sent += MIB
        except (BrokenPipeError, ConnectionResetError):
            pass
        assert sent < 40 * MIB  # limit, lingering, and what the sockets hold
        assert status_of(read_all(connection) or b"HTTP/1.1 413 ") == 413


def test_a_chunked_body_that_is_a_little_too_large_is_told_so(server: Running) -> None:
    answer = server.raw(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunked(b"x" * (9 * MIB)) + b"0\r\n\r\n")
    assert status_of(answer) == 413
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["title"]


def test_a_slow_body_and_slow_headers_are_given_up(start: Start) -> None:
    """Slow-loris."""
    server = start(probes, limits=RequestLimits(body_seconds=0.4, header_seconds=0.4))
    cases = [HEAD + b"Content-Length: 100\r\n\r\nabc", HEAD + b"Transfer-Encoding: chunked\r\n\r\n", HEAD, b"", b"G"]
    for data in cases:
        with server.connect() as connection:
            began = time.monotonic()
            connection.sendall(data)
            for _ in range(3):  # a byte now and then helps nobody
                time.sleep(0.1)
                if data.endswith(b"abc"):
                    connection.sendall(b"x")
            answer = read_all(connection)
            assert time.monotonic() - began < 9  # by default it would be 10 s or more
            if b"\r\n\r\n" in data:
                assert status_of(answer) == 408
    assert server.ask("POST", "/probe/size", b"x").status == 200


def test_an_answer_may_take_longer_than_a_body(start: Start) -> None:
    server = start(probes, limits=RequestLimits(body_seconds=0.3))
    assert server.ask("POST", "/probe/stream", "1.0").body == b"." * 10


def test_headers_that_drip_on_a_kept_connection_are_given_up(start: Start) -> None:
    server = start(probes, limits=RequestLimits(header_seconds=0.4))
    with server.connect() as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
        time.sleep(0.2)
        connection.sendall(b"GET /livez HT")
        began = time.monotonic()
        assert status_of(read_all(connection)) == 200
        assert time.monotonic() - began < 9  # by default it would be 10 s


def test_a_client_that_leaves_is_no_error(server: Running, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(HEAD + b"Content-Length: 100\r\n\r\nabc")
        time.sleep(0.1)
    time.sleep(0.2)
    assert server.ask("GET", "/livez").status == 200
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress], ids=["gzip", "deflate"])
def test_compressed_bodies(server: Running, pack: object) -> None:
    encoding = "gzip" if pack is gzip.compress else "deflate"
    data = json.dumps([1.5] * 5000).encode()
    packed: bytes = pack(data)  # type: ignore[operator]

    def send(body: bytes) -> int:
        return server.ask("POST", "/probe/size", body, content_encoding=encoding).status

    assert server.ask("POST", "/probe/size", packed, content_encoding=encoding).json() == len(data)
    for wrong in (packed[:-3], packed + b"x", packed + packed, b"no", packed[:5] + b"\xff" * 9 + packed[14:]):
        assert send(wrong) == 400, wrong[:20]


def test_bombs(server: Running) -> None:
    """A gzip of zeros: 1,028 times its size. Stopped at 100 times, long before it is all there."""
    bomb = gzip.compress(b"\0" * (256 * MIB), 6)
    assert len(bomb) < 300_000
    with costs_at_most(1):
        reply = server.ask("POST", "/probe/size", bomb, content_encoding="gzip")
    assert reply.status == 413
    assert "decompression" in reply.json()["detail"]
    layered = gzip.compress(bomb)
    assert server.ask("POST", "/probe/size", layered, content_encoding="gzip").json() == len(bomb)
    assert server.ask("POST", "/probe/size", layered, content_encoding="gzip, gzip").status == 415


def test_small_bodies_may_be_well_compressed(server: Running) -> None:
    data = b" " * 900_000
    assert server.ask("POST", "/probe/size", gzip.compress(data), content_encoding="gzip").json() == len(data)


@pytest.mark.parametrize("encoding", ["br", "zstd", "compress", "x", "gzip;q=1"])
def test_unknown_encodings(server: Running, encoding: str) -> None:
    reply = server.ask("POST", "/probe/size", b"x", content_encoding=encoding)
    assert (reply.status, reply.headers["accept-encoding"]) == (415, "gzip, deflate")


@pytest.mark.parametrize(
    "media_type",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "", "application/jsonx"],
)
def test_writes_are_json_only(server: Running, media_type: str) -> None:
    """A form of another site can send these without asking; JSON it cannot."""
    reply = server.ask("POST", "/probe/things", b'{"name": "a"}', content_type=media_type)
    assert (reply.status, "application/json" in reply.json()["detail"]) == (415, True)


def test_media_types_that_a_route_takes(server: Running) -> None:
    for media_type in ("application/json", "Application/JSON; charset=utf-8", "application/x-bytes"):
        assert server.ask("POST", "/probe/size", b"x", content_type=media_type).status == 200
    assert server.ask("DELETE", "/probe/things").status == 204
    assert server.ask("DELETE", "/probe/things", "{}").status == 415
    assert server.ask("POST", "/probe/things").status == 415


def test_many_form_fields_and_ranges_cost_nothing(server: Running) -> None:
    form = "&".join(f"f{number}=1" for number in range(100_000))
    ranges = "bytes=" + ",".join(f"{number}-{number}" for number in range(1000))
    with costs_at_most(1):
        reply = server.ask("POST", "/probe/things", form, content_type="application/x-www-form-urlencoded")
        assert reply.status == 415
        assert server.ask("GET", "/livez", range=ranges).status == 200
