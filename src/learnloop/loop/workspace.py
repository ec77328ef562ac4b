"""Where a loop keeps its things: the settings, the store and the registry under one roof."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from learnloop.core.errors import NotFoundError, StoreReadOnlyError, UsageError, one_of
from learnloop.registry import Registry
from learnloop.store import Store

SETTINGS_FILE = "learnloop.toml"
HOME_FOLDER = ".learnloop"
DATABASE_FILE = "learnloop.db"
_PASSWORD = re.compile(r"(://[^:/@]*):[^/]*@")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Where things are, and who said so."""

    home: Path
    """The folder of blobs, policies and, where the database is the embedded one, the database."""
    database: str
    """The database's URL."""
    origins: dict[str, str]
    """``argument``, ``environment``, a file's path or ``default``, by setting."""

    @property
    def shown_database(self) -> str:
        """The database's URL without its password, as it may be printed."""
        return _PASSWORD.sub(r"\1:***@", self.database)


class _SettingsFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    home: str | None = None
    database: str | None = None


def find_settings(home: str | Path | None = None, database: str | None = None) -> Settings:
    """Returns the settings in force.

    An argument wins over ``LEARNLOOP_HOME`` and ``LEARNLOOP_DATABASE``, these over the nearest ``learnloop.toml`` in
    this folder or above, that over the default: ``./.learnloop`` with an SQLite file in it.

    Raises:
        UsageError: the settings file cannot be read, or has an unknown key.
    """
    path, from_file = _read_settings_file(Path.cwd())
    base = path.parent if path else Path.cwd()
    found_home, home_origin = _first(
        (str(home) if home is not None else None, "argument"),
        (os.environ.get("LEARNLOOP_HOME"), "environment"),
        (str(base / from_file.home) if from_file.home else None, str(path)),
        (str(base / HOME_FOLDER), "default"),
    )
    folder = Path(found_home).absolute()
    found_database, database_origin = _first(
        (database, "argument"),
        (os.environ.get("LEARNLOOP_DATABASE"), "environment"),
        (from_file.database if home is None else None, str(path)),
        (f"sqlite:///{folder / DATABASE_FILE}", "default"),
    )
    origins = {"home": home_origin, "database": database_origin}
    return Settings(home=folder, database=found_database, origins=origins)


class Workspace:
    """An open store with its registry; a context manager that closes them.

    Args:
        settings: where it is; found by ``find_settings`` where None.
        create: make it where it does not exist yet.
        queue_size: how many captured records may wait to be written.

    Raises:
        NotFoundError: there is none and ``create`` is False.
        StoreError: the database or the folder cannot be used.
    """

    def __init__(self, settings: Settings | None = None, *, create: bool = False, queue_size: int = 65_536) -> None:
        self.settings = settings or find_settings()
        if not create and not self.is_made(self.settings):
            raise NotFoundError(
                f"there is no learnloop store in {str(self.settings.home)!r}; make one with: learnloop init "
                "(or name another with --home or LEARNLOOP_HOME)"
            )
        if create:
            make_folder(self.settings.home)
        blobs = None if self.settings.database.endswith(":memory:") else self.settings.home / "blobs"
        self.store = Store.open(self.settings.database, blobs=blobs, queue_size=queue_size)
        self.registry = Registry(self.store, self.settings.home / "policies")

    @staticmethod
    def is_made(settings: Settings) -> bool:
        """Returns whether there is a store; a server's database is taken to be there."""
        is_file = settings.database.startswith("sqlite:///") and not settings.database.endswith(":memory:")
        return not is_file or Path(settings.database.removeprefix("sqlite:///")).exists()

    def close(self, timeout_seconds: float = 10.0) -> None:
        """Writes what waits to be written, for so long at the most, and closes the store."""
        self.store.close(timeout_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def make_folder(folder: Path) -> None:
    """Makes a folder and those above it.

    Raises:
        StoreReadOnlyError: it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreReadOnlyError(
            f"the store's folder {str(folder)!r} cannot be made ({error.strerror}); name one that you may write with "
            "--home or LEARNLOOP_HOME"
        ) from error


def _first(*candidates: tuple[str | None, str]) -> tuple[str, str]:
    """Returns the first value that is set, with its origin; the last one always is."""
    return next((value, origin) for value, origin in candidates if value)


def _read_settings_file(start: Path) -> tuple[Path | None, _SettingsFile]:
    for folder in (start, *start.parents):
        path = folder / SETTINGS_FILE
        if path.is_file():
            return path, _parse(path)
    return None, _SettingsFile()


def _parse(path: Path) -> _SettingsFile:
    try:
        content: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        return msgspec.convert(content, _SettingsFile)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        allowed = one_of(_SettingsFile.__struct_fields__)
        raise UsageError(f"{path} cannot be used: {error}; allowed keys are {allowed}") from error
