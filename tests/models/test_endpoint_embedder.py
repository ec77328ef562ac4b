"""The client of embedding endpoints against a real HTTP server: order, dimensions, budget, and wrong answers."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from learnloop.core.errors import AuthError, ConflictError, UnreachableError, UsageError
from learnloop.models import EndpointConfig, EndpointEmbedder, EndpointEmbedderConfig
from tests.loopback import Fault, LoopbackServer


def spread(text: str) -> list[float]:
    """Returns a vector that tells which text it is of."""
    return [3.0, float(len(text)), -1.0]


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer(vector=spread) as opened:
        yield opened


def client(server: LoopbackServer, endpoint: dict[str, Any] | None = None, **changes: Any) -> EndpointEmbedder:
    where = EndpointConfig(base_url=server.url, model="e", **({"backoff_seconds": 0.01} | (endpoint or {})))
    made = EndpointEmbedder(EndpointEmbedderConfig(endpoint=where, **({"dimension": 3} | changes)))
    server.clients.append(made)
    return made


def answer(*vectors: Any, **changes: Any) -> Fault:
    data = [{"index": index, "embedding": vector} for index, vector in enumerate(vectors)]
    return Fault(200, json.dumps({"data": data} | changes).encode())


@pytest.mark.parametrize("encoding", ["float", "base64"])
def test_each_text_has_its_own_vector(server: LoopbackServer, encoding: str) -> None:
    """In the order of the texts, though the answer has another; in batches; at the length 1."""
    asked = client(server, encoding=encoding, batch_size=3)
    texts = ["x" * (number + 1) for number in range(10)]
    expected = np.array([spread(text) for text in texts])
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    found = asked.embed(texts)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert asked.num_requests == 4
    assert asked.num_tokens == 10  # as the endpoint counts them
    assert sorted(len(body["input"]) for body in server.requests) == [1, 3, 3, 3]
    assert {body["encoding_format"] for body in server.requests} == {encoding}
    assert "dimensions" not in server.requests[0]
    assert set(server.paths) == {"/v1/embeddings"}
    assert asked.embed([]).shape == (0, 3)


def test_1536_numbers(server: LoopbackServer) -> None:
    server.vector = lambda text: [float(index % 7 + 1) for index in range(1536)]
    asked = client(server, dimension=1536, dimensions=True, encoding="base64")
    assert asked.embed(["a", "b"]).shape == (2, 1536)
    assert server.requests[0]["dimensions"] == 1536


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (answer([1.0, 2.0]), "gives text 0 a vector of 2 numbers; 3 are needed: set dimension"),
        (answer(), "without a vector for text 0; 1 texts were sent"),
        (answer([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]), "with a vector 1 too many; 1 texts"),
        (answer([1.0, None, 3.0]), "not finite for text 0"),
        (answer([0.0, 0.0, 0.0]), "a vector of zeros for text 0"),
        (answer(base64.b64encode(struct.pack("<3f", 1.0, float("nan"), 2.0)).decode()), "not finite for text 0"),
        (answer("%%%"), "not base64 of float32"),
        (answer(base64.b64encode(b"12345").decode()), "not base64 of float32"),
        (answer([[1.0, 2.0, 3.0]]), "answers with no embeddings"),
        (Fault(200, b'{"choices": []}'), "answers with no embeddings"),
        (Fault(400), "400 Bad Request"),
    ],
)
def test_a_wrong_answer_is_an_error_that_names_it(server: LoopbackServer, said: Fault, message: str) -> None:
    """F1.5: never a vector of another shape, never a number that is none; and it is not asked again."""
    server.script = [said]
    with pytest.raises(UsageError, match=message):
        client(server).embed(["a"])
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    "fault", [Fault(503), Fault(429, headers=(("Retry-After", "0"),)), Fault(200, b"{not"), Fault(hang_up=True)]
)
def test_what_may_pass_is_tried_again(server: LoopbackServer, fault: Fault) -> None:
    asked = client(server, {"max_retries": 1})
    server.script = [fault]
    assert asked.embed(["a"]).shape == (1, 3)
    server.script = [fault, fault]
    with pytest.raises(UnreachableError, match=r"/v1/embeddings .*asked 2 times"):
        asked.embed(["a"])


def test_keys_budgets_and_deadlines_are_those_of_chats(server: LoopbackServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEARNLOOP_TEST_KEY", "sk-secret")
    asked = client(server, {"api_key_env": "LEARNLOOP_TEST_KEY", "max_requests": 2})
    asked.embed(["a"])
    assert server.headers[0]["Authorization"] == "Bearer sk-secret"
    server.script = [Fault(401, b"sk-secret is wrong")]
    with pytest.raises(AuthError) as caught:
        asked.embed(["a"])
    assert "sk-secret" not in str(caught.value)
    with pytest.raises(ConflictError, match="max_requests"):
        asked.embed(["a"])
    slow = client(server, {"deadline_seconds": 0.2, "timeout_seconds": 0.1, "max_retries": 9})
    server.script = [Fault(delay_seconds=0.4)] * 9
    with pytest.raises(UnreachableError, match="deadline_seconds"):
        slow.embed(["a"])


def test_a_failed_batch_ends_the_call(server: LoopbackServer) -> None:
    server.script = [Fault(400)] * 8
    with pytest.raises(UsageError, match="400"):
        client(server, {"max_in_flight": 2}, batch_size=1).embed([str(number) for number in range(100)])
    assert len(server.requests) < 100


def test_the_content_id_differs_where_vectors_may(server: LoopbackServer) -> None:
    ids = {
        client(server).content_id,
        client(server, dimension=4).content_id,
        client(server, dimensions=True).content_id,
        client(server, {"extra_body": {"task": "query"}}).content_id,
        EndpointEmbedder(
            EndpointEmbedderConfig(endpoint=EndpointConfig(base_url=server.url, model="f"), dimension=3)
        ).content_id,
    }
    assert len(ids) == 5
    assert client(server, batch_size=1, encoding="base64").content_id in ids


@pytest.mark.parametrize(
    ("endpoint", "changes", "message"),
    [
        ({}, {"dimension": 0}, "dimension is 0"),
        ({}, {"dimension": 20_000}, "dimension is 20000"),
        ({}, {"batch_size": 0}, "batch_size is 0"),
        ({"extra_body": {"input": "x"}}, {}, "extra_body has 'input'"),
        ({"cache": "x"}, {}, "leave it out"),
        ({"base_url": "nowhere"}, {}, "base_url is 'nowhere'"),
    ],
)
def test_a_wrong_configuration_is_refused(endpoint: dict[str, Any], changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        where = EndpointConfig(**({"base_url": "http://127.0.0.1:9/v1", "model": "e"} | endpoint))
        EndpointEmbedder(EndpointEmbedderConfig(endpoint=where, **({"dimension": 3} | changes)))
    with pytest.raises(UsageError, match="put it into a list"):
        where = EndpointConfig(base_url="http://127.0.0.1:9/v1", model="e")
        EndpointEmbedder(EndpointEmbedderConfig(endpoint=where, dimension=3)).embed("one")
