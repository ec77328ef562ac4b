"""Conditions on a version: ``ETag``, ``If-Match``, ``If-None-Match``.

A route that changes something that has a version declares ``if_match="may"`` or ``"must"`` (then a request without the
header is a 428 before the endpoint runs) and calls ``demand_match``. One that shows it declares ``has_etag=True`` and
answers with ``tagged``.

Source: RFC 9110, sections 8.8.3, 13.1.1, 13.1.2 and 15.4.5; RFC 6585, section 3.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from starlette.requests import Request
from starlette.responses import Response

from learnloop.serve.http.json_bodies import answer
from learnloop.serve.http.problems import Problem

ANY = "*"
_MAX_LENGTH = 4096
_CACHE = "private, no-cache"
"""A client may keep it, and must ask before it uses it."""
_TAG = re.compile(r'[ \t]*((?:W/)?"[\x21\x23-\x7e\x80-\xff]*")[ \t]*(?:,|$)|[ \t]*,')


def etag_of(version: int | str) -> str:
    """Returns the strong entity tag of a version, such as ``"7"`` with its quotes."""
    return f'"{version}"'


def parse_etags(values: Iterable[str]) -> list[str]:
    """Returns the entity tags of a header: each with its quotes, weak ones with ``W/``; ``["*"]`` for any.

    Args:
        values: of the header, once for each time that it came.

    Raises:
        Problem: 400 where they are not valid entity tags, or too many.
    """
    text = ",".join(values)
    if text.strip(" \t") == ANY:
        return [ANY]
    tags: list[str] = []
    place = 0
    while place < len(text) and len(text) <= _MAX_LENGTH:
        found = _TAG.match(text, place)
        if found is None:
            break
        if found.group(1) is not None:
            tags.append(found.group(1))
        place = found.end()
    if place < len(text) or not tags:
        raise Problem(400, 'a condition is * or a list of entity tags in quotes, such as "7", of 4,096 bytes at most')
    return tags


def demand_match(request: Request, etag: str | None) -> None:
    """Lets a write through whose conditions hold; one without a condition too.

    Args:
        request: with ``If-Match`` or ``If-None-Match`` or neither.
        etag: the current one; None: there is nothing yet.

    Raises:
        Problem: 412 with the current entity tag, 400 for what is no condition.
    """
    wanted = request.headers.getlist("if-match")
    if wanted:
        tags = parse_etags(wanted)  # compared strongly: a weak one is never the same
        if etag is None or (tags != [ANY] and (etag not in tags or etag.startswith("W/"))):
            raise _failed(etag)
    unwanted = request.headers.getlist("if-none-match")
    if unwanted and etag is not None and _has(parse_etags(unwanted), etag):
        raise _failed(etag)


def is_unchanged(request: Request, etag: str) -> bool:
    """Returns whether the client of a GET has this version already (``If-None-Match``, compared weakly).

    Raises:
        Problem: 400 for what is no condition.
    """
    known = request.headers.getlist("if-none-match")
    return bool(known) and _has(parse_etags(known), etag)


def tagged(request: Request, value: object, etag: str, status: int = 200) -> Response:
    """Returns ``value`` as JSON with its entity tag, or 304 where the client of a GET has it already."""
    headers = {"etag": etag, "cache-control": _CACHE}
    if request.method in ("GET", "HEAD") and is_unchanged(request, etag):
        return Response(status_code=304, headers=headers)
    return answer(value, status, headers)


def _has(tags: list[str], etag: str) -> bool:
    return tags == [ANY] or etag.removeprefix("W/") in {tag.removeprefix("W/") for tag in tags}


def _failed(etag: str | None) -> Problem:
    if etag is None:
        return Problem(412, "there is nothing yet that If-Match could match; leave it out, or send If-None-Match: *")
    return Problem(
        412, f"it was changed meanwhile and is {etag} now; read it again, then decide", headers={"etag": etag}
    )
