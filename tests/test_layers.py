"""The architecture: which room may import which, function-local imports included, and no circle between files."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.project import SOURCE, all_imports, circles, imported_names, module_of, name_of, source_files, tree_of

LAYERS = [
    {"core"},
    {"system"},
    {"store", "sandbox", "models", "nn"},
    {"traces", "rewards", "memory", "envs", "algorithms", "registry"},
    {"evaluation"},
    {"llm"},
    {"training"},
    {"decisions"},
    {"agents"},
    {"release"},
    {"loop"},
    {"demo"},
    {"serve"},
    {"compat"},
    {"cli"},
]
"""Lower first. A room imports rooms of lower layers and itself; members of one layer never import each other.

``demo`` is an application on the facade, as a user would write it. ``client`` talks to a server and knows the records
alone. ``testing`` is for tests and third parties: nothing in the product imports it but the commands in ``TOOLS``. The
package's own ``__init__`` names the public things and imports them when asked.
"""

TOOLS = {"cli/probe.py": "a tool for those who write algorithms: it runs the probes of testing on theirs"}
"""Files that may import ``testing``, and why."""

ISLANDS = {"client": {"core"}, "serve/http": {"serve/http"}}
"""Rooms and parts of rooms that know nothing else of learnloop than this."""

SQL = ("sqlalchemy", "psycopg", "learnloop.store.schema", "learnloop.store.mapping")
"""What speaks SQL, for the store alone: other rooms call the functions of ``store/queries``."""

MAX_FILES = 20
"""In one folder, ``__init__`` included: a room with more is divided into named parts."""

RANKS = {room: rank for rank, layer in enumerate(LAYERS) for room in layer}
_SQL = tuple(f"{each}." for each in SQL)
MODULES = {module_of(path) for path in source_files()}


def faults(name: str, tree: ast.Module) -> list[str]:
    """Returns the imports of the file ``name`` that point up or sideways."""
    room, found = name.split("/")[0], []
    island = next((each for each in ISLANDS if name.startswith(f"{each}/")), None)
    for line, imported in imported_names(tree):
        parts = imported.split(".")
        other = parts[1] if len(parts) > 1 else ""
        if island is not None:
            if not any("/".join(parts[1:]).startswith(allowed) for allowed in ISLANDS[island]):
                found.append(f"line {line}: {island} imports {imported}, but knows nothing of it")
        elif other == room or (other == "testing" and name in TOOLS):
            continue
        elif other not in RANKS:
            found.append(f"line {line}: {room} imports {imported}, which no room of the product may")
        elif RANKS[other] >= RANKS[room]:
            found.append(f"line {line}: {room} imports {other}, which is not below it")
    return found


def _imports() -> dict[str, set[str]]:
    """Returns which files of the package each of them imports, function-local and type-checking imports too.

    Who imports a file of another folder runs that folder's ``__init__`` first, and those of the folders around it.
    """
    found: dict[str, set[str]] = {}
    for path in source_files():
        own = module_of(path)
        named = (name for _, name in imported_names(tree_of(path)))
        modules = {name if name in MODULES else name.rpartition(".")[0] for name in named} & MODULES
        paths = [each.split(".") for each in modules]
        around = {".".join(parts[:depth]) for parts in paths for depth in range(2, len(parts))}
        found[own] = modules | {each for each in around & MODULES if not f"{own}.".startswith(f"{each}.")}
    return found


def test_imports_point_down() -> None:
    found = {}
    for path in source_files():
        parts = path.relative_to(SOURCE).parts
        if len(parts) > 1 and parts[0] != "testing":
            found[name_of(path)] = faults(name_of(path), tree_of(path))
    assert {name: each for name, each in found.items() if each} == {}


def sql_outside(name: str, tree: ast.Module) -> list[str]:
    """Returns where the file ``name`` speaks SQL and is not the store's."""
    if name.startswith("store/"):
        return []
    found = [f"line {line}: imports {each}" for line, each in all_imports(tree) if f"{each}.".startswith(_SQL)]
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute))
    return [*found, *(f"line {node.lineno}: runs SQL" for node in nodes if node.attr == "exec_driver_sql")]


def test_sql_is_the_stores_alone() -> None:
    found = {name_of(path): sql_outside(name_of(path), tree_of(path)) for path in source_files()}
    assert {name: each for name, each in found.items() if each} == {}


@pytest.mark.parametrize(
    ("name", "source", "fine"),
    [
        ("store/a.py", "from sqlalchemy import select", True),
        ("loop/a.py", "from learnloop.store import Connection, Store", True),
        ("loop/a.py", "from learnloop.store.queries.spans import bare_spans", True),
        ("loop/a.py", "def f():\n    import sqlalchemy.exc", False),
        ("testing/a.py", "from sqlalchemy import text", False),
        ("loop/a.py", "from learnloop.store import schema", False),
        ("loop/a.py", "from learnloop.store.schema import spans", False),
        ("loop/a.py", "from learnloop.store.mapping import table_of", False),
        ("loop/a.py", "store.read(lambda connection: connection.exec_driver_sql('SELECT 1'))", False),
    ],
)
def test_the_check_of_sql(name: str, source: str, fine: bool) -> None:
    assert (sql_outside(name, ast.parse(source)) == []) is fine


def test_no_circle_between_files() -> None:
    assert circles(_imports()) == []


def test_circles_are_found() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set()}) == [["a", "b", "c"]]
    assert circles({"a": {"a"}, "b": {"a"}}) == [["a"]]
    assert circles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_no_folder_has_too_many_files() -> None:
    folders = {path.parent for path in source_files()}
    counts = {name_of(folder): len(list(folder.glob("*.py"))) for folder in folders}
    assert {name: count for name, count in counts.items() if count > MAX_FILES} == {}


def test_the_tools_exist() -> None:
    for name in TOOLS:
        assert any(imported.startswith("learnloop.testing") for _, imported in imported_names(tree_of(SOURCE / name)))


def test_every_room_has_a_layer() -> None:
    rooms = {path.relative_to(SOURCE).parts[0] for path in source_files() if path.parent != SOURCE}
    assert rooms - {"testing"} <= RANKS.keys() | ISLANDS.keys()


@pytest.mark.parametrize(
    ("name", "source", "fine"),
    [
        ("store/a.py", "from learnloop.core import ids", True),
        ("store/a.py", "from learnloop.traces import Recorder", False),
        ("store/a.py", "def f():\n    import learnloop.cli.main", False),
        ("registry/a.py", "from learnloop.algorithms import load_policy", False),
        ("cli/a.py", "from learnloop.loop import Loop", True),
        ("cli/a.py", "from learnloop import __version__", False),
        ("core/a.py", "from learnloop import store", False),
        ("loop/a.py", "from learnloop.testing import problems", False),
        ("cli/probe.py", "from learnloop.testing import problems", True),
        ("serve/http/a.py", "from learnloop.serve.http.b import c", True),
        ("serve/http/a.py", "from learnloop.core.errors import LearnloopError", False),
        ("client/a.py", "from learnloop.core.records import Span", True),
        ("client/a.py", "from learnloop.store import Store", False),
    ],
)
def test_the_check_itself(name: str, source: str, fine: bool) -> None:
    assert (faults(name, ast.parse(source)) == []) is fine


def test_relative_imports_are_not_used() -> None:
    relative = [
        name_of(path)
        for path in source_files()
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ImportFrom) and node.level
    ]
    assert relative == []


def test_only_files_of_the_package_are_read() -> None:
    assert all(isinstance(path, Path) and path.suffix == ".py" for path in source_files())
    assert "learnloop.core.ids" in MODULES
