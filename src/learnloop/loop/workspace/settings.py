"""What a workspace is set up with, by arguments, the environment and ``learnloop.toml``: plain data."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Annotated, Any

import msgspec

from learnloop.core.errors import UsageError, one_of
from learnloop.store.urls import anchored, file_of, is_in_memory, shown_url, url_of
from learnloop.traces.privacy.redaction import RedactionSettings

SETTINGS_FILE = "learnloop.toml"
HOME_FOLDER = ".learnloop"
DATABASE_FILE = "learnloop.db"
MAX_RETENTION_DAYS = 36_500
_Weight = Annotated[float, msgspec.Meta(gt=0)]


class RewardSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table ``[rewards]``."""

    weights: dict[str, _Weight] = {}
    """By the names of reward functions; empty: the defaults of ``RewardEngine``, and 1 for judges and ``learned``."""
    timeout_seconds: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """For one call of a function that is not learnloop's own; None: as each function says (10 where it does not)."""
    credit: str = "uniform"
    """How a reward is shared out over the steps and agents of a run."""
    credit_options: dict[str, Any] = {}
    """The options of that method, such as ``gamma``."""
    potential: str = "none"
    """What rewards are shaped by."""
    gamma: Annotated[float, msgspec.Meta(ge=0, le=1)] = 1.0
    """The discount of shaping."""
    judges: dict[str, dict[str, Any]] = {}
    """AI judges by the names under which ``weights`` has them: fields of ``JudgeConfig``."""
    learned: str | None = None
    """The content hash of a learned reward, or ``newest``; ``weights`` has it as ``learned``."""
    learned_alone: bool = False
    """Let a learned reward be all that is weighed; what is optimised then finds its faults."""


class FileSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What only a settings file says."""

    redaction: RedactionSettings = RedactionSettings()
    """What is taken out of records before they are stored."""
    rewards: RewardSettings = RewardSettings()
    """How runs are scored."""
    embedder: dict[str, Any] = {}
    """Fields of ``EmbedderConfig``; empty: the local model."""
    mutations: dict[str, Any] = {}
    """Fields of ``MutationSettings``; empty: seed 1's."""
    retention_days: Annotated[int, msgspec.Meta(ge=1, le=MAX_RETENTION_DAYS)] | None = None
    """After how many days episodes are removed by ``apply_retention``; None: never."""


class Settings(FileSettings, frozen=True, kw_only=True):
    """Where things are, and who said so."""

    home: Path
    """The folder of blobs, policies and, where the database is the embedded one, the database."""
    database: str
    """The database's URL."""
    origins: dict[str, str]
    """``argument``, ``environment``, a file's path or ``default``, by setting."""

    @property
    def shown_database(self) -> str:
        """The database's URL without its passwords, as it may be printed; its scheme alone where it is not a URL."""
        return shown_url(self.database)

    @property
    def in_memory(self) -> bool:
        """Whether the database is gone when it is closed."""
        return is_in_memory(self.database)

    @property
    def database_file(self) -> Path | None:
        """The file of the database; None where it lies on a server or in memory."""
        return file_of(self.database)


class _SettingsFile(FileSettings, frozen=True, kw_only=True):
    home: str | None = None
    database: str | None = None


def find_settings(
    home: str | Path | None = None, database: str | None = None, *, start: Path | None = None
) -> Settings:
    """Returns the settings in force.

    An argument wins over ``LEARNLOOP_HOME`` and ``LEARNLOOP_DATABASE``, these over the nearest ``learnloop.toml`` in
    ``start`` or above, that over the default: ``.learnloop`` in ``start`` with an SQLite file in it. Relative paths of
    a settings file start at its folder, others at this folder.

    Args:
        home: the store's folder.
        database: the database's URL.
        start: the folder to begin at; this folder where None.

    Raises:
        UsageError: the settings file cannot be read or has an unknown key, or the database's URL is not valid.
    """
    here = _current_folder()
    path, from_file = _read_settings_file(here / (start or ""))
    base = path.parent if path else here / (start or "")
    found_home, home_origin = _first(
        (str(home) if home is not None else None, "argument"),
        (os.environ.get("LEARNLOOP_HOME"), "environment"),
        (str(base / from_file.home) if from_file.home else None, str(path)),
        (str(base / HOME_FOLDER), "default"),
    )
    folder = here / found_home
    found_database, database_origin = _first(
        (database, "argument"),
        (os.environ.get("LEARNLOOP_DATABASE"), "environment"),
        (from_file.database if home is None else None, str(path)),
        (url_of(folder / DATABASE_FILE), "default"),
    )
    relative_to = base if database_origin == str(path) else here
    return Settings(
        home=folder,
        database=anchored(found_database, relative_to, database_origin),
        origins={"home": home_origin, "database": database_origin},
        **{name: getattr(from_file, name) for name in FileSettings.__struct_fields__},
    )


def settings_file(start: Path) -> Path | None:
    """Returns the nearest settings file in ``start`` or above; None where there is none.

    Raises:
        UsageError: a folder cannot be looked into.
    """
    for folder in (start, *start.parents):
        path = folder / SETTINGS_FILE
        try:
            if path.is_file():
                return path
        except OSError as error:
            raise UsageError(f"{path} cannot be read ({error.strerror}); check the permissions of {folder}") from error
    return None


def _first(*candidates: tuple[str | None, str]) -> tuple[str, str]:
    """Returns the first value that is set, with its origin; the last one always is."""
    return next((value, origin) for value, origin in candidates if value)


def _current_folder() -> Path:
    try:
        return Path.cwd()
    except OSError as error:
        raise UsageError("this folder is not there any more; go to another one") from error


def _read_settings_file(start: Path) -> tuple[Path | None, _SettingsFile]:
    path = settings_file(start)
    return path, _SettingsFile() if path is None else _parse(path)


def _parse(path: Path) -> _SettingsFile:
    try:
        content: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
        return msgspec.convert(content, _SettingsFile)
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}); check its permissions") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        allowed = one_of(_SettingsFile.__struct_fields__)
        raise UsageError(f"{path} cannot be used: {error}; allowed keys are {allowed}") from error
