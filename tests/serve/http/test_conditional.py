"""Conditions on a version, as RFC 9110 has them, and over the wire."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request
from starlette.responses import Response

from learnloop.serve.http.conditional import demand_match, etag_of, is_unchanged, parse_etags, tagged
from learnloop.serve.http.openapi import describe
from learnloop.serve.http.operations import Operations
from learnloop.serve.http.problems import Problem
from tests.serve.http.conftest import site
from tests.serve.running import Start

versioned = Operations("versioned")
_state = {"version": 7}


@versioned.get("/versioned", scope="read", has_etag=True)
async def get_versioned(request: Request) -> Response:
    """Show it."""
    return tagged(request, dict(_state), etag_of(_state["version"]))


@versioned.route("PUT", "/versioned", scope="admin", accepts=("application/json",), if_match="must")
async def put_versioned(request: Request) -> Response:
    """Change it."""
    demand_match(request, etag_of(_state["version"]))
    return tagged(request, dict(_state), etag_of(_state["version"] + 1))


def request(**headers: list[str] | str) -> Request:
    listed = [
        (name.replace("_", "-").encode(), value.encode("latin-1"))
        for name, values in headers.items()
        for value in ([values] if isinstance(values, str) else values)
    ]
    return Request({"type": "http", "method": "GET", "path": "/", "headers": listed})


@pytest.mark.parametrize(
    ("values", "tags"),
    [
        (['"a"'], ['"a"']),
        (["*"], ["*"]),
        ([" * "], ["*"]),
        (['"a", W/"b" ,"c"'], ['"a"', 'W/"b"', '"c"']),
        (['"a","b,c"'], ['"a"', '"b,c"']),
        (['"a"', '"b"'], ['"a"', '"b"']),
        ([', "a",,\t"b",'], ['"a"', '"b"']),
        (['""'], ['""']),
    ],
)
def test_tags(values: list[str], tags: list[str]) -> None:
    assert parse_etags(values) == tags


@pytest.mark.parametrize(
    "value", ["", ",", "a", '"a', 'w/"a"', 'W/ "a"', '"a" "b"', '*, "a"', '"a", *', "'a'", '"a\x01"', '"a",' * 2000]
)
def test_what_is_no_tag(value: str) -> None:
    with pytest.raises(Problem) as raised:
        parse_etags([value])
    assert raised.value.status == 400


@given(st.lists(st.tuples(st.booleans(), st.text(st.characters(min_codepoint=0x23, max_codepoint=0x7E), max_size=5)),
                min_size=1, max_size=5))  # fmt: skip
def test_any_list_is_read_back(parts: list[tuple[bool, str]]) -> None:
    tags = [f'{"W/" if is_weak else ""}"{text}"' for is_weak, text in parts]
    assert parse_etags([", ".join(tags)]) == tags


@pytest.mark.parametrize(
    ("condition", "etag", "holds"),
    [
        ('"7"', '"7"', True),
        ('"6", "7"', '"7"', True),
        ('"6"', '"7"', False),
        ('W/"7"', '"7"', False),
        ('W/"7"', 'W/"7"', False),
        ("*", '"7"', True),
        ("*", None, False),
        ('"7"', None, False),
    ],
)
def test_if_match_compares_strongly(condition: str, etag: str | None, holds: bool) -> None:
    if holds:
        demand_match(request(if_match=condition), etag)
        return
    with pytest.raises(Problem) as raised:
        demand_match(request(if_match=condition), etag)
    assert raised.value.status == 412
    assert raised.value.headers.get("etag") == etag


def test_no_condition_and_if_none_match_on_writes() -> None:
    demand_match(request(), None)
    demand_match(request(if_none_match="*"), None)
    demand_match(request(if_none_match='"6"'), '"7"')
    for condition in ("*", '"7"', 'W/"7"'):
        with pytest.raises(Problem) as raised:
            demand_match(request(if_none_match=condition), '"7"')
        assert raised.value.status == 412


def test_if_none_match_compares_weakly() -> None:
    assert is_unchanged(request(if_none_match='W/"7"'), '"7"')
    assert is_unchanged(request(if_none_match=['"6"', '"7"']), 'W/"7"')
    assert is_unchanged(request(if_none_match="*"), '"7"')
    assert not is_unchanged(request(if_none_match='"6"'), '"7"')
    assert not is_unchanged(request(), '"7"')


def test_over_the_wire(start: Start) -> None:
    server = start(versioned)
    found = server.ask("GET", "/versioned")
    assert (found.status, found.headers["etag"], found.headers["cache-control"]) == (200, '"7"', "private, no-cache")
    again = server.ask("GET", "/versioned", if_none_match='"7"')
    assert (again.status, again.body, again.headers["etag"]) == (304, b"", '"7"')
    assert "content-type" not in again.headers
    assert server.ask("GET", "/versioned", if_none_match="x").status == 400
    missing = server.ask("PUT", "/versioned", "{}")
    assert (missing.status, missing.json()["title"]) == (428, "Precondition Required")
    stale = server.ask("PUT", "/versioned", "{}", if_match='"6"')
    assert (stale.status, stale.headers["etag"], stale.headers["content-type"]) == (
        412,
        '"7"',
        "application/problem+json",
    )
    good = server.ask("PUT", "/versioned", "{}", if_match='"7"')
    assert (good.status, good.headers["etag"]) == (200, '"8"')


def test_the_description() -> None:
    paths = describe(site(), [versioned])["paths"]["/versioned"]
    assert {"304", "200"} <= set(paths["get"]["responses"])
    assert {"412", "428"} <= set(paths["put"]["responses"])
    assert [(each["name"], each["required"]) for each in paths["put"]["parameters"]] == [("If-Match", True)]
