"""What the tests of the project itself have in common: the source files and their syntax trees."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "learnloop"


def source_files() -> list[Path]:
    """Returns the Python files of the package."""
    return sorted(SOURCE.rglob("*.py"))


def tree_of(path: Path) -> ast.Module:
    """Returns the syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


def functions_of(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yields every function of a file, nested ones included."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def name_of(path: Path) -> str:
    """Returns a file's path below the package, as messages and exception lists write it."""
    return path.relative_to(SOURCE).as_posix()
