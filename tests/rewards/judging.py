"""A judge for the tests: a loopback server that answers by a function, and a configuration that asks it."""

from __future__ import annotations

import json
from typing import Any

from learnloop.core.attempts import Attempt
from learnloop.models import EndpointConfig
from learnloop.rewards.judge.config import Criterion, JudgeConfig, Rubric
from tests.loopback import LoopbackServer

RUBRIC = Rubric(
    criteria=[
        Criterion(name="correct", text="Is the answer right?", weight=3.0, lowest=0, highest=10),
        Criterion(name="clear", text="Is it easy to read?", lowest=1, highest=5),
    ]
)


def scores(correct: object, clear: object) -> str:
    """Returns an answer to the rubric above."""
    return json.dumps({"reasoning": "so it is", "scores": {"correct": correct, "clear": clear}})


def winner(name: str) -> str:
    """Returns an answer to a comparison."""
    return json.dumps({"reasoning": "so it is", "winner": name})


def endpoint(server: LoopbackServer, **fields: Any) -> EndpointConfig:
    """Returns an endpoint that asks once."""
    given = {"timeout_seconds": 60.0, "deadline_seconds": 60.0, "max_retries": 0, "backoff_seconds": 0.01}
    return EndpointConfig(base_url=server.url, model="m", **(given | fields))


def config(server: LoopbackServer, of_endpoint: dict[str, Any] | None = None, **fields: Any) -> JudgeConfig:
    """Returns a judge that asks the server."""
    return JudgeConfig(endpoint=endpoint(server, **(of_endpoint or {})), **({"rubric": RUBRIC} | fields))


def attempt(output: str | None, prompt: str = "What is 2 + 2?", **fields: Any) -> Attempt:
    """Returns a try at a sum."""
    return Attempt(task_id="t", prompt=prompt, output=output, **fields)
