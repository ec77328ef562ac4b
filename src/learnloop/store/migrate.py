"""Which revision a database has, and bringing it to the newest one.

Alembic is imported only where there is something to migrate: a store at the newest revision opens without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, inspect

from learnloop.core.errors import ConflictError, SchemaVersionError
from learnloop.store.engine import Connections, check_file, parse_url
from learnloop.store.failures import translated
from learnloop.store.insert import take_write_lock

_VERSIONS = Path(__file__).parent / "migrations" / "versions"
REVISIONS = tuple(sorted(path.name[:4] for path in _VERSIONS.glob("[0-9]*.py")))
"""All revisions that this learnloop knows, oldest first: a file each, whose name begins with it."""
HEAD = REVISIONS[-1]
"""The revision that this learnloop needs."""


def current(url: str) -> str | None:
    """Returns the revision of the database at ``url``; None where there is none yet.

    Raises:
        SchemaVersionError: the database was not made by learnloop.
    """
    with opened(url) as connections:
        if connections.place.path is not None and not connections.place.path.exists():
            return None
        return revision_of(connections)


def upgrade(url: str) -> str:
    """Brings the database at ``url`` to the newest revision, all or nothing, and returns that.

    Raises:
        SchemaVersionError: it is newer than this learnloop, or was not made by it.
    """
    with opened(url) as connections:
        return ensure_head(connections, upgrade=True)


@contextmanager
def opened(url: str) -> Iterator[Connections]:
    """Yields the connections of the database at ``url`` and closes them; errors of the driver become learnloop's."""
    place = parse_url(url)
    check_file(place)
    connections = Connections(place)
    try:
        with translated(place.name):
            yield connections
    finally:
        connections.close()


def revision_of(connections: Connections, *, exists: bool = False) -> str | None:
    """Returns the revision of an open database; None for an empty one.

    Args:
        connections: those of the database.
        exists: whether it is known to be there. It is then only read, which no other writer can hold up; a reader
            cannot open a file that is not there yet.

    Raises:
        SchemaVersionError: it has tables that are not learnloop's.
    """
    with connections.reading() if exists else connections.writing() as connection:
        return _read_revision(connection, connections.place.name)


def ensure_head(connections: Connections, *, upgrade: bool) -> str:
    """Returns the newest revision, to which the database is brought where it is empty or ``upgrade`` is set.

    Raises:
        ConflictError: it is older and ``upgrade`` is not set.
        SchemaVersionError: it is newer than this learnloop, or was not made by it.
    """
    name = connections.place.name
    revision = revision_of(connections)
    if revision == HEAD:
        return HEAD
    if revision is not None and revision not in REVISIONS:
        raise SchemaVersionError(
            f"{name} has schema revision {revision!r}, which this learnloop does not know (its newest is {HEAD!r}): "
            "it was written by a newer version; install that one"
        )
    if revision is not None and not upgrade:
        raise ConflictError(
            f"{name} has schema revision {revision!r} and this learnloop needs {HEAD!r}; run `learnloop db upgrade`"
        )
    _run_alembic(connections)
    return HEAD


def _read_revision(connection: Connection, name: str) -> str | None:
    tables = set(inspect(connection).get_table_names())
    if not tables:
        return None
    if "alembic_version" not in tables:
        raise SchemaVersionError(
            f"{name} holds tables that are not learnloop's ({', '.join(sorted(tables)[:5])}); give it a database "
            "of its own"
        )
    revision: str | None = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    return revision


def _run_alembic(connections: Connections) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "learnloop.store:migrations")
    config.set_main_option("path_separator", "os")
    with connections.writing() as connection:
        take_write_lock(connection)  # two processes may come here at once
        config.attributes["connection"] = connection
        command.upgrade(config, HEAD)
