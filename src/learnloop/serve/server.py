"""The server: one process, one event loop, one or more sockets; it stops in order when it is told to."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from uvicorn import Config
from uvicorn import Server as UvicornServer

from learnloop.core.errors import AuthError
from learnloop.loop.workspace.workspace import Workspace
from learnloop.serve.app import Application, create_app
from learnloop.serve.http.operations import Operations
from learnloop.serve.http.options import ServeOptions
from learnloop.serve.http.protocol import protocol_with
from learnloop.serve.http.sockets import Listening, listen

__all__ = ["Listening", "Server", "serve"]

_CLOSE_SECONDS = 2.0
SWITCH_SECONDS = 0.0005
"""How long the event loop may keep the writer of the log from the interpreter; Python's 5 ms outlast a commit."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Server(UvicornServer):
    """uvicorn's server, which ends with 0 when it is told to stop.

    Args:
        app: what it serves.
        on_ready: called with nothing when it accepts requests.
    """

    def __init__(self, app: Application, on_ready: Callable[[], None] | None = None) -> None:
        options = app.state.service.options
        super().__init__(
            Config(
                app,
                http=protocol_with(options.limits.header_seconds, options.limits.header_bytes),
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_graceful_shutdown=max(1, round(options.drain_seconds)),
            )
        )
        self._service = app.state.service
        self._on_ready = on_ready

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        """Begins to accept and tells so."""
        await super().startup(sockets=sockets)  # type: ignore[arg-type]
        if self.started and self._on_ready is not None:
            self._on_ready()

    def stop(self) -> None:
        """Begins to stop: not ready at once, then nothing new is accepted and what runs is waited for."""
        self._service.is_draining = True
        self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Has SIGINT and SIGTERM stop the server; the second one ends the process on the spot."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in _SIGNALS}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stops; at the second time at once: what was acknowledged is on the disk already."""
        if self.should_exit:
            sys.stderr.flush()
            os._exit(128 + sig)
        self.stop()


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
        if not listening.is_local and not app.state.service.keys.has_keys:
            raise AuthError(
                f"{chosen.host} can be reached by other machines and this store has no key; make one first: "
                "learnloop keys create NAME --scope read (or bind 127.0.0.1)"
            )
        server = Server(app, None if on_ready is None else lambda: on_ready(listening))
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
