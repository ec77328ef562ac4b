"""Serves a workspace: one process, one event loop, one or more sockets."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from learnloop.core.errors import AuthError
from learnloop.loop import Workspace
from learnloop.serve.app import create_app
from learnloop.serve.http.operations import Operations
from learnloop.serve.http.server import Server
from learnloop.serve.options import ServeOptions
from learnloop.serve.sockets import Listening, listen

__all__ = ["Listening", "serve"]

_CLOSE_SECONDS = 2.0
SWITCH_SECONDS = 0.0005
"""How long the event loop may keep the writer of the log from the interpreter; Python's 5 ms outlast a commit."""


def serve(
    workspace: Workspace,
    options: ServeOptions | None = None,
    *extra: Operations,
    on_ready: Callable[[Listening], None] | None = None,
) -> None:
    """Serves ``workspace`` until SIGINT or SIGTERM, then lets requests end, and closes the workspace.

    Args:
        workspace: an open one.
        options: where to listen and whom to answer.
        extra: further groups of routes.
        on_ready: called when requests are accepted.

    Raises:
        AuthError: other machines would reach it and there is no key, or the system forbids the port.
        NotFoundError, ConflictError, UsageError: it cannot listen there.
        LearnloopError: not all that was offered could be stored.
    """
    chosen = options or ServeOptions()
    ports = [chosen.port] if chosen.otlp_port is None else [chosen.port, chosen.otlp_port]
    listening = listen(chosen.host, ports)
    try:
        app = create_app(workspace, chosen, *extra)
        if not listening.is_local and not app.shared.keys.has_keys:
            raise AuthError(
                f"{chosen.host} can be reached by other machines and this store has no key; make one first: "
                "learnloop keys create NAME --scope read (or bind 127.0.0.1)"
            )
        tell = None if on_ready is None else lambda: on_ready(listening)
        server = Server(app, drain_seconds=chosen.drain_seconds, on_ready=tell)
        with _tuned():
            server.run(sockets=listening.sockets)
    finally:
        listening.close()
        workspace.close(_CLOSE_SECONDS)


@contextmanager
def _tuned() -> Iterator[None]:
    """Has the interpreter do as a server needs it."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.collect()
    gc.freeze()  # what is there by now stays: the collections that hold up requests need not go through it
    try:
        yield
    finally:
        gc.unfreeze()
        sys.setswitchinterval(before)
