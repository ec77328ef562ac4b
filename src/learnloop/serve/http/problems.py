"""Errors as the client sees them: RFC 9457 problems, and the one table from learnloop's errors to statuses."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

import msgspec

from learnloop.core.errors import (
    AuthError,
    ConflictError,
    FormatError,
    LearnloopError,
    MissingExtraError,
    NotFoundError,
    StoreError,
    StoreFullError,
    UnreachableError,
    UsageError,
)

PROBLEM_TYPE = "application/problem+json"
RETRY_SECONDS = 1

STATUSES: Mapping[type[LearnloopError], int] = {
    FormatError: 400,
    MissingExtraError: 501,
    UsageError: 422,
    NotFoundError: 404,
    AuthError: 403,
    ConflictError: 409,
    UnreachableError: 503,
    StoreFullError: 507,
    StoreError: 503,
    LearnloopError: 500,
}
"""The status of each error; a class that is not listed has its nearest base's."""

_HIDDEN = {
    403: "this is not allowed",
    500: "the server failed; its log has the reason under this request id",
    503: "the store does not answer or refuses; try again later",
    507: "no space is left for the store; free some, nothing of this request was kept",
}
"""What is said in place of an error's own words where these may tell of the server's inside."""


class FieldError(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong with one part of a request."""

    detail: str
    pointer: str
    """Where: a JSON path such as ``$.actions[0]``, or ``query.limit``."""


class ProblemBody(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The body of an error (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    """The path that was asked for."""
    request_id: str
    errors: list[FieldError] = []


class Problem(Exception):
    """An answer that is an error.

    Args:
        status: the HTTP status, 400 or above.
        detail: what is wrong, what is allowed and what to do.
        kind: the last part of the problem's type; made from the status where None.
        errors: what is wrong with which part of the request.
        headers: further headers of the answer.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        kind: str | None = None,
        errors: list[FieldError] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.title = title_of(status)
        self.detail = detail
        self.kind = kind or self.title.lower().replace(" ", "-")
        self.errors = errors or []
        self.headers = dict(headers or {})
        if status in (429, 503):
            self.headers.setdefault("retry-after", str(RETRY_SECONDS))

    def body(self, instance: str, request_id: str) -> ProblemBody:
        """Returns the body of the answer to ``request_id``, which asked for the path ``instance``."""
        return ProblemBody(
            type=f"urn:learnloop:problem:{self.kind}",
            title=self.title,
            status=self.status,
            detail=self.detail,
            instance=instance,
            request_id=request_id,
            errors=self.errors,
        )


def title_of(status: int) -> str:
    """Returns the words of a status."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return f"Status {status}"


def problem_of(error: LearnloopError, detail: str) -> Problem:
    """Returns the problem that an error of learnloop is to the client; ``detail`` is what may be told of it."""
    status = next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)
    name = type(error).__name__.removesuffix("Error")
    kind = "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("-")
    return Problem(status, _HIDDEN.get(status, detail), kind=kind)
