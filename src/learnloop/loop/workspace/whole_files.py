"""Files for users that appear whole or not at all."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from learnloop.core.ids import new_id


@contextmanager
def whole_file(path: Path) -> Iterator[IO[bytes]]:
    """Gives a stream to write ``path`` with: it is replaced at the end, unless something was raised.

    A link is followed, and what is there and no file, such as a device or a pipe, is written to as it is.

    Raises:
        OSError: it cannot be written.
    """
    if path.exists() and not path.is_file():
        with path.open("wb") as stream:
            yield stream
        return
    target = Path(os.path.realpath(path))
    part = target.with_name(f".{target.name[:100]}.{new_id()}.part")
    try:
        with part.open("xb") as stream:
            if target.exists():
                os.fchmod(stream.fileno(), stat.S_IMODE(target.stat().st_mode))
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(target)
    except BaseException:
        with suppress(OSError):  # it may not even have been made; what went wrong is raised
            part.unlink(missing_ok=True)
        raise
