"""Peers: each in its own virtual environment under ``.bench/``, made when it is first needed."""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


class PeerError(Exception):
    """A peer could not be installed or did not run; the message says why."""


def peer_python(name: str, requirement: str) -> Path:
    """Returns the Python of the environment ``.bench/NAME``, in which ``requirement`` (``package==version``) is.

    Raises:
        PeerError: it cannot be installed.
    """
    folder = ROOT / ".bench" / name
    python = folder / "bin" / "python"
    installed = folder / "installed.txt"  # written last: an interrupted installation is done again
    if not installed.exists() or installed.read_text() != requirement:
        sys.stderr.write(f"installing {requirement} into {folder}\n")
        venv.create(folder, with_pip=True, clear=True)
        _run([str(python), "-m", "pip", "install", "--quiet", requirement], None)
        installed.write_text(requirement)
    return python


def run_peer(python: Path, script: str, task: Any) -> Any:
    """Returns what ``benchmarks/SCRIPT`` prints for ``task``; both are JSON.

    Raises:
        PeerError: it failed.
    """
    return json.loads(_run([str(python), str(ROOT / "benchmarks" / script)], json.dumps(task)))


def _run(command: list[str], text: str | None) -> str:
    finished = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
    if finished.returncode != 0:
        raise PeerError(f"{' '.join(command)} failed: {finished.stderr.strip()[-500:]}")
    return finished.stdout
