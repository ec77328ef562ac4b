"""Writes what is stored to files, in learnloop's own format or in those of others."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Literal, NamedTuple

from learnloop.core.errors import UsageError
from learnloop.loop.workspace.core import WorkspaceCore
from learnloop.system.files import make_folder, output_file
from learnloop.traces.exporting.atif import atif_files, write_atif_lines
from learnloop.traces.exporting.execution_trace import execution_trace_files
from learnloop.traces.importing.exchange import export_records

ExportFormat = Literal["learnloop", "atif", "execution-trace"]
LINES_SUFFIX = ".jsonl"


class Exported(NamedTuple):
    """What was written."""

    number: int
    unit: str
    """``records``, ``episodes`` or ``files``."""


def export_as(
    workspace: WorkspaceCore, target: Path, export_format: ExportFormat, *, agent: str | None = None
) -> Exported:
    """Writes the store, or one agent's part of it, in a format; returns how much that was.

    ``learnloop`` writes one file of all records. ``atif`` writes a file a trajectory into a folder, or one file of
    lines where ``target`` is ``-`` (standard output) or ends with ``.jsonl``. ``execution-trace`` writes a file a run
    into folders by date. A file appears whole or not at all. A link is followed; a pipe or a device is written to,
    never replaced.

    Raises:
        UsageError: the format needs a folder and ``target`` is not one.
        StoreError: a file cannot be written.
    """
    store = workspace.store
    if export_format == "learnloop":
        return Exported(_to_file(target, lambda file: export_records(store, file, agent_id=agent)), "records")
    if export_format == "atif" and (str(target) == "-" or target.suffix == LINES_SUFFIX):
        return Exported(_to_file(target, lambda file: write_atif_lines(store, file, agent_id=agent)), "episodes")
    files = atif_files if export_format == "atif" else execution_trace_files
    return Exported(_to_folder(target, files(store, agent_id=agent)), "files")


def _to_file(target: Path, write: Callable[[IO[bytes]], int]) -> int:
    if str(target) == "-":
        return write(sys.stdout.buffer)
    with output_file(target) as file:
        return write(file)


def _to_folder(folder: Path, files: Iterator[tuple[PurePosixPath, bytes]]) -> int:
    if str(folder) == "-" or (folder.exists() and not folder.is_dir()):
        raise UsageError(f"this format is a folder of files, and {str(folder)!r} is not one; name a folder")
    number = 0
    make_folder(folder)
    for path, content in files:
        target = folder / path
        make_folder(target.parent)
        with output_file(target) as file:
            file.write(content)
        number += 1
    return number
