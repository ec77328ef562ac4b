"""Blobs: content-addressed, atomic, verified."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop.core.errors import CorruptError, NotFoundError, UsageError
from learnloop.store import BlobStore


@given(data=st.binary(max_size=2000))
def test_bytes_come_back_under_their_hash(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    blobs = BlobStore(tmp_path_factory.mktemp("blobs"))
    address = blobs.put(data)
    assert address == hashlib.sha256(data).hexdigest()
    assert blobs.put(data) == address
    assert blobs.get(address) == data
    assert list(blobs.addresses()) == [address]


@pytest.mark.parametrize("address", ["", "../../etc/passwd", "AB" * 32, "ab" * 31, "ab" * 32 + "\n", "/" + "a" * 63])
def test_an_address_cannot_leave_the_folder(tmp_path: Path, address: str) -> None:
    with pytest.raises(UsageError, match="address"):
        BlobStore(tmp_path).get(address)


def test_missing_and_damaged(tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path / "blobs")
    with pytest.raises(NotFoundError):
        blobs.get("ab" * 32)
    address = blobs.put(b"weights")
    blobs.path(address).write_bytes(b"weightz")
    with pytest.raises(CorruptError, match="damaged"):
        blobs.get(address)


@pytest.mark.parametrize("damage", [b"weightz", b"", b"weights and more"])
def test_putting_again_heals_what_was_damaged(tmp_path: Path, damage: bytes) -> None:
    blobs = BlobStore(tmp_path / "blobs")
    address = blobs.put(b"weights")
    blobs.path(address).write_bytes(damage)
    assert blobs.put(b"weights") == address
    assert blobs.get(address) == b"weights"


def test_putting_again_writes_nothing(tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path / "blobs")
    file = blobs.path(blobs.put(b"weights"))
    before = file.stat()
    blobs.put(b"weights")
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_nothing_half_written_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blobs = BlobStore(tmp_path / "blobs")

    def fail(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", fail)
    with pytest.raises(Exception, match="no space"):
        blobs.put(b"data")
    assert [path for path in blobs.folder.rglob("*") if path.is_file()] == []


def test_many_threads_put_the_same(tmp_path: Path) -> None:
    blobs = BlobStore(tmp_path / "blobs")
    threads = [threading.Thread(target=blobs.put, args=(b"same" * 1000,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [path.name for path in blobs.folder.rglob("*") if path.is_file()] == list(blobs.addresses())
