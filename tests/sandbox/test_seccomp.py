"""The filter as a program: it is run here by an interpreter of our own, for both machines."""

from __future__ import annotations

import struct

import pytest

from learnloop.core.errors import SandboxError
from learnloop.sandbox.seccomp import MACHINES, build_filter

ALLOW, KILL, EPERM, ENOSYS = 0x7FFF0000, 0x80000000, 0x50001, 0x50026


def answer(program: bytes, audit: int, number: int, *arguments: int) -> int:
    """Runs classic BPF as the kernel does: a 32-bit register, jumps counted from the next step."""
    data = struct.pack("=IIQ6Q", number, audit, 0, *(*arguments, *[0] * (6 - len(arguments))))
    register, place = 0, 0
    while True:
        code, if_true, if_false, value = struct.unpack_from("=HBBI", program, 8 * place)
        place += 1
        if code == 0x20:
            (register,) = struct.unpack_from("=I", data, value)
        elif code == 0x06:
            return int(value)
        else:
            holds = {0x15: register == value, 0x35: register >= value, 0x45: bool(register & value)}[code]
            place += if_true if holds else if_false


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_what_each_call_is_answered(name: str) -> None:
    kind, program = MACHINES[name], build_filter(name)
    special = {kind.clone, kind.clone3, kind.ioctl, *kind.sockets}
    for number in range(600):
        if number in special:
            continue
        expected = ENOSYS if number >= 463 else EPERM if number in kind.refused.values() else ALLOW
        assert answer(program, kind.audit, number) == expected, number
    assert answer(program, kind.audit, 0x40000000) == ENOSYS, "x32"
    assert answer(program, kind.audit, 0xFFFFFFFF) == ENOSYS
    assert answer(program, 0x40000003, 1) == KILL, "i386"
    assert answer(program, 0, 1) == KILL


@pytest.mark.parametrize("name", sorted(MACHINES))
def test_arguments(name: str) -> None:
    kind, program = MACHINES[name], build_filter(name)

    def ask(number: int, *arguments: int) -> int:
        return answer(program, kind.audit, number, *arguments)

    assert ask(kind.clone, 0x01200011) == ALLOW, "fork of the C library"
    assert ask(kind.clone, 0x3D0F00) == ALLOW, "a thread"
    for bit in (0x20000, 0x02000000, 0x04000000, 0x08000000, 0x10000000, 0x20000000, 0x40000000):
        assert ask(kind.clone, bit | 17) == EPERM, hex(bit)
    assert ask(kind.clone3) == ENOSYS
    assert [ask(kind.ioctl, 0, code) for code in (0x5412, 0x541C, 0x1_0000_5412, 0x5413, 0x5401)] == [EPERM] * 3 + [
        ALLOW
    ] * 2
    for number in kind.sockets:
        assert [ask(number, family) for family in (1, 2, 10, 16, 17, 40, 0)] == [ALLOW] + [EPERM] * 6


def test_other_machines() -> None:
    with pytest.raises(
        SandboxError, match="no table of system calls for 'riscv64', so nothing is run; there are 'x86_64'"
    ):
        build_filter("riscv64")
