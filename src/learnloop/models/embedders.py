"""Which embedder: one by default, another by configuration; its vectors are kept either way."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import msgspec

from learnloop.core.checks import check_range
from learnloop.models.endpoint_embedder import EndpointEmbedder, EndpointEmbedderConfig
from learnloop.models.local_embedder import LocalEmbedder
from learnloop.models.made_files import default_cache_folder
from learnloop.models.sentence_graph import Precision
from learnloop.models.vector_cache import CachedEmbedder, VectorCache

VECTORS_FILE = "vectors.db"
_log = logging.getLogger(__name__)


class EmbedderConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which embedder: the local model, or the endpoint where one is given.

    In ``learnloop.toml`` this is ``[embedder]``, with the endpoint in ``[embedder.endpoint]`` and its address and model
    in ``[embedder.endpoint.endpoint]``.
    """

    precision: Precision = "int8"
    """Of the local model."""
    num_threads: int = 1
    """That the local model may use for one text."""
    endpoint: EndpointEmbedderConfig | None = None
    """None: the local model."""

    def __post_init__(self) -> None:
        """Refuses values without a meaning."""
        check_range("num_threads", self.num_threads, 1)


def make_embedder(
    config: EmbedderConfig | None = None,
    cache_folder: Path | str | None = None,
    *,
    progress: Callable[[str], None] = _log.info,
) -> CachedEmbedder:
    """Returns the embedder that ``config`` describes, with its vectors kept in ``cache_folder``.

    Args:
        config: None: the local model.
        cache_folder: None: learnloop's folder in the user's cache.
        progress: is told what is made, where the local model is made for the first time.

    Raises:
        MissingExtraError: the local model, and a package of the extra ``embeddings`` is not installed.
        UsageError: the endpoint's address is not a valid one, or the variable with its key is not set.
        CorruptError, StoreReadOnlyError, UnreachableError: the cache or the weights cannot be used.
    """
    chosen = config or EmbedderConfig()
    folder = default_cache_folder() if cache_folder is None else Path(cache_folder)
    if chosen.endpoint is not None:
        endpoint = EndpointEmbedder(chosen.endpoint)
        return CachedEmbedder(endpoint, VectorCache(folder / VECTORS_FILE), endpoint.close)
    local = LocalEmbedder(folder, precision=chosen.precision, num_threads=chosen.num_threads, progress=progress)
    return CachedEmbedder(local, VectorCache(folder / VECTORS_FILE))
