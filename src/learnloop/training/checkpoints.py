"""Checkpoints of a training: whole or not there, checked when they are read.

A checkpoint is a folder named by its position (steps, or updates with a data set), with ``state.safetensors`` and
``state.json``, which holds the checksum of the other after a line with its own. It is written beside its place and
renamed, so that a kill leaves the one before.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from learnloop.core.errors import CorruptError, NotFoundError, StoreError
from learnloop.system.files import flush, write_whole

FORMAT = "learnloop.checkpoint/v2"
STATE = "state.json"
TENSORS = "state.safetensors"
KEPT = 2
"""How many of the newest checkpoints of a seed are kept."""


class Checkpoint(NamedTuple):
    """The state of a training."""

    position: int
    """Environment steps; of a training from a data set updates."""
    tensors: dict[str, NDArray[Any]]
    values: dict[str, Any]


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> Path:
    """Writes ``checkpoint`` under ``folder``, durably, removes old ones, and returns its folder.

    Raises:
        StoreError: the disk refuses.
    """
    place = folder / f"{checkpoint.position:012d}"
    part = folder / f".{place.name}.part"
    tensors = save({name: np.asarray(value, order="C") for name, value in checkpoint.tensors.items() if value.size})
    without = {name: value for name, value in checkpoint.tensors.items() if not value.size}
    empty = {name: [value.dtype.name, list(value.shape)] for name, value in without.items()}
    state = {
        "format": FORMAT,
        "position": checkpoint.position,
        "sha256": hashlib.sha256(tensors).hexdigest(),
        "empty": empty,
        "values": checkpoint.values,
    }
    try:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        write_whole(part / TENSORS, tensors)
        write_whole(part / STATE, _sealed(state))
        shutil.rmtree(place, ignore_errors=True)
        part.rename(place)
        flush(folder)
        for old in _places(folder)[:-KEPT]:
            shutil.rmtree(old)
    except OSError as error:
        raise StoreError(f"checkpoint {place} cannot be written: {error.strerror or error}") from error
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
    """Returns the checkpoint in the folder ``place``.

    Raises:
        CorruptError: it is not what was written.
    """
    try:
        state = _unsealed((place / STATE).read_bytes())
        data = (place / TENSORS).read_bytes()
        if state["format"] != FORMAT:
            raise CorruptError(f"checkpoint {place} has the format {state['format']!r}; {FORMAT!r} can be read")
        if hashlib.sha256(data).hexdigest() != state["sha256"]:
            raise CorruptError(f"checkpoint {place}: {TENSORS} was changed or cut")
        tensors = {name: value.copy() for name, value in load(data).items()}
        tensors |= {name: np.zeros(shape, dtype=dtype) for name, (dtype, shape) in state["empty"].items()}
        return Checkpoint(state["position"], tensors, state["values"])
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise CorruptError(f"checkpoint {place} cannot be read: {error}") from error


def _sealed(state: dict[str, Any]) -> bytes:
    """Returns ``state`` as a line of JSON after a line with its checksum."""
    body = json.dumps(state).encode()
    return hashlib.sha256(body).hexdigest().encode() + b"\n" + body


def _unsealed(data: bytes) -> dict[str, Any]:
    seal, _, body = data.partition(b"\n")
    if hashlib.sha256(body).hexdigest().encode() != seal:
        raise ValueError(f"{STATE} was changed or cut")
    state: dict[str, Any] = json.loads(body)
    return state


def _places(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(each for each in folder.iterdir() if each.is_dir() and each.name.isdigit())
