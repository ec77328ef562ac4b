"""What a server is told when it starts."""

from __future__ import annotations

import msgspec

from learnloop.serve.http.site import RequestLimits

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8700


class ServeOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a server listens and whom it answers."""

    host: str = DEFAULT_HOST
    """The address or name to bind."""
    port: int = DEFAULT_PORT
    """0: any free one."""
    otlp_port: int | None = None
    """A second port of the same application; None: none."""
    allow_hosts: tuple[str, ...] = ()
    """Further names by which clients may call this server."""
    allow_origins: tuple[str, ...] = ()
    """Web origins other than its own whose pages may call it, such as ``https://dash.example.com``."""
    key_seconds: float = 1.0
    """How often the keys are read again: how late a new or revoked key is heeded."""
    trace_grace_seconds: float = 2.0
    """How long a received trace must be quiet, after its root came, until its episode ends."""
    trace_idle_seconds: float = 300.0
    """How long a received trace without a root must be quiet until its agent counts as cut off."""
    learning: bool = True
    """Whether policies of the decision service learn, in a process beside the server."""
    drain_seconds: float = 7.0
    """How long running requests may take to end when the server stops."""
    limits: RequestLimits = RequestLimits()
