"""Checks of values: what passes, and what each error names."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from learnloop.core.checks import check_choice, check_number, check_range, check_whole, is_number
from learnloop.core.errors import RewardError, UsageError


def test_what_lies_where_it_may_passes() -> None:
    check_range("x", 0, 0, 1)
    check_range("x", 1.0, 0, 1)
    check_range("x", 0.5, above=0, below=1)
    check_range("x", math.inf, 1)
    assert check_whole("x", np.int64(3), 3, 3) == 3
    assert check_whole("x", -5, None) == -5
    assert check_number("x", np.float32(0.5), 0, 1) == 0.5
    assert check_number("x", 10**6) == 1e6
    assert check_choice("x", "a", ("a", "b")) == "a"


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (lambda: check_range("x", 2, 0, 1), "x is 2; allowed is from 0 to 1"),
        (lambda: check_range("x", math.nan, 0, 1), "x is nan; allowed is from 0 to 1"),
        (lambda: check_range("x", 0, 1), "x is 0; allowed is from 1"),
        (lambda: check_range("x", 0, 1, 1_000), "x is 0; allowed is from 1 to 1,000"),
        (lambda: check_range("x", 0, above=0, below=1), "x is 0; allowed is above 0 and below 1"),
        (lambda: check_range("x", 1, above=0, below=1), "x is 1; allowed is above 0 and below 1"),
        (lambda: check_range("x", 1.5, above=0, high=0.5), "x is 1.5; allowed is above 0 and up to 0.5"),
        (lambda: check_whole("x", 0), "x is 0; a whole number from 1 is needed"),
        (lambda: check_whole("x", True), "x is True; a whole number from 1 is needed"),
        (lambda: check_whole("x", 2.0, 1, 9), "x is 2.0; a whole number from 1 to 9 is needed"),
        (lambda: check_whole("x", "5", None), "x is '5'; a whole number is needed"),
        (lambda: check_number("x", None), "x is None; a finite number is needed"),
        (lambda: check_number("x", math.inf), "x is inf; a finite number is needed"),
        (lambda: check_number("x", False, 0), "x is False; a number from 0 is needed"),
        (lambda: check_number("x", 0.1, high=0), "x is 0.1; a number up to 0 is needed"),
        (lambda: check_number("x", 0, above=0), "x is 0; a number above 0 is needed"),
        (lambda: check_choice("x", "c", ("a", "b")), "x is 'c'; allowed are 'a', 'b'"),
    ],
)
def test_what_does_not_is_named_with_what_is_allowed(check: Callable[[], object], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        check()
    assert str(caught.value) == message


def test_the_error_is_the_caller_s() -> None:
    with pytest.raises(RewardError, match="x is 2"):
        check_number("x", 2, 0, 1, error=RewardError)
    with pytest.raises(RewardError, match="x is 2"):
        check_range("x", 2, 0, 1, error=RewardError)


@pytest.mark.parametrize("value", [None, "1", True, np.True_, math.nan, -math.inf, 1j, [1.0]])
def test_what_is_no_number(value: object) -> None:
    assert not is_number(value)
