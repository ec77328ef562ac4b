"""Untrusted JSON becomes records, or one error that says what and why."""

from __future__ import annotations

import msgspec
import pytest

from learnloop.core.checks import check_range
from learnloop.core.decoding import convert_record, decode_json, json_or
from learnloop.core.errors import CorruptError, FormatError, LearnloopError, UsageError


class Line(msgspec.Struct, forbid_unknown_fields=True):
    """A line."""

    count: int

    def __post_init__(self) -> None:
        """Refuses less than 1."""
        check_range("count", self.count, 1)


DEEP = b"[" * 100_000


def test_what_fits() -> None:
    assert decode_json(b'{"count": 2}', "line 1", Line) == Line(2)
    assert decode_json('{"a": [1, null]}', "line 1") == {"a": [1, None]}
    assert convert_record({"count": 2}, "the line", Line) == Line(2)
    assert convert_record({"count": "2"}, "the line", Line, strict=False) == Line(2)
    assert json_or(b"[1]", None) == [1]


@pytest.mark.parametrize(
    "data", [b"", b"{", b"\xff", b'"\xff"', DEEP, "\ud800", b'{"count": "2"}', b'{"count": 2, "x": 1}']
)
def test_what_is_no_such_json(data: bytes | str) -> None:
    with pytest.raises(FormatError, match=r"^line 1 cannot be read: .+; remove it$"):
        decode_json(data, "line 1 cannot be read", Line, hint="; remove it")
    with pytest.raises(CorruptError, match="line 1"):
        decode_json(data, "line 1", Line, error=CorruptError)


@pytest.mark.parametrize("data", [b"", b"\xff", DEEP, "\ud800"])
def test_what_is_no_json_at_all(data: bytes | str) -> None:
    assert json_or(data, data) is data


@pytest.mark.parametrize(("error", "message"), [(UsageError, "count is 0"), (CorruptError, "the line: count is 0")])
def test_what_a_record_refuses_is_told_as_it_tells_it(error: type[LearnloopError], message: str) -> None:
    """What is stored is damaged where it is refused, what a caller gives is wrong."""
    with pytest.raises(error, match=f"^{message}; allowed is from 1"):
        convert_record({"count": 0}, "the line", Line, error=error)
    with pytest.raises(error, match=f"^{message}; allowed is from 1"):
        decode_json(b'{"count": 0}', "the line", Line, error=error)


def test_what_is_no_mapping() -> None:
    with pytest.raises(UsageError, match=r"^the line: "):
        convert_record(object(), "the line", Line)
