"""The one place where an error of a database's driver becomes one of learnloop's."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from learnloop.core.errors import (
    AuthError,
    ConflictError,
    CorruptError,
    LearnloopError,
    NotFoundError,
    StoreError,
    StoreFullError,
    StoreLockedError,
    StoreReadOnlyError,
    UnreachableError,
    UsageError,
)
from learnloop.system.files import FULL, READ_ONLY

_MIN_FREE_BYTES = 1 << 20

_LOCKED = "{place} is held by another process; end it or try again ({detail})"
_UNREACHABLE = "{place} does not answer; check that it runs and can be reached ({detail})"
_CORRUPT = "{place} is damaged or is not a database; restore a backup ({detail})"
_EXISTS = "a row with this unique value exists already ({detail})"
_DANGLING = "a record refers to one that is not in the store; write that one first ({detail})"
_UNFIT = "a value does not fit its column ({detail})"
_DENIED = "{place} does not let us in ({detail})"

_SQLITE_CODES: dict[int, tuple[type[LearnloopError], str]] = {
    sqlite3.SQLITE_BUSY: (StoreLockedError, _LOCKED),
    sqlite3.SQLITE_LOCKED: (StoreLockedError, _LOCKED),
    sqlite3.SQLITE_FULL: (StoreFullError, FULL),
    sqlite3.SQLITE_READONLY: (StoreReadOnlyError, READ_ONLY),
    sqlite3.SQLITE_PERM: (StoreReadOnlyError, READ_ONLY),
    sqlite3.SQLITE_CORRUPT: (CorruptError, _CORRUPT),
    sqlite3.SQLITE_NOTADB: (CorruptError, _CORRUPT),
    sqlite3.SQLITE_TOOBIG: (UsageError, _UNFIT),
    sqlite3.SQLITE_MISMATCH: (UsageError, _UNFIT),
    sqlite3.SQLITE_CONSTRAINT_UNIQUE: (ConflictError, _EXISTS),
    sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY: (ConflictError, _EXISTS),
    sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY: (NotFoundError, _DANGLING),
    sqlite3.SQLITE_CONSTRAINT: (UsageError, _UNFIT),
}

_SQLSTATES: dict[str, tuple[type[LearnloopError], str]] = {
    "53100": (StoreFullError, FULL),
    "53": (UnreachableError, _UNREACHABLE),
    "08": (UnreachableError, _UNREACHABLE),
    "57P": (UnreachableError, _UNREACHABLE),
    "57014": (UnreachableError, _UNREACHABLE),
    "25006": (StoreReadOnlyError, READ_ONLY),
    "40": (StoreLockedError, _LOCKED),
    "55P03": (StoreLockedError, _LOCKED),
    "23505": (ConflictError, _EXISTS),
    "23503": (NotFoundError, _DANGLING),
    "23": (UsageError, _UNFIT),
    "22": (UsageError, _UNFIT),
    "54": (UsageError, _UNFIT),
    "28": (AuthError, _DENIED),
    "42501": (AuthError, _DENIED),
    "3D000": (NotFoundError, "there is no {place}; create the database first ({detail})"),
    "0A000": (StoreError, "{place} lacks what learnloop needs, such as the extension pgvector ({detail})"),
    "58P01": (StoreError, "{place} lacks what learnloop needs, such as the extension pgvector ({detail})"),
    "XX001": (CorruptError, _CORRUPT),
    "XX002": (CorruptError, _CORRUPT),
}
"""The longest prefix of the SQLSTATE that is listed says what it is."""

_CONNECT_HINTS: dict[str, str] = {
    "authentication failed": "28",
    "no password supplied": "28",
    "no pg_hba.conf entry": "28",
    "permission denied for database": "28",
}
"""A failed connection brings no SQLSTATE, only the server's words."""


def translate(error: BaseException, place: str) -> LearnloopError | None:
    """Returns the error of learnloop that ``error`` is, or None for one that is not a driver's.

    Args:
        error: what was raised.
        place: what the message calls the database: its path or its URL without the password.
    """
    if isinstance(error, LearnloopError):
        return error
    if isinstance(error, PoolTimeoutError):
        return UnreachableError(_UNREACHABLE.format(place=place, detail="no connection became free"))
    cause = error.orig if isinstance(error, DBAPIError) and error.orig is not None else error
    if isinstance(cause, sqlite3.Error):
        return _from_sqlite(cause, place)
    if isinstance(error, DBAPIError):
        return _from_postgresql(cause, place, disconnected=error.connection_invalidated)
    return None


@contextmanager
def translated(place: str) -> Iterator[None]:
    """Turns the errors of a driver within the block into learnloop's; ``place`` is as in ``translate``."""
    try:
        yield
    except Exception as error:
        failure = translate(error, place)
        if failure is None or failure is error:
            raise
        raise failure from error


def _from_sqlite(error: sqlite3.Error, place: str) -> LearnloopError:
    code = getattr(error, "sqlite_errorcode", None)  # absent where the driver itself complains
    if code is None:
        return UsageError(_UNFIT.format(detail=error))
    known: tuple[type[LearnloopError], str] | None = _SQLITE_CODES.get(code) or _SQLITE_CODES.get(code & 0xFF)
    if known is not None:
        kind, text = known
        return kind(text.format(place=place, detail=error))
    if code & 0xFF in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_IOERR):
        return _diagnose_file(error, place)
    return StoreError(f"{place}: {error}")


def _diagnose_file(error: sqlite3.Error, place: str) -> LearnloopError:
    """Returns what is wrong with the folder, which SQLite does not say."""
    folder = Path(place).parent
    if not folder.is_dir():
        return NotFoundError(f"the folder {folder} is not there, so {place} cannot be opened; create it ({error})")
    if not os.access(folder, os.W_OK) or (Path(place).exists() and not os.access(place, os.W_OK)):
        return StoreReadOnlyError(READ_ONLY.format(place=place, detail=error))
    if shutil.disk_usage(folder).free < _MIN_FREE_BYTES:
        return StoreFullError(FULL.format(place=place, detail=error))
    return StoreError(f"the disk failed under {place}: {error}")


def _from_postgresql(error: BaseException, place: str, *, disconnected: bool) -> LearnloopError:
    state = getattr(error, "sqlstate", None) or ""  # psycopg is optional: its class cannot be named here
    detail = " ".join(str(error).split())
    if not state:
        state = next((state for hint, state in _CONNECT_HINTS.items() if hint in detail), "")
        if 'database "' in detail and "does not exist" in detail:
            state = "3D000"
    for length in (5, 3, 2):
        known = _SQLSTATES.get(state[:length]) if state else None
        if known is not None:
            kind, text = known
            return kind(text.format(place=place, detail=detail))
    if disconnected or (not state and type(error).__name__ in ("OperationalError", "InterfaceError")):
        return UnreachableError(_UNREACHABLE.format(place=place, detail=detail))
    if not state:  # psycopg could not turn a value into its text
        return UsageError(_UNFIT.format(place=place, detail=detail))
    return StoreError(f"{place}: {detail}")
