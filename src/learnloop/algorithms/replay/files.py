"""A replay on the disk: one safetensors file, whole or not there, checked when it is read."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from learnloop.core.errors import CorruptError, NotFoundError, StoreError

FILE = "replay.safetensors"
FORMAT = "learnloop.replay/v1"


def write_replay(folder: Path, state: Mapping[str, NDArray[Any]]) -> Path:
    """Writes the state of a replay into ``folder``, durably and in the place of an older one; returns the file.

    Raises:
        StoreError: the disk refuses.
    """
    path, part = folder / FILE, folder / f".{FILE}.part"
    tensors = {name: np.ascontiguousarray(value) for name, value in state.items()}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        save_file(tensors, part, metadata={"format": FORMAT, "sha256": _digest(tensors)})
        _sync(part)
        part.replace(path)
        _sync(folder)
    except OSError as error:
        raise StoreError(f"the replay cannot be written to {path}: {error.strerror or error}") from error
    except SafetensorError as error:
        raise StoreError(f"the replay cannot be written to {path}: {error}") from error
    return path


def read_replay(folder: Path) -> dict[str, NDArray[Any]]:
    """Returns the state that ``write_replay`` wrote.

    Raises:
        NotFoundError: there is none.
        CorruptError: it is not what was written.
    """
    path = folder / FILE
    if not path.is_file():
        raise NotFoundError(f"there is no replay in {folder}")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except (OSError, SafetensorError, ValueError, TypeError) as error:
        raise CorruptError(f"the replay {path} cannot be read: {error}") from error
    if metadata.get("format") != FORMAT:
        raise CorruptError(f"the replay {path} has the format {metadata.get('format')!r}; {FORMAT!r} can be read")
    if metadata.get("sha256") != _digest(tensors):
        raise CorruptError(f"the replay {path} is not what was written: its checksum differs")
    return tensors


def _digest(tensors: Mapping[str, NDArray[Any]]) -> str:
    """Returns the SHA-256 of names, types, shapes and numbers."""
    digest = hashlib.sha256()
    for name in sorted(tensors):
        value = tensors[name]
        digest.update(f"{name} {value.dtype.str} {value.shape}\n".encode())
        digest.update(value.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _sync(path: Path) -> None:
    if path.is_dir() and os.name == "nt":
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
