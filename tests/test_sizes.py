"""Files and functions stay small; the exceptions are listed and their list only shrinks."""

from __future__ import annotations

import ast
import statistics
from pathlib import Path

from tests.project import functions_of, name_of, source_files

MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 80
MAX_PARAMETERS = 8
MANY_PARAMETERS = {
    "cli/probe.py: probe": "click hands each option over as a parameter",
    "cli/serve.py: serve": "click hands each option over as a parameter",
    "cli/train.py: train": "click hands each option over as a parameter",
    "loop/training/training.py: train": "what a user says of a training, by name and in one place",
}


def test_files_and_functions_are_small() -> None:
    assert [fault for path in source_files() for fault in _faults(path)] == []


def _faults(path: Path) -> list[str]:
    """Returns what of a file is too large."""
    found = []
    if len(path.read_text(encoding="utf-8").splitlines()) > MAX_FILE_LINES:
        found.append(f"{name_of(path)} has over {MAX_FILE_LINES} lines")
    for function in functions_of(path):
        label = f"{name_of(path)}: {function.name}"
        if (function.end_lineno or 0) - function.lineno + 1 > MAX_FUNCTION_LINES:
            found.append(f"{label} has over {MAX_FUNCTION_LINES} lines")
        arguments = function.args
        names = {each.arg for each in arguments.posonlyargs + arguments.args + arguments.kwonlyargs} - {"self", "cls"}
        if len(names) > MAX_PARAMETERS and label not in MANY_PARAMETERS:
            found.append(f"{label} has over {MAX_PARAMETERS} parameters")
    return found


def test_functions_are_small_on_the_whole() -> None:
    sizes = sorted(
        (function.end_lineno or 0) - function.lineno + 1 - _docstring_lines(function)
        for path in source_files()
        for function in functions_of(path)
    )
    assert statistics.median(sizes) <= 10
    assert sizes[int(0.9 * len(sizes))] <= 45


def test_the_exceptions_exist() -> None:
    existing = {f"{name_of(path)}: {function.name}" for path in source_files() for function in functions_of(path)}
    assert MANY_PARAMETERS.keys() <= existing


def test_no_adjectives_in_file_names() -> None:
    adjectives = ("new_", "enhanced_", "improved_", "fixed_", "advanced_", "simple_", "v2_", "_v2", "_new", "_old")
    named = [name_of(path) for path in source_files() if any(word in path.stem for word in adjectives)]
    assert named == []


def _docstring_lines(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    first = function.body[0]
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
        return (first.end_lineno or 0) - first.lineno + 1
    return 0
