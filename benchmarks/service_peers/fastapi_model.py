"""The usual way to serve a model: FastAPI with a pydantic body, uvicorn with its C parts, numpy; nothing is logged.

Prints the port that it listens on.
"""

from __future__ import annotations

import itertools
import socket
import sys

import numpy as np
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

MUTATIONS = ["try-catch-style", "context-reduction", "expansion", "constraint-addition", "task-decomposition"]
_rng = np.random.default_rng(0)
_SIZES = (1536, 256, 256, 128)
_WEIGHTS = [_rng.normal(size=shape).astype(np.float32) / np.sqrt(shape[0]) for shape in itertools.pairwise(_SIZES)]
_POLICY = _rng.normal(size=(128, 5)).astype(np.float32) / 10
_VALUE = _rng.normal(size=(128, 1)).astype(np.float32) / 10

app = FastAPI()


class Selection(BaseModel):
    """The body."""

    embedding: list[float]
    deterministic: bool = False


class Selected(BaseModel):
    """The answer."""

    action: int
    mutation_type: str
    log_prob: float
    value: float


@app.post("/select_action")
async def select_action(body: Selection) -> Selected:
    """Choose."""
    hidden = np.array(body.embedding, np.float32)
    for weights in _WEIGHTS:
        hidden = np.maximum(hidden @ weights, 0)
    scores = hidden @ _POLICY
    chances = np.exp(scores - scores.max())
    chances /= chances.sum()
    action = int(_rng.choice(5, p=chances / chances.sum()))
    return Selected(
        action=action,
        mutation_type=MUTATIONS[action],
        log_prob=float(np.log(chances[action])),
        value=float((hidden @ _VALUE)[0]),
    )


def main() -> None:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    sys.stdout.write(f"{listening.getsockname()[1]}\n")
    sys.stdout.flush()
    uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False)).run(sockets=[listening])


if __name__ == "__main__":
    main()
