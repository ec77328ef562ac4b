"""The head of an answer and its body in one piece; uvicorn writes them apart, each by a call of the system."""

from __future__ import annotations

import asyncio

_LENGTH = b"\r\ncontent-length: "


class JoinedWrites:
    """What an answer is written to: a transport that keeps the first piece back until the second comes.

    A head that tells the length of its body has it right behind. Any other waits no longer than this turn of the event
    loop, so that the head of a stream is on its way before its parts.

    Args:
        transport: where it goes.
        loop: whose turn is meant.
        has_body: whether a body follows its length; not where HEAD was asked.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, *, has_body: bool = True) -> None:
        self._transport = transport
        self._loop = loop
        self._has_body = has_body
        self._held = b""
        self._has_begun = False

    def write(self, data: bytes) -> None:
        """Writes ``data``, now or together with what comes next."""
        if not self._has_begun:
            self._has_begun = True
            self._held = data
            if not self._has_body or _LENGTH not in data:
                self._loop.call_soon(self.flush)
            return
        held, self._held = self._held, b""
        self._transport.write(held + data if held else data)

    def flush(self) -> None:
        """Writes what is kept back."""
        if self._held:
            held, self._held = self._held, b""
            self._transport.write(held)

    def close(self) -> None:
        """Ends the connection once all is written."""
        self.flush()
        self._transport.close()

    def is_closing(self) -> bool:
        """Returns whether the connection ends."""
        return self._transport.is_closing()
