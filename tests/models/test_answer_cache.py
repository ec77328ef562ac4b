"""Kept answers: found again by what was asked, whole or not at all."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from learnloop.core.errors import UsageError
from learnloop.models.answer_cache import AnswerCache


def test_what_was_kept_is_found(tmp_path: Path) -> None:
    cache = AnswerCache(str(tmp_path / "new" / "folder"))
    path = cache.path("http://h/v1", b"asked")
    assert path.name == hashlib.sha256(b"http://h/v1\nasked").hexdigest() + ".json"
    assert cache.get(path) is None
    cache.put(path, b"first")
    cache.put(path, b"second")
    assert cache.get(path) == b"second"
    assert cache.get(cache.path("http://h/v2", b"asked")) is None
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_what_cannot_be_read_is_told(tmp_path: Path) -> None:
    cache = AnswerCache(str(tmp_path))
    path = cache.path("x", b"")
    path.mkdir()
    with pytest.raises(UsageError, match="cannot be read"):
        cache.get(path)
