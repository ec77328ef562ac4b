"""The interfaces that the seed documents describe, on the parts that all use."""

from __future__ import annotations

from learnloop.compat.seed1 import routes as seed1
from learnloop.serve.http.operations import Operations

COMPATIBLE_GROUPS: tuple[Operations, ...] = (seed1.operations,)
"""Routes that ``learnloop serve`` has beside ``serve.app.GROUPS``: those by which existing clients call."""

__all__ = ["COMPATIBLE_GROUPS"]
