"""Backup and restore: one portable file for both back ends.

The file is a plain tar: ``manifest.json`` (format, schema revision, a SHA-256 and a number of rows of each part),
``tables/NAME.jsonl`` (one record a line, with its sequence where it has one), ``blobs/ADDRESS`` and
``folders/NAME/...`` (the files of other rooms whose names never change their content). It is taken from one snapshot
while others write, and restored in one transaction: a backup of SQLite goes into PostgreSQL and back.
"""

from __future__ import annotations

import glob
import hashlib
import io
import re
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from datetime import datetime
from itertools import islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
from sqlalchemy import Connection, delete, func, select

from learnloop.core.clock import now
from learnloop.core.decoding import NOT_JSON, decode_json
from learnloop.core.errors import ConflictError, CorruptError, NotFoundError, SchemaVersionError
from learnloop.core.records import ModelCheckpoint, Record, RewardShare
from learnloop.store import schema
from learnloop.store.blobs import BlobStore
from learnloop.store.engine import parse_url
from learnloop.store.full_text import reset_words
from learnloop.store.insert import take_write_lock
from learnloop.store.mapping import insert_rows, record_columns, table_of, to_record, to_rows
from learnloop.store.migrate import HEAD, REVISIONS, ensure_head, opened, revision_of
from learnloop.store.schema import TABLES
from learnloop.system.files import flush, from_disk, install, replacing, write_whole

FORMAT = "learnloop.backup/v1"
_MANIFEST = "manifest.json"
_FOLDER_FILE = re.compile(r"folders/[a-z]+(/[A-Za-z0-9_][A-Za-z0-9._-]*)+")
"""No part starts with a dot, so none leads out of its folder."""
_ADDRESS = re.compile(rb"\b[0-9a-f]{64}\b")
_NONE: Mapping[str, Path] = MappingProxyType({})
_BATCH = 2_000
_SINCE: Mapping[str, str] = MappingProxyType(
    {
        "api_keys": "0002",
        "label_requests": "0004",
        "decision_activations": "0005",
        "policy_settings": "0005",
        "learning_updates": "0005",
        "idempotent_answers": "0005",
        "champion_tests": "0006",
    }
)
"""The revision with which each table came that the first one did not have: older backups lack it."""


class BackupPart(msgspec.Struct, frozen=True, kw_only=True):
    """One file in a backup."""

    sha256: str
    num_bytes: int
    num_rows: int | None = None
    """None for a blob."""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a backup holds."""

    format: str = FORMAT
    revision: str
    created_at: datetime
    parts: dict[str, BackupPart]
    """By their names in the tar."""


def backup(url: str, blobs: BlobStore | None, target: Path, *, folders: Mapping[str, Path] = _NONE) -> Manifest:
    """Writes the store at ``url``, with its blobs, to the new file ``target`` and returns what it holds.

    Others may go on writing: the backup is the state at one moment. ``target`` is complete or not there.

    Args:
        url: the store.
        blobs: its blobs.
        target: the file to write.
        folders: further folders by name, whose files are written once and never changed.

    Raises:
        ConflictError: ``target`` is there already.
        NotFoundError: there is no store at ``url``, no folder for ``target``, or a blob vanished that is still needed.
        StoreFullError, StoreReadOnlyError: the disk refuses.
    """
    target = Path(target)
    if target.exists():
        raise ConflictError(f"{target} is there already; give another name or remove it")
    if not target.parent.is_dir():
        raise NotFoundError(f"the folder {target.parent} is not there; create it, or give a path in another one")
    with opened(url) as connections, replacing(target) as stream:
        path = connections.place.path
        if (path is not None and not path.exists()) or revision_of(connections, exists=True) != HEAD:
            raise NotFoundError(f"there is no store of revision {HEAD!r} in {connections.place.name}")
        with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as tar:
            with connections.reading() as connection:
                connection.execute(select(func.max(schema.events.c.sequence)))  # what is read first fixes the moment
                present = _Present(blobs)
                parts = dict(_add_tables(connection, tar, target.parent, present))
            parts.update(_add_blobs(present, tar))
            for name, tree in folders.items():
                parts.update(_add_folder(name, tree, tar))
            manifest = Manifest(revision=HEAD, created_at=now(), parts=parts)
            _add_bytes(tar, _MANIFEST, msgspec.json.encode(manifest))
    return manifest


def restore(
    source: Path, url: str, blobs: BlobStore | None, *, force: bool = False, folders: Mapping[str, Path] = _NONE
) -> Manifest:
    """Puts the backup ``source`` into the store at ``url`` and its blobs into ``blobs``, all or nothing.

    Everything is checked before anything is written. With ``force`` a SQLite database that is damaged, or a file that
    is not one, is replaced by a new one; it stays beside it as ``NAME.damaged-1``, or the next free number.

    Args:
        source: what ``backup`` wrote.
        url: a new or empty store, on either back end.
        blobs: where blobs go.
        force: replace what the store holds.
        folders: where the further folders of the backup go, by name.

    Raises:
        NotFoundError: ``source`` is not there.
        CorruptError: it is damaged, or is not a backup.
        SchemaVersionError: it is newer than this learnloop.
        ConflictError: the store is not empty and ``force`` is not set, or the backup has blobs and ``blobs`` is None.
    """
    source = Path(source)
    if not source.is_file():
        raise NotFoundError(f"there is no backup {source}")
    with _disk(source), _readable(source) as tar:
        found = _Opened(source, tar, _check(tar, source))
        found.check_places(blobs, folders)
        path = parse_url(url).path
        is_replaced = force and path is not None and path.is_file() and _is_damaged(url)
        target = _replacing(path) if path is not None and is_replaced else nullcontext(url)
        with target as place, opened(place) as connections:
            ensure_head(connections, upgrade=True)
            with connections.writing() as connection:
                take_write_lock(connection)
                _make_empty(connection, connections.place.name, force)
                found.restore_files(blobs, folders)
                found.restore_tables(connection)
    return found.manifest


class _Opened(NamedTuple):
    """A backup that was checked."""

    source: Path
    tar: tarfile.TarFile
    manifest: Manifest

    def check_places(self, blobs: BlobStore | None, folders: Mapping[str, Path]) -> None:
        """Refuses a backup with files for which there is no place."""
        unplaced = {name.split("/")[1] for name in self.manifest.parts if name.startswith("folders/")} - folders.keys()
        if unplaced:
            raise ConflictError(f"{self.source} holds the folders {', '.join(sorted(unplaced))}; say where they go")
        if blobs is None and any(name.startswith("blobs/") for name in self.manifest.parts):
            raise ConflictError(f"{self.source} holds blobs; say into which folder they go")

    def restore_files(self, blobs: BlobStore | None, folders: Mapping[str, Path]) -> None:
        """Writes blobs and the files of folders to their places."""
        for name in self.manifest.parts:
            kind, _, rest = name.partition("/")
            if kind == "blobs" and blobs is not None:
                blobs.put(_open(self.tar, name, self.source).read())
            elif kind == "folders":
                folder, _, relative = rest.partition("/")
                write_whole(folders[folder] / relative, _open(self.tar, name, self.source).read())

    def restore_tables(self, connection: Connection) -> None:
        """Writes the rows of all tables, which are empty."""
        for kind, table in TABLES.items():
            if _part_of(table.name) in self.manifest.parts:
                records = self._records(kind)
                while batch := list(islice(records, _BATCH)):
                    _insert_batch(connection, kind, batch)
            _set_sequence(connection, table.name)
        reset_words(connection)

    def _records(self, kind: type[Record]) -> Iterator[tuple[int | None, Record]]:
        """Yields the records of a kind, each with its sequence where it has one."""
        name = _part_of(table_of(kind).name)
        renewed = _renew_share if kind is RewardShare and self.manifest.revision < "0004" else bytes
        decoder = msgspec.json.Decoder(tuple[int | None, kind])  # type: ignore[valid-type]
        for number, line in enumerate(_open(self.tar, name, self.source), 1):
            try:
                yield decoder.decode(renewed(line))
            except NOT_JSON as error:
                what = f"line {number} of {name} in {self.source}"
                raise CorruptError(f"{what} is not a valid {kind.__name__}: {error}") from error


def _is_damaged(url: str) -> bool:
    """Returns whether the file there is not a sound SQLite database."""
    try:
        with opened(url) as connections, connections.writing() as connection:
            return bool(connection.exec_driver_sql("PRAGMA integrity_check(1)").scalar_one() != "ok")
    except CorruptError:
        return True


@contextmanager
def _replacing(path: Path) -> Iterator[str]:
    """Yields the URL of a new database, which takes the place of ``path`` if all goes well."""
    with _disk(path), tempfile.TemporaryDirectory(prefix=".restore-", dir=path.parent) as folder:
        fresh = Path(folder) / path.name
        yield f"sqlite:///{fresh}"
        flush(fresh)
        set_aside(path)
        install(fresh, path)


def set_aside(path: Path) -> None:
    """Renames a damaged database with its log; the log first, so that no new database ever meets it."""
    number = 1
    while any(path.parent.glob(f"{glob.escape(path.name)}.damaged-{number}*")):
        number += 1
    for suffix in ("-wal", "-shm", ""):
        file = path.with_name(path.name + suffix)
        if file.exists():
            file.rename(path.with_name(f"{path.name}.damaged-{number}{suffix}"))


@contextmanager
def _disk(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise from_disk(error, path) from error


@contextmanager
def _readable(source: Path) -> Iterator[tarfile.TarFile]:
    try:
        with tarfile.open(source, "r:") as tar:
            yield tar
    except (tarfile.TarError, EOFError) as error:
        raise CorruptError(f"{source} is damaged or is not a backup of learnloop: {error}") from error


class _Present:
    """The blobs that are there at the moment of the snapshot: a blob is there before the row that names it."""

    def __init__(self, blobs: BlobStore | None) -> None:
        self.blobs = blobs
        self.addresses = [] if blobs is None else list(blobs.addresses())
        self._known = {address.encode() for address in self.addresses}
        self._named: set[bytes] = set()

    def note(self, kind: type[Record], line: bytes) -> None:
        """Notes the blobs that a row names; those of checkpoints are replaced and may go at any time."""
        if self._known and kind is not ModelCheckpoint:
            self._named.update(self._known.intersection(_ADDRESS.findall(line)))

    def is_named(self, address: str) -> bool:
        """Returns whether a row needs this blob."""
        return address.encode() in self._named


def _add_tables(
    connection: Connection, tar: tarfile.TarFile, folder: Path, present: _Present
) -> Iterator[tuple[str, BackupPart]]:
    for kind, table in TABLES.items():
        name = _part_of(table.name)
        digest = hashlib.sha256()
        num_rows = 0
        with tempfile.TemporaryFile(dir=folder) as file:
            for line in _lines(connection, kind):
                digest.update(line)
                file.write(line)
                present.note(kind, line)
                num_rows += 1
            num_bytes = file.tell()
            file.seek(0)
            tar.addfile(_member(name, num_bytes), file)
        yield name, BackupPart(sha256=digest.hexdigest(), num_bytes=num_bytes, num_rows=num_rows)


def _lines(connection: Connection, kind: type[Record]) -> Iterator[bytes]:
    """Yields one line of JSON for each row: its sequence or null, and its record."""
    columns = record_columns(kind)
    sequence = table_of(kind).columns.get("sequence")
    order = columns[0] if sequence is None else sequence
    query = select(*columns, *([] if sequence is None else [sequence])).order_by(order)
    rows = connection.execution_options(yield_per=_BATCH).execute(query)
    for row in rows:
        record = to_record(kind, row[: len(columns)])
        yield msgspec.json.encode((None if sequence is None else row[-1], record)) + b"\n"


def _add_blobs(present: _Present, tar: tarfile.TarFile) -> Iterator[tuple[str, BackupPart]]:
    if present.blobs is None:
        return
    for address in present.addresses:
        try:
            data = present.blobs.get(address)
        except NotFoundError:
            if present.is_named(address):
                raise
            continue  # removed since, as old checkpoints are
        _add_bytes(tar, f"blobs/{address}", data)
        yield f"blobs/{address}", BackupPart(sha256=address, num_bytes=len(data))


def _add_folder(name: str, tree: Path, tar: tarfile.TarFile) -> Iterator[tuple[str, BackupPart]]:
    """Adds the plain files of a folder; what is being written there has a name that starts with a dot."""
    for path in sorted(tree.rglob("*")):
        relative = path.relative_to(tree)
        if path.is_file() and not path.is_symlink() and not any(part.startswith(".") for part in relative.parts):
            with _disk(path):
                data = path.read_bytes()
            part_name = f"folders/{name}/{relative.as_posix()}"
            _add_bytes(tar, part_name, data)
            yield part_name, BackupPart(sha256=hashlib.sha256(data).hexdigest(), num_bytes=len(data))


def _member(name: str, num_bytes: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size = num_bytes
    member.mode = 0o600
    return member


def _add_bytes(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    tar.addfile(_member(name, len(data)), io.BytesIO(data))


def _check(tar: tarfile.TarFile, source: Path) -> Manifest:
    """Returns the manifest if all that it names is there, unharmed, and nothing else is."""
    members: dict[str, tarfile.TarInfo] = {}
    for member in tar:
        if not member.isreg() or member.name in members:
            raise CorruptError(f"{source} holds {member.name!r}, which is not a plain file or is there twice")
        members[member.name] = member
    if _MANIFEST not in members:
        raise CorruptError(f"{source} has no {_MANIFEST}: it is cut off, or is not a backup of learnloop")
    manifest = _decode_manifest(_open(tar, members[_MANIFEST].name, source).read(), source)
    given = set(manifest.parts)
    wanted = {_part_of(table.name) for table in TABLES.values() if _SINCE.get(table.name, "") <= manifest.revision}
    if given | {_MANIFEST} != set(members) or not wanted <= given:
        odd = sorted((given | wanted | {_MANIFEST}) ^ set(members)) or sorted(wanted - given)
        raise CorruptError(f"{source} and its manifest do not agree on {', '.join(map(repr, odd[:5]))}")
    for name, part in manifest.parts.items():
        if name not in wanted and name != f"blobs/{part.sha256}" and not _FOLDER_FILE.fullmatch(name):
            raise CorruptError(f"{source} holds {name!r}, which no backup has")
        if hashlib.file_digest(_open(tar, name, source), "sha256").hexdigest() != part.sha256:
            raise CorruptError(f"{name} in {source} is damaged: its checksum is not the one in the manifest")
    return manifest


def _part_of(table: str) -> str:
    return f"tables/{table}.jsonl"


def _decode_manifest(data: bytes, source: Path) -> Manifest:
    what = f"the manifest of {source} cannot be read"
    header = decode_json(data, what, dict[str, Any], error=CorruptError)
    if header.get("format") != FORMAT:
        raise CorruptError(f"{source} is not a backup of learnloop: its format is {header.get('format')!r}")
    if header.get("revision") not in REVISIONS:
        raise SchemaVersionError(
            f"{source} has schema revision {header.get('revision')!r}, which this learnloop does not know "
            f"(its newest is {HEAD!r}): install the version that wrote it or a newer one"
        )
    return decode_json(data, what, Manifest, error=CorruptError)


def _open(tar: tarfile.TarFile, name: str, source: Path) -> tarfile.ExFileObject:
    file = tar.extractfile(name)
    if not isinstance(file, tarfile.ExFileObject):
        raise CorruptError(f"{source}: {name!r} is not a plain file")
    return file


def _make_empty(connection: Connection, name: str, force: bool) -> None:
    for table in TABLES.values():
        if not force and connection.execute(select(func.count()).select_from(table)).scalar_one():
            raise ConflictError(f"{name} is not empty: it has rows in {table.name}; --force replaces all that it holds")
    for table in reversed(list(TABLES.values())):
        connection.execute(delete(table))


def _renew_share(line: bytes) -> bytes:
    """Returns a share as it is written since revision 0004: an older one was given out alone, as the migration says."""
    sequence, fields = msgspec.json.decode(line, type=tuple[None, dict[str, Any]])
    added = {"completion_id": fields.get("reward_share_id"), "method": "unknown"}
    return msgspec.json.encode((sequence, {**added, **fields}))


def _insert_batch(connection: Connection, kind: type[Record], pairs: Sequence[tuple[int | None, Record]]) -> None:
    rows = to_rows(kind, [record for _, record in pairs], connection.dialect.name)
    if "sequence" in table_of(kind).columns and "sequence" not in kind.__struct_fields__:
        rows = [(*row, sequence) for row, (sequence, _) in zip(rows, pairs, strict=True)]
    insert_rows(connection, kind, rows, sequence=True)


def _set_sequence(connection: Connection, table: str) -> None:
    """Lets PostgreSQL count on from the highest sequence; SQLite does so by itself."""
    if connection.dialect.name == "postgresql" and table in ("events", "decisions", "rewards"):
        connection.exec_driver_sql(
            f"SELECT setval(pg_get_serial_sequence('{table}', 'sequence'), "
            f"(SELECT coalesce(max(sequence), 0) + 1 FROM {table}), false)"
        )
