"""Files written whole: whatever refuses, ends or stands in the way, the old or the new is there, and nothing else."""

from __future__ import annotations

import ast
import errno
import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from learnloop.core.errors import (
    ConflictError,
    CorruptError,
    LearnloopError,
    NotFoundError,
    StoreError,
    StoreFullError,
    StoreLockedError,
    StoreReadOnlyError,
)
from learnloop.system.files import (
    PRIVATE,
    from_disk,
    install,
    locked,
    make_folder,
    output_file,
    read_plain,
    remove_folder,
    remove_parts,
    replacing,
    write_folder,
    write_whole,
)
from tests.project import name_of, source_files, tree_of
from tests.waiting import PATIENCE_SECONDS

CODES: list[tuple[int, type[LearnloopError]]] = [
    (errno.ENOSPC, StoreFullError),
    (errno.EDQUOT, StoreFullError),
    (errno.EROFS, StoreReadOnlyError),
    (errno.EACCES, StoreReadOnlyError),
    (errno.EIO, StoreError),
]
CALLS = ("open", "fsync", "replace", "rename", "link", "mkdir")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@contextmanager
def failing(step: int, code: int) -> Iterator[list[str]]:
    """Lets the ``step``-th call that touches the disk fail; gives what was called."""
    called: list[str] = []

    def wrap(name: str) -> Callable[..., object]:
        original = getattr(os, name)

        def wrapped(*args: object, **options: object) -> object:
            called.append(name)
            if len(called) == step:
                raise OSError(code, os.strerror(code))
            return original(*args, **options)

        return wrapped

    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, wrap(name))
        yield called


# Writing --------------------------------------------------------------------------------------------------------------


def test_what_was_written_is_there_and_nothing_else(tmp_path: Path) -> None:
    write_whole(tmp_path / "a" / "b" / "x", b"first")
    write_whole(tmp_path / "a" / "b" / "x", b"second", durable=False)
    assert (tmp_path / "a" / "b" / "x").read_bytes() == b"second"
    assert names(tmp_path / "a" / "b") == ["x"]


def test_the_mode_is_what_was_asked_for(tmp_path: Path) -> None:
    mask = os.umask(0o027)
    try:
        write_whole(tmp_path / "ours", b"", mode=PRIVATE)
        write_whole(tmp_path / "usual", b"")
    finally:
        os.umask(mask)
    assert stat.S_IMODE((tmp_path / "ours").stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "usual").stat().st_mode) == 0o640


def test_the_content_is_flushed_before_the_name_and_the_name_after_it(tmp_path: Path) -> None:
    with failing(0, 0) as called:
        write_whole(tmp_path / "x", b"data")
    assert called == ["open", "fsync", "replace", "open", "fsync"]
    with failing(0, 0) as called:
        write_whole(tmp_path / "x", b"data", durable=False)
    assert called == ["open", "replace"]
    with failing(0, 0) as called:
        make_folder(tmp_path / "a" / "b")
    assert called == ["mkdir", "open", "fsync"] * 2


@pytest.mark.parametrize(("code", "kind"), CODES)
def test_a_disk_that_refuses_at_any_step_leaves_the_old_or_the_new(
    tmp_path: Path, code: int, kind: type[LearnloopError]
) -> None:
    target = tmp_path / "x"
    for step in range(1, 6):
        write_whole(target, b"old")
        with failing(step, code), pytest.raises(kind, match=str(target)) as raised:
            write_whole(target, b"new")
        assert raised.type is kind
        assert names(tmp_path) == ["x"]
        assert target.read_bytes() == (b"old" if step <= 3 else b"new")
    with failing(6, code):
        write_whole(target, b"new")


@pytest.mark.parametrize(("code", "kind"), CODES)
def test_a_folder_is_whole_or_not_there(tmp_path: Path, code: int, kind: type[LearnloopError]) -> None:
    with failing(0, 0) as called:
        write_folder(tmp_path / "0", {"a": b"1", "b": b"2"})
    assert "rename" in called
    for step in range(1, len(called) + 1):
        place = tmp_path / str(step)
        with failing(step, code), pytest.raises(kind, match=str(place)):
            write_folder(place, {"a": b"1", "b": b"2"})
        if place.exists():
            assert step > called.index("rename") + 1
            assert names(place) == ["a", "b"]
        assert set(names(tmp_path)) <= {str(number) for number in range(step + 1)}


def test_an_exception_in_the_block_leaves_the_old(tmp_path: Path) -> None:
    target = tmp_path / "x"
    target.write_text("old")
    for writer in (replacing, output_file):
        with pytest.raises(ValueError), writer(target) as stream:
            stream.write(b"half")
            raise ValueError
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("x", "old")]


def test_what_is_there_stays_where_it_was_asked_for(tmp_path: Path) -> None:
    write_whole(tmp_path / "x", b"first", exclusive=True)
    with pytest.raises(ConflictError, match="there already"):
        write_whole(tmp_path / "x", b"second", exclusive=True)
    assert (names(tmp_path), (tmp_path / "x").read_bytes()) == (["x"], b"first")
    write_folder(tmp_path / "folder", {"a": b"first"})
    with pytest.raises(StoreReadOnlyError, match="folder cannot be written"):
        write_folder(tmp_path / "folder", {"a": b"second"})
    assert (tmp_path / "folder" / "a").read_bytes() == b"first"
    assert names(tmp_path) == ["folder", "x"]


def test_a_link_in_the_way_is_replaced_not_followed(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("theirs")
    (tmp_path / "x").symlink_to(tmp_path / "outside")
    write_whole(tmp_path / "x", b"ours")
    assert not (tmp_path / "x").is_symlink()
    assert (tmp_path / "outside").read_text() == "theirs"


def test_what_a_user_links_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("old")
    (tmp_path / "real").chmod(0o604)
    (tmp_path / "x").symlink_to(tmp_path / "real")
    with output_file(tmp_path / "x") as stream:
        stream.write(b"new")
    assert (tmp_path / "x").is_symlink()
    assert (tmp_path / "real").read_text() == "new"
    assert stat.S_IMODE((tmp_path / "real").stat().st_mode) == 0o604


@pytest.mark.parametrize("kind", ["folder", "file above", "no folder", "loop"])
def test_what_stands_in_the_way_is_named(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "x"
    if kind == "folder":
        place.mkdir()
    elif kind == "file above":
        place.write_text("")
        place = place / "y"
    elif kind == "no folder":
        place = place / "y"
    else:
        place.symlink_to(place)
        place = place / "y"
    with pytest.raises(StoreReadOnlyError, match=f"{place} cannot be written"), replacing(place) as stream:
        stream.write(b"data")
    with pytest.raises(StoreReadOnlyError, match=f"{place} cannot be written"), output_file(place):
        pass


KILLED = """
import os, sys
from pathlib import Path
from learnloop.system.files import write_folder, write_whole
def killed(*args):
    os.kill(os.getpid(), 9)
os.replace = os.rename = killed
if sys.argv[2] == "file":
    write_whole(Path(sys.argv[1], "x"), b"new")
else:
    write_folder(Path(sys.argv[1], "x"), {"a": b"new"})
"""


@pytest.mark.parametrize("what", ["file", "folder"])
def test_what_a_killed_writer_leaves_can_be_removed(tmp_path: Path, what: str) -> None:
    (tmp_path / "notes.part").write_text("somebody else's")
    (tmp_path / ".hidden").write_text("somebody else's")
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), what], check=False)
    assert done.returncode == -9
    assert not (tmp_path / "x").exists()
    assert len(names(tmp_path)) == 3
    remove_parts(tmp_path, "y")
    assert len(names(tmp_path)) == 3
    remove_parts(tmp_path, "x")
    assert names(tmp_path) == [".hidden", "notes.part"]


def test_what_earlier_versions_left_is_removed(tmp_path: Path) -> None:
    for name in (".new-abc", f".{'0' * 36}.part", ".000000000009.part"):
        (tmp_path / name).write_bytes(b"half")
    (tmp_path / ".new-folder").mkdir()
    (tmp_path / ".new-folder" / "x").write_bytes(b"half")
    (tmp_path / ".new-link").symlink_to("/")
    remove_parts(tmp_path)
    assert names(tmp_path) == []


def test_a_full_disk_is_told_and_nothing_half_written_is_left(tmp_path: Path) -> None:
    """On a real file system without space."""
    program = """
import subprocess, sys
from pathlib import Path
from learnloop.core.errors import LearnloopError
from learnloop.system.files import write_folder, write_whole
folder = Path(sys.argv[1])
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], check=True)
write_whole(folder / "x", b"old")
big = bytes(200_000)
for write in (lambda: write_whole(folder / "x", big), lambda: write_folder(folder / "y", {"a": big})):
    try:
        write()
    except LearnloopError as error:
        sys.stdout.write(f"{type(error).__name__}: {error}\\n")
sys.stdout.write(f"{[path.name for path in folder.iterdir()]} {(folder / 'x').read_bytes()}\\n")
"""
    command = ["unshare", "--mount", "--map-root-user", sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_SECONDS)
    lines = done.stdout.splitlines()
    assert [line.split(" for ")[0] for line in lines[:2]] == ["StoreFullError: no space is left"] * 2
    assert lines[2] == "['x'] b'old'"


def test_a_file_of_another_kind_is_moved_into_its_place(tmp_path: Path) -> None:
    (tmp_path / "made").write_text("new")
    (tmp_path / "x").write_text("old")
    install(tmp_path / "made", tmp_path / "x")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("x", "new")]


def test_a_folder_that_is_removed_is_gone(tmp_path: Path) -> None:
    write_folder(tmp_path / "x", {"a": b"1"})
    for _ in range(2):
        remove_folder(tmp_path / "x")
        assert names(tmp_path) == []


def test_errors_of_the_disk_by_their_number() -> None:
    for code, kind in CODES:
        assert type(from_disk(OSError(code, "no"), "p")) is kind
    assert type(from_disk(FileNotFoundError(errno.ENOENT, "no"), "p")) is NotFoundError


# Reading --------------------------------------------------------------------------------------------------------------


def test_only_plain_files_are_read(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_bytes(b"data")
    assert read_plain(plain, 4) == b"data"
    with pytest.raises(CorruptError, match="plain has 4 bytes; at most 3 are read"):
        read_plain(plain, 3)
    with pytest.raises(NotFoundError):
        read_plain(tmp_path / "nothing", 4)
    with pytest.raises(NotFoundError):
        read_plain(plain / "x", 4)
    (tmp_path / "link").symlink_to(plain)
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    before = len(os.listdir("/proc/self/fd"))
    for name in ("link", "dangling", "folder", "pipe"):
        with pytest.raises(ConflictError, match=f"{name} is .*remove it"):
            read_plain(tmp_path / name, 4)
    assert len(os.listdir("/proc/self/fd")) == before
    os.link(plain, tmp_path / "other")
    assert read_plain(plain, 4) == b"data"
    with pytest.raises(ConflictError, match="one name"):
        read_plain(plain, 4, alone=True)


# Locks ----------------------------------------------------------------------------------------------------------------

HOLDER = """
import sys
from pathlib import Path
from learnloop.system.files import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_lock_is_held_among_processes_and_ends_with_its_own(tmp_path: Path) -> None:
    lock = tmp_path / ".lock"
    command = [sys.executable, "-c", HOLDER, str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(StoreLockedError, match=r"another process holds .*\.lock"), locked(lock, wait_seconds=0.05):
            pass
        with pytest.raises(ConflictError, match="wait"), locked(lock, wait_seconds=0, busy=ConflictError("wait")):
            pass
        holder.kill()
        with locked(lock, wait_seconds=30):
            pass


def test_a_lock_is_held_among_threads(tmp_path: Path) -> None:
    inside, most = 0, 0

    def enter(wait_seconds: float | None) -> None:
        nonlocal inside, most
        for _ in range(5):
            with locked(tmp_path / ".lock", wait_seconds=wait_seconds):
                inside += 1
                most = max(most, inside)
                time.sleep(0.001)
                inside -= 1

    threads = [threading.Thread(target=enter, args=(seconds,)) for seconds in (None, None, 30.0, 30.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 1


def test_a_link_in_the_place_of_a_lock_is_refused(tmp_path: Path) -> None:
    (tmp_path / ".lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreReadOnlyError, match="cannot be written"), locked(tmp_path / ".lock"):
        pass
    assert not (tmp_path / "elsewhere").exists()


# One way --------------------------------------------------------------------------------------------------------------

ONE_WAY = {"os.replace", "os.rename", "os.fsync", "os.link", "fcntl.flock", "fcntl.lockf", "tempfile.mkstemp"}
"""What writes files whole is called in ``system/files.py`` alone."""


def test_files_are_written_whole_in_one_way() -> None:
    found = [
        f"{name_of(path)}, line {node.lineno}: {ast.unparse(node)}"
        for path in source_files()
        if name_of(path) != "system/files.py"
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ONE_WAY
    ]
    assert found == []
