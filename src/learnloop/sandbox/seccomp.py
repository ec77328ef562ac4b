"""The filter of system calls: what sandboxed code may not ask of the kernel, as a BPF program.

It refuses what reaches other processes, other namespaces, other file systems or the kernel's less trodden parts, and
every call that is newer than its tables. What is refused answers EPERM, or ENOSYS where the C library then takes an
older way.
"""

from __future__ import annotations

import errno
import platform
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from learnloop.core.errors import SandboxError, one_of

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # BPF_LD|W|ABS, JEQ, JGE, JSET, RET
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_AF_UNIX = 1
_NAMESPACE_FLAGS = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET."""
_TERMINAL_INPUT = (0x5412, 0x541C)
"""TIOCSTI and TIOCLINUX, which type on a terminal."""
_FIRST_UNKNOWN = 463
"""The tables below end here, on both machines alike; on x86_64 this also keeps out x32, whose numbers are higher."""


@dataclass(frozen=True)
class Machine:
    """The numbers of one kind of processor."""

    audit: int
    clone: int
    clone3: int
    ioctl: int
    sockets: tuple[int, int]
    """socket and socketpair."""
    refused: Mapping[str, int]


_BOTH = {
    "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433,
    "mount_setattr": 442, "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427,
    "pidfd_getfd": 438, "process_madvise": 440, "quotactl_fd": 443, "memfd_secret": 447,
}  # fmt: skip
MACHINES: Mapping[str, Machine] = {
    "x86_64": Machine(
        audit=0xC000003E, clone=56, clone3=435, ioctl=16, sockets=(41, 53),
        refused={
            **_BOTH, "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312, "unshare": 272,
            "setns": 308, "mount": 165, "umount2": 166, "pivot_root": 155, "chroot": 161, "bpf": 321,
            "perf_event_open": 298, "keyctl": 250, "add_key": 248, "request_key": 249, "userfaultfd": 323,
            "kexec_load": 246, "kexec_file_load": 320, "init_module": 175, "finit_module": 313, "delete_module": 176,
            "reboot": 169, "swapon": 167, "swapoff": 168, "acct": 163, "quotactl": 179, "settimeofday": 164,
            "clock_settime": 227, "clock_adjtime": 305, "adjtimex": 159, "sethostname": 170, "setdomainname": 171,
            "iopl": 172, "ioperm": 173, "modify_ldt": 154, "syslog": 103, "lookup_dcookie": 212, "nfsservctl": 180,
            "open_by_handle_at": 304, "name_to_handle_at": 303, "fanotify_init": 300, "mbind": 237,
            "set_mempolicy": 238, "move_pages": 279, "migrate_pages": 256, "personality": 135, "uselib": 134,
            "ustat": 136, "sysfs": 139, "vhangup": 153,
        },
    ),
    "aarch64": Machine(
        audit=0xC00000B7, clone=220, clone3=435, ioctl=29, sockets=(198, 199),
        refused={
            **_BOTH, "ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271, "kcmp": 272, "unshare": 97,
            "setns": 268, "mount": 40, "umount2": 39, "pivot_root": 41, "chroot": 51, "bpf": 280,
            "perf_event_open": 241, "keyctl": 219, "add_key": 217, "request_key": 218, "userfaultfd": 282,
            "kexec_load": 104, "kexec_file_load": 294, "init_module": 105, "finit_module": 273, "delete_module": 106,
            "reboot": 142, "swapon": 224, "swapoff": 225, "acct": 89, "quotactl": 60, "settimeofday": 170,
            "clock_settime": 112, "clock_adjtime": 266, "adjtimex": 171, "sethostname": 161, "setdomainname": 162,
            "syslog": 116, "lookup_dcookie": 18, "nfsservctl": 42, "open_by_handle_at": 265, "name_to_handle_at": 264,
            "fanotify_init": 262, "mbind": 235, "set_mempolicy": 237, "move_pages": 239, "migrate_pages": 238,
            "personality": 92, "vhangup": 58,
        },
    ),
}  # fmt: skip
"""By the name that the kernel gives the machine."""


def build_filter(machine: str | None = None) -> bytes:
    """Returns the program for ``machine``, by default this one: 8 bytes an instruction.

    Raises:
        SandboxError: there is no table for such machines.
    """
    name = machine or platform.machine()
    if name not in MACHINES:
        raise SandboxError(
            f"the sandbox has no table of system calls for {name!r}, so nothing is run; there are {one_of(MACHINES)}"
        )
    kind = MACHINES[name]
    program = [
        _step(_LOAD, _ARCHITECTURE),
        _step(_EQUAL, kind.audit, 1, 0),
        _step(_RETURN, _KILL),  # calls of another architecture have other numbers
        _step(_LOAD, _NUMBER),
        *_answer(_AT_LEAST, _FIRST_UNKNOWN, errno.ENOSYS),
        *_answer(_EQUAL, kind.clone3, errno.ENOSYS),
        *_about_argument((kind.clone,), 0, _answer(_ANY_BIT, _NAMESPACE_FLAGS, errno.EPERM)),
        *_about_argument(
            (kind.ioctl,), 1, [step for code in _TERMINAL_INPUT for step in _answer(_EQUAL, code, errno.EPERM)]
        ),
        *_about_argument(kind.sockets, 0, [_step(_EQUAL, _AF_UNIX, 1, 0), _step(_RETURN, _ERRNO | errno.EPERM)]),
    ]
    for number in sorted(kind.refused.values()):
        program += _answer(_EQUAL, number, errno.EPERM)
    return b"".join([*program, _step(_RETURN, _ALLOW)])


def _answer(test: int, value: int, error: int) -> list[bytes]:
    """Returns the steps that end with ``error`` where the test of what is loaded is true, and else go on."""
    return [_step(test, value, 0, 1), _step(_RETURN, _ERRNO | error)]


def _about_argument(numbers: tuple[int, ...], argument: int, then: list[bytes]) -> list[bytes]:
    """Returns steps that, for these calls alone, load the low half of an argument, do ``then`` and allow the call."""
    body = [_step(_LOAD, _ARGUMENTS + 8 * argument), *then, _step(_RETURN, _ALLOW)]
    steps = []
    for position, number in enumerate(numbers):
        is_last = position == len(numbers) - 1
        to_body = len(numbers) - 1 - position
        steps.append(_step(_EQUAL, number, to_body, len(body) if is_last else 0))
    return steps + body


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)
