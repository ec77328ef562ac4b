"""Fixtures: a sandbox, and a check after each test that nothing of it is left on the machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from learnloop.sandbox import Sandbox
from tests.sandbox.running import left_files, left_processes, note_processes, traces
from tests.waiting import eventually


@pytest.fixture(scope="session")
def sandbox() -> Sandbox:
    made = Sandbox()
    made.report()  # once, so that no test's time counts it
    return made


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """After each test: no process, control group, mount, descriptor or temporary file that was not there before."""
    note_processes()
    descriptors = set(os.listdir("/proc/self/fd"))
    mounts = Path("/proc/self/mounts").read_text()
    temporary = set(os.listdir("/tmp"))
    yield
    # Files too may be there for a moment: of the other tests' processes, which look whether a sandbox holds.
    files = set(left_files(temporary))
    assert eventually(lambda: not [*traces(), *(files & set(os.listdir("/tmp")))]), [*traces(), *files]
    assert Path("/proc/self/mounts").read_text() == mounts
    extra = set(os.listdir("/proc/self/fd")) - descriptors
    assert len(extra) <= 2, "the listing itself, and the pipe of the caretaker, which stays"
    assert set(left_processes()) <= {"sh"}, "the caretaker"
