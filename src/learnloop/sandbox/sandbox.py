"""Runs code that nobody trusts."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath

from learnloop.core.checks import check_number, check_whole
from learnloop.core.errors import SandboxError, UsageError
from learnloop.sandbox.launching import launch, launch_pair
from learnloop.sandbox.layout import PYTHON
from learnloop.sandbox.probing import probe
from learnloop.sandbox.records import MIB, Command, CommandOutcome, Limits, SandboxReport

MAX_FILES = 200
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LOADER = ("LD_", "GLIBC_")
_PAGE = 4096


class Sandbox:
    """Runs commands apart from everything: each in a new sandbox of its own, none unless all of the following holds.

    What it covers, each with an attack in ``tests/sandbox``:

    - network: no TCP, UDP or other packets, not even to the machine itself; no sockets of others, abstract or by path.
    - host files: an empty file system with the system's programs and libraries (``/usr`` without ``/usr/local``) and
      the Python interpreter without installed packages, read-only; no home folders, no ``/etc`` but the tables of
      libraries, no project, no devices but null, zero, full and random.
    - environment secrets: no variable but PATH, HOME, LANG and the command's own; no arguments of others.
    - other processes: not seen, not signalled, not traced; no terminal to type on.
    - privileges: an id that owns nothing, no capability, no set-uid program, no namespaces, mounts, tracing,
      io_uring, BPF, keys, modules; system calls newer than the filter are refused.
    - process group kill: at each end, whatever it is, and when our process is killed, no process, mount, group or file
      is left.
    - per process: address space, CPU time, open files, size of a file, no core dumps; processes and threads.
    - output: more than the limit is neither kept nor waited for.
    - disk: all files together have a limit; only regular files with one name come back, as far as the limit.
    - where control groups can be written: memory, CPU time and processes of all together.

    What it does not cover: faults of the kernel or of the processor; what can be learned from timing, from
    ``/proc/cpuinfo``, ``/proc/meminfo`` and the kernel's version; load that slows others down within the limits; the
    number of empty files, where memory is not counted for groups; world-readable secrets that someone put under
    ``/usr``. For code that is written to break out of the kernel use a virtual machine around all of this.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        """Takes the limits of each run that brings none of its own.

        Raises:
            UsageError: a limit has no meaning.
        """
        self.limits = _checked_limits(limits or Limits())
        self.python = PYTHON
        """The path of the interpreter inside."""

    def run(self, command: Command, limits: Limits | None = None) -> CommandOutcome:
        """Runs a command and returns what came of it. Threads may call this at the same time.

        Raises:
            UsageError: the command or a limit has no meaning.
            SandboxError: a mandatory protection cannot be had here; nothing was run.
        """
        return launch(command, self._prepare([command], limits))

    def run_pair(
        self, first: Command, second: Command, limits: Limits | None = None
    ) -> tuple[CommandOutcome, CommandOutcome]:
        """Runs two commands in two sandboxes that share nothing but two pipes, and returns what came of both.

        Each reads on descriptor 3 what the other writes on its descriptor 4. The limits are each one's. When the first
        ends, the second is killed (``Ending.PARTNER``, unless it had ended by then). That a partner closed a pipe is
        not heard before it ends.

        Raises:
            UsageError: a command or a limit has no meaning.
            SandboxError: a mandatory protection cannot be had here; nothing was run.
        """
        return launch_pair(first, second, self._prepare([first, second], limits))

    def require(self) -> None:
        """Returns if commands can be run here.

        Raises:
            SandboxError: a mandatory protection cannot be had here.
        """
        missing = self.report().missing
        if missing:
            names: dict[str | None, list[str]] = {}
            for each in missing:
                names.setdefault(each.reason, []).append(each.name)
            found = "; ".join(f"{', '.join(those)}: {reason}" for reason, those in names.items())
            raise SandboxError(f"nothing is run, as this machine cannot protect against what code may do: {found}")

    def report(self) -> SandboxReport:
        """Returns which protections are active here; the first call of a process tries them out."""
        return probe()

    def _prepare(self, commands: list[Command], limits: Limits | None) -> Limits:
        limits = self.limits if limits is None else _checked_limits(limits)
        for command in commands:
            _check_command(command, limits)
        self.require()
        return limits


def _checked_limits(limits: Limits) -> Limits:
    for name in ("wall_seconds", "cpu_seconds"):
        check_number(f"the limit {name} of a sandbox", getattr(limits, name), above=0)
    least = {"memory_bytes": 16 * MIB, "num_processes": 1, "output_bytes": 0, "disk_bytes": 65536, "num_open_files": 16}
    for name, low in least.items():
        check_whole(f"the limit {name} of a sandbox", getattr(limits, name), low)
    return limits


def _check_command(command: Command, limits: Limits) -> None:
    if not command.argv or not all(map(_is_text, command.argv)):
        raise UsageError(
            f"argv of a sandboxed command is {command.argv!r}; a program and arguments without NUL are needed, in UTF-8"
        )
    for path in command.files:
        _check_path("file", path)
    for path in command.returns:
        _check_path("returned file", path)
    _check_not_within(command.files)
    if not fits(command.files, limits):
        raise UsageError(
            f"a command brings {len(command.files)} files of {sum(map(len, command.files.values())):,} bytes; "
            f"{MAX_FILES} and {limits.disk_bytes:,} (disk_bytes) are the most that is laid out"
        )
    for name, value in command.env.items():
        if _NAME.fullmatch(name) is None or not _is_text(value):
            raise UsageError(
                f"the variable {name!r} of a command is {value!r}; letters, digits, _ and no NUL are allowed"
            )
        if name.startswith(_LOADER):
            raise UsageError(
                f"the variable {name!r} of a command would tell the loader what to run before the sandbox is closed; "
                "let the command set it: env NAME=VALUE program"
            )


def fits(files: Mapping[str, bytes], limits: Limits) -> bool:
    """Returns whether files can be laid out: their number, and their size in whole pages."""
    size = sum(_PAGE * (1 + len(content) // _PAGE) for content in files.values())
    return len(files) <= MAX_FILES and size <= limits.disk_bytes


def _check_path(what: str, path: str) -> None:
    parts = path.split("/")
    if (
        not _is_text(path)
        or len(path.encode()) > 1024
        or any(part in ("", ".", "..") or len(part.encode()) > 255 for part in parts)
    ):
        raise UsageError(
            f"a {what} of a command is called {path!r}; a relative path without '.', '..' and empty parts is needed, "
            "in UTF-8, with at most 255 bytes a part"
        )


def _is_text(word: str) -> bool:
    """Whether the system can be told it: without NUL and half characters."""
    return "\0" not in word and not any("\ud800" <= each <= "\udfff" for each in word)


def _check_not_within(files: Mapping[str, bytes]) -> None:
    for path in files:
        for parent in PurePosixPath(path).parents:
            if str(parent) in files:
                raise UsageError(
                    f"the file {str(parent)!r} of a command is a folder for its file {path!r}; only one fits"
                )
