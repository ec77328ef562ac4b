"""learnloop.demo.files: real files, each once, in published shares, the same order for the same seed."""

from __future__ import annotations

import hashlib
import itertools
import random
import resource
from collections import Counter
from pathlib import Path

import pytest

from learnloop.core.errors import NotFoundError, StoreError
from learnloop.demo import files
from learnloop.demo.files import MAX_BYTES, MIN_BYTES, SHARES, count_files, find_files, stream


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small machine: files of three kinds, some of them unfit."""
    root = tmp_path / "lib"
    rng = random.Random(0)
    for number in range(60):
        for suffix in (".py", ".png"):
            path = root / f"d{number % 3}" / f"{number:02d}{suffix}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(rng.randbytes(MIN_BYTES + number))
    (root / "tiny.py").write_bytes(b"x")
    (root / "huge.py").write_bytes(b"x" * (MAX_BYTES + 1))
    (root / "link.py").symlink_to(root / "d0" / "00.py")
    (root / "unknown.xyz").write_bytes(b"x" * 1000)
    (root / "copy.py").write_bytes((root / "d0" / "00.py").read_bytes())
    monkeypatch.setattr(files, "_roots", lambda: [root])
    return tmp_path


def test_finds_what_fits(machine: Path) -> None:
    catalogue = find_files(machine / "made")
    assert count_files(catalogue)["text"] == 61  # the copy too; its content is left out of the stream
    assert count_files(catalogue)["image"] == 60
    assert count_files(catalogue)["random"] == 240
    assert count_files(catalogue)["archive"] == 61  # made once of the text files, since the machine has none
    assert "binary" not in count_files(catalogue)


def test_made_files_are_made_once(machine: Path) -> None:
    find_files(machine / "made")
    before = {path: path.stat().st_mtime_ns for path in (machine / "made").rglob("*")}
    find_files(machine / "made")
    assert {path: path.stat().st_mtime_ns for path in (machine / "made").rglob("*")} == before


def test_stream_has_each_content_once_and_ends(machine: Path) -> None:
    catalogue = find_files(machine / "made")
    found = list(stream(catalogue, 0))
    digests = [hashlib.sha256(data).hexdigest() for _, data in found]
    assert len(set(digests)) == len(digests)
    kinds = Counter(each.kind for each, _ in found)
    assert kinds["text"] == 60
    assert kinds["random"] == 240


def test_same_seed_same_stream(machine: Path) -> None:
    catalogue = find_files(machine / "made")
    first, second, other = ([each.path for each, _ in stream(catalogue, seed)] for seed in (1, 1, 2))
    assert first == second
    assert first != other


def test_kinds_come_in_their_shares(tmp_path: Path) -> None:
    rng = random.Random(1)
    by_kind: dict[str, list[Path]] = {kind: [] for kind in SHARES}
    for kind in SHARES:
        for number in range(400):
            path = tmp_path / f"{kind}{number}"
            path.write_bytes(rng.randbytes(600))
            by_kind[kind].append(path)
    counts = Counter(each.kind for each, _ in itertools.islice(stream((by_kind), 0), 1000))
    for kind, share in SHARES.items():
        assert counts[kind] / 1000 == pytest.approx(share, abs=0.06)


def test_a_file_that_goes_away_is_left_out(machine: Path) -> None:
    catalogue = find_files(machine / "made")
    gone = catalogue["image"][5]
    gone.unlink()
    assert gone not in {each.path for each, _ in stream(catalogue, 0)}


def test_a_machine_without_files_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_roots", list)
    with pytest.raises(NotFoundError, match="found only"):
        find_files(tmp_path)


def test_shares_add_up() -> None:
    assert sum(SHARES.values()) == pytest.approx(1.0)


def test_a_folder_that_cannot_be_written_is_said(machine: Path) -> None:
    (machine / "made").write_text("a file")
    with pytest.raises(StoreError, match="made"):
        find_files(machine / "made")


def test_a_full_disk_is_said_and_no_cut_file_remains(machine: Path) -> None:
    """A limit on the size of files stands for the full disk: the first that is larger is cut off."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    try:
        with pytest.raises(StoreError, match="random"):
            find_files(machine / "made")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    made = sorted((machine / "made" / "random").iterdir())
    assert 10 < len(made) < 240
    assert all(path.suffix == ".bin" for path in made)
    find_files(machine / "made")
    sizes = [path.stat().st_size for path in sorted((machine / "made" / "random").iterdir())]
    assert sizes == sorted(sizes)
    assert len(sizes) == 240
