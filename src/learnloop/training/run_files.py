"""The files of a run: its data set, and each seed's policies and figures, in folders that one process writes at a time.

Figures are JSON lines: ``{"position": ..., "num_steps": ..., "train/loss": ...}``. The position is the steps, or of a
training from a data set the updates. Policies are kept as the registry keeps versions.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

import msgspec

from learnloop.algorithms.policies.network_policy import NetworkPolicy
from learnloop.core.datasets import Dataset
from learnloop.core.errors import ConflictError, CorruptError, LearnloopError, StoreError
from learnloop.core.spaces import Spaces
from learnloop.registry.artifacts import encode_artifact
from learnloop.registry.folders import VersionFolders
from learnloop.system.files import locked, make_folder, write_whole
from learnloop.system.state_file import UNSEALED_DATASET, State, read_state, write_state

LOCK_FILE = ".lock"
HASH_FILE = "content_hash"
"""Which of the folders beside it is the policy."""
DATASET_FILE = "dataset.safetensors"
DATASET_FORMAT = "learnloop.dataset/v2"


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Holds ``folder`` for this process, until the end of the block or of the process.

    Raises:
        ConflictError: another one holds it.
        StoreError: the disk refuses.
    """
    make_folder(folder)
    busy = ConflictError(f"another process trains in {folder}; wait for it, or end it")
    with locked(folder / LOCK_FILE, wait_seconds=0.0, busy=busy):
        yield


def write_policy(folder: Path, policy: NetworkPolicy) -> None:
    """Makes ``policy`` the one of ``folder``, durably.

    Raises:
        UsageError: it cannot be stored.
        StoreError: the disk refuses.
    """
    files = encode_artifact(policy.to_artifact())
    VersionFolders(folder).write(files)
    write_whole(folder / HASH_FILE, files.content_hash.encode())


def read_policy(folder: Path) -> NetworkPolicy:
    """Returns the policy that ``write_policy`` wrote.

    Raises:
        CorruptError: the files are not what was written.
    """
    try:
        content_hash = (folder / HASH_FILE).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise CorruptError(f"the policy in {folder} cannot be read: {error}") from error
    return NetworkPolicy.from_artifact(VersionFolders(folder).load(content_hash))


class MetricsFile:
    """Appends a line for each set of figures; a figure that is not finite is written as null."""

    def __init__(self, path: Path | None) -> None:
        """Keeps nothing where ``path`` is None."""
        self._path = path
        self._file: TextIO | None = None

    def write(self, position: int, counts: Mapping[str, int], figures: Mapping[str, float]) -> None:
        """Appends one line, which a reader can see at once.

        Raises:
            StoreError: the disk refuses.
        """
        if self._path is None:
            return
        shown = {name: value if math.isfinite(value) else None for name, value in figures.items()}
        try:
            if self._file is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self._path.open("a", encoding="utf-8")
            self._file.write(json.dumps({"position": position, **counts, **shown}) + "\n")
            self._file.flush()
        except OSError as error:
            raise StoreError(f"{self._path} cannot be written ({error.strerror}); choose another --home") from error

    def cut_after(self, position: int) -> None:
        """Drops the lines after ``position``: what a training that was killed wrote after its checkpoint."""
        if self._path is None or not self._path.exists():
            return
        self.close()
        kept = [line for line in read_metrics(self._path) if line["position"] <= position]
        write_whole(self._path, "".join(json.dumps(line) + "\n" for line in kept).encode())

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def read_metrics(path: Path) -> list[dict[str, float]]:
    """Returns the lines of a file of figures, oldest first; one that a kill cut short is left out."""
    found = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with suppress(ValueError):
            found.append(json.loads(line))
    return [line for line in found if isinstance(line, dict) and "position" in line]


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
    fields = {name: getattr(dataset, name) for name in ("spaces", "goals", "action_names", "source")}
    write_state(path, DATASET_FORMAT, State(dict(dataset.arrays()), msgspec.to_builtins(fields)))


def read_dataset(path: Path) -> Dataset:
    """Returns the data set that ``write_dataset`` wrote.

    Raises:
        CorruptError: the file is not what was written, or is not there.
    """
    try:
        state = read_state(path, DATASET_FORMAT, UNSEALED_DATASET)
        fields = msgspec.structs.asdict(msgspec.convert(state.values, _Description))
        fingerprint = fields.pop("fingerprint")
        dataset = Dataset(**(fields | state.tensors))
    except (msgspec.ValidationError, TypeError, LearnloopError) as error:
        raise CorruptError(f"the data set {path} cannot be read: {error}") from error
    if fingerprint not in (None, dataset.fingerprint()):
        raise CorruptError(f"the data set {path} is not what was written: its fingerprint differs")
    return dataset
