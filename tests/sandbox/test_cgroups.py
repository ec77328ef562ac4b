"""Where control groups are looked for, version 1 and 2, and what is read from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from learnloop.sandbox.cgroups import Group, Trees, find_trees
from learnloop.sandbox.records import Limits

LIMITS = Limits(memory_bytes=100 * 2**20, disk_bytes=2**20, num_processes=5)


def group_folder(path: Path, controllers: str = "") -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / "cgroup.procs").write_text("")
    (path / "cgroup.subtree_control").write_text(controllers)
    return path


def test_version_1(tmp_path: Path) -> None:
    mounts = "".join(
        f"cgroup {tmp_path}/{name} cgroup rw,relatime,{name} 0 0\n" for name in ("memory", "pids", "cpuacct")
    )
    own = "3:pids:/\n2:memory:/deep/own\n1:cpuacct:/gone\n0::/\n"
    for name in ("memory/deep/own", "memory", "pids", "cpuacct"):
        group_folder(tmp_path / name)
    trees = find_trees(mounts, own)
    assert trees.places == {
        "memory": tmp_path / "memory/deep/own",
        "pids": tmp_path / "pids",
        "cpuacct": tmp_path / "cpuacct",
    }
    assert (trees.is_unified, trees.reason) == (False, None)


def test_version_2_takes_the_nearest_that_hands_down(tmp_path: Path) -> None:
    mounts = f"none {tmp_path} cgroup2 rw 0 0\n"
    group_folder(tmp_path, "cpu memory pids")
    group_folder(tmp_path / "user", "cpu memory pids")
    group_folder(tmp_path / "user" / "session")
    trees = find_trees(mounts, "0::/user/session\n")
    assert set(trees.places.values()) == {tmp_path / "user"}
    assert trees.is_unified
    group_folder(tmp_path / "user", "cpu")
    group_folder(tmp_path, "")
    none = find_trees(mounts, "0::/user/session\n")
    assert none.places == {}
    assert none.reason is not None
    assert none.reason.startswith(
        "no control group for memory and pids can be made here; run as root, or in a delegated"
    )
    assert find_trees("", "").reason == none.reason


def test_what_is_set_and_read(tmp_path: Path) -> None:
    """A real kernel makes the files with the folder; here they lie there already."""
    place = tmp_path / "tree"
    place.mkdir()
    group = Group(Trees(dict.fromkeys(("memory", "pids", "cpuacct"), place), is_unified=True), "one", LIMITS)
    folder = place / "one"
    assert group.cpu_seconds is None
    assert group.peak_memory_bytes is None
    assert not group.is_memory_exhausted
    (folder / "cpu.stat").write_text("usage_usec 1500000\nuser_usec 1\n")
    (folder / "memory.peak").write_text("4096\n")
    (folder / "memory.events").write_text("oom 1\noom_kill 2\n")
    for name in ("memory.max", "pids.max", "memory.swap.max"):
        (folder / name).write_text("max")
    assert (group.cpu_seconds, group.peak_memory_bytes, group.is_memory_exhausted) == (1.5, 4096, True)
    assert dict(group._settings(LIMITS)) == {
        "memory.max": str(101 * 2**20), "memory.swap.max": "0", "memory.oom.group": "1", "pids.max": "8"
    }  # fmt: skip
    group.add(42)
    assert (folder / "cgroup.procs").read_text() == "42"
    for file in folder.iterdir():
        file.unlink()
    group.remove()
    group.remove()
    assert list(place.iterdir()) == []


def test_a_group_that_cannot_be_made_leaves_nothing(tmp_path: Path) -> None:
    places = {"memory": tmp_path, "pids": tmp_path / "missing"}
    with pytest.raises(FileNotFoundError):
        Group(Trees(places), "one", LIMITS)
    assert list(tmp_path.iterdir()) == []
