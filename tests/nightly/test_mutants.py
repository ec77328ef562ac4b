"""Seeded bugs in a copy of the source: each must make the tests fail that are named for it.

``make nightly`` runs all and prints, for each, the tests that killed it and how long that took. A few are killed in
each run of the tests, and that all of them still apply is looked at there too.
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.nightly.conftest import MUTANT
from tests.nightly.mutants import ALL, SAMPLE
from tests.nightly.mutation import TESTS_FAILED, Mutant, Outcome, copy_package, mutated, run_tests, seed, survived

SEEN = [mutant for mutant in ALL if mutant.name in SAMPLE]


def kill(mutant: Mutant, folder: Path) -> Outcome:
    """Seeds the bug into a copy, and returns what its tests said."""
    seed(mutant, copy_package(folder))
    outcome = run_tests(mutant.killers, folder)
    assert outcome.code == TESTS_FAILED, outcome.output[-4000:]
    assert survived(mutant, outcome) == [], outcome.output[-4000:]
    return outcome


@pytest.mark.parametrize("mutant", ALL, ids=lambda mutant: mutant.name)
def test_it_applies(mutant: Mutant) -> None:
    compile(mutated(mutant), mutant.file, "exec")
    assert mutant.killers


def test_no_two_are_the_same() -> None:
    assert max(Counter(mutant.name for mutant in ALL).values()) == 1
    assert {mutant.name for mutant in SEEN} == set(SAMPLE)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", SEEN, ids=lambda mutant: mutant.name)
def test_a_few_are_killed(mutant: Mutant, tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    record(mutant, kill(mutant, tmp_path), record_property)


@pytest.mark.slow
def test_without_a_bug_nothing_is_killed(tmp_path: Path) -> None:
    """The copy is what is tested, and the tests of the few pass on it."""
    copy_package(tmp_path)
    code = "import learnloop; print(learnloop.__file__)"
    shown = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=True
    )
    assert shown.stdout.startswith(str(tmp_path))
    outcome = run_tests(sorted({killer for mutant in SEEN for killer in mutant.killers}), tmp_path)
    assert (outcome.code, outcome.failed) == (0, ()), outcome.output[-4000:]


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_without_a_bug_no_test_fails(tmp_path: Path) -> None:
    killers = sorted({killer for mutant in ALL for killer in mutant.killers})
    outcome = run_tests(killers, copy_package(tmp_path))
    assert (outcome.code, outcome.failed) == (0, ()), outcome.output[-4000:]


@pytest.mark.nightly
@pytest.mark.parametrize("mutant", ALL, ids=lambda mutant: mutant.name)
def test_it_is_killed(mutant: Mutant, tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    record(mutant, kill(mutant, tmp_path), record_property)


def record(mutant: Mutant, outcome: Outcome, record_property: Callable[[str, object], None]) -> None:
    """Adds a line to the table."""
    killers = ", ".join(killer.partition("::")[2] for killer in mutant.killers)
    record_property(MUTANT, f"{mutant.name} | {mutant.file} | {killers} | {outcome.seconds:.1f} s")
