"""formats.inspect.archive: archives are read sample by sample, within bounds, and never unpacked."""

from __future__ import annotations

import gzip
import importlib
import io
import json
import sys
import zipfile
import zlib
from pathlib import Path
from typing import Any

import pytest

from learnloop.core.errors import FormatError, MissingExtraError
from learnloop.traces.importing.formats.inspect import archive as inspect_archive
from tests.traces.formats.inspect_samples import LOG, SAMPLE, archive, with_sample
from tests.traces.formats.reading import check_damaged, check_survives, imported, read_records, wrong_values


@pytest.mark.parametrize("format_name", [None, "inspect-eval"])
@pytest.mark.parametrize("finished", [True, False])
@pytest.mark.parametrize("packed", [True, False])
def test_an_archive_is_read(tmp_path: Path, format_name: str | None, finished: bool, packed: bool) -> None:
    path = archive(tmp_path / "log.eval", LOG, finished=finished)
    if packed:
        path.write_bytes(gzip.compress(path.read_bytes()))
    got = imported(tmp_path, path, format_name=format_name)
    assert (got.episode.task_id, got.values(), got.report.num_steps) == ("inspect:doors:7", {"judge": 1.0}, 2)


def test_an_archive_packed_with_zstandard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zstandard = importlib.import_module("zstandard")
    path = archive_of_frames(tmp_path / "log.eval", zstandard.ZstdCompressor().compress)
    assert imported(tmp_path, path).values() == {"judge": 1.0}
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 0xFF
    (tmp_path / "bad.eval").write_bytes(data)
    assert not check_survives(tmp_path / "bad.eval", "inspect-eval")
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(MissingExtraError, match=r"learnloop\[zstd\]"):
        read_records(path, "inspect-eval")


def archive_of_frames(path: Path, compress: Any) -> Path:
    """Writes an archive whose files are packed with method 93, which ``zipfile`` cannot write before Python 3.14."""
    archive(path, LOG, method=zipfile.ZIP_STORED)
    with zipfile.ZipFile(path) as stored:
        contents = {name: stored.read(name) for name in stored.namelist()}
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as packed:
        for name, content in contents.items():
            packed.writestr(name, compress(content[: len(content) // 2]) + compress(content[len(content) // 2 :]))
    data = bytearray(buffer.getvalue())
    for info in zipfile.ZipFile(buffer).infolist():
        content = contents[info.filename]
        central = data.rindex(info.filename.encode()) - 46
        for offset in (info.header_offset + 8, central + 10):
            data[offset : offset + 2] = (93).to_bytes(2, "little")
        for offset in (info.header_offset + 14, central + 16):
            data[offset : offset + 4] = zlib.crc32(content).to_bytes(4, "little")
            data[offset + 8 : offset + 12] = len(content).to_bytes(4, "little")
    path.write_bytes(data)
    return path


def test_a_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = archive(tmp_path / "log.eval", with_sample(input="0" * 5_000_000, events=[], messages=[]))
    with pytest.raises(FormatError, match="more than 500 times its packed size"):
        read_records(path, "inspect-eval")
    monkeypatch.setattr(inspect_archive, "MAX_MEMBER_BYTES", 1000)
    with pytest.raises(FormatError, match=r"unpacks to .* bytes; allowed are 1,000"):
        read_records(archive(path, LOG), "inspect-eval")
    monkeypatch.setattr(inspect_archive, "MAX_TOTAL_BYTES", 500)
    with pytest.raises(FormatError, match="the archive unpacks to"):
        read_records(path, "inspect-eval")
    path.write_bytes(gzip.compress(path.read_bytes()))
    with pytest.raises(FormatError, match="larger than 500 bytes"):
        read_records(path, "inspect-eval")


def test_names_in_an_archive_are_no_paths(tmp_path: Path) -> None:
    """Nothing is written anywhere, and only names below ``samples/`` are read."""
    path = archive(tmp_path / "log.eval", LOG)
    with zipfile.ZipFile(path, "a") as packed:
        packed.writestr("../../evil.json", "{}")
        packed.writestr("samples/../../evil_epoch_1.json", json.dumps({**SAMPLE, "uuid": "u-9"}))
    before = sorted(tmp_path.parent.rglob("*"))
    assert len(read_records(path, "inspect-eval")) > 0
    assert sorted(tmp_path.parent.rglob("*")) == before


def test_one_damaged_sample_does_not_hide_the_others(tmp_path: Path) -> None:
    path = archive(tmp_path / "log.eval", LOG)
    with zipfile.ZipFile(path, "a") as packed:
        packed.writestr("samples/8_epoch_1.json", '{"id": 8, "epoch": ')
        packed.writestr("samples/9_epoch_1.json", '{"id": 9, "epoch": "one"}')
    got = imported(tmp_path, path)
    assert (len(got.episodes), got.report.num_bad_lines) == (1, 2)
    assert "$.epoch" in got.report.bad_lines[1].reason


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_ways_of_packing_are_refused(tmp_path: Path, method: int) -> None:
    with pytest.raises(FormatError, match="packed with method"):
        read_records(archive(tmp_path / "log.eval", LOG, method=method), "inspect-eval")


def test_an_archive_without_a_header_is_no_log(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.eval", "w") as packed:
        packed.writestr("samples/1_epoch_1.json", "{}")
    with pytest.raises(FormatError, match=r"neither header.json nor"):
        read_records(tmp_path / "a.eval", "inspect-eval")


def test_wrong_values_in_an_archive_are_refused_or_read(tmp_path: Path) -> None:
    header = {name: part for name, part in LOG.items() if name != "samples"}
    for changed in wrong_values(header):
        log = {"version": 2, "eval": {}, "plan": {}, **changed, "samples": [SAMPLE]}
        check_survives(archive(tmp_path / "log.eval", log), "inspect-eval")


def test_damage_is_refused_or_read(tmp_path: Path) -> None:
    check_damaged(archive(tmp_path / "log.eval", LOG), "inspect-eval")
    check_damaged(archive(tmp_path / "log.eval", LOG, method=zipfile.ZIP_STORED), "inspect-eval")
