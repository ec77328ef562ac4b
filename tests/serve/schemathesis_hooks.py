"""What schemathesis does not know of itself: bodies and answers of many lines."""

from __future__ import annotations

import json
from typing import Any

import schemathesis


@schemathesis.serializer("application/x-ndjson")
def to_lines(ctx: Any, value: Any) -> bytes:
    """Sends what is made of the schema of a line as such a line, a list as one line for each of its items."""
    if isinstance(value, bytes):
        return value
    lines = value if isinstance(value, list) else [value]
    return "\n".join(json.dumps(line, default=str) for line in lines).encode("utf-8", "surrogatepass")


@schemathesis.deserializer("application/x-ndjson")
def from_lines(ctx: Any, response: Any) -> Any:
    """Reads the first line of an answer, which the schema of a line describes."""
    return json.loads(response.content.splitlines()[0])
