"""learnloop.serve.service: what becomes of each error of learnloop over HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.requests import Request
from starlette.responses import Response

from learnloop.core import errors
from learnloop.core.records import ApiScope
from learnloop.loop import Workspace
from learnloop.loop.workspace.settings import find_settings
from learnloop.serve import Operations, ServeOptions, service_of
from learnloop.serve.service import STATUSES
from tests.serve.conftest import Running

failing = Operations("failing")


@failing.get("/fail/{name}", scope=ApiScope.READ)
async def fail(request: Request, name: str) -> Response:
    """Raise the error of that name."""
    kind = getattr(errors, name)
    if kind is errors.MissingExtraError:
        raise kind("this", "torch")
    raise kind(f"{name} happened in {service_of(request).workspace.settings.home}")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    home: Path = tmp_path_factory.mktemp("failing")
    with Workspace(find_settings(home), create=True) as opened:
        running = Running(opened, ServeOptions(), failing)
        yield running
        running.stop()


@pytest.mark.parametrize(
    "kind", [kind.__name__ for kind in STATUSES] + ["ActionError", "StoreLockedError", "CorruptError"]
)
def test_each_error_has_its_status(server: Running, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    reply = server.ask("GET", f"/fail/{kind}")
    error = getattr(errors, kind)
    assert reply.status == next(STATUSES[each] for each in error.__mro__ if each in STATUSES)
    assert reply.headers["content-type"] == "application/problem+json"
    assert str(server.workspace.settings.home) not in reply.body.decode()
    assert ("retry-after" in reply.headers) is (reply.status == 503)
    assert (reply.json()["request_id"] in caplog.text) is (reply.status >= 500)
    assert "Traceback" not in caplog.text
