"""Answers as JSON, encoded by msgspec."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from starlette.responses import Response

_encoder = msgspec.json.Encoder(decimal_format="string")


def answer(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Returns ``value``, a msgspec Struct or plain Python values, as a JSON answer."""
    return Response(_encoder.encode(value), status, headers, "application/json")
