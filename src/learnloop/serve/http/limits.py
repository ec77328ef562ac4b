"""The limits that a server keeps."""

from __future__ import annotations

import msgspec

MIB = 1 << 20


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one request may cost."""

    body_bytes: int = 8 * MIB
    """The largest body as it arrives; a route may allow more."""
    decoded_bytes: int = 64 * MIB
    """The largest body after decompression."""
    ratio: int = 100
    """How many bytes one compressed byte may become; asked of bodies above ``MIN_RATIO_BYTES`` only."""
    body_seconds: float = 30.0
    """How long a body may take to arrive."""
    header_seconds: float = 10.0
    """How long the headers of a request may take to arrive."""
    header_bytes: int = 64 << 10
    """The largest headers, request line included."""
    num_active: int = 1024
    """How many requests are worked on at once; further ones are answered 503."""
    num_threads: int = 8
    """How many calls that block run at once."""
    num_waiting: int = 256
    """How many calls that block may wait for a thread; further ones are answered 503."""
