"""Checkpoints: whole or not there, whatever happens while they are written or afterwards."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from learnloop.core.errors import CorruptError, NotFoundError
from learnloop.core.ids import new_id
from learnloop.training.checkpoints import KEPT, Checkpoint, load_checkpoint, newest_checkpoint, save_checkpoint


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
    assert names == ["000000000004.safetensors", "000000000030.safetensors"]
    assert len(names) == KEPT


def test_a_half_written_one_is_not_there(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, checkpoint(3))
    (tmp_path / f".{9:012d}.safetensors.{new_id()}.part").write_bytes(b"half")
    assert newest_checkpoint(tmp_path).position == 3
    save_checkpoint(tmp_path, checkpoint(4))
    assert len(list(tmp_path.iterdir())) == KEPT  # what a kill left goes with the next one


@pytest.mark.parametrize("part", [b"seen", np.float32(2).tobytes()], ids=["values", "tensors"])
def test_a_changed_one_is_passed_over_for_the_one_before(tmp_path: Path, part: bytes) -> None:
    save_checkpoint(tmp_path, checkpoint(3))
    place = save_checkpoint(tmp_path, checkpoint(5))
    data = bytearray(place.read_bytes())
    data[data.index(part)] ^= 0x20
    place.write_bytes(data)
    with pytest.raises(CorruptError, match="changed or cut"):
        load_checkpoint(place)
    assert newest_checkpoint(tmp_path).position == 3


def test_none_that_is_whole(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="no checkpoint"):
        newest_checkpoint(tmp_path / "nowhere")
    place = save_checkpoint(tmp_path, checkpoint(5))
    place.write_bytes(b"")
    with pytest.raises(CorruptError, match=str(place)):
        newest_checkpoint(tmp_path)
