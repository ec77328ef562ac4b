"""The figures of a training as JSON lines: ``{"position": ..., "num_steps": ..., "train/loss": ...}``.

The position is the steps, or of a training from a data set the updates.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from learnloop.core.errors import StoreError
from learnloop.system.files import write_whole


class MetricsFile:
    """Appends a line for each set of figures; a figure that is not finite is written as null."""

    def __init__(self, path: Path | None) -> None:
        """Keeps nothing where ``path`` is None."""
        self._path = path
        self._file: TextIO | None = None

    def write(self, position: int, counts: Mapping[str, int], figures: Mapping[str, float]) -> None:
        """Appends one line, which a reader can see at once.

        Raises:
            StoreError: the disk refuses.
        """
        if self._path is None:
            return
        shown = {name: value if math.isfinite(value) else None for name, value in figures.items()}
        try:
            if self._file is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self._path.open("a", encoding="utf-8")
            self._file.write(json.dumps({"position": position, **counts, **shown}) + "\n")
            self._file.flush()
        except OSError as error:
            raise StoreError(f"{self._path} cannot be written ({error.strerror}); choose another --home") from error

    def cut_after(self, position: int) -> None:
        """Drops the lines after ``position``: what a training that was killed wrote after its checkpoint."""
        if self._path is None or not self._path.exists():
            return
        self.close()
        kept = [line for line in read_metrics(self._path) if line["position"] <= position]
        write_whole(self._path, "".join(json.dumps(line) + "\n" for line in kept).encode())

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def read_metrics(path: Path) -> list[dict[str, float]]:
    """Returns the lines of a file of figures, oldest first; one that a kill cut short is left out."""
    found = []
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        with suppress(ValueError):
            found.append(json.loads(line))
    return [line for line in found if isinstance(line, dict) and "position" in line]
