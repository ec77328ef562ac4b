"""Checkpoints by name: several at once, and what a kill leaves behind."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest

from learnloop.compat.seed1.checkpoints import NamedCheckpoints
from learnloop.core.errors import CorruptError
from learnloop.core.ids import new_id
from learnloop.system.state_file import State


@pytest.fixture
def checkpoints(tmp_path: Path) -> NamedCheckpoints:
    return NamedCheckpoints(tmp_path / "checkpoints", "test/v1", 1 << 20)


def saved(number: int) -> State:
    return State({"x": np.full(10, number, dtype=np.float32), "none": np.zeros((0, 3))}, {"number": number})


def test_what_a_killed_save_left_goes_with_the_next_one(checkpoints: NamedCheckpoints, tmp_path: Path) -> None:
    """A fault of ours: each kill left up to a whole checkpoint on the disk, for ever."""
    checkpoints.save("one", saved(1))
    checkpoints.save("one.two", saved(2))
    folder = tmp_path / "checkpoints"
    before = {path.name for path in folder.iterdir()}
    (folder / f".{new_id()}.part").write_bytes(b"half")
    (folder / "notes.part").write_bytes(b"somebody else's")
    (folder / f".{new_id()}.part.folder").mkdir()
    checkpoints.save("one", saved(1))
    left = {path.name for path in folder.iterdir()} - before
    assert len(left) == 2
    assert "notes.part" in left
    assert checkpoints.load("one.two").values == {"number": 2}


def test_many_save_and_load_one_name_at_once(checkpoints: NamedCheckpoints, tmp_path: Path) -> None:
    """A fault of ours: one save removed the tensors that another had just named, or that a load was about to read."""
    checkpoints.save("one", saved(0))
    failures: list[CorruptError] = []
    done = threading.Event()

    def write(first: int) -> None:
        for turn in range(30):
            checkpoints.save("one", saved((first + turn) % 3))

    def read() -> None:
        while not done.is_set():
            try:
                found = checkpoints.load("one")
                assert found.tensors["x"][0] == found.values["number"]
            except CorruptError as error:
                failures.append(error)

    writers = [threading.Thread(target=write, args=(first,)) for first in range(3)]
    readers = [threading.Thread(target=read) for _ in range(2)]
    for thread in writers + readers:
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    for thread in readers:
        thread.join()
    assert failures == []
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == [".lock", "one.safetensors"]
    checkpoints.load("one")
