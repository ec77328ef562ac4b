"""``learnloop``'s own application over a store of the test's, served in a thread."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from learnloop.compat.groups import COMPATIBLE_GROUPS
from learnloop.loop import Workspace
from learnloop.loop.workspace.settings import find_settings
from learnloop.serve import Operations, ServeOptions, create_app
from tests.serve import running
from tests.serve.http.probes import plain, probes


class Running(running.Running):
    """A server over ``workspace``."""

    def __init__(self, workspace: Workspace, options: ServeOptions, *extra: Operations) -> None:
        self.workspace = workspace
        super().__init__(create_app(workspace, options, *extra), options.host)


Start = Callable[..., Running]


@pytest.fixture
def workspace(tmp_path: Path, sqlite_template: Path) -> Iterator[Workspace]:
    (tmp_path / "home").mkdir()
    shutil.copy(sqlite_template, tmp_path / "home" / "learnloop.db")
    with Workspace(find_settings(tmp_path / "home"), create=True) as opened:
        yield opened


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One server without keys for all tests of a file that leave it as it is."""
    home = tmp_path_factory.mktemp("shared")
    with Workspace(find_settings(home), create=True) as opened:
        server = Running(opened, ServeOptions(), *COMPATIBLE_GROUPS, probes, plain)
        yield server
        server.stop()


@pytest.fixture
def start(workspace: Workspace) -> Iterator[Start]:
    """Starts servers over ``workspace``: ``start(*groups, **options)``."""
    started: list[Running] = []

    def run(*extra: Operations, on: Workspace | None = None, **options: Any) -> Running:
        started.append(Running(on or workspace, ServeOptions(**{"key_seconds": 0.1, **options}), *extra))
        return started[-1]

    yield run
    for server in started:
        server.stop()
