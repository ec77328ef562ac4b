"""The routes of the seeds' interfaces.

Apart from the package itself: a process that only learns for one of them needs no web framework.
"""

from __future__ import annotations

from learnloop.compat.seed1 import routes as seed1
from learnloop.serve.http.operations import Operations

COMPATIBLE_GROUPS: tuple[Operations, ...] = (seed1.operations,)
"""Routes that ``learnloop serve`` has beside ``serve.app.GROUPS``: those by which existing clients call."""
