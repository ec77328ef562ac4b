"""Answers in one piece."""

from __future__ import annotations

import asyncio
from typing import Any

from learnloop.serve.http.joined_writes import JoinedWrites


class Kept:
    """A transport that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def write(self, data: bytes) -> None:
        self.told.append(data)

    def close(self) -> None:
        self.told.append("closed")

    def is_closing(self) -> bool:
        return "closed" in self.told


def test_head_and_body_go_together_and_a_stream_does_not_wait() -> None:
    async def run() -> None:
        whole, stream, short = Kept(), Kept(), Kept()
        loop = asyncio.get_running_loop()
        writes: Any = JoinedWrites(whole, loop)  # type: ignore[arg-type]
        writes.write(b"head")
        writes.write(b"body")
        writes.write(b"more")
        assert whole.told == [b"headbody", b"more"]
        writes = JoinedWrites(stream, loop)  # type: ignore[arg-type]
        writes.write(b"head")
        assert stream.told == []
        await asyncio.sleep(0)
        assert stream.told == [b"head"]
        writes.write(b"part")
        assert stream.told == [b"head", b"part"]
        told, asked = Kept(), Kept()
        writes = JoinedWrites(told, loop)  # type: ignore[arg-type]
        writes.write(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n")
        await asyncio.sleep(0)
        assert told.told == []  # its body comes right behind
        writes.write(b"")
        assert told.told == [b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n"]
        writes = JoinedWrites(asked, loop, has_body=False)  # type: ignore[arg-type]
        writes.write(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n")
        await asyncio.sleep(0)
        assert asked.told == [b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\n"]
        writes = JoinedWrites(short, loop)  # type: ignore[arg-type]
        writes.write(b"head")
        writes.close()
        assert writes.is_closing()
        await asyncio.sleep(0)
        assert short.told == [b"head", "closed"]

    asyncio.run(run())
