"""learnloop.traces.recording.values: JSON of bounded size, whatever comes."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from fractions import Fraction
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop.decisions import Choice
from learnloop.traces.recording.values import MAX_CHARACTERS, MAX_ITEMS, MAX_TEXT, plain


class Color(StrEnum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


@dataclass
class Point:
    x: int
    y: list[int]


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(JSON)
def test_json_that_is_small_stays_what_it_is(value: Any) -> None:
    if _depth(value) < 8:
        assert plain(value) == value


@given(st.recursive(st.integers() | st.floats() | st.binary() | st.complex_numbers(), lambda inner: st.lists(inner)))
def test_anything_becomes_json(value: Any) -> None:
    assert msgspec.json.decode(msgspec.json.encode(plain(value))) is not None


def test_long_text_is_cut_and_the_cut_is_said() -> None:
    cut = plain("x" * (MAX_TEXT + 5))
    assert cut == "x" * MAX_TEXT + f"... [{MAX_TEXT + 5} characters]"


def test_long_collections_are_cut() -> None:
    assert plain(list(range(MAX_ITEMS + 1)))[-1] == f"... [{MAX_ITEMS + 1} items]"
    cut = plain({str(i): i for i in range(MAX_ITEMS + 2)})
    assert len(cut) == MAX_ITEMS + 1
    assert cut["..."] == f"[{MAX_ITEMS + 2} items]"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float64(0.5), 0.5),
        (np.int64(3), 3),
        (Color.RED, "red"),
        (Level.HIGH, 3),
        (Choice("gzip"), "gzip"),
        (Point(1, [2]), {"x": 1, "y": [2]}),
        ({1: "a", "1": "b"}, {"1": "a", "1 (str)": "b"}),
        (Fraction(1, 4), 0.25),
    ],
)
def test_what_is_nearly_json_becomes_json(value: Any, expected: Any) -> None:
    found = plain(value)
    assert found == expected
    assert msgspec.json.decode(msgspec.json.encode(found)) == expected


@pytest.mark.parametrize(
    "value",
    [
        [[[1, 2, 3]] * 1000] * 1000,
        {"k" * 10_000_000: 1},
        b"x" * 50_000_000,
        Point(0, list(range(1_000_000))),
        10**100_000,
        ["y" * 60_000] * 1000,
    ],
    ids=["nested", "key", "bytes", "dataclass", "integer", "texts"],
)
def test_what_is_large_is_cut(value: Any) -> None:
    """In all, not only level by level: a whole value costs the agent little, however it is built."""
    assert len(msgspec.json.encode(plain(value))) < 2 * MAX_CHARACTERS


def test_a_cycle_ends() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    assert "deeper than" in str(plain(cycle))


@pytest.mark.parametrize(("value", "expected"), [(float("nan"), "nan"), (float("inf"), "inf"), (2**70, str(2**70))])
def test_numbers_that_json_lacks_become_text(value: float, expected: str) -> None:
    assert plain(value) == expected


def _depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(_depth, value.values()), default=0)
    return 1 + max(map(_depth, value), default=0) if isinstance(value, list) else 0


def test_schemas_of_tools_are_kept_whole() -> None:
    schema: dict[str, object] = {"type": "string", "enum": ["deep"]}
    for _ in range(6):
        schema = {"type": "object", "properties": {"inner": schema}}
    tools = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
    assert plain(tools) == tools
