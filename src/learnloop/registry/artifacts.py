"""A policy as two files: ``policy.json`` (what it is, canonical JSON) and ``weights.safetensors`` (its tensors).

The SHA-256 of ``policy.json`` names the version, and that file holds the checksum, size, names, shapes and types of
what is in the weights file, so one hash vouches for both. Reading trusts neither file: everything is compared with
what ``policy.json`` says before a number is used, and nothing is ever executed.

Source: the safetensors format (8 bytes of header length, a JSON header, tensors without gaps).
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, NamedTuple, NoReturn

import msgspec
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from learnloop.core.checks import check_name
from learnloop.core.decoding import convert_record
from learnloop.core.errors import CorruptError, UsageError, one_of
from learnloop.core.protocols import TENSOR_TYPES, PolicyArtifact
from learnloop.system.state_file import load_tensors

FORMAT = "learnloop.policy/v1"
POLICY_FILE = "policy.json"
WEIGHTS_FILE = "weights.safetensors"
MAX_POLICY_BYTES = 16 << 20
MAX_WEIGHTS_BYTES = 1 << 30
_MAX_HEADER_BYTES = 4 << 20
_MAX_DEPTH = 32
_MAX_DIMENSIONS = 8
_DTYPES: Mapping[str, str] = dict(zip(TENSOR_TYPES, ("F64", "F32", "I64", "BOOL"), strict=True))
"""Which types a tensor may have, and what safetensors calls them."""
_TENSOR_NAME = re.compile(r"[A-Za-z0-9](?:[._-]?[A-Za-z0-9_])*")


class _Tensor(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    dtype: Literal["float64", "float32", "int64", "bool"]
    shape: list[Annotated[int, msgspec.Meta(ge=1)]]

    @property
    def num_bytes(self) -> int:
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


class _Weights(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    sha256: str
    size: int


class _PolicyFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: str
    algorithm: str
    config: dict[str, Any]
    tensors: dict[str, _Tensor]
    weights: _Weights


class _TensorHeader(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


class ArtifactFiles(NamedTuple):
    """The bytes of the two files."""

    policy: bytes
    weights: bytes

    @property
    def content_hash(self) -> str:
        """The SHA-256 of ``policy.json``."""
        return hashlib.sha256(self.policy).hexdigest()


def encode_artifact(artifact: PolicyArtifact) -> ArtifactFiles:
    """Returns the files of ``artifact``; the same artifact gives the same bytes.

    Raises:
        UsageError: a tensor or a value of the config cannot be stored; the message says which and why.
    """
    check_name("an algorithm", artifact.algorithm)
    if not isinstance(artifact.config, Mapping):
        raise UsageError(f"the config of a policy is a {type(artifact.config).__name__}; a mapping is needed")
    tensors = {name: _checked_tensor(name, artifact.tensors[name]) for name in sorted(artifact.tensors)}
    weights = save(tensors)
    if len(weights) > MAX_WEIGHTS_BYTES:
        raise UsageError(f"the weights take {len(weights)} bytes; at most {MAX_WEIGHTS_BYTES} can be stored")
    content = {
        "format": FORMAT,
        "algorithm": artifact.algorithm,
        "config": _checked_json(artifact.config, "config", 1),
        "tensors": {name: {"dtype": str(value.dtype), "shape": list(value.shape)} for name, value in tensors.items()},
        "weights": {"sha256": hashlib.sha256(weights).hexdigest(), "size": len(weights)},
    }
    policy = json.dumps(content, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
    if len(policy) > MAX_POLICY_BYTES:
        raise UsageError(f"the config takes {len(policy)} bytes as JSON; at most {MAX_POLICY_BYTES} can be stored")
    return ArtifactFiles(policy, weights)


def _checked_tensor(name: object, value: object) -> NDArray[Any]:
    if not isinstance(name, str) or len(name) > 200 or not _TENSOR_NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot name a tensor: allowed are 1 to 200 letters, digits and single '.', '-', '_' between them"
        )
    if not isinstance(value, np.ndarray) or value.dtype.name not in _DTYPES:
        kind = value.dtype if isinstance(value, np.ndarray) else type(value).__name__
        raise UsageError(f"tensor {name!r} is of type {kind}; allowed are numpy arrays of {one_of(_DTYPES)}")
    if value.size == 0 or value.ndim > _MAX_DIMENSIONS:
        raise UsageError(
            f"tensor {name!r} has shape {value.shape}; allowed are up to {_MAX_DIMENSIONS} dimensions of at least 1"
        )
    if not np.all(np.isfinite(value)):
        raise UsageError(f"tensor {name!r} has values that are not finite; a policy with NaN or infinity is not stored")
    # safetensors writes the memory as it lies: it must be contiguous and little-endian.
    return np.array(value, dtype=np.dtype(value.dtype.name).newbyteorder("<"), order="C", copy=True)


def _checked_json(value: object, where: str, depth: int) -> Any:
    """Returns a copy of ``value`` made of JSON's own types."""
    if depth > _MAX_DEPTH:
        raise UsageError(f"{where} is nested deeper than {_MAX_DEPTH} levels")
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise UsageError(f"{where} is {value}; numbers must be finite")
        return float(value)
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise UsageError(f"{where} has the key {key!r}; keys must be text")
        return {str(key): _checked_json(item, f"{where}.{key}", depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_checked_json(item, f"{where}[{index}]", depth + 1) for index, item in enumerate(value)]
    raise UsageError(f"{where} is a {type(value).__name__}; allowed are text, numbers, booleans, None, lists, mappings")


def decode_policy(data: bytes, content_hash: str) -> _PolicyFile:
    """Returns what ``policy.json`` says.

    Raises:
        CorruptError: it is not what was written under ``content_hash``, or says what no policy may.
    """
    found = hashlib.sha256(data).hexdigest()
    if found != content_hash:
        raise CorruptError(f"its SHA-256 is {found}, not {content_hash}: it was changed or cut")
    policy = convert_record(_strict_json(data), "it does not describe a policy", _PolicyFile, error=CorruptError)
    if policy.format != FORMAT:
        raise CorruptError(f"its format is {policy.format!r}; this learnloop reads {FORMAT!r}")
    for name, tensor in policy.tensors.items():
        if len(name) > 200 or not _TENSOR_NAME.fullmatch(name) or len(tensor.shape) > _MAX_DIMENSIONS:
            raise CorruptError(f"it has a tensor {name[:200]!r} of shape {tensor.shape}, which no policy may have")
    return policy


def decode_weights(data: bytes, policy: _PolicyFile) -> dict[str, NDArray[Any]]:
    """Returns the tensors, read-only.

    Raises:
        CorruptError: bytes, names, shapes or types are not those that ``policy.json`` lists, or a value is not finite.
    """
    if len(data) != policy.weights.size:
        raise CorruptError(f"it has {len(data)} bytes, not {policy.weights.size}: it was cut or added to")
    if hashlib.sha256(data).hexdigest() != policy.weights.sha256:
        raise CorruptError(f"its SHA-256 is not {policy.weights.sha256}: it was changed")
    _check_layout(data, policy.tensors)
    tensors = load_tensors(data)
    for name, value in tensors.items():
        if value.dtype == np.bool_ and np.any(value.view(np.uint8) > 1):
            raise CorruptError(f"tensor {name!r} has booleans that are neither 0 nor 1")
        if not np.all(np.isfinite(value)):
            raise CorruptError(f"tensor {name!r} has values that are not finite")
        value.flags.writeable = False
    return tensors


def _check_layout(data: bytes, expected: Mapping[str, _Tensor]) -> None:
    """Returns if the header lists exactly the ``expected`` tensors, one after the other, up to the last byte."""
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > _MAX_HEADER_BYTES or 8 + length > len(data):
        raise CorruptError(f"its header does not fit in its {len(data)} bytes")
    what = "its header is not one of safetensors"
    header = convert_record(_strict_json(data[8 : 8 + length]), what, dict[str, _TensorHeader], error=CorruptError)
    if header.keys() != expected.keys():
        raise CorruptError(f"it has the tensors {one_of(sorted(header))}, not {one_of(sorted(expected))}")
    place = 0
    for name, entry in sorted(header.items(), key=lambda item: item[1].data_offsets):
        tensor = expected[name]
        if entry.dtype != _DTYPES[tensor.dtype] or entry.shape != tensor.shape:
            raise CorruptError(
                f"tensor {name!r} is {entry.dtype} {entry.shape}, not {_DTYPES[tensor.dtype]} {tensor.shape}"
            )
        if entry.data_offsets != (place, place + tensor.num_bytes):
            raise CorruptError(
                f"tensor {name!r} lies at {entry.data_offsets}, not at {(place, place + tensor.num_bytes)}"
            )
        place += tensor.num_bytes
    if 8 + length + place != len(data):
        raise CorruptError(f"it has {len(data) - 8 - length - place} bytes after its tensors")


def _strict_json(data: bytes) -> Any:
    """Returns the value of JSON text in which no key appears twice and no number is NaN or infinite.

    Raises:
        CorruptError: it is something else, or nested too deeply.
    """
    try:
        return json.loads(data.decode(), object_pairs_hook=_without_duplicates, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise CorruptError(f"it is not JSON that can be read: {type(error).__name__}: {str(error)[:200]}") from error


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key appears twice")
    return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")
