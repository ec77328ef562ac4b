"""What is under every noun of a workspace: its settings, its store and its registry."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from learnloop.core.errors import ConflictError, NotFoundError, StoreError, StoreReadOnlyError, UsageError
from learnloop.core.lifecycles import Closing
from learnloop.loop.workspace.settings import Settings, find_settings
from learnloop.store import Store
from learnloop.system.files import PRIVATE, from_disk, write_whole
from learnloop.traces.privacy.redaction import RedactionSettings, Redactor

if TYPE_CHECKING:
    from learnloop.registry import Registry

PSEUDONYM_FILE = "redaction.key"
"""The secret by which e-mail addresses become pseudonyms; who has it can try which address a pseudonym is."""


class WorkspaceCore(Closing):
    """An open store with its registry; a context manager that closes them.

    Args:
        settings: where it is; found by ``find_settings`` where None.
        create: make it where it does not exist yet.
        queue_size: how many captured records may wait to be written.

    Raises:
        NotFoundError: there is none and ``create`` is False.
        UsageError: the settings of redaction cannot be used.
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
        blobs = None if self.settings.in_memory else self.settings.home / "blobs"
        redactor = self.redactor()
        self.store = Store.open(
            self.settings.database,
            blobs=blobs,
            queue_size=queue_size,
            transform=None if redactor.is_off else redactor,
        )

    @cached_property
    def registry(self) -> Registry:
        """The registered policies; imported when it is first used, so that reading traces does not wait for numpy."""
        from learnloop.registry import Registry

        return Registry(self.store, self.settings.home / "policies")

    def redactor(self, patterns: Mapping[str, str] | None = None) -> Redactor:
        """Returns what takes secrets out of records, as the settings say.

        Args:
            patterns: regular expressions by name, besides those of the settings.

        Raises:
            UsageError: a kind is unknown, or a pattern cannot be used.
        """
        settings = self.settings.redaction
        both = RedactionSettings(kinds=settings.kinds, patterns={**settings.patterns, **(patterns or {})})
        return Redactor(both, lambda: _pseudonym_secret(self.settings.home))

    @staticmethod
    def is_made(settings: Settings) -> bool:
        """Returns whether there is a store; a server's database is taken to be there.

        Raises:
            StoreReadOnlyError: its folder cannot be looked into.
        """
        file = settings.database_file
        try:
            return file is None or file.exists()
        except OSError as error:
            raise from_disk(error, str(file)) from error

    def close(self, timeout_seconds: float = 10.0) -> None:
        """Writes what waits to be written, for so long at the most, and closes the store."""
        self.store.close(timeout_seconds)


def _pseudonym_secret(home: Path) -> bytes:
    """Returns the secret of the store in ``home``, made where there is none; several processes agree on one.

    Raises:
        UsageError: it cannot be read or written; records that need it are refused, others are not.
    """
    file = home / PSEUDONYM_FILE
    try:
        if not file.exists():
            with suppress(ConflictError):  # another process was faster
                write_whole(file, secrets.token_hex(32).encode(), mode=PRIVATE, exclusive=True)
        return file.read_bytes()
    except (OSError, StoreError) as error:
        raise UsageError(f"{file} cannot be used ({error}); e-mail addresses need it for their pseudonyms") from error


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
