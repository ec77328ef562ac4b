"""learnloop.core.ids: UUIDv7 that sort by time."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
import uuid

import pytest

from learnloop.core import ids
from learnloop.core.ids import new_id


def test_ids_are_uuid_version_7() -> None:
    before = time.time_ns() // 1_000_000
    parsed = uuid.UUID(new_id())
    after = time.time_ns() // 1_000_000
    assert (parsed.version, parsed.variant) == (7, uuid.RFC_4122)
    assert before <= parsed.int >> 80 <= after


def test_ids_sort_by_their_making_and_are_distinct() -> None:
    made = [new_id() for _ in range(50_000)]
    assert made == sorted(made)
    assert len(set(made)) == len(made)


def test_ids_sort_when_the_clock_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    first = new_id()
    monkeypatch.setattr(ids.time, "time_ns", lambda: 1_000_000_000)
    assert new_id() > first


def test_ids_of_threads_are_distinct() -> None:
    made: list[str] = []
    threads = [threading.Thread(target=lambda: made.extend(new_id() for _ in range(5_000))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 40_000


def test_a_seeded_program_does_not_repeat_ids() -> None:
    """A program that seeds the global generator, as every learner does, gets new ids all the same."""
    random.seed(0)
    first = new_id()[-12:]
    random.seed(0)
    assert new_id()[-12:] != first


def test_forked_children_make_other_ids_than_their_parent() -> None:
    code = """
import os
from learnloop.core import ids
ids.new_id()
reader, writer = os.pipe()
if os.fork() == 0:
    os.write(writer, ids.new_id()[-17:].encode())
    os._exit(0)
os.wait()
print(ids.new_id()[-17:], os.read(reader, 17).decode())
"""
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    mine, childs = out.split()
    assert mine != childs
    assert os.name == "posix"
