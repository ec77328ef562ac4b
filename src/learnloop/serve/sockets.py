"""Listening sockets: names resolved, bound, and every failure told in words."""

from __future__ import annotations

import errno
import ipaddress
import socket
from typing import NamedTuple

from learnloop.core.errors import AuthError, ConflictError, NotFoundError, UsageError

_BACKLOG = 2048
_MAX_PORT = 65_535


class Listening(NamedTuple):
    """Where a server listens."""

    sockets: list[socket.socket]
    is_local: bool
    """Only this machine reaches it."""

    @property
    def urls(self) -> list[str]:
        """The addresses as URLs."""
        return [_url(each) for each in self.sockets]

    def close(self) -> None:
        """Stops listening."""
        for each in self.sockets:
            each.close()


def listen(host: str, ports: list[int]) -> Listening:
    """Returns sockets that listen on each address of ``host`` at each of ``ports``.

    Args:
        host: an address or a name of this machine.
        ports: 0 for any free one.

    Raises:
        UsageError: a port is not a valid one.
        NotFoundError: the host is unknown, or not an address of this machine.
        ConflictError: a port is in use.
        AuthError: the system does not allow it.
    """
    wrong = [port for port in ports if not 0 <= port <= _MAX_PORT]
    if wrong:
        raise UsageError(f"{wrong[0]} is not a valid port; allowed are 0 to {_MAX_PORT:,}, 0 for any free one")
    addresses = _addresses(host)
    sockets: list[socket.socket] = []
    try:
        for port in ports:
            chosen = port
            for family, address in addresses:
                sockets.append(_bind(family, address, chosen, host))
                chosen = chosen or sockets[-1].getsockname()[1]  # all addresses of a name get the same free port
    except BaseException:
        for each in sockets:
            each.close()
        raise
    return Listening(sockets, all(ipaddress.ip_address(address).is_loopback for _, address in addresses))


def _addresses(host: str) -> list[tuple[int, str]]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise NotFoundError(
            f"the host {host!r} is not known here ({error}); give an address of this machine"
        ) from error
    addresses = dict.fromkeys((int(family), str(place[0]).partition("%")[0]) for family, _, _, _, place in found)
    return [each for each in addresses if each[0] == socket.AF_INET or _has_ipv6() or len(addresses) == 1]


def _has_ipv6() -> bool:
    """Returns whether this machine has an IPv6 loopback; in many containers ``localhost`` names one all the same."""
    try:
        with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


def _bind(family: int, address: str, port: int, host: str) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # named: asyncio delays answers to others
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind((address, port))
        made.listen(_BACKLOG)
    except OSError as error:
        made.close()
        raise _error_of(error, address, port, host) from error
    return made


def _error_of(error: OSError, address: str, port: int, host: str) -> Exception:
    place = f"{address} port {port}"
    if error.errno == errno.EADDRINUSE:
        return ConflictError(f"{place} is in use by another program; end it or choose another port with --port")
    if error.errno in (errno.EACCES, errno.EPERM):
        return AuthError(f"{place} may not be used ({error.strerror}); ports below 1024 are for root, choose another")
    if error.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
        return NotFoundError(f"the host {host!r} ({address}) is not an address of this machine; give one of its own")
    return NotFoundError(f"{place} cannot be listened on: {error.strerror}")


def _url(bound: socket.socket) -> str:
    address, port = bound.getsockname()[:2]
    return f"http://[{address}]:{port}" if bound.family == socket.AF_INET6 else f"http://{address}:{port}"
