"""Checkpoints: whole or not there, whatever happens while they are written or afterwards."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from learnloop.core.errors import CorruptError, NotFoundError
from learnloop.training.checkpoints import (
    KEPT,
    STATE,
    TENSORS,
    Checkpoint,
    load_checkpoint,
    newest_checkpoint,
    save_checkpoint,
)


def checkpoint(num_steps: int) -> Checkpoint:
    tensors = {"a/x": np.arange(num_steps, dtype=np.float32), "b": np.zeros((0, 3), dtype=np.int64)}
    return Checkpoint(num_steps, tensors, {"rng": {"state": 2**127 + 1}, "seen": [1.5, None]})


def test_what_was_saved_comes_back(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, checkpoint(7))
    found = newest_checkpoint(tmp_path)
    assert found.position == 7
    assert found.values == {"rng": {"state": 2**127 + 1}, "seen": [1.5, None]}
    np.testing.assert_array_equal(found.tensors["a/x"], np.arange(7, dtype=np.float32))
    assert found.tensors["b"].shape == (0, 3)
    found.tensors["a/x"][0] = 5  # may be written to


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    for number in (1, 2, 30, 4):
        save_checkpoint(tmp_path, checkpoint(number))
    names = sorted(each.name for each in tmp_path.iterdir())
    assert [int(name) for name in names] == [4, 30]
    assert len(names) == KEPT


def test_a_half_written_one_is_not_there(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, checkpoint(3))
    part = tmp_path / f".{9:012d}.part"
    part.mkdir()
    (part / TENSORS).write_bytes(b"half")
    assert newest_checkpoint(tmp_path).position == 3


@pytest.mark.parametrize("name", [STATE, TENSORS])
def test_a_changed_one_is_passed_over_for_the_one_before(tmp_path: Path, name: str) -> None:
    save_checkpoint(tmp_path, checkpoint(3))
    place = save_checkpoint(tmp_path, checkpoint(5))
    data = bytearray((place / name).read_bytes())
    data[len(data) // 2] ^= 0x40
    (place / name).write_bytes(data)
    with pytest.raises(CorruptError, match="changed or cut"):
        load_checkpoint(place)
    assert newest_checkpoint(tmp_path).position == 3


def test_none_that_is_whole(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no checkpoint"):
        newest_checkpoint(tmp_path / "nowhere")
    place = save_checkpoint(tmp_path, checkpoint(5))
    (place / TENSORS).write_bytes(b"")
    with pytest.raises(CorruptError, match="changed or cut"):
        newest_checkpoint(tmp_path)
