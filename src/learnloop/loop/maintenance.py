"""Upgrades, backs up and restores what a workspace holds: the database, the blobs and the policies."""

from __future__ import annotations

from pathlib import Path

from learnloop.core.errors import NotFoundError
from learnloop.loop.workspace import Settings, Workspace, make_folder
from learnloop.store import BlobStore
from learnloop.store import backup as back_up_store
from learnloop.store import restore as restore_store
from learnloop.store.migrate import HEAD, current
from learnloop.store.migrate import upgrade as upgrade_schema


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


def _blobs(settings: Settings) -> BlobStore:
    return BlobStore(settings.home / "blobs")


def _folders(settings: Settings) -> dict[str, Path]:
    return {"policies": settings.home / "policies"}


def _require(settings: Settings) -> None:
    if not Workspace.is_made(settings):
        raise NotFoundError(f"there is no learnloop store in {str(settings.home)!r}; make one with: learnloop init")
