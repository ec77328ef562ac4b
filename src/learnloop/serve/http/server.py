"""The server of an application: uvicorn's, with our protocol; it stops in order when it is told to."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from uvicorn import Config
from uvicorn import Server as UvicornServer

from learnloop.serve.http.application import Application
from learnloop.serve.http.protocol import protocol_of

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Server(UvicornServer):
    """uvicorn's server, which ends with 0 when it is told to stop.

    Args:
        app: what it serves.
        drain_seconds: how long running requests may take to end when it stops.
        on_ready: called with nothing when it accepts requests.
    """

    def __init__(
        self, app: Application, *, drain_seconds: float = 7.0, on_ready: Callable[[], None] | None = None
    ) -> None:
        super().__init__(
            Config(
                app,
                http=protocol_of(app.site),
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_graceful_shutdown=max(1, round(drain_seconds)),
            )
        )
        self._site = app.site
        self._on_ready = on_ready

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        """Begins to accept and tells so."""
        await super().startup(sockets=sockets)  # type: ignore[arg-type]
        if self.started and self._on_ready is not None:
            self._on_ready()

    def stop(self) -> None:
        """Begins to stop: not ready at once, then nothing new is accepted and what runs is waited for."""
        self._site.is_draining = True
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
