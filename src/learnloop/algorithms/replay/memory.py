"""How much memory a replay may take."""

from __future__ import annotations

from pathlib import Path

import psutil

_GROUP = Path("/sys/fs/cgroup")


def available_memory() -> int:
    """Returns how many bytes can be taken without swapping: what is free, or what the container's limit leaves."""
    free = int(psutil.virtual_memory().available)
    limit, used = _read(_GROUP / "memory.max"), _read(_GROUP / "memory.current")
    return free if limit is None or used is None else max(0, min(free, limit - used))


def megabytes(num_bytes: int) -> int:
    """Returns megabytes of 1,000,000 bytes, rounded up."""
    return -(-num_bytes // 1_000_000)


def _read(path: Path) -> int | None:
    try:
        text = path.read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
