"""Comparisons of answers: what is right, what is several answers, and that hostile texts take no time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop.core.answers import contains, exact_match, is_number, numeric, to_number
from tests.waiting import costs_at_most


@pytest.mark.parametrize(
    ("answer", "target", "right"),
    [
        ("2 and 2 make 4", 4, True),
        ("about 1,000.0 kg", "1000", True),
        ("-1.5e3", -1500, True),
        ("4 or 5", 5, False),
        ("3, 4, 5", 5, False),
        ("3 / 5", 5, False),
        ("four", 4, False),
        ("", 4, False),
        ("9" * 500, "9" * 500, False),
    ],
)
def test_numeric(answer: str, target: str | float, right: bool) -> None:
    """A number at the end of a list of them is one of several answers, which is none (H2: "A or B or C")."""
    assert numeric(answer, target) is right


def test_texts() -> None:
    assert exact_match(" Paris\n", "Paris")
    assert not exact_match("Paris.", "Paris")
    assert contains("It is PARIS.", "paris")
    assert is_number(" 1,000 ")
    assert to_number("1e999") is None


@given(st.floats(-1e9, 1e9, allow_nan=False))
def test_a_number_is_itself(value: float) -> None:
    assert numeric(f"it is {value!r}", value)


@pytest.mark.parametrize("piece", ["9", "1,", "-", "1 or ", "1e", ", ", "."])
def test_hostile_texts_take_no_time(piece: str) -> None:
    with costs_at_most(5):
        numeric(piece * (1_000_000 // len(piece)), 3)


def test_a_comma_parts_thousands_or_numbers() -> None:
    assert numeric("It costs 1,234,567.", 1234567)
    assert not numeric("4,5", 45)
    assert not numeric("4,5", 5)
