"""JSON as it is read: strict, no deeper than 32, each key once; checked against Python's own parser."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learnloop.serve.http.json_bodies import MAX_DEPTH, check_json, decode_json
from learnloop.serve.http.problems import Problem
from tests.serve.http.probes import Thing
from tests.waiting import costs_at_most

TEXTS = st.text(alphabet=st.sampled_from(list('ab"\\[]{}:, \n\té\u2028')), max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=20,
)


def refusal(data: bytes) -> int | None:
    """Returns the status with which ``data`` is refused as plain JSON; None where it is taken."""
    try:
        decode_json(data, Any)  # type: ignore[arg-type]
    except Problem as problem:
        return problem.status
    return None


class Twice(Exception):
    pass


def has_key_twice(data: bytes) -> bool:
    def build(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) != len(pairs):
            raise Twice
        return dict(pairs)

    try:
        json.loads(data, object_pairs_hook=build)
    except Twice:
        return True
    return False


@given(VALUES, st.booleans())
@settings(max_examples=300, deadline=None)
def test_any_json_is_taken(value: Any, ascii_only: bool) -> None:
    check_json(json.dumps(value, ensure_ascii=ascii_only).encode())


@given(st.lists(st.tuples(TEXTS, VALUES), max_size=6), st.integers(0, 40))
@settings(max_examples=300, deadline=None)
def test_a_key_twice_is_refused_and_nothing_else(pairs: list[tuple[str, Any]], padding: int) -> None:
    """The padding takes the check past its shortcut for few keys."""
    members = [f"{json.dumps(key)} : {json.dumps(value)}" for key, value in pairs]
    members += [f'"pad{number}": {{"same": "x:y", "n": [1]}}' for number in range(padding)]
    data = ("{" + ",".join(members) + "}").encode()
    assert (refusal(data) == 400) is has_key_twice(data)


@pytest.mark.parametrize(
    "data", ['{"a":1,"a":2}', '[{"a":1},{"b":{"c":1,"c":1}}]', r'{"a":1,"\u0061":2}', '{"":1,"":2}']
)
def test_keys_twice(data: str) -> None:
    assert refusal(data.encode()) == 400


@pytest.mark.parametrize("depth", [1, MAX_DEPTH, MAX_DEPTH + 1, 10_000, 4_000_000])
@pytest.mark.parametrize("pair", ["[]", "{}"])
def test_depth(depth: int, pair: str) -> None:
    opening, closing, core = ("[", "]", "1") if pair == "[]" else ('{"a":', "}", "1")
    data = (opening * depth + core + closing * depth).encode()
    with costs_at_most(1):
        assert (refusal(data) is None) is (depth <= MAX_DEPTH)


def test_depth_is_not_what_lies_in_texts_or_side_by_side() -> None:
    assert refusal(json.dumps(["[" * 500, '"[{\\' * 100]).encode()) is None
    assert refusal(json.dumps([[{}]] * 10_000).encode()) is None
    assert refusal(b"[" * 40) == 400
    assert refusal(b"]" * 40 + b"[" * 40) == 400


@pytest.mark.parametrize(
    "data",
    [
        b"", b" ", b"{", b"[1,]", b"NaN", b"Infinity", b'"\xff"', b'"\xed\xa0\x80"', b'{"a":1}{', b"\xef\xbb\xbf{}",
        b"'a'", b"{a:1}", b'"\x00"', b"01", b"\x00",
    ],
)  # fmt: skip
def test_what_is_no_json(data: bytes) -> None:
    assert refusal(data) == 400


@pytest.mark.parametrize(
    ("data", "pointer"),
    [
        ('{"value": 1}', "$"),
        ('{"name": 1}', "$.name"),
        ('{"name": "a", "value": true}', "$.value"),
        ('{"name": "a", "value": "1"}', "$.value"),
        ('{"name": "a", "value": null}', "$.value"),
        ('{"name": "a", "other": 1}', "$"),
        ("[]", "$"),
        ('{"name": "a", "value": 1e999}', "$.value"),
    ],
)
def test_what_does_not_fit_names_the_place(data: str, pointer: str) -> None:
    with pytest.raises(Problem) as raised:
        decode_json(data.encode(), Thing)
    assert raised.value.status == 422
    assert [error.pointer for error in raised.value.errors] == [pointer]
    assert raised.value.errors[0].detail


def test_edges_that_are_numbers() -> None:
    assert decode_json(b'{"name": "a", "value": 1e308}', Thing).value == 1e308
    assert str(decode_json(b'{"name": "a", "value": -0.0}', Thing).value) == "-0.0"
    assert decode_json(b'{"name": "a", "parts": [9223372036854775808]}', Thing).parts == [2**63]


@pytest.mark.parametrize(
    "data",
    [
        b'{"name":"a","parts":[' + b"0.5," * 1_000_000 + b"1]}",
        b"[" + b'{"a":1},' * 1_000_000 + b"1]",
        b"[" * 8_000_000,
        (b"[" * 31 + b"]" * 31 + b",") * 120_000,
        b'"' + b"\\u0041" * 1_300_000 + b'"',
        b'"' + b'\\"' * 4_000_000 + b'"',
        b'{"a":' * 1_600_000,
    ],
    ids=["numbers", "objects", "open", "deep", "escapes", "quotes", "keys"],
)
def test_eight_megabytes_cost_under_a_second(data: bytes) -> None:
    with costs_at_most(1):
        refusal(data)
