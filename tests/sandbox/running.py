"""What tests of the sandbox share."""

from __future__ import annotations

import os
import textwrap
from typing import Any

import psutil

from learnloop.sandbox import Command, CommandOutcome, Limits, Sandbox
from learnloop.sandbox.cgroups import find_trees


def python(code: str, *arguments: str, **more: Any) -> Command:
    """Returns the command that runs Python code."""
    return Command(argv=["python", "-c", textwrap.dedent(code), *arguments], **more)


def run(sandbox: Sandbox, code: str, *arguments: str, limits: Limits | None = None, **more: Any) -> CommandOutcome:
    """Runs Python code in the sandbox."""
    return sandbox.run(python(code, *arguments, **more), limits)


def said(sandbox: Sandbox, code: str, *arguments: str, **more: Any) -> str:
    """Returns what code says that must run to its end without a fault."""
    outcome = run(sandbox, code, *arguments, **more)
    assert outcome.is_success, outcome
    return outcome.stdout.decode().strip()


KNOWN: set[psutil.Process] = set()
"""The processes below this one that were there before a test: servers and the like of other tests."""


def note_processes() -> None:
    """Takes the processes that are there now for those of others."""
    KNOWN.clear()
    KNOWN.update(psutil.Process().children(recursive=True))


def left_processes() -> list[str]:
    """Returns the names of the processes below this one that are new."""
    children = set(psutil.Process().children(recursive=True)) - KNOWN
    return [each.info["name"] for each in psutil.process_iter(["pid", "name"]) if each in children]


def left_files(before: set[str]) -> list[str]:
    """Returns the temporary files of ours that are not among the names of ``before``."""
    return [name for name in set(os.listdir("/tmp")) - before if name.startswith("learnloop")]


def traces() -> list[str]:
    """Returns the processes and control groups that sandboxes of this process left."""
    names = ("bwrap", "setpriv", "python", "python3")
    return [*groups(os.getpid()), *(name for name in left_processes() if name in names)]


def groups(owner: int) -> list[str]:
    """Returns the control groups that the process ``owner`` made and did not remove."""
    places = set(find_trees().places.values())
    return [name for place in places for name in os.listdir(place) if name.startswith(f"learnloop-{owner}-")]
