"""A real HTTP server that speaks the chat completions format, with a model that is a function, and faults on order."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple


class Fault(NamedTuple):
    """What one request gets in the place of an answer."""

    status: int = 200
    body: bytes = b'{"error": {"message": "busy"}}'
    headers: tuple[tuple[str, str], ...] = ()
    delay_seconds: float = 0.0
    drip_seconds: float = 0.0
    """Between two bytes of the body."""
    hang_up: bool = False


class ChatServer:
    """Answers with ``model(prompt)``; the first requests get the ``faults``, in their order."""

    def __init__(self, model: Callable[[str], str]) -> None:
        self.model = model
        self.faults: list[Fault] = []
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.clients: list[Any] = []
        """What a test must close."""
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                server.answer(self)

            def log_message(self, *args: Any) -> None:
                """Says nothing."""

        class Server(ThreadingHTTPServer):
            def handle_error(self, request: Any, client_address: Any) -> None:
                """Says nothing of clients that hang up."""

        self._http = Server(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/v1"

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers["Content-Length"]))
        self.requests.append(json.loads(body))
        self.headers.append(dict(handler.headers))
        self.paths.append(handler.path)
        fault = self.faults.pop(0) if self.faults else None
        if fault is None:
            text = self.model(self.requests[-1]["messages"][-1]["content"])
            message = {"role": "assistant", "content": text}
            choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
            fault = Fault(body=json.dumps({"id": "c", "choices": choices, "usage": {"total_tokens": 7}}).encode())
        time.sleep(fault.delay_seconds)
        if fault.hang_up:
            handler.close_connection = True
            return
        handler.send_response(fault.status)
        for name, value in (*fault.headers, ("Content-Length", str(len(fault.body)))):
            handler.send_header(name, value)
        handler.end_headers()
        try:
            if fault.drip_seconds:
                for byte in fault.body:
                    handler.wfile.write(bytes([byte]))
                    handler.wfile.flush()
                    time.sleep(fault.drip_seconds)
            else:
                handler.wfile.write(fault.body)
        except OSError:
            handler.close_connection = True  # the client gave up, which is what the test wants

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join(10)
