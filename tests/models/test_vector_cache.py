"""Kept vectors: found by embedder and text, checked, shared; and which embedder a configuration makes."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop.core.arrays import F32
from learnloop.core.errors import CorruptError, StoreReadOnlyError, UnreachableError, UsageError
from learnloop.models import CachedEmbedder, EmbedderConfig, LocalEmbedder, VectorCache, make_embedder, vector_cache
from learnloop.models.vectors import text_hash
from tests.loopback import LoopbackServer


class Counting:
    """Embeds by the letters of a text, and keeps what it was asked."""

    name = "counting"
    dimension = 4
    content_id = "counting-1"

    def __init__(self) -> None:
        self.asked: list[str] = []

    def embed(self, texts: Sequence[str]) -> F32:
        self.asked += texts
        return np.array([[len(text) + 1.0, 1.0, 2.0, -3.0] for text in texts], dtype=np.float32)


@pytest.fixture
def cache(tmp_path: Path) -> Iterator[VectorCache]:
    with VectorCache(tmp_path / "new" / "vectors.db") as opened:
        yield opened


def test_a_text_is_embedded_once(cache: VectorCache) -> None:
    inner = Counting()
    embedder = CachedEmbedder(inner, cache)
    first = embedder.embed(["a", "bb", "a"])
    assert inner.asked == ["a", "bb"]
    np.testing.assert_array_equal(first[0], first[2])
    np.testing.assert_allclose(np.linalg.norm(first, axis=1), 1.0, atol=1e-6)
    again = CachedEmbedder(inner, cache)
    np.testing.assert_array_equal(again.embed(["bb", "c", "a"])[[2, 0]], first[:2])
    assert inner.asked == ["a", "bb", "c"]
    assert (embedder.num_cached, again.num_cached, cache.count()) == (0, 2, 3)
    assert embedder.embed([]).shape == (0, 4)
    with pytest.raises(UsageError, match="put it into a list"):
        embedder.embed("abc")


def test_another_embedder_has_other_vectors(cache: VectorCache) -> None:
    first, second = Counting(), Counting()
    second.content_id = "counting-2"
    CachedEmbedder(first, cache).embed(["a"])
    CachedEmbedder(second, cache).embed(["a"])
    assert second.asked == ["a"]


@given(first=st.text(st.characters(exclude_categories=())), second=st.text(st.characters(exclude_categories=())))
def test_different_texts_have_different_keys(first: str, second: str) -> None:
    assert (text_hash(first) == text_hash(second)) == (first == second)


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        (np.ones((1, 3), np.float32), r"shape \(1, 3\) for 1 texts; \(1, 4\) is needed"),
        (np.array([[1.0, np.nan, 0.0, 0.0]], np.float32), "not finite for text 0"),
        (np.zeros((1, 4), np.float32), "a vector of zeros"),
    ],
)
def test_wrong_vectors_are_refused_and_not_kept(cache: VectorCache, vectors: Any, message: str) -> None:
    inner = Counting()
    inner.embed = lambda texts: vectors  # type: ignore[method-assign]
    with pytest.raises(UsageError, match=f"counting gives .*{message}"):
        CachedEmbedder(inner, cache).embed(["a"])
    assert cache.count() == 0


@pytest.mark.parametrize(
    "damage", ["UPDATE vectors SET vector = zeroblob(16)", "UPDATE vectors SET vector = substr(vector, 1, 12)"]
)
def test_a_damaged_vector_is_made_anew(tmp_path: Path, damage: str) -> None:
    inner, path = Counting(), tmp_path / "vectors.db"
    with VectorCache(path) as cache:
        whole = CachedEmbedder(inner, cache).embed(["a"])
        other = sqlite3.connect(path)
        other.execute(damage)
        other.commit()
        other.close()
        np.testing.assert_array_equal(CachedEmbedder(inner, cache).embed(["a"]), whole)
        assert inner.asked == ["a", "a"]
        CachedEmbedder(inner, cache).embed(["a"])
        assert inner.asked == ["a", "a"]


def test_many_texts_and_threads(cache: VectorCache) -> None:
    embedder = CachedEmbedder(Counting(), cache)
    texts = [str(number) for number in range(1200)]

    def work() -> None:
        embedder.embed(texts)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert cache.count() == 1200
    assert CachedEmbedder(Counting(), cache).embed(texts).shape == (1200, 4)


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text").write_text("no database " * 100)
    with pytest.raises(CorruptError, match="delete it"):
        VectorCache(tmp_path / "text")
    with pytest.raises(StoreReadOnlyError, match="text"):
        VectorCache(tmp_path / "text" / "vectors.db")
    with pytest.raises(StoreReadOnlyError, match="cannot be used"):
        VectorCache(tmp_path)
    monkeypatch.setattr(vector_cache, "_BUSY_SECONDS", 0.05)
    with VectorCache(tmp_path / "vectors.db") as cache:
        holder = sqlite3.connect(tmp_path / "vectors.db", isolation_level=None)
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(UnreachableError, match="locked"):
            CachedEmbedder(Counting(), cache).embed(["a"])
        holder.close()
    with pytest.raises(UsageError, match="closed"):
        cache.count()


# By configuration -----------------------------------------------------------------------------------------------------


def test_the_local_model_is_the_default(local_embedder: LocalEmbedder, embedder_folder: Path) -> None:
    """S1.7: real embeddings without a word of configuration, kept by the hash of the text."""
    made = make_embedder(cache_folder=embedder_folder)
    assert isinstance(made.embedder, LocalEmbedder)
    assert made.content_id == local_embedder.content_id
    np.testing.assert_allclose(made.embed(["one"]), local_embedder.embed(["one"]), atol=1e-7)
    made.close()


def test_an_endpoint_by_configuration(tmp_path: Path) -> None:
    with LoopbackServer() as server:
        raw = {"endpoint": {"dimension": 4, "endpoint": {"base_url": server.url, "model": "e"}}}
        config = msgspec.convert(raw, EmbedderConfig)
        made = make_embedder(config, tmp_path)
        made.embed(["a", "b"])
        made.embed(["b", "a", "c"])
        assert [body["input"] for body in server.requests] == [["a", "b"], ["c"]]
        made.close()
    assert msgspec.convert(msgspec.to_builtins(config), EmbedderConfig) == config
    with pytest.raises(UsageError, match="num_threads is 0"):
        EmbedderConfig(num_threads=0)
