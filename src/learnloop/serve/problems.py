"""The one table from learnloop's errors to HTTP statuses."""

from __future__ import annotations

from collections.abc import Mapping

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

STATUSES: Mapping[type[Exception], int] = {
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

HIDDEN = {
    403: "this is not allowed",
    500: "the server failed; its log has the reason under this request id",
    503: "the store does not answer or refuses; try again later",
    507: "no space is left for the store; free some, nothing of this request was kept",
}
"""What is said in place of an error's own words where these may tell of the server's inside."""
