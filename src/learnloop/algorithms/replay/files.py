"""A replay on the disk: one file, whole or not there, checked when it is read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from learnloop.core.errors import NotFoundError
from learnloop.system.state_file import State, read_state, write_state

FILE = "replay.safetensors"
FORMAT = "learnloop.replay/v2"
FIRST_FORMAT = "learnloop.replay/v1"


def write_replay(folder: Path, state: Mapping[str, NDArray[Any]]) -> Path:
    """Writes the state of a replay into ``folder``, durably and in the place of an older one; returns the file.

    Raises:
        StoreError: the disk refuses.
    """
    path = folder / FILE
    write_state(path, FORMAT, State(dict(state), {}))
    return path


def read_replay(folder: Path) -> dict[str, NDArray[Any]]:
    """Returns the state that ``write_replay`` wrote.

    Raises:
        NotFoundError: there is none.
        CorruptError: it is not what was written.
    """
    if not (folder / FILE).is_file():
        raise NotFoundError(f"there is no replay in {folder}")
    return read_state(folder / FILE, FORMAT, FIRST_FORMAT).tensors
