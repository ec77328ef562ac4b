"""State on the disk: tensors and values in one safetensors file with a sealed head, checked when it is read.

The head is the file's metadata: ``format`` (what it is the state of, and the version of that), ``values`` (JSON) and
``sha256``, of the format, the values, and each tensor's name, type, shape and numbers. Nothing is ever executed.

Source: the safetensors format (8 bytes of header length, a JSON header, tensors without gaps).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load

from learnloop.core.errors import CorruptError, NotFoundError, StoreError, UsageError, one_of
from learnloop.system.files import make_folder, replacing

SUFFIX = ".safetensors"
UNSEALED_DATASET = "learnloop.dataset/v1"
"""The format of data sets that have no checksum in their head: who reads one checks its fingerprint."""
_TYPES: Mapping[str, str] = {
    **{f"float{bits}": f"F{bits}" for bits in (16, 32, 64)},
    **{f"int{bits}": f"I{bits}" for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": f"U{bits}" for bits in (8, 16, 32, 64)},
    "bool": "BOOL",
}
"""What safetensors calls the types of numpy."""

Tensors = dict[str, NDArray[Any]]


class State(NamedTuple):
    """What is kept of something."""

    tensors: Tensors
    values: dict[str, Any]
    """What JSON can hold."""


def write_state(path: Path, format: str, state: State) -> None:
    """Writes ``state`` as the file ``path``, durably, in the place of what is there; makes the folder.

    Raises:
        UsageError: a tensor is of a type that cannot be kept.
        StoreFullError, StoreReadOnlyError, StoreError: the disk refuses.
    """
    parts = _encoded(format, state)
    make_folder(path.parent)
    with replacing(path) as stream:
        stream.writelines(parts)


def read_state(path: Path, *formats: str) -> State:
    """Returns the state in the file ``path``, of which nothing more than the state itself is held in memory.

    Raises:
        NotFoundError: it is not there.
        CorruptError: it is not what was written, or in none of ``formats``.
        StoreError: it cannot be read.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
            head = file.metadata()
    except FileNotFoundError as error:
        raise NotFoundError(f"{path} is not there") from error
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error}") from error
    except (SafetensorError, ValueError, TypeError) as error:
        raise CorruptError(f"{path} is refused by safetensors: {error}") from error
    return _checked(tensors, head, formats, str(path))


def encode_state(format: str, state: State) -> bytes:
    """Returns what ``write_state`` writes.

    Raises:
        UsageError: a tensor is of a type that cannot be kept.
    """
    return b"".join(_encoded(format, state))


def decode_state(data: bytes, *formats: str, what: str = "it") -> State:
    """Returns the state that ``data`` encodes.

    Args:
        data: what ``encode_state`` returned.
        formats: which are taken.
        what: the name of ``data`` in messages.

    Raises:
        CorruptError: it is not what was written, or in none of ``formats``.
    """
    tensors = _owned(load_tensors(data, what))
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])  # safetensors has read it already
    return _checked(tensors, header.get("__metadata__"), formats, what)


def load_tensors(data: bytes, what: str = "it") -> Tensors:
    """Returns the tensors of a safetensors file, to read only.

    Raises:
        CorruptError: it is not such a file.
    """
    try:
        return load(data)
    except (SafetensorError, ValueError, TypeError) as error:
        raise CorruptError(f"{what} is refused by safetensors: {error}") from error


def _owned(tensors: Tensors) -> Tensors:
    """Returns copies that may be written to."""
    return {name: value.copy() for name, value in tensors.items()}


def _encoded(format: str, state: State) -> list[bytes | memoryview]:
    """Returns the header, and the numbers of each tensor as they lie in memory."""
    tensors = {name: _laid_out(name, state.tensors[name]) for name in sorted(state.tensors)}
    values = json.dumps(state.values)
    metadata = {"format": format, "values": values, "sha256": _digest(f"{format}\n{values}\n", tensors)}
    header: dict[str, Any] = {"__metadata__": metadata}
    start = 0
    for name, value in tensors.items():
        place = [start, start + value.nbytes]
        header[name] = {"dtype": _TYPES[value.dtype.name], "shape": list(value.shape), "data_offsets": place}
        start += value.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # what follows lies at multiples of 8 bytes
    return [len(text).to_bytes(8, "little"), text, *(_bytes(value) for value in tensors.values())]


def _laid_out(name: str, value: NDArray[Any]) -> NDArray[Any]:
    """Returns ``value`` as safetensors wants it: row by row, low bytes first; as it is where it is so already."""
    if value.dtype.name not in _TYPES:
        raise UsageError(f"tensor {name!r} is of type {value.dtype}; allowed are {one_of(_TYPES)}")
    return np.asarray(value, dtype=value.dtype.newbyteorder("<"), order="C")


def _bytes(value: NDArray[Any]) -> memoryview:
    return value.reshape(-1).view(np.uint8).data


def _digest(head: str, tensors: Mapping[str, NDArray[Any]]) -> str:
    digest = hashlib.sha256(head.encode())
    for name in sorted(tensors):
        value = tensors[name]
        digest.update(f"{name} {value.dtype.str} {value.shape}\n".encode())
        digest.update(_bytes(value))
    return digest.hexdigest()


def _checked(tensors: Tensors, head: dict[str, str] | None, formats: tuple[str, ...], what: str) -> State:
    head = _renewed(head or {}, tensors)
    if head.get("format") not in formats:
        raise CorruptError(f"{what} has the format {head.get('format')!r}; {one_of(formats)} can be read")
    # a replay that was written before there was one format for all has no values, and its numbers alone are sealed
    sealed = f"{head['format']}\n{head['values']}\n" if "values" in head else ""
    if head.get("sha256") != _digest(sealed, tensors):
        raise CorruptError(f"{what} was changed or cut: its checksum differs")
    try:
        return State(tensors, json.loads(head.get("values", "{}")))
    except (ValueError, RecursionError) as error:
        raise CorruptError(f"the values of {what} cannot be read: {error}") from error


# State of earlier versions --------------------------------------------------------------------------------------------


def _renewed(head: dict[str, str], tensors: Tensors) -> dict[str, str]:
    """Returns the head of a data set that was written before there was one format for all as it would be now."""
    if "description" not in head:
        return head
    sealed = _digest(f"{UNSEALED_DATASET}\n{head['description']}\n", tensors)
    return {"format": UNSEALED_DATASET, "values": head["description"], "sha256": sealed}


class _Head(msgspec.Struct, frozen=True, kw_only=True):
    format: str
    sha256: str
    """Of the file of tensors."""
    empty: dict[str, tuple[str, list[int]]]
    """The type and the shape of each tensor without numbers, which was not in the file."""
    values: dict[str, Any]


def decode_pair(head: bytes, read: Callable[[str], bytes], format: str, what: str) -> State:
    """Returns a state that was kept as a sealed head and a file of tensors, until there was one format for all.

    Args:
        head: a line with its SHA-256, then JSON.
        read: returns the file of tensors that has this SHA-256.
        format: which is taken.
        what: the name of it in messages.

    Raises:
        CorruptError: it is not what was written, or in another format.
    """
    seal, _, body = head.partition(b"\n")
    if hashlib.sha256(body).hexdigest().encode() != seal:
        raise CorruptError(f"the head of {what} was changed or cut")
    try:
        found = msgspec.convert(json.loads(body), _Head)
    except (ValueError, RecursionError) as error:
        raise CorruptError(f"the head of {what} cannot be read: {error}") from error
    if found.format != format:
        raise CorruptError(f"{what} has the format {found.format!r}; {format!r} can be read")
    data = read(found.sha256)
    if hashlib.sha256(data).hexdigest() != found.sha256:
        raise CorruptError(f"the tensors of {what} were changed or cut")
    try:
        empty = {name: np.zeros(shape, dtype=dtype) for name, (dtype, shape) in found.empty.items() if 0 in shape}
    except (ValueError, TypeError) as error:
        raise CorruptError(f"the head of {what} cannot be read: {error}") from error
    return State(_owned(load_tensors(data, what)) | empty, found.values)
