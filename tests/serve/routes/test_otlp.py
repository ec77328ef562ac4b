"""The OTLP/HTTP receiver as the specification has it, and as other receivers' users wish theirs were."""

from __future__ import annotations

import gzip
import json
import zlib
from typing import Any

import pytest
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from learnloop.core.records import ApiScope, Episode, EpisodeStatus, Reward, Span
from learnloop.loop import Workspace
from learnloop.loop.workspace.api_keys import create_key
from learnloop.serve.routes.otlp import MAX_BYTES
from tests.serve.conftest import Running, Start
from tests.serve.running import Reply
from tests.traces.otlp import requests as otlp
from tests.traces.otlp.requests import log, ours, span, trace_id
from tests.waiting import eventually

PROTOBUF = "application/x-protobuf"
JSON = "application/json"
RESULT = {"gen_ai.evaluation.name": "solved", "gen_ai.evaluation.score.value": 1.0}


@pytest.fixture
def server(start: Start) -> Running:
    return start(trace_grace_seconds=0.05, trace_idle_seconds=0.5)


def post(server: Running, body: bytes, media_type: str = PROTOBUF, path: str = "/v1/traces", **headers: str) -> Reply:
    return server.ask("POST", path, body, content_type=media_type, **headers)


def encoded(media_type: str, *spans: otlp.Raw) -> bytes:
    return otlp.traces_pb(spans) if media_type == PROTOBUF else otlp.traces_json(spans)


def status(reply: Reply) -> tuple[int, str]:
    """Returns code and message of an error, read in the media type that it says."""
    if reply.headers["content-type"] == PROTOBUF:
        read = Status.FromString(reply.body)
        return read.code, read.message
    said = reply.json()
    return said["code"], said["message"]


@pytest.mark.parametrize("media_type", [PROTOBUF, JSON, f"{PROTOBUF}; charset=utf-8", f"{JSON};charset=UTF-8"])
def test_spans_are_durable_when_they_are_acknowledged(server: Running, media_type: str) -> None:
    """The answer has the request's media type; ``partial_success`` is unset where all went well."""
    kind = media_type.partition(";")[0]
    reply = post(server, encoded(kind, span(1, 1), span(1, 2, 1)), media_type)
    assert (reply.status, reply.headers["content-type"], reply.body) == (200, kind, b"" if kind == PROTOBUF else b"{}")
    assert server.workspace.store.count(Span) == 2
    store = server.workspace.store
    assert eventually(lambda: store.get(Episode, trace_id(1)).status is EpisodeStatus.COMPLETED)


@pytest.mark.parametrize("media_type", [PROTOBUF, JSON])
@pytest.mark.parametrize("path", ["/v1/traces", "/v1/logs"])
def test_an_empty_request_is_fine(server: Running, media_type: str, path: str) -> None:
    """MLflow answers 400."""
    for body in (b"", b"" if media_type == PROTOBUF else b"{}"):
        reply = post(server, body, media_type, path)
        assert (reply.status, reply.headers["content-type"]) == (200, media_type)


@pytest.mark.parametrize(
    ("coding", "compress"),
    [("gzip", gzip.compress), ("deflate", zlib.compress), ("identity", bytes), ("GZIP", gzip.compress)],
)
@pytest.mark.parametrize("media_type", [PROTOBUF, JSON])
def test_compressed_requests(server: Running, coding: str, compress: Any, media_type: str) -> None:
    """A collector sends gzip unless told otherwise (MLflow issue 19024)."""
    reply = post(server, compress(encoded(media_type, span(1, 1))), media_type, content_encoding=coding)
    assert reply.status == 200
    assert server.workspace.store.count(Span) == 1


@pytest.mark.parametrize("media_type", [PROTOBUF, JSON])
def test_a_partial_success_names_what_was_rejected(server: Running, media_type: str) -> None:
    bad = {**span(1, 2), "span_id": "ab" * 4}
    reply = post(server, encoded(media_type, span(1, 1), bad), media_type)
    assert reply.status == 200
    if media_type == PROTOBUF:
        partial = ExportTraceServiceResponse.FromString(reply.body).partial_success
        number, said = partial.rejected_spans, partial.error_message
    else:
        answer = reply.json()["partialSuccess"]
        number, said = int(answer["rejectedSpans"]), answer["errorMessage"]
    assert (number, said) == (1, "span id 'abababab' is not 16 hex digits")
    assert [each.span_id for each in server.workspace.store.iterate(Span)] == [ours(1, 1)]


def test_logs_bring_scores_and_content(server: Running) -> None:
    body = otlp.logs_pb([log(1, 1, "gen_ai.evaluation.result", RESULT)])
    reply = post(server, body, path="/v1/logs")
    assert (reply.status, reply.body) == (200, b"")
    assert not ExportLogsServiceResponse.FromString(reply.body).HasField("partial_success")
    (found,) = server.workspace.store.iterate(Reward)
    assert (found.name, found.value, found.episode_id) == ("solved", 1.0, trace_id(1))


def test_a_resend_changes_nothing(server: Running) -> None:
    body = encoded(PROTOBUF, span(1, 1))
    assert [post(server, body).status for _ in range(3)] == [200] * 3
    assert server.workspace.store.count(Span) == 1


@pytest.mark.parametrize(
    ("body", "media_type", "said"),
    [
        (b"\x07\xff", PROTOBUF, "no ExportTraceServiceRequest"),
        (b"{}", PROTOBUF, "JSON under the header of protobuf"),
        (b"{", JSON, "not JSON"),
        (b"[]", JSON, "not an object"),
        (b'{"resourceSpans": 1}', JSON, "resourceSpans is not a list"),
        (otlp.traces_pb([span()]), JSON, "is it protobuf"),
    ],
)
def test_bad_data_is_a_status_in_the_same_encoding(server: Running, body: bytes, media_type: str, said: str) -> None:
    reply = post(server, body, media_type)
    assert (reply.status, reply.headers["content-type"]) == (400, media_type)
    code, message = status(reply)
    assert code == 3
    assert said in message
    assert "retry-after" not in reply.headers


@pytest.mark.parametrize("media_type", ["text/plain", "application/grpc", ""])
def test_other_media_types(server: Running, media_type: str) -> None:
    reply = post(server, b"x", media_type)
    assert reply.status == 415
    assert PROTOBUF in status(reply)[1]


def test_an_unknown_compression(server: Running) -> None:
    reply = post(server, b"x", content_encoding="zstd")
    assert (reply.status, status(reply)[0]) == (415, 3)


@pytest.mark.parametrize("media_type", [PROTOBUF, JSON])
def test_too_large_as_it_arrives_and_after_decompression(server: Running, media_type: str) -> None:
    filler = encoded(media_type, span(attributes={"x": "0123456789" * (MAX_BYTES // 10)}))
    assert len(filler) > MAX_BYTES
    for body, headers in ((filler, {}), (gzip.compress(filler), {"content_encoding": "gzip"})):
        reply = post(server, body, media_type, **headers)
        assert (reply.status, status(reply)[0]) == (413, 3)
    bomb = gzip.compress(bytes(200 * 1024 * 1024))
    assert post(server, bomb, media_type, content_encoding="gzip").status == 413
    assert post(server, encoded(media_type, span()), media_type).status == 200


@pytest.mark.parametrize("media_type", [PROTOBUF, JSON])
def test_a_damaged_gzip_stream(server: Running, media_type: str) -> None:
    whole = gzip.compress(encoded(media_type, span()))
    for body in (whole[:-9], b"nonsense", whole + b"more"):
        reply = post(server, body, media_type, content_encoding="gzip")
        assert (reply.status, status(reply)[0]) == (400, 3)


@pytest.mark.parametrize("media_type", [PROTOBUF, JSON])
def test_a_store_that_is_closed_asks_to_send_again(server: Running, media_type: str) -> None:
    server.workspace.store.close()
    reply = post(server, encoded(media_type, span()), media_type)
    assert (reply.status, status(reply)[0]) == (503, 14)
    assert int(reply.headers["retry-after"]) >= 1


@pytest.mark.parametrize("media_type", [PROTOBUF, JSON])
def test_keys_and_scopes(start: Start, workspace: Workspace, media_type: str) -> None:
    keys = {scope: create_key(workspace, scope.value, [scope]).secret for scope in (ApiScope.READ, ApiScope.INGEST)}
    server = start()
    body = encoded(media_type, span())
    for secret, wanted, code in (("", 401, 16), (keys[ApiScope.READ], 403, 7), (keys[ApiScope.INGEST], 200, 0)):
        headers = {"authorization": f"Bearer {secret}"} if secret else {}
        reply = post(server, body, media_type, **headers)
        assert reply.status == wanted
        assert reply.headers["content-type"] == media_type
        if code:
            assert status(reply)[0] == code


def test_metrics_are_said_not_to_be_kept(server: Running) -> None:
    reply = post(server, b"", path="/v1/metrics")
    assert (reply.status, status(reply)[0]) == (501, 12)
    assert "OTEL_METRICS_EXPORTER=none" in status(reply)[1]


def test_other_methods(server: Running) -> None:
    reply = server.ask("GET", "/v1/traces")
    assert reply.status == 405
    assert status(reply)[0] == 12


def test_damaged_requests_are_never_an_error_of_the_server(server: Running) -> None:
    """Cut off and bit-flipped at many places, in both encodings."""
    for media_type in (PROTOBUF, JSON):
        whole = encoded(media_type, span(1, 1, attributes={"a": {"b": [1, 2.5, "x"]}}), span(1, 2, 1))
        for place in range(0, len(whole), max(1, len(whole) // 60)):
            flipped = bytearray(whole)
            flipped[place] ^= 1 << (place % 8)
            for body in (whole[:place], bytes(flipped)):
                for path in ("/v1/traces", "/v1/logs"):
                    assert post(server, body, media_type, path).status in (200, 400), (media_type, place)


def test_many_requests_share_transactions(server: Running) -> None:
    """Small requests at once are written together: acknowledging each alone would take a commit each."""
    import threading

    replies: list[int] = []
    bodies = [encoded(PROTOBUF, span(number, 1)) for number in range(1, 41)]
    threads = [threading.Thread(target=lambda body=body: replies.append(post(server, body).status)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert replies == [200] * 40
    assert server.workspace.store.count(Span) == 40


def test_the_description_names_the_routes(server: Running) -> None:
    paths = json.loads(server.ask("GET", "/openapi.json").body)["paths"]
    assert {"/v1/traces", "/v1/logs", "/v1/metrics"} <= paths.keys()
