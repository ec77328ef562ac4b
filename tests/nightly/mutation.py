"""Seeded bugs: one change of the source each, made in a copy, and the tests that must fail there.

A mutant changes the real code: a text that occurs exactly once in its file becomes another one. Where the code has
moved on, the mutant no longer applies and says so. It is killed if each of its tests fails; one that cannot be
imported, or whose tests cannot be found, is no mutant.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.project import ROOT, SOURCE

TIMEOUT = 120
"""Seconds for one test: a mutant may not end."""
TESTS_FAILED = 1
"""pytest's exit code where tests ran and some failed."""

_FAILED = re.compile(r"^FAILED (.+?)(?: - .*)?$", re.MULTILINE)


class Mutant(NamedTuple):
    """A seeded bug."""

    name: str
    file: str
    """Below ``src/learnloop``."""
    old: str
    """Occurs exactly once."""
    new: str
    killers: tuple[str, ...]
    """Tests that must fail, by their pytest ids; one without parameters fails if one of its cases does."""


class Outcome(NamedTuple):
    """What the tests said of a copy."""

    code: int
    """pytest's exit code."""
    failed: tuple[str, ...]
    """The ids of the tests that failed."""
    seconds: float
    output: str


def mutated(mutant: Mutant) -> str:
    """Returns the text of the mutant's file with the bug.

    Raises:
        LookupError: the old text does not occur exactly once.
    """
    text = (SOURCE / mutant.file).read_text(encoding="utf-8")
    if text.count(mutant.old) != 1:
        raise LookupError(
            f"the mutant {mutant.name!r} does not apply: its text occurs {text.count(mutant.old)} times in "
            f"{mutant.file}, not once. Seed the same bug in the code of now:\n{mutant.old}"
        )
    return text.replace(mutant.old, mutant.new)


def copy_package(folder: Path) -> Path:
    """Returns ``folder`` with a copy of the package in it."""
    shutil.copytree(SOURCE, folder / SOURCE.name)
    return folder


def seed(mutant: Mutant, folder: Path) -> None:
    """Writes the bug into the copy in ``folder``."""
    target = folder / SOURCE.name / mutant.file
    for compiled in (target.parent / "__pycache__").glob(f"{target.stem}.*.pyc"):
        compiled.unlink()  # it is looked at only for the time and the size of its source
    target.write_text(mutated(mutant), encoding="utf-8")


def run_tests(tests: Sequence[str], folder: Path) -> Outcome:
    """Runs ``tests`` on the copy of the package in ``folder``."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(folder),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis"),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    environment.pop("PYTEST_ADDOPTS", None)
    options = ["-q", "-p", "no:cacheprovider", "--hypothesis-seed=0", f"--timeout={TIMEOUT}", "--tb=line"]
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *tests],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    output = done.stdout + done.stderr
    failed = tuple(dict.fromkeys(_FAILED.findall(output)))
    return Outcome(done.returncode, failed, time.perf_counter() - start, output)


def survived(mutant: Mutant, outcome: Outcome) -> list[str]:
    """Returns the killers of ``mutant`` that did not fail."""
    return [
        killer
        for killer in mutant.killers
        if not any(failed == killer or failed.startswith(f"{killer}[") for failed in outcome.failed)
    ]
