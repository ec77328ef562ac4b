"""State on the disk: what was kept comes back, whatever was changed is found, and earlier formats are still read."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from learnloop.algorithms.replay.uniform import FILE, read_replay
from learnloop.compat.seed1.checkpoints import NamedCheckpoints
from learnloop.core.errors import CorruptError, NotFoundError, StoreError, StoreFullError, UsageError
from learnloop.decisions.online.checkpoints import _unpack
from learnloop.system.state_file import (
    State,
    decode_pair,
    decode_state,
    encode_state,
    load_tensors,
    read_state,
    write_state,
)
from learnloop.training.checkpoints import load_checkpoint, newest_checkpoint, save_checkpoint
from learnloop.training.run_files import read_dataset

EARLIER = Path(__file__).parent / "earlier"
"""State as commit 38f3475 wrote it; see ``make.py`` there."""

TENSORS = {
    "transposed": np.arange(6).reshape(2, 3).T,
    "big_endian": np.array([1.5, 2.5], dtype=">f8"),
    "scalar": np.array(3, dtype=np.float32),
    "none": np.zeros((0, 3), dtype=np.int64),
    "bools": np.array([True, False, True]),
    "half": np.array([1, 2], dtype=np.float16),
    "bytes": np.arange(5, dtype=np.uint8),
}
VALUES = {"rng": {"state": 2**127 + 1}, "unknown": None, "nested": [1.5, {"ä": "ö"}]}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_state(tmp_path / "folder" / "x.safetensors", "test/v1", State(TENSORS, VALUES))
    return tmp_path / "folder" / "x.safetensors"


def test_what_was_kept_comes_back(path: Path) -> None:
    for found in (read_state(path, "test/v1"), decode_state(path.read_bytes(), "test/v1")):
        assert found.values == VALUES
        assert found.tensors.keys() == TENSORS.keys()
        for name, value in found.tensors.items():
            np.testing.assert_array_equal(value, TENSORS[name])
            assert value.dtype.name == TENSORS[name].dtype.name
            assert value.shape == TENSORS[name].shape
            value[...] = 0  # may be written to
    assert path.read_bytes() == encode_state("test/v1", State(dict(reversed(TENSORS.items())), VALUES))


def test_it_is_a_file_that_others_can_read(path: Path, tmp_path: Path) -> None:
    """Each tensor lies where its type wants it, and what safetensors itself writes of the same is read as well."""
    for name, value in load_file(path).items():
        np.testing.assert_array_equal(value, TENSORS[name])
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    head = json.loads(data[8 : 8 + length])["__metadata__"]
    assert length % 8 == 0
    save_file(read_state(path, "test/v1").tensors, tmp_path / "theirs", head)
    assert read_state(tmp_path / "theirs", "test/v1").values == VALUES


def test_numbers_that_are_not_finite_stay_what_they_are(tmp_path: Path) -> None:
    write_state(tmp_path / "x", "test/v1", State({}, {"best": -math.inf}))
    assert read_state(tmp_path / "x", "test/v1").values == {"best": -math.inf}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], max_examples=200)
@given(place=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
def test_any_flipped_byte_is_found(path: Path, place: float, flip: int) -> None:
    """But for the blanks after the header, which say nothing."""
    data = bytearray(path.read_bytes())
    at = int(place * len(data))
    data[at] ^= flip
    if bytes(data[at : at + 1]).isspace() and at < 8 + int.from_bytes(data[:8], "little"):
        return
    changed = path.with_name("changed")
    changed.write_bytes(data)
    for read in (lambda: read_state(changed, "test/v1"), lambda: decode_state(bytes(data), "test/v1")):
        with pytest.raises(CorruptError):
            read()


def test_what_was_cut_or_lengthened_is_found(path: Path) -> None:
    data = path.read_bytes()
    for bad in (b"", data[:1], data[:9], data[: len(data) // 2], data[:-1], data + b"\0", data + data, b"{}" * 40):
        path.write_bytes(bad)
        with pytest.raises(CorruptError, match=str(path)):
            read_state(path, "test/v1")
        with pytest.raises(CorruptError, match="the thing is"):
            decode_state(bad, "test/v1", what="the thing")


def test_values_of_another_state_are_found(path: Path) -> None:
    """Each half is whole, but they do not belong together."""
    other = encode_state("test/v1", State(TENSORS, {**VALUES, "rng": {"state": 2**127 + 2}}))
    data = path.read_bytes()
    assert len(other) == len(data)
    length = 8 + int.from_bytes(data[:8], "little")
    head = other[:length].replace(_seal(other), _seal(data))
    with pytest.raises(CorruptError, match="its checksum differs"):
        decode_state(head + data[length:], "test/v1")


def _seal(data: bytes) -> bytes:
    head = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    sealed: str = head["__metadata__"]["sha256"]
    return sealed.encode()


def test_another_format_is_refused(path: Path, tmp_path: Path) -> None:
    with pytest.raises(CorruptError, match="has the format 'test/v1'; 'other/v2', 'other/v1' can be read"):
        read_state(path, "other/v2", "other/v1")
    with pytest.raises(CorruptError, match="was changed"):
        decode_state(path.read_bytes().replace(b"test/v1", b"best/v1"), "best/v1")
    save_file({"x": np.ones(3)}, tmp_path / "weights")
    with pytest.raises(CorruptError, match="format None"):
        read_state(tmp_path / "weights", "test/v1")


def test_values_without_end_are_refused() -> None:
    data = encode_state("test/v1", State({}, {"x": "Z"}))
    deep = b"[" * 100_000 + b"]" * 100_000
    length = int.from_bytes(data[:8], "little")
    header = data[8 : 8 + length].replace(b"Z", deep)
    with pytest.raises(CorruptError):
        decode_state(len(header).to_bytes(8, "little") + header, "test/v1")


def test_what_cannot_be_kept_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="tensor 'names' is of type <U1; allowed are 'float16'"):
        write_state(tmp_path / "x", "test/v1", State({"names": np.array(["a"])}, {}))
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_there_or_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        read_state(tmp_path / "x", "test/v1")
    (tmp_path / "folder").mkdir()
    with pytest.raises((StoreError, CorruptError), match="folder"):
        read_state(tmp_path / "folder", "test/v1")


def test_a_disk_that_is_full_leaves_the_state_before(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = path.read_bytes()

    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreFullError, match="no space"):
        write_state(path, "test/v1", State({"x": np.ones(3)}, {}))
    assert path.read_bytes() == before
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_tensors_alone_may_be_read_only() -> None:
    data = encode_state("test/v1", State({"x": np.ones(3)}, {}))
    np.testing.assert_array_equal(load_tensors(data)["x"], np.ones(3))
    with pytest.raises(CorruptError, match="the weights is refused by safetensors"):
        load_tensors(data[:-1], "the weights")


# Earlier formats ------------------------------------------------------------------------------------------------------

THEIRS = {"a/x": np.arange(7, dtype=np.float32), "b": np.zeros((0, 3), dtype=np.int64)}
THEIR_VALUES = {"rng": {"state": 2**127 + 1}, "seen": [1.5, None]}


def check(state: State) -> None:
    assert state.values == THEIR_VALUES
    assert state.tensors.keys() == THEIRS.keys()
    for name, value in state.tensors.items():
        np.testing.assert_array_equal(value, THEIRS[name])
        assert value.dtype == THEIRS[name].dtype
        value[...] = 0


def test_an_earlier_checkpoint_of_a_training_is_read_and_gives_way_to_newer_ones(tmp_path: Path) -> None:
    shutil.copytree(EARLIER / "checkpoints", tmp_path, dirs_exist_ok=True)
    found = newest_checkpoint(tmp_path)
    assert found.position == 7
    check(State(found.tensors, found.values))
    save_checkpoint(tmp_path, found._replace(position=8))
    assert sorted(path.stem for path in tmp_path.iterdir()) == ["000000000007", "000000000008"]
    assert newest_checkpoint(tmp_path).position == 8
    save_checkpoint(tmp_path, found._replace(position=9))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["000000000008.safetensors", "000000000009.safetensors"]


@pytest.mark.parametrize("name", ["state.json", "state.safetensors"])
def test_damage_of_an_earlier_checkpoint_of_a_training_is_found(tmp_path: Path, name: str) -> None:
    place = shutil.copytree(EARLIER / "checkpoints" / "000000000007", tmp_path / "000000000007")
    data = bytearray((place / name).read_bytes())
    data[len(data) // 2] ^= 0x40
    (place / name).write_bytes(data)
    with pytest.raises(CorruptError, match="changed or cut"):
        load_checkpoint(place)
    (place / name).unlink()
    with pytest.raises(CorruptError, match="cannot be read"):
        load_checkpoint(place)


def test_an_earlier_named_checkpoint_is_read_until_it_is_replaced(tmp_path: Path) -> None:
    folder = shutil.copytree(EARLIER / "named", tmp_path / "named")
    (folder / "one.two.safetensors").write_bytes(b"another's")
    checkpoints = NamedCheckpoints(folder, "test/v1", 1 << 20)
    check(checkpoints.load("one"))
    checkpoints.save("one", State({}, {"newer": 1}))
    assert checkpoints.load("one").values == {"newer": 1}
    assert sorted(path.name for path in folder.iterdir()) == [".lock", "one.safetensors", "one.two.safetensors"]


def test_damage_of_an_earlier_named_checkpoint_is_found(tmp_path: Path) -> None:
    folder = shutil.copytree(EARLIER / "named", tmp_path / "named")
    checkpoints = NamedCheckpoints(folder, "test/v1", 1 << 20)
    tensors = next(folder.glob("*.safetensors"))
    data, head = tensors.read_bytes(), (folder / "one.json").read_bytes()
    for broken in (data[:-1], data[:-1] + b"x"):
        tensors.write_bytes(broken)
        with pytest.raises(CorruptError, match="tensors of the checkpoint 'one' were changed"):
            checkpoints.load("one")
    tensors.unlink()
    with pytest.raises(CorruptError, match="are gone"):
        checkpoints.load("one")
    tensors.write_bytes(data)
    for broken in (b"", head[:-1], head[5:], b"{}", head.replace(b"test/v1", b"test/v2")):
        (folder / "one.json").write_bytes(broken)
        with pytest.raises(CorruptError, match="head of the checkpoint 'one' was changed"):
            checkpoints.load("one")
    with pytest.raises(CorruptError, match="format 'test/v1'; 'test/v2' can be read"):
        decode_pair(head, lambda _: data, "test/v2", "it")


def test_an_earlier_replay_is_read(tmp_path: Path) -> None:
    shutil.copy(EARLIER / FILE, tmp_path)
    found = read_replay(tmp_path)
    np.testing.assert_array_equal(found["actions"], np.arange(5))
    np.testing.assert_array_equal(found["masks"], [True, False])
    data = bytearray((tmp_path / FILE).read_bytes())
    data[-1] ^= 1
    (tmp_path / FILE).write_bytes(data)
    with pytest.raises(CorruptError, match="checksum differs"):
        read_replay(tmp_path)


def test_an_earlier_data_set_is_read(tmp_path: Path) -> None:
    path = Path(shutil.copy(EARLIER / "dataset.safetensors", tmp_path))
    found = read_dataset(path)
    assert (found.num_steps, list(found.goals), found.source) == (4, ["left", ""], "a test")
    np.testing.assert_array_equal(found.rewards, [0.0, 1.0, 0.5, 0.25])
    data = path.read_bytes()
    at = data.index(np.float64(0.5).tobytes())
    path.write_bytes(data[:at] + np.float64(0.75).tobytes() + data[at + 8 :])
    with pytest.raises(CorruptError, match="its fingerprint differs"):
        read_dataset(path)


def test_an_earlier_checkpoint_of_an_online_policy_is_read() -> None:
    blob = (EARLIER / "online.blob").read_bytes()
    artifact = _unpack(blob, "bot.p")
    assert (artifact.algorithm, artifact.config) == ("a", {"b": [1]})
    np.testing.assert_array_equal(artifact.tensors["w"], np.arange(3.0))
    with pytest.raises(CorruptError, match=r"checkpoint of 'bot\.p'"):
        _unpack(blob, "bot.q")
    for broken in (b"", blob[:5], blob[:-1], b"\0" * 8 + blob[8:]):
        with pytest.raises(CorruptError):
            _unpack(broken, "bot.p")
