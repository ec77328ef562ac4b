"""S2.5, F2.7: no failure is hidden, nothing is simulated, defaulted or skipped in silence (checked on the source).

A regular expression over words would find nothing (F2.7), so this reads the syntax tree: broad handlers, handlers that
do nothing or hand out a constant instead of a result, waits without a deadline, and words that promise work for later.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.project import name_of, source_files, tree_of

BROAD = {"Exception", "BaseException"}

BROAD_HANDLERS = {
    "traces/recorder.py: keep": "the boundary between capture and the agent; it counts and keeps the reason",
    "traces/recorder.py: describe": "the agent's own objects; it counts, keeps the reason and says so in the record",
    "traces/recorder.py: describe_error": "another's __str__ must not break the agent; the text says that it failed",
    "store/writer.py: _run_function": "the failure is set on the future of the one who waits for it",
    "store/writer.py: _write": "raised at once where the place failed, else found again record by record",
    "store/writer.py: _write_halves": "kept for the one record that it comes from, whose owner is told",
    "traces/instrument.py: wrapper": "an exception thrown at a generator is handed on to that generator",
}
"""Where a broad handler may swallow, and why. One that ends in a bare ``raise`` or raises from it hides nothing."""

CONSTANT_HANDLERS = {
    "cli/main.py: run": "the exit code that each kind of error has; the error itself was printed",
    "registry/folders.py: _is_whole": "a version that cannot be read is not whole; that is the question it answers",
    "traces/exchange.py: _read": "the bad line is counted and reported with its number",
    "demo/files.py: _fits": "other people's files come and go; one that cannot be read is no candidate",
    "demo/files.py: _read": "as above; an empty content is left out of the stream",
    "traces/instrument.py: _positional_names": "a builtin does not tell its parameters: all arguments go to 'args'",
}
"""Where a narrow handler returns a constant, and why that is the true result."""

BANNED_WORDS = re.compile(
    r"\b(TODO|FIXME|XXX|HACK)\b|not implemented|placeholder|dummy|for now|simulated|in a real (system|implementation)",
    re.IGNORECASE,
)
BANNED_CALLS = {"eval", "exec", "compile", "__import__", "print"}
BANNED_MODULES = {"pickle", "cloudpickle", "joblib", "dill", "marshal", "shelve"}


def handlers(tree: ast.Module) -> Iterator[tuple[str, ast.ExceptHandler]]:
    """Yields each except clause with the name of the function that it stands in."""

    def walk(node: ast.AST, name: str) -> Iterator[tuple[str, ast.ExceptHandler]]:
        for child in ast.iter_child_nodes(node):
            inside = child.name if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else name
            if isinstance(child, ast.ExceptHandler):
                yield name, child
            yield from walk(child, inside)

    yield from walk(tree, "(module)")


def is_broad(handler: ast.ExceptHandler) -> bool:
    """Returns whether a handler catches everything."""
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(each is None or ast.unparse(each) in BROAD for each in caught)


def raises(handler: ast.ExceptHandler) -> bool:
    """Returns whether a handler raises on some path."""
    return any(isinstance(node, ast.Raise) for node in ast.walk(handler))


def does_nothing(handler: ast.ExceptHandler) -> bool:
    """Returns whether a handler forgets that anything happened."""
    return all(isinstance(each, ast.Pass) for each in handler.body)


def returns_constant(handler: ast.ExceptHandler) -> bool:
    """Returns whether a handler hands out a fixed value in the place of the failed result."""
    return any(
        isinstance(node, ast.Return) and node.value is not None and _is_constant(node.value) for node in handler.body
    )


def _is_constant(node: ast.expr) -> bool:
    if isinstance(node, ast.Constant):
        return node.value is not None  # None says "not known", which is what it is
    if isinstance(node, ast.UnaryOp):
        return _is_constant(node.operand)
    return isinstance(node, ast.List | ast.Tuple | ast.Dict) and not list(ast.iter_child_nodes(node))[1:]


def faults(name: str, tree: ast.Module) -> list[str]:
    """Returns what hides a failure in the file ``name``."""
    found = []
    for function, handler in handlers(tree):
        place = f"{name}: {function}"
        if is_broad(handler) and not raises(handler) and place not in BROAD_HANDLERS:
            found.append(f"{place}, line {handler.lineno}: a broad except that does not raise")
        if does_nothing(handler):
            found.append(
                f"{place}, line {handler.lineno}: an except that does nothing; say contextlib.suppress and why"
            )
        if returns_constant(handler) and place not in CONSTANT_HANDLERS:
            found.append(f"{place}, line {handler.lineno}: a constant in the place of a failed result")
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in BANNED_CALLS:
            found.append(f"{name}, line {node.lineno}: {node.func.id}()")
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            found += [f"{name}, line {node.lineno}: {module}" for module in modules if module in BANNED_MODULES]
        if isinstance(node, ast.Assert):
            found.append(
                f"{name}, line {node.lineno}: an assert, which -O removes; raise an error that says what to do"
            )
    return found


@pytest.mark.parametrize("path", source_files(), ids=name_of)
def test_nothing_hides_a_failure(path: Path) -> None:
    found = faults(name_of(path), tree_of(path))
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        if BANNED_WORDS.search(line):
            found.append(f"{name_of(path)}, line {number}: {line.strip()}")
    assert found == []


def test_the_allowed_places_exist() -> None:
    existing = {f"{name_of(path)}: {function}" for path in source_files() for function, _ in handlers(tree_of(path))}
    assert BROAD_HANDLERS.keys() <= existing
    assert CONSTANT_HANDLERS.keys() <= existing


@pytest.mark.parametrize(
    ("source", "number"),
    [
        ("try:\n    f()\nexcept Exception:\n    pass", 2),
        ("try:\n    f()\nexcept:\n    log()", 1),
        ("try:\n    f()\nexcept (ValueError, Exception) as e:\n    log(e)", 1),
        ("try:\n    f()\nexcept Exception as e:\n    raise Wrong() from e", 0),
        ("def g():\n    try:\n        return f()\n    except ValueError:\n        return 0.0", 1),
        ("def g():\n    try:\n        return f()\n    except ValueError:\n        return -1", 1),
        ("def g():\n    try:\n        return f()\n    except ValueError:\n        return []", 1),
        ("def g():\n    try:\n        return f()\n    except ValueError:\n        return None", 0),
        ("import pickle", 1),
        ("x = eval('1')", 1),
        ("assert x", 1),
    ],
)
def test_the_check_itself(source: str, number: int) -> None:
    assert len(faults("x.py", ast.parse(source))) == number
