"""Data sets on the disk: what a run learned from stays beside it, so that it can be resumed, repeated and proven."""

from __future__ import annotations

from pathlib import Path

import msgspec

from learnloop.core.datasets import Dataset
from learnloop.core.errors import CorruptError, LearnloopError
from learnloop.core.spaces import Spaces
from learnloop.system.state_file import UNSEALED_DATASET, State, read_state, write_state

FORMAT = "learnloop.dataset/v2"
DATASET_FILE = "dataset.safetensors"


class _Description(msgspec.Struct, frozen=True, kw_only=True):
    """What of a data set is not an array."""

    spaces: Spaces
    goals: list[str]
    action_names: list[str] | None
    source: str
    fingerprint: str | None = None
    """The checksum of the arrays, of a data set whose file was not sealed yet."""


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
    )
    write_state(path, FORMAT, State(dict(dataset.arrays()), msgspec.to_builtins(description)))


def read_dataset(path: Path) -> Dataset:
    """Returns the data set that ``write_dataset`` wrote.

    Raises:
        CorruptError: the file is not what was written, or is not there.
    """
    try:
        state = read_state(path, FORMAT, UNSEALED_DATASET)
        description = msgspec.convert(state.values, _Description)
        dataset = Dataset(
            spaces=description.spaces,
            goals=description.goals,
            action_names=description.action_names,
            source=description.source,
            **state.tensors,
        )
    except (msgspec.ValidationError, TypeError, LearnloopError) as error:
        raise CorruptError(f"the data set {path} cannot be read: {error}") from error
    if description.fingerprint not in (None, dataset.fingerprint()):
        raise CorruptError(f"the data set {path} is not what was written: its fingerprint differs")
    return dataset
