"""NAME=VALUE: texts, numbers, JSON values; what is written otherwise is refused by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from learnloop.cli.assignments import numbers_by_name, texts_by_name, values_by_name
from learnloop.core.errors import UsageError


def test_values_are_json_or_texts() -> None:
    found = values_by_name(("a=1", "b=lin_0.1", "c=[64,64]", 'd={"type":"linear"}', "e=True", "f=None", "g=x=y", "h="))
    assert found == {
        "a": 1,
        "b": "lin_0.1",
        "c": [64, 64],
        "d": {"type": "linear"},
        "e": True,
        "f": None,
        "g": "x=y",
        "h": "",
    }


def test_numbers() -> None:
    assert numbers_by_name(("click=1", "minutes=-0.3"), "PART=VALUE", "click=1") == {"click": 1.0, "minutes": -0.3}
    assert numbers_by_name(("a=b=1",), "PART=VALUE", "click=1") == {"a=b": 1.0}  # a number has no =
    with pytest.raises(UsageError, match="'few' is not a number"):
        numbers_by_name(("click=few",), "PART=VALUE", "click=1")


@pytest.mark.parametrize("given", [("=1",), ("a",), ("",), ("a=1", "a=2")])
@pytest.mark.parametrize("read", [texts_by_name, numbers_by_name])
def test_what_is_written_otherwise_is_refused(
    read: Callable[[Iterable[str], str, str], object], given: tuple[str, ...]
) -> None:
    with pytest.raises(UsageError, match="--set"):
        read(given, "--set", "a=1")
