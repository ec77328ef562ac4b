"""learnloop.traces.values: JSON of bounded size, whatever comes."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop.traces.values import MAX_ITEMS, MAX_TEXT, plain

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
