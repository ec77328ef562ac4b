"""Observations as vectors: each space against hand computation, batches against single ones, wrong input by name."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from learnloop.core.errors import ContextError
from learnloop.core.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, ObservationSpace, Text, Tuple
from learnloop.nn.encoders.observation_encoder import ObservationEncoder


def box(*shape: int) -> Box:
    size = int(np.prod(shape))
    return Box(shape=shape, low=(None,) * size, high=(None,) * size)


MIXED = Dict(
    spaces={
        "where": Discrete(n=3, start=-1),
        "image": box(2, 2),
        "note": Text(num_buckets=16),
        "parts": Tuple(spaces=(MultiDiscrete(nvec=(2, 3)), MultiBinary(n=2))),
    }
)


@pytest.mark.parametrize(
    ("space", "observation", "wanted"),
    [
        (box(3), np.array([1.5, -2.0, 0.0]), [1.5, -2, 0]),
        (box(3), [1, 2.5, True], [1, 2.5, 1]),
        (box(2, 2), np.array([[1, 2], [3, 4]], dtype=np.uint8), [1, 2, 3, 4]),
        (box(), 0.25, [0.25]),
        (Discrete(n=3), 2, [0, 0, 1]),
        (Discrete(n=3, start=-1), np.int64(-1), [1, 0, 0]),
        (Discrete(n=2), np.array(1), [0, 1]),
        (MultiDiscrete(nvec=(2, 3)), np.array([1, 0]), [0, 1, 1, 0, 0]),
        (MultiBinary(n=3), np.array([1, 0, 1], dtype=np.int8), [1, 0, 1]),
        (Tuple(spaces=(Discrete(n=2), box(1))), (1, np.array([7.0])), [0, 1, 7]),
        (Dict(spaces={"b": box(1), "a": Discrete(n=2)}), {"b": [5.0], "a": 0}, [1, 0, 5]),
    ],
)
def test_layout(space: ObservationSpace, observation: Any, wanted: list[float]) -> None:
    encoder = ObservationEncoder(space)
    vector = encoder.encode(observation)
    assert vector.dtype == np.float32
    assert encoder.size == len(wanted)
    assert vector.tolist() == wanted


def mixed(where: int, number: float, note: str, parts: tuple[list[int], list[int]]) -> dict[str, Any]:
    return {
        "where": where,
        "image": np.full((2, 2), number, dtype=np.float32),
        "note": note,
        "parts": (np.array(parts[0]), np.array(parts[1], dtype=np.int8)),
    }


rows = st.tuples(
    st.integers(-1, 1),
    st.floats(-1e6, 1e6, width=32),
    st.text(max_size=12),
    st.tuples(
        st.tuples(st.integers(0, 1), st.integers(0, 2)).map(list), st.lists(st.integers(0, 1), min_size=2, max_size=2)
    ),
)


@given(st.lists(rows, min_size=1, max_size=5))
def test_a_batch_is_its_rows(values: list[Any]) -> None:
    encoder = ObservationEncoder(MIXED)
    singles = [mixed(*value) for value in values]
    batch = {
        "where": np.array([each["where"] for each in singles]),
        "image": np.stack([each["image"] for each in singles]),
        "note": tuple(each["note"] for each in singles),
        "parts": tuple(np.stack([each["parts"][place] for each in singles]) for place in range(2)),
    }
    out = np.full((len(values), encoder.size), 9.0, dtype=np.float32)  # what lay there must not show through
    encoded = encoder.encode_batch(batch, len(values), out=out)
    assert encoded is out
    listed = np.full_like(out, -9.0)
    encoder.encode_list(singles, listed)
    for row, single in enumerate(singles):
        np.testing.assert_array_equal(encoded[row], encoder.encode(single))
        np.testing.assert_array_equal(listed[row], encoded[row])


@given(hnp.arrays(np.float32, (3, 4), elements=st.floats(width=32, allow_nan=True, allow_infinity=True)))
def test_batches_with_a_number_that_is_not_finite_are_found_and_no_others(values: np.ndarray) -> None:
    encoder = ObservationEncoder(box(4))
    if np.isfinite(values).all():
        np.testing.assert_array_equal(encoder.encode_batch(values, 3), values)
    else:
        row, column = np.argwhere(~np.isfinite(values))[0]
        with pytest.raises(ContextError, match=rf"observation \(row {row}\) holds \S+ at index {column}"):
            encoder.encode_batch(values, 3)


def test_the_largest_finite_numbers_are_kept() -> None:
    """A sum or a product of such numbers overflows; the check may not mistake that for infinity."""
    largest = float(np.finfo(np.float32).max)
    values = np.full((2, 3), largest, dtype=np.float32)
    np.testing.assert_array_equal(ObservationEncoder(box(3)).encode_batch(values, 2), values)


def test_numbers_too_large_for_32_bits_are_refused_whatever_warnings_do() -> None:
    encoder = ObservationEncoder(box(2))
    for action in ("ignore", "error"):
        with warnings.catch_warnings():
            warnings.simplefilter(action)  # type: ignore[arg-type]
            for value in (np.array([1e39, 0.0]), np.array([np.inf, 0.0], dtype=np.float32), [np.nan, 1.0]):
                with pytest.raises(ContextError, match="finite"):
                    encoder.encode(value)


def test_texts() -> None:
    encoder = ObservationEncoder(Text(num_buckets=64))
    cat, cats, bird = (encoder.encode(text) for text in ("The cat sleeps", "the CATS sleep ", "9 + 9 = 18"))
    assert np.linalg.norm(cat) == pytest.approx(1.0)
    assert np.linalg.norm(bird) == pytest.approx(1.0)
    assert cat @ cats > 0.5 > abs(float(cat @ bird))  # parts of words are shared, anagrams are not
    assert not np.array_equal(encoder.encode("act"), encoder.encode("cat"))
    assert encoder.encode("").tolist() == [0.0] * 64
    assert encoder.encode("\ud800 x").any()
    again = encoder.encode("The cat sleeps")
    np.testing.assert_array_equal(cat, again)


def test_text_columns_by_hand() -> None:
    import zlib

    wanted = np.zeros(8)
    for part in ("hi", " hi", "hi "):
        digest = zlib.crc32(part.encode())
        wanted[(digest >> 1) % 8] += 1 if digest & 1 else -1
    wanted /= np.sqrt((wanted**2).sum())
    np.testing.assert_allclose(ObservationEncoder(Text(num_buckets=8)).encode("Hi"), wanted, rtol=1e-6)


@pytest.mark.parametrize(
    ("space", "observation", "message"),
    [
        (box(3), np.zeros(4), r"observation is array.*of shape \(3,\), not \(4,\)"),
        (box(3), np.zeros((1, 3), dtype=np.float32), r"not \(1, 3\)"),
        (box(3), "abc", "observation is 'abc'; an array of numbers"),
        (box(2), [[1, 2], [3]], "an array of numbers"),
        (box(2), [None, 1], "an array of numbers"),
        (box(2), None, "observation is None"),
        (box(1), np.array([1j]), "an array of numbers"),
        (Discrete(n=3, start=5), 4, "observation is 4; a whole number from 5 to 7"),
        (Discrete(n=3), 1.0, "observation is 1.0; a whole number from 0 to 2"),
        (Discrete(n=3), np.array([1, 2]), "a whole number"),
        (MultiDiscrete(nvec=(2, 3)), [1, 3], r"observation is \[1, 3\]; 2 whole numbers.*below \[2, 3\]"),
        (MultiDiscrete(nvec=(2, 3)), [1], "2 whole numbers"),
        (MultiBinary(n=2), [1, 2], "2 zeros and ones"),
        (MultiBinary(n=2), [1, 0, 1], "2 zeros and ones"),
        (Text(), 7, "observation is 7; text is needed"),
        (MIXED, mixed(2, 0.0, "", ([0, 0], [0, 0])), r"observation\['where'\] is 2; a whole number from -1 to 1"),
        (MIXED, mixed(0, 0.0, "", ([0, 3], [0, 0])), r"observation\['parts'\]\[0\]"),
        (MIXED, mixed(0, np.nan, "", ([0, 0], [0, 0])), r"observation\['image'\] holds nan at index 0"),
        (MIXED, {"where": 0}, "observation lacks 'image', 'note', 'parts'; it has 'where'"),
        (MIXED, {**mixed(0, 0.0, "", ([0, 0], [0, 0])), "extra": 1}, "unknown entries 'extra'; allowed are"),
        (MIXED, [1, 2], "a mapping with"),
        (Tuple(spaces=(Discrete(n=2),)), (0, 1), "a tuple of 1"),
    ],
)
def test_wrong_observations_are_named(space: ObservationSpace, observation: Any, message: str) -> None:
    with pytest.raises(ContextError, match=message):
        ObservationEncoder(space).encode(observation)


@pytest.mark.parametrize(
    ("space", "observations", "message"),
    [
        (box(3), np.zeros((3, 3)), r"2 times an array of numbers of shape \(3,\), not \(3, 3\)"),
        (Discrete(n=2), np.array([0, 5]), r"observation is \[?5\]?; a whole number"),
        (Discrete(n=2), np.array([0]), "for each of 2 rows"),
        (MultiDiscrete(nvec=(2, 2)), np.array([[0, 1], [0, 2]]), r"\[0, 2\]"),
        (MultiBinary(n=1), np.array(1), "for each of 2 rows"),
        (Text(), ("one",), "a sequence of 2 texts"),
        (Text(), "ab", "a sequence of 2 texts"),
    ],
)
def test_wrong_batches_are_named(space: ObservationSpace, observations: Any, message: str) -> None:
    with pytest.raises(ContextError, match=message):
        ObservationEncoder(space).encode_batch(observations, 2)


def test_no_gymnasium_is_loaded() -> None:
    import subprocess
    import sys

    code = "import sys, learnloop.nn.encoders.observation_encoder; raise SystemExit('gymnasium' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
