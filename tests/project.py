"""What the tests of the project itself have in common: the source files, their syntax trees and their imports."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "learnloop"


@functools.cache
def source_files() -> tuple[Path, ...]:
    """Returns the Python files of the package."""
    return tuple(sorted(SOURCE.rglob("*.py")))


@functools.cache
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


def module_of(path: Path) -> str:
    """Returns the name by which a file is imported."""
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def all_imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yields line and full name of each import, anywhere in a file: ``learnloop.core.ids.make_id``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from ((node.lineno, name) for name in names)


def imported_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yields line and full name of each import of the package."""
    return ((line, name) for line, name in all_imports(tree) if name.split(".")[0] == "learnloop")


def circles(imports: Mapping[str, set[str]]) -> list[list[str]]:
    """Returns the groups of modules that import each other in a circle, each sorted (Tarjan 1972)."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    path: list[str] = []
    found: list[list[str]] = []

    def visit(module: str) -> None:
        order[module] = lowest[module] = len(order)
        path.append(module)
        for other in sorted(imports.get(module, ())):
            if other not in order:
                visit(other)
                lowest[module] = min(lowest[module], lowest[other])
            elif other in path:
                lowest[module] = min(lowest[module], order[other])
        if lowest[module] == order[module]:
            start = path.index(module)
            circle, path[start:] = path[start:], []
            if len(circle) > 1 or module in imports.get(module, ()):
                found.append(sorted(circle))

    for module in imports:
        if module not in order:
            visit(module)
    return found
