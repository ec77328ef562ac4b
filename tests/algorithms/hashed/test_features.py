"""Features of contexts and actions, and their hashes."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop.algorithms.hashed.features import (
    ACTION,
    CONTEXT,
    MAX_DEPTH,
    MAX_FEATURES,
    MAX_NAME_LENGTH,
    feature_hash,
    features_of_action,
    flatten,
    pair_indices,
    vector_of,
)
from learnloop.core.errors import ContextError
from learnloop.core.protocols import Question


def test_flatten_names_nested_values_by_dotted_paths() -> None:
    features = flatten(
        {
            "user": {"age": 30, "vip": True, "city": "Ulm", "gone": None},
            "tags": ["x", "y", "x"],
            "sizes": [1, 2.5],
            "contextFeatures": [{"a": 1}, {"a": 2, "b": "t"}],
            "off": np.bool_(False),
            "f": np.float32(0.5),
        },
        CONTEXT,
    )

    assert features.numbers == {
        "c:user.age": 30.0,
        "c:sizes[0]": 1.0,
        "c:sizes[1]": 2.5,
        "c:contextFeatures.a": 3.0,
        "c:f": 0.5,
    }
    assert list(features.indicators) == [
        "c:user.vip=true",
        "c:user.city=Ulm",
        "c:tags=x",
        "c:tags=y",
        "c:contextFeatures.b=t",
        "c:off=false",
    ]


def test_ignored_paths_are_left_out_with_all_below() -> None:
    features = flatten({"user": {"id": 1, "age": 2}, "x": {"y": 1}}, ACTION, frozenset({"user.id", "x"}))

    assert features.numbers == {"a:user.age": 2.0}


def deep(levels: int, *, lists: bool) -> object:
    value: object = 1
    for _ in range(levels):
        value = [value, "t"] if lists else {"k": value}
    return value


@pytest.mark.parametrize(
    ("features", "named"),
    [
        ({"x": float("nan")}, "'x' is nan"),
        ({"x": {"y": [1.0, float("inf")]}}, r"x.y\[1\]"),
        ({"x": 10**400}, "'x' is inf"),
        ({"x": 1j}, "complex"),
        ({"x": b"raw"}, "bytes"),
        ({1: 2}, "1 cannot name"),
        ({"x": "t" * MAX_NAME_LENGTH}, str(MAX_NAME_LENGTH)),
        ({"n" * MAX_NAME_LENGTH: 1.0}, str(MAX_NAME_LENGTH)),
        ({f"f{i}": 1.0 for i in range(MAX_FEATURES + 1)}, str(MAX_FEATURES)),
        ({"x": [1.0] * (MAX_FEATURES + 1)}, "Give a vector"),
        ({"x": deep(MAX_DEPTH + 5, lists=False)}, "levels deep"),
        ({"x": deep(MAX_DEPTH + 5, lists=True)}, "levels deep"),
    ],
)
def test_flatten_refuses_what_cannot_be_a_feature(features: dict[str, object], named: str) -> None:
    with pytest.raises(ContextError, match=named):
        flatten(features, CONTEXT)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=3), JSON, max_size=4))
def test_any_json_is_read_or_refused(features: dict[str, object]) -> None:
    try:
        found = flatten(features, CONTEXT)
    except ContextError:
        return
    for name in [*found.numbers, *found.indicators]:
        assert name.startswith("c:")
        assert 0 <= feature_hash(name) < 2**64
    assert np.isfinite(list(found.numbers.values())).all()


def test_hashes_are_the_same_in_another_process() -> None:
    call = "sys.stdout.write(str(feature_hash('c:ü=1')))"
    code = f"import sys; from learnloop.algorithms.hashed.features import feature_hash; {call}"
    other = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "7"}
    )

    assert int(other.stdout) == feature_hash("c:ü=1")


def test_pairs_are_spread_over_all_weights() -> None:
    left = np.array([feature_hash(f"c:{i}") for i in range(200)], dtype=np.uint64)
    right = np.array([feature_hash(f"a:{i}") for i in range(200)], dtype=np.uint64)

    counts = np.bincount(pair_indices(left[:, None], right, 8).ravel(), minlength=256)

    statistic = np.sum((counts - 40_000 / 256) ** 2) / (40_000 / 256)  # chi square with 255 degrees of freedom
    assert 150 < statistic < 380


def test_vectors_and_action_features_are_checked() -> None:
    names = Question({}, [{}, {"a": 1}])
    assert features_of_action(names, 1, 2) == {"a": 1}
    assert features_of_action({"a": 1}, 0, 2) == {}
    assert vector_of({"a": 1}) is None
    with pytest.raises(ContextError, match="2 action_features for 3"):
        features_of_action(names, 0, 3)
    large = np.full(8, 3e38, dtype=np.float32)  # its square is not finite, it is
    assert vector_of(Question({}, None, large)) is large
    for wrong in (np.zeros(0), np.zeros((2, 2)), np.array([1.0, np.nan]), np.array([np.inf])):
        with pytest.raises(ContextError, match="vector"):
            vector_of(Question({}, None, wrong.astype(np.float32)))
