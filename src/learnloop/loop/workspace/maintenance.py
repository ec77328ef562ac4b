"""Makes, upgrades, backs up and restores what a workspace holds: the database, the blobs and the policies."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from learnloop.core.errors import NotFoundError, StoreReadOnlyError, UsageError
from learnloop.loop.workspace.core import WorkspaceCore, make_folder
from learnloop.loop.workspace.settings import (
    HOME_FOLDER,
    SETTINGS_FILE,
    Settings,
    find_settings,
    settings_file,
)
from learnloop.store import BlobStore
from learnloop.store import backup as back_up_store
from learnloop.store import restore as restore_store
from learnloop.store.migrate import HEAD, current
from learnloop.store.migrate import upgrade as upgrade_schema
from learnloop.store.urls import has_secret, url_of
from learnloop.system.files import output_file, writing


class Made(NamedTuple):
    """What ``init`` made, or found."""

    settings: Settings
    """Where the store is."""
    file: Path | None
    """The settings file in force in its folder; None where there is none."""
    later: Settings
    """What a command in the folder uses that is not told where the store is."""


def init(folder: Path, home: str | None = None, database: str | None = None) -> Made:
    """Makes the store that the settings of ``folder`` name, and a settings file there unless one is in force.

    The file says what was given here, so that other commands find the store; a password is never written to it. Where
    something fails, nothing that was made remains.

    Args:
        folder: made where it does not exist.
        home: the store's folder, as for ``find_settings``.
        database: the database's URL, as for ``find_settings``.

    Raises:
        UsageError: the database is in memory, or a settings file cannot be used.
        StoreError, UnreachableError: the store or the file cannot be made.
    """
    folder = folder.absolute()
    settings = find_settings(home, database, start=folder)
    if settings.in_memory:
        raise UsageError(
            "a database in memory is gone when init ends; give a file or a server, or leave --database out"
        )
    with _nothing_left_behind(folder, settings):
        file = _file_to_write(folder, told=home is not None or database is not None)
        WorkspaceCore(settings, create=True).close()
        if file is not None:
            _write_settings(file, settings)
    return Made(settings, settings_file(folder), find_settings(start=folder))


def upgrade(settings: Settings) -> tuple[str | None, str]:
    """Brings the schema up to date; returns its revision before (None: no tables) and after.

    Raises:
        NotFoundError: there is no store.
        SchemaVersionError: the database is newer than this learnloop.
    """
    _require(settings)
    return current(settings.database), upgrade_schema(settings.database)


def revisions(settings: Settings) -> tuple[str | None, str]:
    """Returns the revision of the schema (None: no tables) and the newest one.

    Raises:
        NotFoundError: there is no store.
    """
    _require(settings)
    return current(settings.database), HEAD


def backup(settings: Settings, file: Path) -> None:
    """Writes database, blobs and policies to the new ``file``, also while agents are running.

    Raises:
        NotFoundError: there is no store.
        ConflictError: ``file`` is there already.
        StoreError: it cannot be written.
    """
    _require(settings)
    back_up_store(settings.database, _blobs(settings), file, folders=_folders(settings))


def restore(settings: Settings, file: Path, *, force: bool = False) -> None:
    """Brings a backup back into the store that ``settings`` name, all or nothing.

    Raises:
        NotFoundError: there is no such file.
        ConflictError: the store holds something and ``force`` is not set.
        CorruptError: the file is damaged.
        SchemaVersionError: it was written by a newer learnloop.
    """
    make_folder(settings.home)
    restore_store(file, settings.database, _blobs(settings), force=force, folders=_folders(settings))


@contextmanager
def _nothing_left_behind(folder: Path, settings: Settings) -> Iterator[None]:
    """Removes the folders and the database that were made inside it, where something is raised."""
    database = settings.database_file
    wanted = dict.fromkeys([folder, *folder.parents, settings.home, *settings.home.parents])
    missing = [each for each in wanted if not os.path.lexists(each)]
    files = [] if database is None or os.path.lexists(database) else [database]
    try:
        yield
    except BaseException:
        for file in files:
            for suffix in ("", "-wal", "-shm"):
                file.with_name(file.name + suffix).unlink(missing_ok=True)
        for each in sorted(missing, key=lambda path: len(path.parts), reverse=True):
            with suppress(OSError):  # not made, or another's by now: only an empty folder goes
                each.rmdir()
        raise


def _file_to_write(folder: Path, *, told: bool) -> Path | None:
    """Makes ``folder`` and returns the settings file to write there; None where one is in force that says enough."""
    file = folder / SETTINGS_FILE
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        in_force = settings_file(folder)
        if in_force == file and file.read_bytes().strip():
            return None
    if in_force not in (None, file) and not told:
        return None
    if not os.access(folder, os.W_OK):
        raise StoreReadOnlyError(f"{folder} cannot be written; name a folder that you own")
    return file


def _write_settings(file: Path, settings: Settings) -> None:
    home, database = settings.origins["home"], settings.origins["database"]
    folder = HOME_FOLDER if home == "default" else _beside(file, settings.home)
    lines = [
        "# Settings of learnloop. An option or LEARNLOOP_HOME / LEARNLOOP_DATABASE wins over this file.",
        f"{'# ' if home == 'environment' else ''}home = {_quoted(folder)}  # the store's folder, relative to this file",
    ]
    if database in ("default", "environment"):
        lines.append('# database = "postgresql://user@host/name"  # SQLite in the folder above unless set')
    elif has_secret(settings.database):
        lines.append(f"# set LEARNLOOP_DATABASE: no password belongs in this file ({_quoted(settings.shown_database)})")
    else:
        path = settings.database_file
        url = settings.database if path is None else url_of(_beside(file, path))
        lines.append(f"database = {_quoted(url)}")
    with output_file(file) as stream:
        stream.write("".join(f"{line}\n" for line in lines).encode())


def _beside(file: Path, path: Path) -> str:
    """Returns ``path`` relative to the folder of ``file`` where it lies in it."""
    return str(path.relative_to(file.parent) if path.is_relative_to(file.parent) else path)


def _quoted(text: str) -> str:
    """Returns ``text`` as a string of TOML, which is that of JSON but for one character."""
    return msgspec.json.encode(text).decode().replace("\x7f", "\\u007f")


def _blobs(settings: Settings) -> BlobStore:
    return BlobStore(settings.home / "blobs")


def _folders(settings: Settings) -> dict[str, Path]:
    return {"policies": settings.home / "policies"}


def _require(settings: Settings) -> None:
    if not WorkspaceCore.is_made(settings):
        raise NotFoundError(f"there is no learnloop store in {str(settings.home)!r}; make one with: learnloop init")
