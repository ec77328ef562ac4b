"""Data sets on the disk: what a run learned from stays beside it, so that it can be resumed, repeated and proven."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load, save

from learnloop.core.datasets import Dataset
from learnloop.core.errors import CorruptError, LearnloopError
from learnloop.core.spaces import Spaces
from learnloop.system.files import write_whole

FORMAT = "learnloop.dataset/v1"
DATASET_FILE = "dataset.safetensors"


class _Description(msgspec.Struct, frozen=True, kw_only=True):
    """What of a data set is no array."""

    format: str = FORMAT
    spaces: Spaces
    goals: list[str]
    action_names: list[str] | None
    source: str
    fingerprint: str


def write_dataset(path: Path, dataset: Dataset) -> None:
    """Writes ``dataset`` as one file, whole or not at all.

    Raises:
        StoreError: the disk refuses.
    """
    description = _Description(
        spaces=dataset.spaces,
        goals=list(dataset.goals),
        action_names=None if dataset.action_names is None else list(dataset.action_names),
        source=dataset.source,
        fingerprint=dataset.fingerprint(),
    )
    arrays = {name: np.ascontiguousarray(array) for name, array in dataset.arrays().items()}
    write_whole(path, save(arrays, {"description": msgspec.json.encode(description).decode()}))


def read_dataset(path: Path) -> Dataset:
    """Returns the data set that ``write_dataset`` wrote.

    Raises:
        CorruptError: the file is not what was written, or is not there.
    """
    try:
        with safe_open(path, "numpy") as file:
            description = msgspec.json.decode((file.metadata() or {})["description"], type=_Description)
        arrays = load(path.read_bytes())
        dataset = Dataset(
            spaces=description.spaces,
            goals=description.goals,
            action_names=description.action_names,
            source=description.source,
            **arrays,
        )
    except (OSError, SafetensorError, msgspec.MsgspecError, KeyError, TypeError, LearnloopError) as error:
        raise CorruptError(f"the data set {path} cannot be read: {error}") from error
    if dataset.fingerprint() != description.fingerprint:
        raise CorruptError(f"the data set {path} is not what was written: its fingerprint differs")
    return dataset
