"""schemathesis against a real server on both back ends: all that the description promises holds on the wire."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from learnloop.loop import Loop
from tests.serve.server_process import ServerProcess

HERE = Path(__file__).parent
CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "response_headers_conformance",
    "unsupported_method",
    "allow_header_conformance",
)
SECONDS = (40, 160, 640)
"""How long it tries; a machine that is so busy that it came to no end with all of them has more time."""
OPTIONS = [
    *("--checks", ",".join(CHECKS)),
    *("--phases", "examples,coverage,fuzzing"),
    *("--max-examples", "3"),
    *("--warnings", "off"),
    "--generation-deterministic",
    "--continue-on-failure",
    "--no-color",
]


@pytest.fixture(params=["sqlite", "postgres_url"])
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ServerProcess]:
    database = None if request.param == "sqlite" else request.getfixturevalue(request.param)
    (tmp_path / "home").mkdir()
    with (
        Loop("bot", home=tmp_path / "home", database=database) as loop,
        loop.episode(task="t") as episode,
        loop.span("ls", "execute_tool"),
    ):
        loop.choose("route", ["a", "b"])
        episode.reward(solved=1.0)
    server = ServerProcess(tmp_path / "home", database)
    body = {"policy": "known", "agent_id": "known", "actions": ["a", "b"], "decision_id": "known", "defer": True}
    assert server.ask("POST", "/v1/decisions", json.dumps(body)).status == 201
    yield server
    server.stop()


@pytest.mark.slow
def test_the_description_holds(served: ServerProcess, tmp_path: Path) -> None:
    for seconds in SECONDS:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(HERE / "schemathesis.toml"), "run"),
                *(f"{served.url}/openapi.json", "--max-time", str(seconds), *OPTIONS),
            ],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env={
                **os.environ,
                "SCHEMATHESIS_HOOKS": "tests.serve.schemathesis_hooks",
                "PYTHONPATH": str(HERE.parents[1]),
            },
        )
        assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2000:]
        found = re.search(r"Selected: (\d+)/(\d+)\s+Tested: (\d+)", done.stdout)
        assert found is not None, done.stdout
        if len(set(found.groups())) == 1:  # all that there are were tested
            break
    assert len(set(found.groups())) == 1, found.group()
    assert int(found.group(1)) >= len(served.document()["paths"])
    assert " ERROR learnloop.serve" not in served.errors.read_text()


def test_methods_that_a_path_does_not_take(served: ServerProcess) -> None:
    """405 with Allow, as a problem, for every path of the description, and 404 for others."""
    for template, methods in served.document()["paths"].items():
        path = re.sub(r"\{[^}]*\}", "known", template)
        allowed = {method.upper() for method in methods} & {"GET", "POST", "PUT", "PATCH", "DELETE"}
        for method in {"GET", "POST", "PUT", "PATCH", "DELETE", "TRACE", "OPTIONS"} - allowed:
            if method == "GET" and path == template:
                continue  # may be the id of something: /v1/decisions/batch
            reply = served.ask(method, path)
            assert reply.status == 405, (method, path)
            assert set(reply.headers["allow"].split(", ")) == allowed
        missing = served.ask("GET", f"{path}/nothing/here")
        assert (missing.status, missing.headers["content-type"]) == (404, "application/problem+json")


def test_every_error_of_the_description_is_a_problem(served: ServerProcess) -> None:
    """RFC 9457 in the description too; groups with another protocol's errors name their own media types."""
    document = served.document()
    for path, methods in document["paths"].items():
        for method, described in methods.items():
            errors = {status for status in described["responses"] if int(status) >= 400}
            assert {"400", "500", "503"} <= errors, (method, path)
            assert "default" not in described["responses"]
            if "x-required-scope" in described:
                assert {"401", "403"} <= errors
            if "requestBody" in described:
                assert {"413", "415", "422"} <= errors
    for answer in document["components"]["responses"].values():
        assert list(answer["content"]) == ["application/problem+json"]
