"""Checkpoints of a training: files named by their position (steps, or updates with a data set)."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, NamedTuple

from learnloop.core.errors import CorruptError, NotFoundError
from learnloop.system.files import remove_parts, writing
from learnloop.system.state_file import SUFFIX, State, Tensors, decode_pair, read_state, write_state

FORMAT = "learnloop.checkpoint/v3"
KEPT = 2
"""How many of the newest checkpoints of a seed are kept."""
_PAIR_FORMAT = "learnloop.checkpoint/v2"
"""That of the folders that checkpoints were until there was one format of state."""


class Checkpoint(NamedTuple):
    """The state of a training."""

    position: int
    """Environment steps; of a training from a data set updates."""
    tensors: Tensors
    values: dict[str, Any]


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Writes ``checkpoint`` under ``folder``, durably, removes old ones, and returns its file.

    Raises:
        StoreError: the disk refuses.
    """
    place = folder / f"{checkpoint.position:012d}{SUFFIX}"
    write_state(place, FORMAT, State(checkpoint.tensors, checkpoint.values))
    remove_parts(folder)
    with writing(folder):
        for old in _places(folder)[:-KEPT]:
            if old.is_dir():
                shutil.rmtree(old)
            else:
                old.unlink()
    return place


def newest_checkpoint(folder: Path) -> Checkpoint:
    """Returns the newest whole checkpoint under ``folder``.

    Raises:
        NotFoundError: there is none.
        CorruptError: there are some, and none is whole; the message says what is wrong with each.
    """
    faults = []
    for place in reversed(_places(folder)):
        try:
            return load_checkpoint(place)
        except CorruptError as error:
            faults.append(str(error))
    if faults:
        raise CorruptError("; ".join(faults))
    raise NotFoundError(f"there is no checkpoint in {folder}; train with a checkpoint interval")


def load_checkpoint(place: Path) -> Checkpoint:
    """Returns the checkpoint at ``place``.

    Raises:
        CorruptError: it is not what was written.
        StoreError: it cannot be read.
    """
    state = _from_folder(place) if place.is_dir() else read_state(place, FORMAT)
    return Checkpoint(int(place.stem), state.tensors, state.values)


def _from_folder(place: Path) -> State:
    """Returns the checkpoint in a folder of version 2."""
    try:
        head = (place / "state.json").read_bytes()
        return decode_pair(
            head, lambda _: (place / "state.safetensors").read_bytes(), _PAIR_FORMAT, f"checkpoint {place}"
        )
    except OSError as error:
        raise CorruptError(f"checkpoint {place} cannot be read: {error}") from error


def _places(folder: Path) -> list[Path]:
    """Returns the checkpoints, oldest first."""
    if not folder.is_dir():
        return []
    found = (each for each in folder.iterdir() if each.stem.isdigit() and each.suffix in ("", SUFFIX))
    return sorted(found, key=lambda each: (int(each.stem), each.suffix))
