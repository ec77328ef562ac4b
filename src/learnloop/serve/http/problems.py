"""Errors as the client sees them: RFC 9457 problems, and the table from an application's errors to statuses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus

import msgspec

PROBLEM_TYPE = "application/problem+json"
RETRY_SECONDS = 1
_UNEXPECTED = 500
_NO_WORDS = "the server failed; its log has the reason under this request id"


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


def title_of(status: int) -> str:
    """Returns the words of a status."""
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return f"Status {status}"


class ErrorTable:
    """Which status each error of an application has; what is not in it is a fault of the server (500).

    Args:
        statuses: by class; a class that is not listed has that of its nearest base.
        hidden: what is said, by status, in place of an error's own words where these may tell of the server's inside.
        words: gives the words of an error.
    """

    def __init__(
        self,
        statuses: Mapping[type[Exception], int],
        hidden: Mapping[int, str] | None = None,
        words: Callable[[Exception], str] = str,
    ) -> None:
        self._statuses = dict(statuses)
        self._hidden = {_UNEXPECTED: _NO_WORDS, **(hidden or {})}
        self._words = words

    def status_of(self, error: Exception) -> int | None:
        """Returns the status of an error; None where it is not in the table."""
        return next((self._statuses[kind] for kind in type(error).__mro__ if kind in self._statuses), None)

    def problem(self, error: Exception) -> Problem:
        """Returns the problem that an error is to the client."""
        if isinstance(error, Problem):
            return error
        status = self.status_of(error)
        if status is None:
            return Problem(_UNEXPECTED, self._hidden[_UNEXPECTED])
        name = type(error).__name__.removesuffix("Error")
        kind = "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("-")
        return Problem(status, self._hidden.get(status) or self._words(error), kind=kind)
