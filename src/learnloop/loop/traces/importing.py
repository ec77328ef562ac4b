"""Imports files and folders of traces, and says what was in them."""

from __future__ import annotations

import gzip
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from learnloop.core.errors import FormatError, NotFoundError
from learnloop.loop.workspace.core import WorkspaceCore
from learnloop.traces.datasets.groups import GroupReport, count_groups
from learnloop.traces.importing.exchange import import_file
from learnloop.traces.importing.files import format_of
from learnloop.traces.importing.report import ImportReport, ImportSums

Progress = Callable[[int], None]
_ZIP_ERRORS = (gzip.BadGzipFile, EOFError, zlib.error)
"""Who cannot even be looked into is damaged, whatever it is."""


class ImportedFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was imported."""

    file: str
    report: ImportReport


class LeftFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that was not imported, or not to its end."""

    file: str
    reason: str
    is_damaged: bool
    """It is of a known format and cannot be read as that; False: it is of no known format."""


class Imports(ImportSums, frozen=True, kw_only=True):
    """What an import of several files found."""

    files: list[ImportedFile]
    left: list[LeftFile]
    groups: GroupReport


def find_files(paths: Sequence[Path]) -> list[tuple[Path, str]]:
    """Returns the files that are meant: each path, or the files in it and below where it is a folder.

    Files and folders whose names begin with a dot are left out where nobody named them. Each comes with what tells it
    from the others: its path from the one that was named.

    Raises:
        NotFoundError: a path is not there, or a folder holds no file.
    """
    found: dict[Path, str] = {}
    for path in paths:
        listed = [(path, path.name)] if path.is_file() else list(_files_in(path)) if path.is_dir() else []
        if not listed:
            kind = "holds no file" if path.is_dir() else "is not there"
            raise NotFoundError(f"{str(path)!r} {kind}; name files of traces, or folders that hold some")
        for file, name in listed:
            found.setdefault(file, name)
    return list(found.items())


def import_files(
    workspace: WorkspaceCore,
    files: Sequence[tuple[Path, str]],
    *,
    agent: str,
    format_name: str | None = None,
    source: str | None = None,
    strict: bool = False,
    progress: Progress | None = None,
) -> Imports:
    """Imports the files that ``find_files`` gave, one after the other, and returns what was found.

    A file that cannot be imported does not stop the others.

    Args:
        workspace: where the records go.
        files: each with what tells it from the others.
        agent: whose runs, where a file does not say.
        format_name: of all of them; recognised where None.
        source: what they are known by where their runs carry no ids of their own, for ``import_file``.
        strict: a bad line stops the import of its file before anything of it is written.
        progress: told of the bytes read.

    Raises:
        FormatError: no file could be imported; the message says why.
    """
    imported: list[ImportedFile] = []
    left: list[LeftFile] = []
    agents: set[str] = set()
    for path, name in files:
        try:
            trace_format = format_of(path, format_name)
        except FormatError as error:
            is_damaged = isinstance(error.__cause__, _ZIP_ERRORS)
            left.append(LeftFile(file=str(path), reason=str(error), is_damaged=is_damaged))
            continue
        try:
            report = import_file(
                workspace.store,
                path,
                agent_id=agent,
                format_name=trace_format.name,
                source_name=_source_name(source, name, len(files)),
                strict=strict,
                progress=progress,
                agents=agents,
            )
            imported.append(ImportedFile(file=str(path), report=report))
        except FormatError as error:
            left.append(LeftFile(file=str(path), reason=str(error), is_damaged=True))
    if not imported:
        others = f" (and {len(left) - 1:,} more files cannot be imported)" if len(left) > 1 else ""
        raise FormatError(f"{left[0].reason}{others}")
    return _together(imported, left, count_groups(workspace.store, agents))


def _files_in(folder: Path) -> Iterator[tuple[Path, str]]:
    for file in sorted(folder.rglob("*")):
        relative = file.relative_to(folder)
        if file.is_file() and not any(part.startswith(".") for part in relative.parts):
            yield file, relative.as_posix()


def _source_name(source: str | None, name: str, num_files: int) -> str | None:
    """Returns what a file is known by: the same run in two files of one import is two attempts."""
    if source is None or num_files == 1:
        return source
    return f"{source}/{name}"


def _together(imported: list[ImportedFile], left: list[LeftFile], groups: GroupReport) -> Imports:
    reports = [each.report for each in imported]
    records: Counter[str] = Counter()
    for report in reports:
        records.update(report.num_records)
    sums = {
        name: sum(getattr(report, name) for report in reports)
        for name in ImportSums.__struct_fields__
        if name.startswith("num_") and name != "num_records"
    }
    return Imports(files=imported, left=left, num_records=dict(records), groups=groups, **sums)
