"""learnloop.traces.json_values: what others wrote is taken where it is what is expected."""

from __future__ import annotations

from typing import Any

import pytest

from learnloop.traces.json_values import (
    anthropic_usage,
    find,
    known_integer,
    known_list,
    known_text,
    present,
    token_usage,
)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ({"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}, (3, 2, None, None)),
        ({"prompt_tokens": 7, "completion_tokens": 3, "input_tokens": 0, "output_tokens": 0}, (7, 3, None, None)),
        ({"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 1}}, (3, None, 1, None)),
        ({"input_tokens": 3, "input_tokens_details": {"cached_tokens": 0}}, (3, None, 0, None)),
        ({"output_tokens": 9, "output_tokens_details": {"reasoning_tokens": 4}}, (None, 9, None, 4)),
        ({"input_tokens": 1, "input_token_details": {"cache_read": 1}}, (1, None, 1, None)),
        ({"input_tokens": True, "output_tokens": -1, "reasoning_tokens": "4"}, None),
        ({}, None),
        (None, None),
        ([1], None),
    ],
)
def test_token_usage_in_the_words_of_each_api(raw: Any, expected: tuple[int | None, ...] | None) -> None:
    names = ("input_tokens", "output_tokens", "cached_input_tokens", "reasoning_tokens")
    assert token_usage(raw) == (None if expected is None else present(dict(zip(names, expected, strict=True))))


def test_of_anthropic_the_cache_is_part_of_the_input() -> None:
    raw = {"input_tokens": 5, "cache_read_input_tokens": 7, "cache_creation_input_tokens": 2, "output_tokens": 1}
    assert anthropic_usage(raw) == {
        "input_tokens": 14, "output_tokens": 1, "cached_input_tokens": 7, "cache_write_input_tokens": 2
    }  # fmt: skip
    assert anthropic_usage({"output_tokens": 1}) == {"output_tokens": 1}
    assert anthropic_usage("x") is None


def test_what_is_not_what_is_expected_is_not_known() -> None:
    value = {"a": {"b": [1]}}
    assert find(value, "a", "b") == [1]
    assert [find(value, "a", "c"), find(value, "a", "b", "c"), find(None, "a")] == [None, None, None]
    assert [known_integer(each) for each in (1, True, 1.0, "1")] == [1, None, None, None]
    assert [known_text(each) for each in ("x", "", 1)] == ["x", None, None]
    assert [list(known_list(each)) for each in ([1], (1,), "x", None)] == [[1], [1], [], []]
