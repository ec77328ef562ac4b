"""Whom a server answers: the names by which it may be called, and the web pages that may call it.

Without the first, a web page can reach a server on this machine through a name of its own that it lets point here (DNS
rebinding); without the second, it can send writes.
"""

from __future__ import annotations

from collections.abc import Iterable

from learnloop.serve.http.problems import Problem
from learnloop.serve.http.site import Headers, Site

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_SINGLE = frozenset({
    b"host", b"origin", b"content-type", b"content-encoding", b"content-length", b"idempotency-key", b"x-request-id",
})  # fmt: skip
PREFLIGHT = [
    (b"access-control-allow-methods", b"GET, POST, PUT, PATCH, DELETE"),
    (
        b"access-control-allow-headers",
        b"authorization, content-type, content-encoding, idempotency-key, if-match, if-none-match, x-request-id",
    ),
    (b"access-control-max-age", b"600"),
]
"""The headers of the answer to a browser that asks whether a page may send what it is about to send."""


class HostChecks:
    """The hosts and origins that a server knows.

    Args:
        site: which names its hosts and origins.
    """

    def __init__(self, site: Site) -> None:
        names = ("localhost", "127.0.0.1", "::1", *site.hosts)
        self._hosts = frozenset(_host_name(_bracketed(name).encode()) for name in names)
        self._origins = frozenset(origin.rstrip("/").lower().encode() for origin in site.origins)
        self._single = _SINGLE.union(site.credentials)
        self._about = site.about

    def check_single(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Refuses requests with two of a header of which there is one: others on the way may have read the other one.

        Raises:
            Problem: 400.
        """
        names = [name for name, _ in headers if name in self._single]
        if len(names) != len(set(names)):
            twice = next(name for name in names if names.count(name) > 1).decode()
            raise Problem(400, f"the request has the header {twice} twice; send it once")

    def check_host(self, headers: Headers) -> None:
        """Lets requests through that call this server by one of its names.

        Raises:
            Problem: 400 without a name, 421 for another one.
        """
        host = headers.get(b"host")
        if not host:
            raise Problem(400, "the request has no Host header; send one")
        if _host_name(host) not in self._hosts:
            raise Problem(
                421,
                f"this server does not go by the name in the Host header; {self._about.host_advice}",
                kind="host",
            )

    def check_origin(self, method: str, headers: Headers) -> bytes | None:
        """Returns the origin of an allowed page of another site, None for any other client.

        Raises:
            Problem: 403 for a write from a page of another site.
        """
        origin = headers.get(b"origin")
        if origin is None:
            return None
        origin = origin.lower()
        if origin in self._origins:
            return origin
        scheme, _, place = origin.partition(b"://")
        if method not in _SAFE and not (scheme in (b"http", b"https") and place == headers[b"host"].lower()):
            raise Problem(403, f"a page of another site may not write here; {self._about.origin_advice}", kind="origin")
        return None


def _bracketed(name: str) -> str:
    return f"[{name}]" if ":" in name and not name.startswith("[") else name


def _host_name(host: bytes) -> bytes:
    """Returns a host without its port, in lower case."""
    name, separator, port = host.lower().rpartition(b":")
    return (name if separator and port.isdigit() else host.lower()).rstrip(b".")
