"""Seeded bugs in a copy of the source: each must make the tests fail that are named for it.

``make nightly PART=mutants`` seeds all and keeps, for each, the tests that killed it and how long that took. A few are
killed in each run of the tests, and that all of them still apply is looked at there too.
"""

from __future__ import annotations

import ast
import copy
import functools
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.nightly.mutants import ALL, SAMPLE
from tests.nightly.mutation import (
    TESTS_FAILED,
    Mutant,
    Outcome,
    copy_package,
    mutated,
    replace,
    run_tests,
    seeded,
    survived,
)
from tests.nightly.progress import FIGURES
from tests.project import ROOT, functions_of

SEEN = [mutant for mutant in ALL if mutant.name in SAMPLE]


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a copy of the package; each test leaves it as it was."""
    return copy_package(tmp_path_factory.mktemp("copied"))


def kill(mutant: Mutant, folder: Path) -> Outcome:
    """Returns what its tests said while the bug was in the copy in ``folder``."""
    with seeded(mutant, folder):
        outcome = run_tests(mutant.killers, folder)
    assert outcome.code == TESTS_FAILED, outcome.output[-4000:]
    assert survived(mutant, outcome) == [], outcome.output[-4000:]
    return outcome


def test_all_apply() -> None:
    assert [reason for mutant in ALL if (reason := misfit(mutant))] == []


def misfit(mutant: Mutant) -> str | None:
    """Returns why the mutant is none any more: its code has moved on, or one of its tests is not there."""
    try:
        path, text = mutated(mutant)
        compile(text, path, "exec")
    except (LookupError, SyntaxError) as error:
        return str(error)
    missing = [killer for killer in mutant.killers if not is_there(killer)]
    return (
        f"the tests of the mutant {mutant.name!r} are not there: {missing}" if missing or not mutant.killers else None
    )


def is_there(test: str) -> bool:
    """Returns whether the file of a test has a function of its name."""
    file, _, names = test.partition("[")[0].partition("::")
    if not (ROOT / file).is_file():
        return False
    return names.split("::")[-1] in functions_in(file)


@functools.cache
def functions_in(file: str) -> frozenset[str]:
    return frozenset(each.name for each in functions_of(ROOT / file))


EXAMPLE = ast.parse("def f(a, b):\n    if (a):\n        b = a+ 1  # more\n        b *= 2\n    return (b+1)")


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ("a + 1", "a - 1", ["if a:", "b = a - 1", "b *= 2", "return b + 1"]),
        ("b *= 2", "", ["if a:", "b = a + 1", "return b + 1"]),
        ("b = a + 1\nb *= 2", "", ["if a:", "pass", "return b + 1"]),
        ("b *= 2", "b *= 3\nb += 1", ["if a:", "b = a + 1", "b *= 3", "b += 1", "return b + 1"]),
        ("return b + 1", "return b", ["if a:", "b = a + 1", "b *= 2", "return b"]),
    ],
)
def test_a_piece_is_found_however_it_is_laid_out(old: str, new: str, lines: list[str]) -> None:
    tree = copy.deepcopy(EXAMPLE)
    assert replace(tree, old, new) == 1
    assert [line.strip() for line in ast.unparse(tree).splitlines()][1:] == lines


@pytest.mark.parametrize(("old", "number"), [("a - 1", 0), ("b = 2", 0), ("1", 2), ("b", 3)])
def test_a_piece_that_is_not_there_once_is_counted(old: str, number: int) -> None:
    assert replace(copy.deepcopy(EXAMPLE), old, "c") == number


@pytest.mark.parametrize(
    ("function", "old", "said"),
    [
        ("advantages:no_such_function", "carry", "is 0 functions, not one, in algorithms/"),
        ("no_such_module:gae", "carry", "is 0 functions, not one, in no file"),
        ("advantages:gae", "no_such_name", "stands 0 times in advantages:gae"),
    ],
)
def test_what_does_not_apply_is_said(function: str, old: str, said: str) -> None:
    reason = misfit(Mutant("a bug", function, old, "0", ()))
    assert reason is not None
    assert said in reason
    assert "'a bug'" in reason


@pytest.mark.parametrize("killer", ["tests/no_file.py::test_it", "tests/nightly/test_mutants.py::test_no_such_test"])
def test_a_killer_that_is_not_there_is_said(killer: str) -> None:
    reason = misfit(ALL[0]._replace(killers=(killer,)))
    assert reason is not None
    assert killer in reason


def test_no_two_are_the_same() -> None:
    assert max(Counter(mutant.name for mutant in ALL).values()) == 1
    assert {mutant.name for mutant in SEEN} == set(SAMPLE)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", SEEN, ids=lambda mutant: mutant.name)
def test_a_few_are_killed(mutant: Mutant, copied: Path) -> None:
    kill(mutant, copied)


@pytest.mark.slow
def test_without_a_bug_nothing_is_killed(copied: Path) -> None:
    """The copy is what is tested, and the tests of the few pass on it."""
    code = "import learnloop; print(learnloop.__file__)"
    shown = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(copied)}, capture_output=True, text=True, check=True
    )
    assert shown.stdout.startswith(str(copied))
    outcome = run_tests(sorted({killer for mutant in SEEN for killer in mutant.killers}), copied)
    assert (outcome.code, outcome.failed) == (0, ()), outcome.output[-4000:]


@pytest.mark.nightly
@pytest.mark.timeout(3600)
def test_without_a_bug_no_test_fails(copied: Path) -> None:
    killers = sorted({killer for mutant in ALL for killer in mutant.killers})
    outcome = run_tests(killers, copied)
    assert (outcome.code, outcome.failed) == (0, ()), outcome.output[-4000:]


@pytest.mark.nightly
@pytest.mark.parametrize("mutant", ALL, ids=lambda mutant: mutant.name)
def test_it_is_killed(mutant: Mutant, copied: Path, record_property: Callable[[str, object], None]) -> None:
    outcome = kill(mutant, copied)
    killers = [killer.partition("::")[2] for killer in mutant.killers]
    record_property(FIGURES, {"function": mutant.function, "killers": killers, "seconds": round(outcome.seconds, 1)})
