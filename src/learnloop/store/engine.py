"""Connections: how a URL is read and what every connection is told before it is used."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import StaticPool

from learnloop.core.errors import NotFoundError, StoreError, UsageError, needs_extra
from learnloop.core.records import Record
from learnloop.store.urls import without_passwords

if TYPE_CHECKING:
    from sqlalchemy.engine.interfaces import DBAPIConnection

BUSY_TIMEOUT_MS = 1_000
"""How long SQLite itself waits for a lock; the writer tries again after it."""
_WAL_PAGES = 16_000
"""From so many pages in the log on, a commit moves them into the database: where ``WalCheckpoints`` does not."""
_CACHE_KIB = 16_384
"""Pages that the writer keeps: the indexes of a large store are written all over."""
_CONNECT_SECONDS = 5
_LOCK_TIMEOUT_MS = 5_000
_CHECKPOINT_TRIES = 5
"""Each waits for ``BUSY_TIMEOUT_MS``."""
_VACUUMED = "episodes, spans, decisions, decision_activations, rewards, reward_history, label_requests, tasks"
"""PostgreSQL's tables of traces and of what is said of them."""
TRANSFORM = "learnloop_transform"
"""The execution option of a connection that says what records become before they are written."""
KNOWN_AGENTS = "learnloop_agents"
"""What the writer's connection remembers: the agents that are surely there."""
_EXAMPLES = "sqlite:///path/to/learnloop.db, sqlite:///:memory: or postgresql://user@host/database"

Transform = Callable[[Record], Record]


class Place(NamedTuple):
    """Where a store lies."""

    url: URL
    """With the driver that SQLAlchemy is to use."""
    backend: str
    """``sqlite`` or ``postgresql``."""
    path: Path | None
    """The database file; None for PostgreSQL and for ``:memory:``."""

    @property
    def name(self) -> str:
        """What messages call it: the path, or the URL without the password."""
        if self.path is not None:
            return str(self.path)
        return without_passwords(self.url)

    @property
    def absolute_path(self) -> Path:
        """The database file of now, wherever the process goes.

        Raises:
            TypeError: the store is not a file.
        """
        if self.path is None:
            raise TypeError(f"{self.name} is not a file")
        return self.path.absolute()

    @property
    def file_uri(self) -> str:
        """What SQLite opens the file by; one that is gone is not made again."""
        return self.absolute_path.as_uri() + "?mode=rw"

    @property
    def in_memory(self) -> bool:
        """Whether it is gone when it is closed."""
        return self.backend == "sqlite" and self.path is None


def parse_url(url: str) -> Place:
    """Returns the place that ``url`` names.

    Raises:
        UsageError: it is not a URL of SQLite or PostgreSQL.
        MissingExtraError: PostgreSQL's driver is not installed.
    """
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise UsageError(f"{url!r} is not a database URL; allowed: {_EXAMPLES}") from error
    if parsed.drivername in ("sqlite", "sqlite+pysqlite"):
        database = parsed.database or ":memory:"
        path = None if database == ":memory:" else Path(database)
        return Place(parsed.set(drivername="sqlite+pysqlite", database=database), "sqlite", path)
    if parsed.drivername in ("postgresql", "postgres", "postgresql+psycopg"):
        with needs_extra("PostgreSQL", "postgres"):
            import psycopg  # noqa: F401
        return Place(parsed.set(drivername="postgresql+psycopg"), "postgresql", None)
    raise UsageError(f"{parsed.drivername!r} is not a database that learnloop knows; allowed: {_EXAMPLES}")


def check_file(place: Place) -> None:
    """Returns if a database file can lie there.

    Raises:
        UsageError: it is a folder.
        NotFoundError: its folder is not there.
    """
    if place.path is None:
        return
    if place.path.is_dir():
        raise UsageError(f"{place.path} is a folder; give the path of a file in it, such as {place.path}/learnloop.db")
    if not place.path.parent.is_dir():
        raise NotFoundError(f"the folder {place.path.parent} is not there; create it, or run `learnloop init`")


def writer_engine(place: Place) -> Engine:
    """Returns the engine of the one connection that writes; on SQLite a transaction starts with the write lock."""
    if place.backend == "postgresql":
        return _postgresql_engine(place, pool_size=1)
    engine = _sqlite_engine(place, pool_size=1)
    event.listen(engine, "connect", lambda connection, record: prepare_sqlite_writer(connection))
    event.listen(engine, "begin", _begin_immediate)
    return engine


def reader_engine(place: Place) -> Engine:
    """Returns the engine of connections that read only, each transaction from one snapshot."""
    if place.backend == "postgresql":
        return _postgresql_engine(
            place,
            pool_size=4,
            execution_options={"postgresql_readonly": True, "isolation_level": "REPEATABLE READ"},
        )
    engine = _sqlite_engine(place, pool_size=4)
    event.listen(engine, "connect", _prepare_sqlite_reader)
    event.listen(engine, "begin", _begin_deferred)
    return engine


def _sqlite_engine(place: Place, *, pool_size: int) -> Engine:
    arguments = {"check_same_thread": False, "timeout": BUSY_TIMEOUT_MS / 1000}
    if place.in_memory:
        return create_engine(place.url, connect_args=arguments, poolclass=StaticPool)
    return create_engine(place.url, connect_args=arguments, pool_size=pool_size, max_overflow=12)


def _postgresql_engine(place: Place, *, pool_size: int, **options: Any) -> Engine:
    engine = create_engine(
        place.url,
        connect_args={
            "connect_timeout": _CONNECT_SECONDS,
            "keepalives_idle": 10,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": 20_000,
        },
        pool_size=pool_size,
        max_overflow=12,
        pool_pre_ping=True,
        json_deserializer=msgspec.json.decode,
        **options,
    )
    event.listen(engine, "connect", _prepare_postgresql)
    return engine


def prepare_sqlite_writer(connection: sqlite3.Connection) -> None:
    """Makes what a connection writes durable.

    Raises:
        StoreError: the file system has no write-ahead log.
    """
    _prepare_sqlite(connection)
    cursor = connection.cursor()
    (mode,) = cursor.execute("PRAGMA journal_mode = WAL").fetchone()
    if mode not in ("wal", "memory"):
        raise StoreError(f"SQLite cannot keep a write-ahead log here (it answers {mode!r}); use a local disk")
    cursor.execute(f"PRAGMA wal_autocheckpoint = {_WAL_PAGES}")
    cursor.execute(f"PRAGMA cache_size = -{_CACHE_KIB}")
    cursor.execute("PRAGMA secure_delete = ON")  # what is removed or redacted is overwritten
    cursor.close()


def _prepare_sqlite_reader(connection: sqlite3.Connection, record: object) -> None:
    _prepare_sqlite(connection)
    connection.cursor().execute("PRAGMA query_only = ON")


def _prepare_sqlite(connection: sqlite3.Connection) -> None:
    """Durability and references, on each connection; the driver's own handling of transactions is turned off."""
    connection.isolation_level = None
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _prepare_postgresql(connection: DBAPIConnection, record: object) -> None:
    cursor = connection.cursor()
    cursor.execute(
        "SELECT set_config('TimeZone', 'UTC', false), set_config('lock_timeout', %s, false), "
        "set_config('synchronous_commit', CASE current_setting('synchronous_commit') "
        "WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, false)",
        (str(_LOCK_TIMEOUT_MS),),
    )
    cursor.close()
    connection.commit()


def _begin_immediate(connection: Connection) -> None:
    driver: Any = connection.connection.driver_connection
    driver.execute("BEGIN IMMEDIATE")  # by the driver alone: each commit of the log pays for this


def _begin_deferred(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN")


@contextmanager
def _remembering(engine: Engine) -> Iterator[Connection]:
    """Yields a connection in a transaction; where that fails, at its commit too, the agents it made are not there."""
    known: dict[Any, Any] = {}
    try:
        with engine.begin() as connection:
            known = connection.info
            yield connection
    except BaseException:
        known.pop(KNOWN_AGENTS, None)
        raise


class Connections:
    """The connections of one store: ``writing()`` and ``reading()`` give one inside a transaction.

    Args:
        place: where it lies.
        transform: what records become before they are written.
    """

    def __init__(self, place: Place, transform: Transform | None = None) -> None:
        self.place = place
        self.transform = transform
        engine = writer_engine(place)
        event.listen(engine, "rollback_savepoint", lambda connection, *given: connection.info.pop(KNOWN_AGENTS, None))
        self.writer = engine.execution_options(**{TRANSFORM: transform})
        self.reader = self.writer if place.in_memory else reader_engine(place)
        # A database in memory has one connection for all.
        self._turn: AbstractContextManager[object] = threading.RLock() if place.in_memory else nullcontext()

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """Yields the writer's connection; commits at the end, or rolls back."""
        with self._turn, _remembering(self.writer) as connection:
            yield connection

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """Yields a connection that cannot write."""
        with self._turn, self.reader.begin() as connection:
            if not self.place.in_memory:
                yield connection
                return
            connection.exec_driver_sql("PRAGMA query_only = ON")
            try:
                yield connection
            finally:
                connection.exec_driver_sql("PRAGMA query_only = OFF")

    def scrub(self) -> bool:
        """Does as ``Store.scrub`` says."""
        if self.place.in_memory:
            return True
        if self.place.backend == "postgresql":
            with self.writer.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
                connection.exec_driver_sql(f"VACUUM {_VACUUMED}")
            return True
        with closing(self.writer.raw_connection()) as connection:
            cursor = connection.cursor()
            for _ in range(_CHECKPOINT_TRIES):
                cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                if cursor.fetchall()[0][0] == 0:  # nobody else was busy with it
                    return True
        return False

    def close(self) -> None:
        """Closes all connections."""
        self.reader.dispose()
        self.writer.dispose()
