"""Names as they are given become plain text: each as it is written, and none is kept that is long."""

from __future__ import annotations

import tracemalloc
from enum import Enum
from typing import Any

import numpy as np
import pytest

from learnloop.core.errors import ActionError, ContextError
from learnloop.decisions.inputs import plain_actions, plain_context


class Color(str, Enum):  # noqa: UP042 - not written as it reads, which is the point
    RED = "red"


class Paint(str, Enum):  # noqa: UP042 - not written as it reads, which is the point
    RED = "red"


def test_names_that_are_equal_are_written_as_each_is() -> None:
    """Enums of text are equal to their text and to each other, and are written in ways of their own."""
    for name in (Color.RED, Paint.RED, np.str_("red"), "red"):
        assert plain_actions([name]) == [str(name)]
        assert plain_context({name: 1}) == {str(name): 1}
        assert {type(each) for each in (*plain_actions([name]), *plain_context({name: 1}))} == {str}
    assert plain_actions(("a\0b", "a" * 200)) == ["a\ufffdb", "a" * 200]


def test_long_names_are_not_kept() -> None:
    tracemalloc.start()
    for number in range(200):
        name = f"{number}" + "x" * 100_000
        plain_actions([name])
        plain_context({name: 1})
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 1_000_000  # all of them are 20 MB


@pytest.mark.parametrize("actions", [[1], [None], [b"a"], {"a": 1}, {"a"}, "ab", 3, [["a"]]])
def test_what_cannot_name_an_action_is_refused(actions: Any) -> None:
    with pytest.raises(ActionError):
        plain_actions(actions)


@pytest.mark.parametrize("context", [{1: 1}, {None: 1}, ["a"], {"a": object()}])
def test_what_is_no_context_is_refused(context: Any) -> None:
    with pytest.raises(ContextError):
        plain_context(context)
