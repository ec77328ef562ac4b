"""Encoding and reading of the two files: what comes back is what went in, and nothing else is accepted."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Callable, Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from safetensors.numpy import save

from learnloop.core.errors import CorruptError, UsageError
from learnloop.core.protocols import PolicyArtifact
from learnloop.registry.artifacts import ArtifactFiles, decode_policy, decode_weights, encode_artifact

GOOD = {"b": np.zeros(4, dtype=np.float32), "w": np.zeros((4, 4), dtype=np.float32)}


def read(files: ArtifactFiles) -> PolicyArtifact:
    policy = decode_policy(files.policy, files.content_hash)
    return PolicyArtifact(policy.algorithm, policy.config, decode_weights(files.weights, policy))


def with_weights(weights: bytes, tensors: Mapping[str, tuple[str, list[int]]]) -> ArtifactFiles:
    """A version whose checksums all fit: only the structure can be wrong."""
    policy = {
        "format": "learnloop.policy/v1",
        "algorithm": "x",
        "config": {},
        "tensors": {name: {"dtype": dtype, "shape": shape} for name, (dtype, shape) in tensors.items()},
        "weights": {"sha256": hashlib.sha256(weights).hexdigest(), "size": len(weights)},
    }
    return ArtifactFiles(json.dumps(policy).encode(), weights)


def test_round_trip(make_artifact: Callable[..., PolicyArtifact]) -> None:
    artifact = make_artifact()
    back = read(encode_artifact(artifact))
    assert (back.algorithm, back.config) == (artifact.algorithm, artifact.config)
    assert set(back.tensors) == set(artifact.tensors)
    for name, value in artifact.tensors.items():
        assert (back.tensors[name].dtype, back.tensors[name].shape) == (value.dtype, value.shape)
        assert back.tensors[name].tobytes() == value.tobytes()  # the sign of -0.0 too
        assert not back.tensors[name].flags.writeable


@given(
    st.dictionaries(
        st.from_regex(r"[a-z][a-z0-9_.]{0,8}[a-z]", fullmatch=True).filter(lambda name: ".." not in name),
        st.one_of(
            arrays.arrays(np.float64, arrays.array_shapes(min_dims=0, max_side=4), elements=st.floats(-1e300, 1e300)),
            arrays.arrays(np.int64, arrays.array_shapes(min_dims=0, max_side=4)),
            arrays.arrays(np.bool_, arrays.array_shapes(max_side=4)),
        ),
        max_size=4,
    )
)
def test_any_finite_tensors_come_back(tensors: dict[str, np.ndarray]) -> None:
    tensors = {name.replace("_.", "_").replace("._", "_"): value for name, value in tensors.items()}
    back = read(encode_artifact(PolicyArtifact("x", {}, tensors)))
    assert {name: value.tobytes() for name, value in back.tensors.items()} == {
        name: value.tobytes() for name, value in tensors.items()
    }


def test_same_artifact_same_hash_whatever_its_order_and_memory() -> None:
    matrix = np.arange(6, dtype=np.float64).reshape(2, 3)
    files = [
        encode_artifact(PolicyArtifact("x", config, tensors))
        for config, tensors in [
            ({"a": 1, "b": (1, 2)}, {"m": matrix, "k": np.ones(2)}),
            ({"b": [1, 2], "a": 1}, {"k": np.ones(2), "m": np.asfortranarray(matrix)}),
            ({"b": [1, 2], "a": 1}, {"k": np.ones(4)[::2], "m": matrix.astype(">f8")}),
        ]
    ]
    assert files[0] == files[1] == files[2]
    assert files[0].content_hash == hashlib.sha256(files[0].policy).hexdigest()
    assert encode_artifact(PolicyArtifact("x", {"a": 2}, {})).content_hash != files[0].content_hash


@pytest.mark.parametrize(
    "name",
    [
        "../../etc/passwd",
        "/etc/passwd",
        "a/b",
        "..",
        ".",
        "",
        "a..b",
        "-rf",
        "a\\b",
        "a\0b",
        "__metadata__",
        "x" * 201,
        "ä",
    ],
)
def test_names_like_paths_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match="cannot name a tensor"):
        encode_artifact(PolicyArtifact("x", {}, {name: np.zeros(1)}))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (np.array([1.0, math.nan]), "'w' has values that are not finite"),
        (np.array([math.inf], dtype=np.float32), "'w' has values that are not finite"),
        (np.zeros(2, dtype=np.float16), "'w' is of type float16"),
        (np.array([object()]), "'w' is of type object"),
        (np.zeros(2, dtype=complex), "'w' is of type complex128"),
        ([1.0], "'w' is of type list"),
        (np.zeros((2, 0)), "shape"),
        (np.zeros((1,) * 9), "up to 8 dimensions"),
    ],
)
def test_tensors_that_cannot_be_stored_are_refused(value: np.ndarray, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        encode_artifact(PolicyArtifact("x", {}, {"w": value}))


def nested(depth: int) -> dict[str, object]:
    return {"deeper": nested(depth - 1)} if depth else {}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"rate": math.nan}, "config.rate is nan"),
        ({"rates": [1.0, -math.inf]}, r"config.rates\[1\] is -inf"),
        ({"a": {1: 2}}, "config.a has the key 1"),
        ({"a": {"b": object()}}, "config.a.b is a object"),
        ({"a": np.zeros(2)}, "config.a is a ndarray"),
        (nested(40), "nested deeper than 32"),
        ([1], "config of a policy is a list"),
    ],
)
def test_configs_that_are_not_json_are_refused(config: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        encode_artifact(PolicyArtifact("x", config, {}))


def test_algorithm_must_be_a_name() -> None:
    with pytest.raises(UsageError, match="cannot name an algorithm"):
        encode_artifact(PolicyArtifact("../x", {}, {}))


# --- files whose checksums fit and whose structure does not ---


def header(content: object, data: bytes = b"", length: int | None = None) -> bytes:
    text = content if isinstance(content, bytes) else json.dumps(content).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(shape: list[int], begin: int, end: int, dtype: str = "F32") -> dict[str, object]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


WEIGHTS = save(GOOD)
ONE = {"a": ("float32", [1])}
TWO = {"a": ("float32", [1]), "b": ("float32", [1])}
LISTED = {"b": ("float32", [4]), "w": ("float32", [4, 4])}
TWICE = b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'

BAD: dict[str, tuple[bytes, Mapping[str, tuple[str, list[int]]]]] = {
    "empty": (b"", LISTED),
    "seven bytes": (b"1234567", LISTED),
    "last byte cut": (WEIGHTS[:-1], LISTED),
    "half": (WEIGHTS[: len(WEIGHTS) // 2], LISTED),
    "trailing byte": (WEIGHTS + b"x", LISTED),
    "header longer than the file": (header({"a": entry([1], 0, 4)}, bytes(4), 1 << 40), ONE),
    "header of 2^64 - 1 bytes": (header({"a": entry([1], 0, 4)}, bytes(4), 2**64 - 1), ONE),
    "header of 5 MiB": (header(b"{" + b" " * (5 << 20) + b"}"), {}),
    "no JSON": (header(b"{oops"), {}),
    "a list": (header(b"[]"), {}),
    "deep nesting": (header(b'{"__metadata__":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001), {}),
    "duplicate key": (header(TWICE, bytes(4)), ONE),
    "overlap": (header({"a": entry([1], 0, 4), "b": entry([1], 0, 4)}, bytes(4)), TWO),
    "hole": (header({"a": entry([1], 0, 4), "b": entry([1], 8, 12)}, bytes(12)), TWO),
    "shape larger than its bytes": (header({"a": entry([2], 0, 4)}, bytes(4)), {"a": ("float32", [2])}),
    "negative offset": (header({"a": entry([1], -4, 0)}, bytes(4)), ONE),
    "end before begin": (header({"a": entry([1], 4, 0)}, bytes(4)), ONE),
    "overflowing shape": (header({"a": entry([2**33, 2**33], 0, 4)}, bytes(4)), {"a": ("float32", [2**33, 2**33])}),
    "dimension of zero": (header({"a": entry([0], 0, 0)}), {"a": ("float32", [0])}),
    "negative dimensions": (header({"a": entry([-1, -1], 0, 4)}, bytes(4)), {"a": ("float32", [-1, -1])}),
    "unknown type": (header({"a": entry([1], 0, 4, "F99")}, bytes(4)), ONE),
    "type not allowed": (header({"a": entry([2], 0, 4, "F16")}, bytes(4)), {"a": ("float16", [2])}),
    "another type": (header({"a": entry([1], 0, 4, "I32")}, bytes(4)), ONE),
    "NaN": (save({"a": np.array([math.nan], dtype=np.float32)}), ONE),
    "infinity": (save({"a": np.array([math.inf], dtype=np.float32)}), ONE),
    "name like a path": (save({"../../etc/passwd": np.zeros(1, np.float32)}), {"../../etc/passwd": ("float32", [1])}),
    "another tensor": (save({"zzz": np.zeros(1, np.float32)}), ONE),
    "a tensor more": (save({"a": np.zeros(1, np.float32), "b": np.zeros(1, np.float32)}), ONE),
    "a tensor less": (save({"a": np.zeros(1, np.float32)}), TWO),
    "another shape": (save({"a": np.zeros(2, np.float32)}), ONE),
    "metadata": (save({"a": np.zeros(1, np.float32)}, {"k": "v"}), ONE),
    "boolean of 2": (header({"a": entry([1], 0, 1, "BOOL")}, b"\x02"), {"a": ("bool", [1])}),
    "unknown field": (header({"a": entry([1], 0, 4) | {"more": 1}}, bytes(4)), ONE),
    "NaN in JSON": (header(b'{"a":{"dtype":"F32","shape":[NaN],"data_offsets":[0,4]}}', bytes(4)), ONE),
    "not UTF-8": (header(b"\xff\xfe"), {}),
}


def test_the_good_file_is_read() -> None:
    back = read(with_weights(WEIGHTS, LISTED))
    assert {name: value.shape for name, value in back.tensors.items()} == {"b": (4,), "w": (4, 4)}


@pytest.mark.parametrize("fault", BAD)
def test_each_bad_weights_file_is_refused_though_its_checksums_fit(fault: str) -> None:
    weights, tensors = BAD[fault]
    with pytest.raises(CorruptError):
        read(with_weights(weights, tensors))


def test_a_flipped_bit_in_the_data_is_refused() -> None:
    files = with_weights(WEIGHTS, LISTED)
    flipped = WEIGHTS[:-3] + bytes([WEIGHTS[-3] ^ 0x40]) + WEIGHTS[-2:]
    with pytest.raises(CorruptError, match="SHA-256"):
        read(ArtifactFiles(files.policy, flipped))


GOOD_POLICY = with_weights(WEIGHTS, LISTED).policy


@pytest.mark.parametrize(
    "policy",
    [
        b"",
        b"null",
        b"[" * 100_000,
        GOOD_POLICY[:-1],
        GOOD_POLICY + b"{}",
        GOOD_POLICY.replace(b"policy/v1", b"policy/v2"),
        GOOD_POLICY.replace(b'"algorithm": "x"', b'"algorithm": 1'),
        GOOD_POLICY.replace(b'"algorithm": "x"', b'"algorithm": "x", "algorithm": "y"'),
        GOOD_POLICY.replace(b'"config": {}', b'"config": {"a": Infinity}'),
        GOOD_POLICY.replace(b'"config": {}', b'"config": {"a": ' + b"9" * 5000 + b"}"),
        GOOD_POLICY.replace(b'"config": {}', b'"config": []'),
        GOOD_POLICY.replace(b'"config": {}', b'"config": {}, "more": 1'),
        GOOD_POLICY.replace(b'"float32"', b'"object"'),
        GOOD_POLICY.replace(b"[4, 4]", b"[4, true]"),
    ],
    ids=range(14),
)
def test_each_bad_policy_file_is_refused_though_its_hash_fits(policy: bytes) -> None:
    assert policy != GOOD_POLICY
    with pytest.raises(CorruptError):
        read(ArtifactFiles(policy, WEIGHTS))
