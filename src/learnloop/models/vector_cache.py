"""Vectors of texts kept in one SQLite file, by embedder and by the hash of the text; the texts themselves are not."""

from __future__ import annotations

import sqlite3
import threading
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from learnloop.core.arrays import F32
from learnloop.core.checks import check_range
from learnloop.core.errors import CorruptError, StoreReadOnlyError, UnreachableError, UsageError
from learnloop.core.lifecycles import Closing
from learnloop.core.protocols import Embedder
from learnloop.models.vectors import MAX_DIMENSION, checked_texts, text_hash, unit_vectors

if TYPE_CHECKING:
    from collections.abc import Iterator

_BUSY_SECONDS = 30.0
_PER_QUERY = 500
_SCHEMA = """
CREATE TABLE IF NOT EXISTS vectors (
    content_id TEXT NOT NULL,
    text_hash BLOB NOT NULL,
    vector BLOB NOT NULL,
    checksum INTEGER NOT NULL,
    PRIMARY KEY (content_id, text_hash)
) WITHOUT ROWID
"""


class VectorCache(Closing):
    """Keeps vectors as float32. Threads and processes may share the file; it grows until somebody deletes it.

    A vector is 4 bytes a number: 1.5 kB at 384, 6 kB at 1536. What does not have its checksum and its dimension any
    more counts as not there.
    """

    def __init__(self, path: Path | str) -> None:
        """Makes the file where there is none.

        Raises:
            StoreReadOnlyError: it cannot be written.
            CorruptError: it is not an SQLite database.
        """
        self._path = Path(path)
        self._lock = threading.Lock()
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreReadOnlyError(f"{self._path.parent} cannot be made ({error.strerror or error})") from error
        with self._failures():
            self._connection = sqlite3.connect(
                self._path, timeout=_BUSY_SECONDS, isolation_level="IMMEDIATE", check_same_thread=False
            )
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=NORMAL")  # what a crash takes is embedded again
            self._connection.execute(_SCHEMA)

    def get(self, content_id: str, hashes: Sequence[bytes], dimension: int) -> dict[bytes, F32]:
        """Returns the vectors that are kept of ``hashes``, each of shape ``(dimension,)``."""
        rows: list[tuple[bytes, bytes, int]] = []
        with self._lock, self._failures():
            for start in range(0, len(hashes), _PER_QUERY):
                part = hashes[start : start + _PER_QUERY]
                marks = ",".join("?" * len(part))
                where = f"content_id = ? AND text_hash IN ({marks})"
                query = f"SELECT text_hash, vector, checksum FROM vectors WHERE {where}"
                rows += self._connection.execute(query, (content_id, *part)).fetchall()
        return {
            key: np.frombuffer(vector, dtype="<f4")
            for key, vector, checksum in rows
            if len(vector) == 4 * dimension and zlib.crc32(vector) == checksum
        }

    def put(self, content_id: str, vectors: Mapping[bytes, F32]) -> None:
        """Keeps vectors by the hashes of their texts, all or none."""
        rows = []
        for key, vector in vectors.items():
            data = vector.astype("<f4").tobytes()
            rows.append((content_id, key, data, zlib.crc32(data)))
        with self._lock, self._failures(), self._connection:  # commits, or rolls back
            self._connection.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?, ?)", rows)

    def count(self) -> int:
        """Returns how many vectors are kept, of all embedders."""
        with self._lock, self._failures():
            return int(self._connection.execute("SELECT count(*) FROM vectors").fetchone()[0])

    def close(self) -> None:
        """Closes the file."""
        with self._lock:
            self._connection.close()

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """Turns what SQLite raises into learnloop's errors."""
        try:
            yield
        except sqlite3.OperationalError as error:
            kind = UnreachableError if "locked" in str(error) else StoreReadOnlyError
            raise kind(f"the cache of vectors {self._path} cannot be used: {error}") from error
        except sqlite3.ProgrammingError as error:  # the connection is closed
            raise UsageError(f"the cache of vectors {self._path} cannot be used: {error}") from error
        except sqlite3.DatabaseError as error:
            raise CorruptError(
                f"the cache of vectors {self._path} is damaged ({error}); delete it, it fills again"
            ) from error


class CachedEmbedder(Closing):
    """An embedder that asks another one only for texts whose vectors are not kept. For any number of threads.

    Attributes:
        name: of the other one, like ``dimension`` and ``content_id``.
        num_cached: texts whose vectors were in the cache, so far.
    """

    def __init__(self, embedder: Embedder, cache: VectorCache, close: Callable[[], None] | None = None) -> None:
        """Embeds nothing yet; ``close`` is called when this is closed, beside the cache's."""
        self.embedder = embedder
        self.name = embedder.name
        check_range("dimension", embedder.dimension, 1, MAX_DIMENSION)
        self.dimension = embedder.dimension
        self.content_id = embedder.content_id
        self.num_cached = 0
        self._cache = cache
        self._close = close
        self._lock = threading.Lock()

    def embed(self, texts: Sequence[str]) -> F32:
        """Returns the vector of each text, shape ``(len(texts), dimension)``; a text that comes twice is embedded once.

        Raises:
            UsageError: the other embedder gives vectors of another shape, or numbers that are not finite; nothing of
                them is kept.
        """
        keys = [text_hash(text) for text in checked_texts(texts)]
        distinct = dict(zip(keys, texts, strict=True))
        known = self._cache.get(self.content_id, list(distinct), self.dimension)
        missing = {key: text for key, text in distinct.items() if key not in known}
        with self._lock:
            self.num_cached += len(distinct) - len(missing)
        if missing:
            found = self.embedder.embed(list(missing.values()))
            made = dict(zip(missing, unit_vectors(self.name, found, len(missing), self.dimension), strict=True))
            self._cache.put(self.content_id, made)
            known.update(made)
        vectors = np.empty((len(texts), self.dimension), dtype=np.float32)
        for row, key in enumerate(keys):
            vectors[row] = known[key]
        return vectors

    def close(self) -> None:
        """Closes the cache and what the other embedder holds open."""
        if self._close is not None:
            self._close()
        self._cache.close()
