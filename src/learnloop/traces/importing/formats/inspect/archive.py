"""The archives of inspect_ai (``.eval``): a zip with a header and a file for each sample.

Nothing is unpacked to a disk and no name in the archive is used as a path. Each sample is read when it is its turn,
within bounds, so that a small archive cannot become a large one.
"""

from __future__ import annotations

import gzip
import importlib
import io
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import ModuleType
from typing import IO, Any, cast

from learnloop.core.errors import FormatError, needs_extra
from learnloop.traces.importing.reader import decode_json

MAX_MEMBER_BYTES = 256 * 1024 * 1024
"""Of one sample; it is held in memory."""
MAX_TOTAL_BYTES = 16 * 1024 * 1024 * 1024
MAX_RATIO = 500
"""How many times larger than packed a sample may be; logs are about 10 times, a bomb of zeros 1,000 times."""
_CHUNK_BYTES = 1024 * 1024
_MIN_CHECKED = 1024 * 1024
"""Bytes of a sample below which any ratio is harmless."""
_ZSTANDARD = 93
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, _ZSTANDARD)
_LOCAL_HEADER = struct.Struct("<26xHH")
_DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, OSError, RuntimeError, ValueError, OverflowError, struct.error)
"""What ``zipfile`` raises for wrong bytes."""

Entry = tuple[dict[str, Any], Callable[[], Any]]
"""The log's header, and what reads a sample."""


def is_archive(head: Any) -> bool:
    """Returns whether a file that begins with ``head`` is a zip with the names of a log."""
    return (
        isinstance(head, bytes)
        and head[:4] == b"PK\x03\x04"
        and any(name in head for name in (b"_journal/start.json", b"header.json", b"samples/"))
    )


def entries(file: IO[bytes]) -> Iterator[Entry]:
    """Yields each sample of an archive.

    Raises:
        FormatError: it is damaged, has no header, or is too large. A sample's own fault is raised when it is read.
    """
    with tempfile.TemporaryFile() as copy:
        file = _going_back(file, copy)
        try:
            archive = zipfile.ZipFile(file)
            members = {info.filename: info for info in archive.infolist()}
        except _DAMAGE as error:
            raise FormatError(f"a damaged .eval archive ({error})") from error
        _check_total(members.values())
        header = _header(file, archive, members)
        for name, info in members.items():
            if name.startswith("samples/") and name.endswith(".json"):
                yield header, partial(_read, file, archive, info)


def _going_back(file: Any, copy: IO[bytes]) -> IO[bytes]:
    """Returns a file that can be read from any place: a gzipped one goes back only by starting again."""
    if not isinstance(file, gzip.GzipFile):
        return cast(IO[bytes], file)
    left = MAX_TOTAL_BYTES
    while data := file.read(_CHUNK_BYTES):
        left -= len(data)
        if left < 0:
            raise FormatError(f"the archive is larger than {MAX_TOTAL_BYTES:,} bytes")
        copy.write(data)
    return copy


def _check_total(members: Iterable[zipfile.ZipInfo]) -> None:
    total = sum(info.file_size for info in members)
    if total > MAX_TOTAL_BYTES:
        raise FormatError(f"the archive unpacks to {total:,} bytes; allowed are {MAX_TOTAL_BYTES:,}")


def _header(file: IO[bytes], archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo]) -> dict[str, Any]:
    """Returns the log without its samples; one that was never finished has what it began with."""
    for name in ("header.json", "_journal/start.json"):
        if name in members:
            header = _read(file, archive, members[name])
            if isinstance(header, dict):
                return header
            raise FormatError(f"{name} is a JSON {type(header).__name__}, not an object")
    raise FormatError("the archive has neither header.json nor _journal/start.json; it is no .eval log")


def _read(file: IO[bytes], archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Any:
    """Returns the JSON value of one file in the archive."""
    name = info.filename[:200]
    if info.file_size > MAX_MEMBER_BYTES:
        raise FormatError(f"{name} unpacks to {info.file_size:,} bytes; allowed are {MAX_MEMBER_BYTES:,}")
    if info.file_size > max(_MIN_CHECKED, MAX_RATIO * info.compress_size):
        raise FormatError(f"{name} unpacks to more than {MAX_RATIO} times its packed size; that is no log")
    if info.compress_type not in _METHODS:
        raise FormatError(f"{name} is packed with method {info.compress_type}; known are stored, deflate and zstandard")
    try:
        raw = _unpack_zstandard(file, info) if info.compress_type == _ZSTANDARD else archive.read(info)
    except _DAMAGE as error:
        raise FormatError(f"{name} is damaged ({error})") from error
    return decode_json(raw)


def _unpack_zstandard(file: IO[bytes], info: zipfile.ZipInfo) -> bytes:
    """Returns the bytes of a file packed with Zstandard, which ``zipfile`` does not read before Python 3.14."""
    module = _zstandard()
    file.seek(info.header_offset)
    name_length, extra_length = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
    file.seek(info.header_offset + _LOCAL_HEADER.size + name_length + extra_length)
    packed = file.read(min(info.compress_size, MAX_MEMBER_BYTES))
    raw = io.BytesIO()
    try:
        with module.ZstdDecompressor().stream_reader(io.BytesIO(packed), read_across_frames=True) as stream:
            while len(raw.getbuffer()) <= info.file_size and (data := stream.read(_CHUNK_BYTES)):
                raw.write(data)
    except module.ZstdError as error:
        raise ValueError(str(error)) from error
    if raw.tell() != info.file_size or zlib.crc32(raw.getbuffer()) != info.CRC:
        raise ValueError("its checksum is wrong")
    return raw.getvalue()


def _zstandard() -> ModuleType:
    with needs_extra("a log that is packed with Zstandard", "zstd"):
        return importlib.import_module("zstandard")
