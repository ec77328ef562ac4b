"""The least that serves seed 1's network over HTTP: uvicorn with its C parts, msgspec, numpy; no framework, no log.

What it reaches on a machine is about what any server of this design can there. Prints the port that it listens on.
"""

from __future__ import annotations

import itertools
import socket
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import numpy as np
import uvicorn
from numpy.typing import NDArray

MUTATIONS = ["try-catch-style", "context-reduction", "expansion", "constraint-addition", "task-decomposition"]
_rng = np.random.default_rng(0)
_SIZES = (1536, 256, 256, 128)


def _tower(num_outputs: int) -> list[NDArray[np.float32]]:
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


_decoder = msgspec.json.Decoder(Selection)
_encoder = msgspec.json.Encoder()


def _outputs(state: NDArray[np.float32], tower: list[NDArray[np.float32]]) -> NDArray[np.float32]:
    for weights in tower[:-1]:
        state = np.maximum(state @ weights, 0)
    return state @ tower[-1]


def _select(given: bytes) -> bytes:
    embedding = _decoder.decode(given).embedding
    state = np.frombuffer(embedding, "<f4") if isinstance(embedding, bytes) else np.array(embedding, np.float32)
    scores = _outputs(state, _POLICY)
    chances = np.exp(scores - scores.max())
    chances /= chances.sum()
    action = min(int(np.searchsorted(np.cumsum(chances), _rng.random())), len(MUTATIONS) - 1)
    return _encoder.encode(
        Selected(action, MUTATIONS[action], float(np.log(chances[action])), float(_outputs(state, _VALUE)[0]))
    )


async def app(
    scope: dict[str, Any], receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
) -> None:
    """Answers every request as ``POST /select_action``."""
    parts = []
    more = True
    while more:
        message = await receive()
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    body = _select(b"".join(parts))
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
