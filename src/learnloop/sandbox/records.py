"""What is asked of a sandbox, and what comes back."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from learnloop.core.records import Record

MIB = 2**20


class Limits(Record, frozen=True, kw_only=True):
    """How much one run may use."""

    wall_seconds: float = 10.0
    cpu_seconds: float = 10.0
    """Of one process, rounded up to whole seconds; of all together, to the exact value, where groups are counted."""
    memory_bytes: int = 512 * MIB
    """Of address space of one process; of memory of all together, where groups are counted."""
    num_processes: int = 64
    """Processes and threads at one time."""
    output_bytes: int = MIB
    """Each of stdout and stderr."""
    disk_bytes: int = 64 * MIB
    """All files together, which lie in memory."""
    num_open_files: int = 256
    """Of one process."""


class Command(Record, frozen=True, kw_only=True):
    """What to run."""

    argv: list[str]
    """The program and its arguments. ``python`` is the read-only interpreter."""
    files: Mapping[str, bytes] = msgspec.field(default_factory=dict)
    """Laid into the work folder, which is new and the current folder, by their relative paths."""
    stdin: bytes = b""
    env: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Beside PATH, HOME and LANG; nothing else is there."""
    returns: list[str] = msgspec.field(default_factory=list)
    """Names or patterns (``*`` also matches ``/``) of files of the work folder that are brought back."""


class Ending(StrEnum):
    """Why a run ended."""

    EXITED = "exited"
    SIGNALLED = "signalled"
    """By a signal that it sent itself, or that a fault of its own caused."""
    WALL = "wall"
    CPU = "cpu"
    MEMORY = "memory"
    """The memory of all processes together. A process that alone asks for too much is refused it, and mostly exits."""
    OUTPUT = "output"
    PARTNER = "partner"
    """The first of a pair ended, so the second was killed."""


class CommandOutcome(Record, frozen=True, kw_only=True):
    """What came of a run. Of these, only the output, the files and the exit code are for the code to say."""

    exit_code: int | None
    """None: a signal ended it. As for shells, 128 + n of a program that exits by itself is read as signal n."""
    signal: int | None
    ended_by: Ending
    stdout: bytes
    stderr: bytes
    is_output_cut: bool
    """There was more than ``output_bytes``; the run was killed for it."""
    wall_seconds: float
    cpu_seconds: float | None
    peak_memory_bytes: int | None
    """None: groups are not counted here."""
    files: Mapping[str, bytes] = msgspec.field(default_factory=dict)
    """Those of ``Command.returns``, by their relative paths."""
    left_out: Mapping[str, str] = msgspec.field(default_factory=dict)
    """What was asked for, is there and is not in ``files``, with the reason: no regular file, too large, unreadable."""

    @property
    def is_success(self) -> bool:
        """Whether it ran to its end and exited with 0."""
        return self.ended_by is Ending.EXITED and self.exit_code == 0


class Protection(Record, frozen=True, kw_only=True):
    """One thing that a sandbox keeps code from."""

    name: str
    is_mandatory: bool
    is_active: bool
    reason: str | None = None
    """Why it is not active, and what to do about it."""


class SandboxReport(Record, frozen=True, kw_only=True):
    """Which protections are active here, found by trying them out."""

    protections: list[Protection]

    @property
    def missing(self) -> list[Protection]:
        """Those that are mandatory and not active: where there is one, nothing is run."""
        return [each for each in self.protections if each.is_mandatory and not each.is_active]

    def is_active(self, name: str) -> bool:
        """Returns whether the protection ``name`` is active."""
        return any(each.name == name and each.is_active for each in self.protections)
