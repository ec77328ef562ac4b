"""learnloop's application with the seeds' own routes, over a store of the test's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from learnloop.compat.groups import COMPATIBLE_GROUPS
from learnloop.loop import Workspace
from learnloop.serve import Operations, ServeOptions
from tests.serve.conftest import Running, Start, workspace

__all__ = ["start", "workspace"]


@pytest.fixture
def start(workspace: Workspace) -> Iterator[Start]:
    """Starts servers over ``workspace``: ``start(*groups, **options)``."""
    started: list[Running] = []

    def run(*extra: Operations, on: Workspace | None = None, **options: Any) -> Running:
        chosen = ServeOptions(**{"key_seconds": 0.1, **options})
        started.append(Running(on or workspace, chosen, *COMPATIBLE_GROUPS, *extra))
        return started[-1]

    yield run
    for server in started:
        server.stop()
