"""Connections against sockets that misbehave: deadlines on every byte, connections that ended, answers without end."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from learnloop.core.errors import UnreachableError, UsageError
from learnloop.models import ChatEndpoint, EndpointConfig, connections
from tests.waiting import PATIENCE_SECONDS, eventually

BODY = b'{"choices": [{"message": {"content": "fine"}}]}'
FINE = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY)

Speak = Callable[[socket.socket], None]


def has_request(connection: socket.socket) -> bool:
    """Reads a whole request; False where the connection ended."""
    data = b""
    while not data.endswith(b"}"):
        received = connection.recv(65_536)
        if not received:
            return False
        data += received
    return True


def answer_once(said: bytes) -> Speak:
    def speak(connection: socket.socket) -> None:
        if has_request(connection):
            connection.sendall(said)

    return speak


def answer_all(connection: socket.socket) -> None:
    while has_request(connection):
        connection.sendall(FINE)


class RawServer:
    """Hands each connection to ``speak``, one after the other."""

    def __init__(self, speak: Speak) -> None:
        self._speak = speak
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listening.getsockname()[1]}/v1"
        self.num_connections = 0
        self.num_ended = 0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self.num_connections += 1
            with connection:
                connection.settimeout(PATIENCE_SECONDS)
                with suppress(OSError):  # where the client gives up, which is what the test wants
                    self._speak(connection)
            self.num_ended += 1

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(PATIENCE_SECONDS)


@pytest.fixture
def serve() -> Iterator[Callable[[Speak], RawServer]]:
    servers: list[RawServer] = []

    def start(speak: Speak) -> RawServer:
        servers.append(RawServer(speak))
        return servers[-1]

    yield start
    for server in servers:
        server.close()


def ask(server: RawServer, **settings: Any) -> str:
    given = {"max_retries": 0, "timeout_seconds": PATIENCE_SECONDS} | settings
    with ChatEndpoint(EndpointConfig(base_url=server.url, model="m", **given)) as asked:
        return asked.complete("hi").text


def test_headers_that_drip(serve: Callable[[Speak], RawServer]) -> None:
    """Each byte comes in time, the answer never does."""

    def drip(connection: socket.socket) -> None:
        for byte in b"HTTP/1.1 200 OK\r\nX: " + b"x" * 1000:
            connection.sendall(bytes([byte]))
            time.sleep(0.05)

    began = time.monotonic()
    with pytest.raises(UnreachableError, match=r"did not answer within 0\.4 s"):
        ask(serve(drip), timeout_seconds=0.4)
    assert time.monotonic() - began < 25  # all of it takes 50 s


@pytest.mark.parametrize(
    "said",
    [b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", b"HTTP/1.1 200 OK\r\n", b""],
)
def test_answers_that_are_no_http(serve: Callable[[Speak], RawServer], said: bytes) -> None:
    with pytest.raises(UnreachableError, match=r"cannot be reached|is not JSON"):
        ask(serve(answer_once(said)))


def test_an_answer_without_end(serve: Callable[[Speak], RawServer], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MAX_ANSWER_BYTES", 100_000)

    def pour(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        for _ in range(1000):
            connection.sendall(b"x" * 10_000)

    with pytest.raises(UsageError, match=r"answers with more than 100,000 bytes"):
        ask(serve(pour))


def test_a_connection_that_ended_is_not_used_again(serve: Callable[[Speak], RawServer]) -> None:
    """Without a repetition: the budget of one request a question is enough."""
    server = serve(answer_once(FINE))
    config = EndpointConfig(base_url=server.url, model="m", max_retries=0, timeout_seconds=PATIENCE_SECONDS)
    with ChatEndpoint(config) as asked:
        for number in range(3):
            assert asked.complete("hi").text == "fine"
            assert eventually(lambda ended=number + 1: server.num_ended == ended)  # type: ignore[misc]
            assert server.num_connections == number + 1


def test_a_connection_is_used_again(serve: Callable[[Speak], RawServer]) -> None:
    server = serve(answer_all)
    config = EndpointConfig(base_url=server.url, model="m", max_retries=0, timeout_seconds=PATIENCE_SECONDS)
    with ChatEndpoint(config) as asked:
        assert [asked.complete("hi").text for _ in range(5)] == ["fine"] * 5
    assert server.num_connections == 1


# TLS -----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A file with a certificate of 127.0.0.1 that nobody signed, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    address = x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(address, critical=False)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path / "certificate.pem"
    form = serialization.PrivateFormat.PKCS8
    secret = key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM) + secret)
    return path


def test_encrypted_connections(
    serve: Callable[[Speak], RawServer], certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a host whose certificate is trusted is asked; the deadline holds inside the encryption too."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)

    def speak(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as encrypted:
            answer_all(encrypted)

    server = serve(speak)
    server.url = server.url.replace("http:", "https:")
    with pytest.raises(UnreachableError, match="CERTIFICATE_VERIFY_FAILED"):
        ask(server, timeout_seconds=PATIENCE_SECONDS)
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    config = EndpointConfig(base_url=server.url, model="m", max_retries=0, timeout_seconds=PATIENCE_SECONDS)
    with ChatEndpoint(config) as asked:
        assert [asked.complete("hi").text for _ in range(3)] == ["fine"] * 3
    assert server.num_connections == 2
