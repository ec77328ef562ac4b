"""Version folders on a real disk: whole or not there, whatever fails or is changed behind our back."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from learnloop.core.errors import (
    CorruptError,
    LearnloopError,
    StoreError,
    StoreFullError,
    StoreLockedError,
    StoreReadOnlyError,
)
from learnloop.core.protocols import PolicyArtifact
from learnloop.registry import folders as module
from learnloop.registry.artifacts import POLICY_FILE, WEIGHTS_FILE, ArtifactFiles, encode_artifact
from learnloop.registry.folders import VersionFolders

Make = Callable[..., PolicyArtifact]


def visible(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def hidden(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name.startswith(".") and path.name != ".lock")


@pytest.fixture
def folders(folder: Path) -> VersionFolders:
    found = VersionFolders(folder)
    with found.lock():
        pass
    return found


@pytest.fixture
def files(make_artifact: Make) -> ArtifactFiles:
    return encode_artifact(make_artifact())


def test_written_folders_are_read_back(folders: VersionFolders, files: ArtifactFiles, make_artifact: Make) -> None:
    place = folders.write(files)
    assert place == folders.folder / files.content_hash
    assert (place / POLICY_FILE).read_bytes() == files.policy
    assert (place / WEIGHTS_FILE).read_bytes() == files.weights
    np.testing.assert_array_equal(folders.load(files.content_hash).tensors["theta"], make_artifact().tensors["theta"])
    assert (visible(folders.folder), hidden(folders.folder)) == ([files.content_hash], [])


def test_writing_again_changes_nothing_and_repairs_damage(folders: VersionFolders, files: ArtifactFiles) -> None:
    place = folders.write(files)
    before = (place / WEIGHTS_FILE).stat().st_ino
    folders.write(files)
    assert (place / WEIGHTS_FILE).stat().st_ino == before
    (place / WEIGHTS_FILE).write_bytes(b"")
    folders.write(files)
    folders.load(files.content_hash)
    folders.sweep()
    assert hidden(folders.folder) == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=150)
@given(st.sampled_from([POLICY_FILE, WEIGHTS_FILE]), st.floats(0, 1, exclude_max=True), st.integers(1, 255))
def test_any_flipped_byte_is_found(
    folders: VersionFolders, files: ArtifactFiles, name: str, place: float, flip: int
) -> None:
    path = folders.write(files) / name
    data = bytearray(path.read_bytes())
    data[int(place * len(data))] ^= flip
    path.write_bytes(data)
    with pytest.raises(CorruptError, match=f"{name} is damaged"):
        folders.load(files.content_hash)


@pytest.mark.parametrize("name", [POLICY_FILE, WEIGHTS_FILE])
def test_cut_and_lengthened_files_are_found(folders: VersionFolders, files: ArtifactFiles, name: str) -> None:
    path = folders.write(files) / name
    data = path.read_bytes()
    for bad in (b"", data[:1], data[: len(data) // 2], data[:-1], data + b"\0", data + data):
        path.write_bytes(bad)
        with pytest.raises(CorruptError, match=f"{name} is damaged"):
            folders.load(files.content_hash)


@pytest.mark.parametrize("name", [POLICY_FILE, WEIGHTS_FILE])
@pytest.mark.parametrize("kind", ["missing", "link", "dangling link", "folder", "pipe"])
def test_files_that_are_no_plain_files_are_refused(
    folders: VersionFolders, files: ArtifactFiles, tmp_path: Path, name: str, kind: str
) -> None:
    path = folders.write(files) / name
    elsewhere = tmp_path / "elsewhere"
    shutil.move(path, elsewhere)
    if kind == "link":
        path.symlink_to(elsewhere)
    elif kind == "dangling link":
        path.symlink_to(tmp_path / "nowhere")
    elif kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    with pytest.raises(CorruptError, match=f"{name} is damaged"):
        folders.load(files.content_hash)


def test_a_linked_or_missing_version_is_refused(folders: VersionFolders, files: ArtifactFiles, tmp_path: Path) -> None:
    place = folders.write(files)
    shutil.move(place, tmp_path / "moved")
    with pytest.raises(CorruptError, match="is missing"):
        folders.load(files.content_hash)
    place.symlink_to(tmp_path / "moved")
    with pytest.raises(CorruptError, match="is not a folder"):
        folders.load(files.content_hash)


def test_one_version_under_the_hash_of_another_is_refused(folders: VersionFolders, make_artifact: Make) -> None:
    first, second = encode_artifact(make_artifact(1.0)), encode_artifact(make_artifact(2.0))
    shutil.copytree(folders.write(first), folders.folder / second.content_hash)
    with pytest.raises(CorruptError, match=second.content_hash):
        folders.load(second.content_hash)


def test_huge_files_are_refused_before_they_are_read(folders: VersionFolders, files: ArtifactFiles) -> None:
    path = folders.write(files) / POLICY_FILE
    os.truncate(path, 1 << 40)
    with pytest.raises(CorruptError, match="at most 16777216 are read"):
        folders.load(files.content_hash)


@pytest.mark.parametrize("name", ["", "..", "../x", "A" * 64, "0" * 63, "0" * 64 + "/x"])
def test_what_is_no_hash_reaches_no_path(folders: VersionFolders, name: str) -> None:
    with pytest.raises(CorruptError, match="not a content hash"):
        folders.path(name)


# --- a disk that refuses ---


class Fault:
    """Lets the ``step``-th call that touches the disk fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, step: int, code: int) -> None:
        self.calls, self.step, self.code = 0, step, code
        for target, name in [(os, "fsync"), (os, "rename"), (os, "mkdir"), (os, "open"), (Path, "open")]:
            monkeypatch.setattr(target, name, self.wrap(getattr(target, name)))

    def wrap(self, call: Callable[..., object]) -> Callable[..., object]:
        def failing(*args: object, **options: object) -> object:
            self.calls += 1
            if self.calls == self.step:
                raise OSError(self.code, os.strerror(self.code))
            return call(*args, **options)

        return failing


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (errno.ENOSPC, StoreFullError),
        (errno.EDQUOT, StoreFullError),
        (errno.EROFS, StoreReadOnlyError),
        (errno.EACCES, StoreReadOnlyError),
        (errno.EIO, StoreError),
    ],
)
def test_a_disk_that_refuses_at_any_step_leaves_nothing_half_written(
    folders: VersionFolders, make_artifact: Make, code: int, error: type[LearnloopError]
) -> None:
    kept = encode_artifact(make_artifact(0.0))
    with pytest.MonkeyPatch.context() as patch:
        count = Fault(patch, 0, code)
        folders.write(kept)
    assert count.calls >= 9
    for step in range(1, 1 + count.calls):
        files = encode_artifact(make_artifact(float(step)))
        with pytest.MonkeyPatch.context() as patch:
            Fault(patch, step, code)
            with pytest.raises(error, match=str(folders.folder)) as raised:
                folders.write(files)
            assert raised.type is error
        for name in visible(folders.folder):
            folders.load(name)
        assert hidden(folders.folder) == []
        folders.load(kept.content_hash)
        folders.write(files)  # space is back: it goes on without a restart
        folders.load(files.content_hash)


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError), VersionFolders(tmp_path / "file").lock():
        pass


# --- who may write, and what is left behind ---


def test_only_one_writes_at_a_time(folders: VersionFolders) -> None:
    inside, most = 0, 0

    def enter() -> None:
        nonlocal inside, most
        for _ in range(5):
            with VersionFolders(folders.folder).lock():
                inside += 1
                most = max(most, inside)
                time.sleep(0.001)
                inside -= 1

    threads = [threading.Thread(target=enter) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


def test_a_held_lock_is_not_waited_for_without_end(folders: VersionFolders, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOCK_SECONDS", 0.05)
    with folders.lock(), pytest.raises(StoreLockedError, match="another process holds"), folders.lock():
        pass
    with folders.lock():
        pass


def test_a_killed_holder_does_not_keep_the_lock(folders: VersionFolders) -> None:
    code = (
        "import os, sys; from pathlib import Path; from learnloop.registry.folders import VersionFolders\n"
        "with VersionFolders(Path(sys.argv[1])).lock(): os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(folders.folder)], check=False)
    assert done.returncode == -9
    with folders.lock():
        pass


def test_sweep_removes_what_was_left_and_nothing_else(folders: VersionFolders, make_artifact: Make) -> None:
    known, young, old = (encode_artifact(make_artifact(float(value))) for value in range(3))
    for files in (known, young, old):
        folders.write(files)
    for files in (known, old):
        os.utime(folders.path(files.content_hash), (0, 0))
    (folders.folder / ".new-abc").mkdir()
    (folders.folder / ".new-abc" / POLICY_FILE).write_text("{")
    (folders.folder / "notes.txt").write_text("not ours")
    folders.sweep()
    assert len(visible(folders.folder)) == 4
    assert hidden(folders.folder) == []
    folders.sweep({known.content_hash})
    assert visible(folders.folder) == sorted([known.content_hash, young.content_hash, "notes.txt"])


def test_remove_takes_the_folder_and_forgives_a_missing_one(folders: VersionFolders, files: ArtifactFiles) -> None:
    folders.write(files)
    for _ in range(2):
        folders.remove(files.content_hash)
        assert (visible(folders.folder), hidden(folders.folder)) == ([], [])
