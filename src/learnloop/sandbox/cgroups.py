"""Groups of processes that the kernel counts together: memory, processes, CPU time. One group a run, removed after it.

Version 1 has a tree for each resource, version 2 has one for all. Which is there, and whether we may make groups in
it, is found by making one. Where there is none, a sandbox still has its limits for each process.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import os
import secrets
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from learnloop.sandbox.records import Limits

_PATIENCE_SECONDS = 2.0
_WANTED = ("memory", "pids", "cpuacct")


@dataclass(frozen=True)
class Trees:
    """Where groups can be made.

    Attributes:
        places: the folder of each resource; for version 2 the same one for all.
        is_unified: whether this is version 2.
        reason: why resources are missing, if they are.
    """

    places: Mapping[str, Path] = field(default_factory=dict)
    is_unified: bool = False
    reason: str | None = None


def find_trees(mounts: str | None = None, own: str | None = None) -> Trees:
    """Returns where groups can be made, by what the kernel says of this process.

    Args:
        mounts: the text of ``/proc/self/mounts``.
        own: the text of ``/proc/self/cgroup``.
    """
    mounts = Path("/proc/self/mounts").read_text() if mounts is None else mounts
    own = Path("/proc/self/cgroup").read_text() if own is None else own
    paths = {name: path for _, names, path in _lines(own) for name in names.split(",")}
    unified: Path | None = None
    places: dict[str, Path] = {}
    for line in mounts.splitlines():
        _, mount, kind, options = line.split()[:4]
        if kind == "cgroup2":
            unified = Path(mount)
        for name in set(_WANTED) & set(options.split(",") if kind == "cgroup" else ()):
            if (place := _first_writable(Path(mount), paths.get(name, "/"))) is not None:
                places[name] = place
    if {"memory", "pids"} <= places.keys():
        return Trees(places)
    place = None if unified is None else _delegated(unified, paths.get("", "/"))
    if place is not None:
        return Trees(dict.fromkeys(_WANTED, place), is_unified=True)
    return Trees(places, reason=None if places.keys() >= {"memory", "pids"} else _advice(places))


def _lines(own: str) -> list[list[str]]:
    return [line.split(":", 2) for line in own.splitlines() if line.count(":") >= 2]


def _first_writable(mount: Path, path: str) -> Path | None:
    for folder in (mount / path.lstrip("/"), mount):
        if folder.is_dir() and os.access(folder, os.W_OK) and os.access(folder / "cgroup.procs", os.W_OK):
            return folder
    return None


def _delegated(mount: Path, path: str) -> Path | None:
    """Returns the nearest group above this process that gives memory and processes to the groups in it, and is ours."""
    folder = mount / path.lstrip("/")
    for place in (folder, *folder.parents):
        handed = place / "cgroup.subtree_control"
        if handed.is_file() and {"memory", "pids"} <= set(handed.read_text().split()):
            return place if os.access(place, os.W_OK) and os.access(place / "cgroup.procs", os.W_OK) else None
        if place == mount:
            return None
    return None


def _advice(places: Mapping[str, Path]) -> str:
    lacks = " and ".join(sorted({"memory", "pids"} - places.keys()))
    return (
        f"no control group for {lacks} can be made here; run as root, or in a delegated group (systemd: Delegate=yes)"
    )


class Group:
    """The group of one run."""

    def __init__(self, trees: Trees, name: str, limits: Limits) -> None:
        """Makes it, with its limits.

        Raises:
            OSError: the kernel refused.
        """
        self._trees = trees
        self._folders = {place: place / name for place in dict.fromkeys(trees.places.values())}
        try:
            for folder in self._folders.values():
                folder.mkdir()
            for name_of_file, value in self._settings(limits):
                self._write(name_of_file, value)
        except BaseException:
            self.remove()
            raise

    def _settings(self, limits: Limits) -> list[tuple[str, str]]:
        memory = str(limits.memory_bytes + limits.disk_bytes)  # the box lies in memory
        tasks = str(limits.num_processes + 3)  # bubblewrap's own two, and the shell that starts the command
        if self._trees.is_unified:
            return [("memory.max", memory), ("memory.swap.max", "0"), ("memory.oom.group", "1"), ("pids.max", tasks)]
        return [("memory.limit_in_bytes", memory), ("memory.memsw.limit_in_bytes", memory), ("pids.max", tasks)]

    def add(self, process: int) -> None:
        """Puts a process, and all that it starts from now on, into the group."""
        for folder in self._folders.values():
            (folder / "cgroup.procs").write_text(str(process))

    @property
    def cpu_seconds(self) -> float | None:
        """What all of them used; None: it is not counted here."""
        if self._trees.is_unified:
            found = self._number("cpu.stat", "usage_usec")
            return None if found is None else found / 1e6
        found = self._number("cpuacct.usage")
        return None if found is None else found / 1e9

    @property
    def peak_memory_bytes(self) -> int | None:
        """The most that all of them held at one time, files in the box included."""
        return self._number("memory.peak" if self._trees.is_unified else "memory.max_usage_in_bytes")

    @property
    def is_memory_exhausted(self) -> bool:
        """Whether the kernel killed a process because the group had no memory left."""
        return bool(self._number("memory.events" if self._trees.is_unified else "memory.oom_control", "oom_kill"))

    def remove(self) -> None:
        """Removes it; its processes have ended."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        for folder in self._folders.values():
            while folder.is_dir():
                try:
                    folder.rmdir()
                except OSError:  # a process is on its way out
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.001)

    def _path(self, name: str) -> Path | None:
        resource = name.partition(".")[0]
        place = self._trees.places.get("cpuacct" if resource == "cpu" else resource)
        path = None if place is None else self._folders[place] / name
        return path if path is not None and path.exists() else None

    def _write(self, name: str, value: str) -> None:
        path = self._path(name)
        if path is not None:  # kernels without swap accounting have no such files
            path.write_text(value)

    def _number(self, name: str, key: str | None = None) -> int | None:
        path = self._path(name)
        if path is None:
            return None
        text = path.read_text()
        if key is None:
            return int(text)
        return next((int(line.split()[1]) for line in text.splitlines() if line.split()[0] == key), None)


class Groups:
    """Makes the groups of this process, and sees to it that none is left, even if this process is killed.

    A small shell waits for the end of this process, which it learns from a pipe, and removes what is left.
    """

    _SCRIPT = (
        'while read x; do :; done; n=0; while [ $n -lt 50 ]; do for each in "$@"; do rmdir "$each"-* ; done; '
        'left=; for each in "$@"; do for d in "$each"-*; do [ -d "$d" ] && left=1; done; done; '
        '[ -z "$left" ] && exit; n=$((n+1)); sleep 0.1; done'
    )

    def __init__(self, trees: Trees) -> None:
        self.trees = trees
        self._token = f"learnloop-{os.getpid()}-{secrets.token_hex(4)}"
        self._numbers = itertools.count()
        self._lock = threading.Lock()
        self._pipe: int | None = None
        self._caretaker: int | None = None

    def make(self, limits: Limits) -> Group:
        """Returns a new group.

        Raises:
            OSError: the kernel refused.
        """
        with self._lock:
            if self._caretaker is None:
                self._start_caretaker()
        return Group(self.trees, f"{self._token}-{next(self._numbers)}", limits)

    def _start_caretaker(self) -> None:
        prefixes = [str(place / self._token) for place in dict.fromkeys(self.trees.places.values())]
        reading, self._pipe = os.pipe()
        null = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        dup = [(os.POSIX_SPAWN_DUP2, reading, 0), *((os.POSIX_SPAWN_DUP2, null, number) for number in (1, 2))]
        try:
            self._caretaker = os.posix_spawn(
                "/bin/sh", ["sh", "-c", self._SCRIPT, "caretaker", *prefixes], {"PATH": "/usr/bin:/bin"},
                file_actions=dup, setsid=True,
            )  # fmt: skip
        finally:
            os.close(reading)
            os.close(null)
        atexit.register(self._dismiss, os.getpid())
        os.register_at_fork(after_in_child=self._let_go)

    def _let_go(self) -> None:
        """In a fork: the end of its parent is to be seen, however long it lives itself."""
        if self._pipe is not None:
            os.close(self._pipe)
            self._pipe = None

    def _dismiss(self, owner: int) -> None:
        if os.getpid() != owner or self._pipe is None or self._caretaker is None:
            return  # a fork's exit
        os.close(self._pipe)
        with contextlib.suppress(ChildProcessError):  # another part of the program waits for all children
            os.waitpid(self._caretaker, 0)


@functools.lru_cache(maxsize=2)
def groups_of(process: int) -> Groups:
    """Returns the groups of the process with this id, which is the caller's own: a fork has others."""
    return Groups(find_trees())
