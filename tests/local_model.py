"""The real local embedder for tests: its graph is made once for each test run and kept in a folder of that run."""

from __future__ import annotations

from pathlib import Path

import pytest

from learnloop.models import LocalEmbedder


@pytest.fixture(scope="session")
def embedder_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The cache folder of this run's embedders."""
    return tmp_path_factory.mktemp("embedder")


@pytest.fixture(scope="session")
def local_embedder(embedder_folder: Path) -> LocalEmbedder:
    """all-MiniLM-L6-v2 with 8 bits."""
    return LocalEmbedder(embedder_folder)
