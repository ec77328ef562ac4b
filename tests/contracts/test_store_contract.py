"""What every back end of the store does alike: SQLite in a file, SQLite in memory, PostgreSQL with pgvector.

The rules are ``learnloop.testing.contracts.StoreContract``, which third parties import too.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from learnloop.store import Store
from learnloop.testing.contracts import StoreContract


class TestStore(StoreContract):
    @pytest.fixture(autouse=True)
    def _take(self, store_url: str, tmp_path: Path) -> None:
        self.url, self.folder = store_url, tmp_path

    def open_store(self, **options: Any) -> Store:
        return Store.open(self.url, blobs=self.folder / "blobs", **options)

    def open_again(self) -> Store | None:
        return None if ":memory:" in self.url else Store.open(self.url, upgrade=False)
