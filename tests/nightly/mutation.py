"""Seeded bugs: one change of the source each, made in a copy, and the tests that must fail there.

A mutant changes the real code: within one function, one piece of its syntax tree becomes another. How the code is laid
out, where its file lies and what stands around the function is all one to it; where the function itself has moved on,
the mutant no longer applies and says so. It is killed if each of its tests fails; one that cannot be imported, or whose
tests cannot be found, is no mutant.
"""

from __future__ import annotations

import ast
import functools
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.project import ROOT, SOURCE, module_of, name_of, source_files

TIMEOUT = 120
"""Seconds for one test: a mutant may not end."""
TESTS_FAILED = 1
"""pytest's exit code where tests ran and some failed."""

_FAILED = re.compile(r"^FAILED (.+?)(?: - .*)?$", re.MULTILINE)

Function = ast.FunctionDef | ast.AsyncFunctionDef


class Mutant(NamedTuple):
    """A seeded bug."""

    name: str
    function: str
    """The end of its module's name and its own qualified name: ``on_policy.ppo:PPO.update``."""
    old: str
    """An expression or statements that stand in the function exactly once, however they are laid out."""
    new: str
    """What stands there instead; nothing, where statements are left out."""
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


def mutated(mutant: Mutant) -> tuple[Path, str]:
    """Returns the file that has the mutant's function, and its text with the bug.

    Raises:
        LookupError: there is not one such function, or the old piece does not stand in it exactly once.
    """
    module, _, name = mutant.function.partition(":")
    paths = [path for each, path in _modules() if each.endswith(f".{module}")]
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in paths]
    found = [
        (path, tree, function)
        for path, tree in zip(paths, trees, strict=True)
        for each, function in _named(tree)
        if each == name
    ]
    if len(found) != 1:
        places = ", ".join(map(name_of, paths)) or "no file"
        raise LookupError(
            f"the mutant {mutant.name!r} does not apply: {mutant.function!r} is {len(found)} functions, not one, "
            f"in {places}"
        )
    [(path, tree, function)] = found
    num_found = replace(function, mutant.old, mutant.new)
    if num_found != 1:
        raise LookupError(
            f"the mutant {mutant.name!r} does not apply: its piece stands {num_found} times in {mutant.function}, "
            f"not once. Seed the same bug in the code of now:\n{mutant.old}"
        )
    return path, ast.unparse(tree)


@functools.cache
def _modules() -> tuple[tuple[str, Path], ...]:
    return tuple((f".{module_of(path)}", path) for path in source_files())


def _named(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, Function]]:
    """Yields each function below ``tree`` with its qualified name."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.expr):
            continue
        inside = f"{prefix}{node.name}." if isinstance(node, Function | ast.ClassDef) else prefix
        if isinstance(node, Function):
            yield inside.rstrip("."), node
        yield from _named(node, inside)


def replace(tree: ast.AST, old: str, new: str) -> int:
    """Puts the piece ``new`` in the place of ``old``, each time that it stands there, and returns how often it did."""
    before, after = ast.parse(old).body, ast.parse(new).body
    if len(before) == len(after) == 1 and isinstance(before[0], ast.Expr) and isinstance(after[0], ast.Expr):
        swap = _Expressions(before[0].value, after[0].value)
        swap.visit(tree)
        return swap.num_found
    return sum(_replace_statements(body, before, after) for body in _bodies(tree))


class _Expressions(ast.NodeTransformer):
    def __init__(self, old: ast.expr, new: ast.expr) -> None:
        self.kind, self.text, self.new, self.num_found = type(old), ast.unparse(old), new, 0

    def visit(self, node: ast.AST) -> ast.AST:
        if isinstance(node, self.kind) and ast.unparse(node) == self.text:
            self.num_found += 1
            return self.new
        return self.generic_visit(node)


def _bodies(tree: ast.AST) -> Iterator[list[ast.stmt]]:
    for node in list(ast.walk(tree)):
        for _, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                yield value


def _replace_statements(body: list[ast.stmt], old: list[ast.stmt], new: list[ast.stmt]) -> int:
    wanted, lines = [ast.unparse(each) for each in old], [ast.unparse(each) for each in body]
    starts = [at for at in range(len(lines)) if lines[at : at + len(wanted)] == wanted]
    for at in reversed(starts):
        body[at : at + len(wanted)] = new or ([] if len(body) > len(wanted) else [ast.Pass()])
    return len(starts)


def copy_package(folder: Path) -> Path:
    """Returns ``folder`` with a copy of the package in it."""
    shutil.copytree(SOURCE, folder / SOURCE.name)
    return folder


@contextmanager
def seeded(mutant: Mutant, folder: Path) -> Iterator[None]:
    """Has the bug in the copy in ``folder`` for a while."""
    path, text = mutated(mutant)
    target = folder / SOURCE.name / path.relative_to(SOURCE)
    _write(target, text)
    try:
        yield
    finally:
        _write(target, path.read_text(encoding="utf-8"))


def _write(target: Path, text: str) -> None:
    for compiled in (target.parent / "__pycache__").glob(f"{target.stem}.*.pyc"):
        compiled.unlink()  # it is looked at only for the time and the size of its source
    target.write_text(text, encoding="utf-8")


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
