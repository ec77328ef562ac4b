"""The least that serves seed 1's network over HTTP: uvicorn with its C parts, msgspec, numpy; no framework, no checks.

A reference for what a machine allows. With the path of a database as its argument, each choice is in SQLite, with an
fsync, before it is answered; those that come during a commit share the next one.
Prints the port that it listens on.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import sqlite3
import sys
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import numpy as np
import uvicorn

from learnloop.core.arrays import F32

MUTATIONS = ["try-catch-style", "context-reduction", "expansion", "constraint-addition", "task-decomposition"]
_rng = np.random.default_rng(0)
_SIZES = (1536, 256, 256, 128)
_TABLE = "CREATE TABLE decisions (id INTEGER PRIMARY KEY, action INTEGER, propensity REAL, vector BLOB)"

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
Written = tuple[int, float, bytes]


def _tower(num_outputs: int) -> list[F32]:
    shapes = [*itertools.pairwise(_SIZES), (_SIZES[-1], num_outputs)]
    return [_rng.normal(size=shape).astype(np.float32) / np.float32(np.sqrt(shape[0])) for shape in shapes]


_POLICY, _VALUE = _tower(len(MUTATIONS)), _tower(1)


class Selection(msgspec.Struct):
    """The body."""

    embedding: list[float] | bytes
    deterministic: bool = False


class Selected(msgspec.Struct):
    """The answer."""

    action: int
    mutation_type: str
    log_prob: float
    value: float


class Log:
    """Writes in a thread of its own."""

    def __init__(self, path: str) -> None:
        self._waiting: list[tuple[Written, asyncio.Future[None]]] = []
        self._is_writing = False
        self._thread = ThreadPoolExecutor(1)
        self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        for statement in ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL", _TABLE):
            self._connection.execute(statement)

    async def keep(self, row: Written) -> None:
        """Returns when ``row`` is on the disk."""
        done = asyncio.get_running_loop().create_future()
        self._waiting.append((row, done))
        if not self._is_writing:
            self._is_writing = True
            asyncio.get_running_loop().call_soon(self._write)
        await done

    def _write(self) -> None:
        batch, self._waiting = self._waiting, []
        self._is_writing = bool(batch)
        if batch:
            written = asyncio.get_running_loop().run_in_executor(self._thread, self._commit, [row for row, _ in batch])
            written.add_done_callback(lambda future: self._tell(batch, future))

    def _commit(self, rows: list[Written]) -> None:
        marks = ", ".join(["(?, ?, ?)"] * len(rows))
        statement = f"INSERT INTO decisions (action, propensity, vector) VALUES {marks}"
        self._connection.execute(statement, list(itertools.chain.from_iterable(rows)))

    def _tell(self, batch: list[tuple[Written, asyncio.Future[None]]], written: asyncio.Future[None]) -> None:
        written.result()
        self._write()
        for _, done in batch:
            done.set_result(None)


_decoder = msgspec.json.Decoder(Selection)
_encoder = msgspec.json.Encoder()
_log = Log(sys.argv[1]) if len(sys.argv) > 1 else None


def _outputs(state: F32, tower: list[F32]) -> F32:
    for weights in tower[:-1]:
        state = np.maximum(state @ weights, 0)
    return state @ tower[-1]


async def _select(given: bytes) -> bytes:
    embedding = _decoder.decode(given).embedding
    state = np.frombuffer(embedding, "<f4") if isinstance(embedding, bytes) else np.array(embedding, np.float32)
    scores = _outputs(state, _POLICY)
    chances = np.exp(scores - scores.max())
    chances /= chances.sum()
    action = min(int(np.searchsorted(np.cumsum(chances), _rng.random())), len(MUTATIONS) - 1)
    value = float(_outputs(state, _VALUE)[0])
    if _log is not None:
        await _log.keep((action, float(chances[action]), state.tobytes()))
    return _encoder.encode(Selected(action, MUTATIONS[action], float(np.log(chances[action])), value))


async def app(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """Answers every request as ``POST /select_action``."""
    parts = []
    more = True
    while more:
        message = await receive()
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    body = await _select(b"".join(parts))
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def main() -> None:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    sys.stdout.write(f"{listening.getsockname()[1]}\n")
    sys.stdout.flush()
    config = uvicorn.Config(app, log_level="error", access_log=False, lifespan="off")
    uvicorn.Server(config).run(sockets=[listening])


if __name__ == "__main__":
    main()
