"""The architecture: which room may import which, function-local imports included."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.project import SOURCE, name_of, source_files, tree_of

LAYERS = [
    {"core"},
    {"store", "sandbox", "models", "nn"},
    {"traces", "rewards", "memory", "envs", "algorithms", "registry"},
    {"evaluation"},
    {"llm"},
    {"training"},
    {"agents", "decisions"},
    {"release"},
    {"loop"},
    {"demo"},
    {"serve"},
    {"cli"},
]
"""Lower first. A room imports rooms of lower layers and itself; members of one layer never import each other.

``demo`` is an application on the facade, as a user would write it. ``testing`` is for tests and third parties: nothing
in the product imports it but the commands in ``TOOLS``. The package's own ``__init__`` names the public things and
imports them when asked.
"""

TOOLS = {"cli/probe.py": "a tool for those who write algorithms: it runs the probes of testing on theirs"}
"""Files that may import ``testing``, and why."""

RANKS = {room: rank for rank, layer in enumerate(LAYERS) for room in layer}


def imports_of(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yields each import of a room of learnloop, anywhere in a file, with its line."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)][:1]
            if node.module == "learnloop":
                names = [f"learnloop.{alias.name}" for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "learnloop" and len(parts) > 1:
                yield node.lineno, parts[1]


def faults(room: str, tree: ast.Module, name: str = "") -> list[str]:
    """Returns the imports of a file of ``room`` that point up or sideways."""
    found = []
    for line, other in imports_of(tree):
        if other.startswith("__") or other == room or (other == "testing" and name in TOOLS):
            continue
        if other == "testing" or other not in RANKS:
            found.append(f"line {line}: {room} imports {other}, which no room of the product may")
        elif room in RANKS and RANKS[other] >= RANKS[room]:
            found.append(f"line {line}: {room} imports {other}, which is not below it")
    return found


@pytest.mark.parametrize("path", source_files(), ids=name_of)
def test_imports_point_down(path: Path) -> None:
    parts = path.relative_to(SOURCE).parts
    if len(parts) == 1 or parts[0] == "testing":
        return
    assert faults(parts[0], tree_of(path), name_of(path)) == []


def test_the_tools_exist() -> None:
    for name in TOOLS:
        assert any(other == "testing" for _, other in imports_of(tree_of(SOURCE / name))), name


def test_every_room_has_a_layer() -> None:
    rooms = {path.name for path in SOURCE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert rooms - {"testing"} <= RANKS.keys()


@pytest.mark.parametrize(
    ("room", "source", "fine"),
    [
        ("store", "from learnloop.core import ids", True),
        ("store", "from learnloop.traces import Recorder", False),
        ("store", "def f():\n    import learnloop.cli.main", False),
        ("registry", "from learnloop.algorithms import load_policy", False),
        ("cli", "from learnloop.loop import Loop", True),
        ("cli", "from learnloop import __version__", True),
        ("core", "from learnloop import store", False),
        ("loop", "from learnloop.testing import problems", False),
    ],
)
def test_the_check_itself(room: str, source: str, fine: bool) -> None:
    assert (faults(room, ast.parse(source)) == []) is fine


def test_relative_imports_are_not_used() -> None:
    relative = [
        name_of(path)
        for path in source_files()
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    assert relative == []
