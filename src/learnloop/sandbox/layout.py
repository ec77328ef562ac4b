"""What a sandbox looks like from inside: the arguments of bubblewrap.

An empty file system in memory, with the system's programs and libraries and the Python interpreter read-only, a few
harmless devices, a ``/proc`` of its own processes, and one folder of limited size that can be written.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterable
from pathlib import Path

BOX = "/box"
"""The one place that can be written: a file system in memory, of limited size."""
WORK = f"{BOX}/work"
PYTHON = "/sandbox/bin/python"
ENVIRONMENT = {"PATH": "/sandbox/bin:/usr/bin:/bin", "HOME": WORK, "LANG": "C.UTF-8"}
INSIDE_ID = "65534"
_DEVICES = ("null", "zero", "full", "random", "urandom")
_SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
_ETC = ("/etc/ld.so.cache", "/etc/alternatives")
"""Where libraries are, and which program a generic name means."""


def arguments(
    *, as_root: bool, disk_bytes: int, seccomp: int, info: int, files: Iterable[tuple[str, int]], env: dict[str, str]
) -> list[str]:
    """Returns what bubblewrap is told: all but the command.

    The interpreter's files come last but one: a list that is cut short gives a sandbox in which nothing can start.

    Args:
        as_root: whether it is started by root, who needs no user namespace and becomes another user inside.
        disk_bytes: how much the box holds.
        seccomp: the descriptor of the filter.
        info: the descriptor that the process id is written to.
        files: in the work folder: the path of each, and the descriptor of what it holds.
        env: all variables.
    """
    told = ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    told += ["--hostname", "sandbox", "--die-with-parent", "--new-session", "--as-pid-1", "--clearenv"]
    if as_root:
        told += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        told += ["--unshare-user", "--uid", INSIDE_ID, "--gid", INSIDE_ID, "--cap-drop", "ALL"]
    for name, value in env.items():
        told += ["--setenv", name, value]
    told += ["--seccomp", str(seccomp), "--info-fd", str(info), *_folders("/dev", "/etc", "/sandbox/bin")]
    told += ["--proc", "/proc", *_devices(), *_box(disk_bytes, files)]
    return [*told, *_read_only(), "--chdir", WORK, "--remount-ro", "/"]


def _folders(*paths: str) -> list[str]:
    """Returns that folders are made with those above them, for all to look into (by default they are root's alone)."""
    made = dict.fromkeys(str(each) for path in paths for each in [*reversed(Path(path).parents[:-1]), Path(path)])
    return [word for path in made for word in ("--perms", "0755", "--dir", path)]


def _devices() -> list[str]:
    told = []
    for name in _DEVICES:
        told += ["--dev-bind", f"/dev/{name}", f"/dev/{name}"]
    for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        told += ["--symlink", f"/proc/self/fd{target}", f"/dev/{name}"]
    return told


def _box(disk_bytes: int, files: Iterable[tuple[str, int]]) -> list[str]:
    """Returns the file system that can be written; what is in it is everybody's, as there is one user alone."""
    told = ["--perms", "0755", "--size", str(disk_bytes), "--tmpfs", BOX]
    for folder in (WORK, f"{BOX}/tmp"):
        told += ["--perms", "0777", "--dir", folder]
    told += ["--symlink", f"{BOX}/tmp", "/tmp", "--symlink", f"{BOX}/tmp", "/dev/shm"]
    made = {"."}
    for path, descriptor in files:
        for parent in reversed([str(each) for each in Path(path).parents]):
            if parent not in made:
                made.add(parent)
                told += ["--perms", "0777", "--dir", f"{WORK}/{parent}"]
        told += ["--perms", "0666", "--file", str(descriptor), f"{WORK}/{path}"]
    return told


@functools.cache
def _read_only() -> tuple[str, ...]:
    told: list[str] = []
    executable = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
    prefix = os.path.realpath(sys.base_prefix)
    if not _lies_in(executable, "/usr") or _lies_in(executable, "/usr/local"):
        told += _interpreter(executable, prefix)
    told = [*_system(), *told, *_hidden_packages(prefix)]
    for name in ("python", "python3"):
        told += ["--symlink", executable, f"/sandbox/bin/{name}"]
    if os.path.isdir("/usr/local"):
        told += ["--remount-ro", "/usr/local"]  # the interpreter may lie in it
    return tuple(told)


def _system() -> list[str]:
    told = ["--ro-bind", "/usr", "/usr"]
    for name in _SYSTEM:
        if os.path.islink(name):
            told += ["--symlink", os.readlink(name), name]
        elif os.path.isdir(name):
            told += ["--ro-bind", name, name]
    for name in _ETC:
        told += ["--ro-bind-try", name, name]
    return [*told, *_empty("/usr/local")] if os.path.isdir("/usr/local") else told


def _interpreter(executable: str, prefix: str) -> list[str]:
    """Returns the interpreter and its libraries, where they are outside too: its own search paths say so."""
    told = _folders(os.path.dirname(executable), prefix)
    return [*told, "--ro-bind", f"{prefix}/lib", f"{prefix}/lib", "--ro-bind", executable, executable]


def _hidden_packages(prefix: str) -> list[str]:
    """Returns that installed packages are not there: they are no part of the interpreter."""
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    places = [f"{prefix}/lib/{version}/site-packages", "/usr/lib/python3/dist-packages"]
    return [word for place in places if os.path.isdir(place) for word in [*_empty(place), "--remount-ro", place]]


def _empty(folder: str) -> list[str]:
    return ["--perms", "0755", "--size", "65536", "--tmpfs", folder]


def _lies_in(path: str, folder: str) -> bool:
    return Path(path).is_relative_to(folder)
