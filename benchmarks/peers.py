"""Peers: each in its own virtual environment under ``.bench/``, made when it is first needed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


class PeerError(Exception):
    """A peer could not be installed or did not run; the message says why."""


def peer_python(name: str, requirement: str | Sequence[str]) -> Path:
    """Returns the Python of the environment ``.bench/NAME``, in which ``requirement`` is, or all of them.

    Args:
        name: of the environment.
        requirement: ``package==version``, one or several.

    Raises:
        PeerError: it cannot be installed.
    """
    folder = ROOT / ".bench" / name
    python = folder / "bin" / "python"
    installed = folder / "installed.txt"  # written last: an interrupted installation is done again
    wanted = [requirement] if isinstance(requirement, str) else list(requirement)
    text = "\n".join(wanted)
    if not installed.exists() or installed.read_text() != text:
        sys.stderr.write(f"installing {' '.join(wanted)} into {folder}\n")
        venv.create(folder, with_pip=True, clear=True)
        _run([str(python), "-m", "pip", "install", "--quiet", *wanted], None)
        installed.write_text(text)
    return python


def peer_source(name: str, url: str, commit: str) -> Path:
    """Returns the folder ``.bench/NAME-source``, a checkout of the repository at ``url``, at ``commit``.

    Raises:
        PeerError: it cannot be cloned, or was changed.
    """
    folder = ROOT / ".bench" / f"{name}-source"
    git = ["git", "-C", str(folder)]
    if not folder.exists():
        sys.stderr.write(f"cloning {url} into {folder}\n")
        _run(["git", "clone", "--quiet", "--no-checkout", url, str(folder)], None)
        _run([*git, "checkout", "--quiet", "--detach", commit], None)
    found = _run([*git, "rev-parse", "HEAD"], None).strip()
    changed = _run([*git, "status", "--porcelain"], None).strip()
    if found != commit or changed:
        raise PeerError(f"{folder} is at {found}{' with changes' if changed else ''}, not {commit}; remove the folder")
    return folder


def run_peer(python: Path, script: str, task: Any, environment: Mapping[str, str] | None = None) -> Any:
    """Returns what ``benchmarks/SCRIPT`` prints for ``task``; both are JSON.

    Args:
        python: of the peer's environment.
        script: its path under ``benchmarks``.
        task: what it reads.
        environment: variables that are set for it, besides this process's.

    Raises:
        PeerError: it failed.
    """
    return json.loads(_run([str(python), str(ROOT / "benchmarks" / script)], json.dumps(task), environment))


def _run(command: list[str], text: str | None, environment: Mapping[str, str] | None = None) -> str:
    variables = {**os.environ, **(environment or {})}
    finished = subprocess.run(command, input=text, capture_output=True, text=True, check=False, env=variables)
    if finished.returncode != 0:
        raise PeerError(f"{' '.join(command)} failed: {finished.stderr.strip()[-500:]}")
    return finished.stdout
