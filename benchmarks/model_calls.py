"""A server on the loopback that answers like a model, at once, and a measure of what is added to calls of it.

Imports nothing but the standard library and OpenAI's client, so that a peer's environment can run it too.
"""

from __future__ import annotations

import json
import statistics
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

NUM_CALLS = 300
NUM_WARM_UP = 30
_MESSAGES = [
    {"role": "system", "content": "You book flights. " * 40},
    *({"role": ("user", "assistant")[number % 2], "content": f"message {number} " * 20} for number in range(9)),
]
_ANSWER = {
    "id": "c1",
    "object": "chat.completion",
    "created": 1,
    "model": "m",
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "It is 18C. " * 10}}],
    "usage": {"prompt_tokens": 21, "completion_tokens": 9, "total_tokens": 30},
}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        streamed = bool(body.get("stream"))
        data = _STREAM if streamed else json.dumps(_ANSWER).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream" if streamed else "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *arguments: Any) -> None:
        """Says nothing."""


def _chunks() -> bytes:
    lines = []
    for number in range(20):
        delta = {"content": f"word {number} "}
        choices = [{"index": 0, "delta": delta, "finish_reason": None if number < 19 else "stop"}]
        chunk = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices}
        lines.append(f"data: {json.dumps(chunk)}\n\n")
    return "".join([*lines, "data: [DONE]\n\n"]).encode()


_STREAM = _chunks()


def added_ms(make: Callable[[str], tuple[Any, Any]]) -> dict[str, float]:
    """Returns the milliseconds that recording adds to the median call, for whole answers and for streams.

    Args:
        make: gives a client that is not recorded and one that is, for a base URL.
    """
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        plain, recorded = make(f"http://127.0.0.1:{server.server_address[1]}/v1")
        return {kind: _difference(plain, recorded, stream=kind == "stream") for kind in ("answer", "stream")}
    finally:
        server.shutdown()
        server.server_close()


def _difference(plain: Any, recorded: Any, *, stream: bool) -> float:
    times: dict[bool, list[float]] = {False: [], True: []}
    for number in range(NUM_WARM_UP + NUM_CALLS):
        for is_recorded, client in ((False, plain), (True, recorded)):
            begun = time.perf_counter()
            answer = client.chat.completions.create(model="m", messages=_MESSAGES, stream=stream)
            if stream:
                for _ in answer:
                    pass
            if number >= NUM_WARM_UP:
                times[is_recorded].append((time.perf_counter() - begun) * 1000)
    return statistics.median(times[True]) - statistics.median(times[False])
