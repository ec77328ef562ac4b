"""The table of names holds: each noun's methods, its commands and its routes are in it, and what it names is there.

And a name has one meaning: no two public classes are called the same.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
from collections import defaultdict
from functools import cached_property

import click

from learnloop.cli.main import cli
from learnloop.loop import Workspace
from tests.project import ROOT, name_of, source_files, tree_of

_ROW = re.compile(r"^\| `ws\.(\w+)\.(\w+)` \| (.+?) \| (.+?) \|$", re.MULTILINE)
ROWS = _ROW.findall((ROOT / "docs" / "names.md").read_text(encoding="utf-8"))
ROUTES = json.loads((ROOT / "docs" / "openapi.json").read_text(encoding="utf-8"))["paths"]
NONE = "—"
GROUPS = {"episodes": "traces", "spans": "traces"}
"""Groups of commands that have another name than their noun."""
ELSEWHERE = {
    ("episodes", "steps"): "learnloop traces show",
    ("episodes", "follow"): "learnloop traces tail",
    ("episodes", "remove"): "learnloop traces rm",
    ("episodes", "remove_old"): "learnloop traces rm",
    ("spans", "outline"): "learnloop traces show",
    ("spans", "usage"): "learnloop traces show",
    ("rewards", "totals"): "learnloop rewards history",
    ("runs", "open"): "learnloop runs show",
    ("runs", "train"): "learnloop train",
    ("runs", "resume"): "learnloop train",
    ("decisions", "change_settings"): "learnloop decisions settings",
    ("decisions", "settings_history"): "learnloop decisions settings",
    ("labels", "give"): "learnloop traces label",
    ("labels", "accept"): "learnloop labels answer",
}
"""Commands that have another name than their method, as the page explains."""


def nouns() -> dict[str, set[str]]:
    """Returns the nouns of a workspace with their public methods."""
    found = {}
    for name, value in vars(Workspace).items():
        if isinstance(value, cached_property):
            kind = Workspace.__annotations__[name].removeprefix("cached_property[").removesuffix("]")
            module = __import__(f"learnloop.loop.nouns.{name}", fromlist=[kind])
            members = inspect.getmembers(getattr(module, kind), inspect.isfunction)
            found[name] = {method for method, _ in members if not method.startswith("_")}
    return found


def test_every_method_of_every_noun_has_its_row() -> None:
    named = [(noun, method) for noun, method, _, _ in ROWS]
    assert sorted(named) == sorted((noun, method) for noun, methods in nouns().items() for method in methods)


def test_commands_of_a_noun_have_the_names_of_its_methods() -> None:
    told = {command.strip("`") for _, _, command, _ in ROWS if command != NONE}
    for noun, method, command, _ in ROWS:
        group = GROUPS.get(noun, noun)
        name = ELSEWHERE.get((noun, method), f"learnloop {group} {method.strip('_').replace('_', '-')}")
        assert command in (NONE, f"`{name}`")
    context = click.Context(cli)
    for noun in nouns():
        found = cli.get_command(context, GROUPS.get(noun, noun))
        if found is not None:
            assert isinstance(found, click.Group)
            assert _commands(context, GROUPS.get(noun, noun)) <= told, noun
    names = {command.split()[1] for command in told}
    assert told <= {command for name in names for command in _commands(context, name)}


def _commands(context: click.Context, name: str) -> set[str]:
    """Returns the command of this name, or those of a group, as they are called."""
    found = cli.get_command(context, name)
    if isinstance(found, click.Group):
        return {f"learnloop {name} {each}" for each in found.commands}
    return set() if found is None else {f"learnloop {name}"}


def test_groups_of_commands_are_plural() -> None:
    context = click.Context(cli)
    groups = {name for name in cli.list_commands(context) if isinstance(cli.get_command(context, name), click.Group)}
    assert {name for name in groups if not name.endswith("s")} == {"rl", "db"}  # the seeds' word; a mass word


def test_routes_of_the_table_exist() -> None:
    for noun, method, _, route in ROWS:
        if route != NONE:
            verb, path = route.strip("`").split()
            assert verb.lower() in ROUTES[path], f"{noun}.{method}"


def test_no_two_public_classes_have_one_name() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for path in source_files():
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(name_of(path))
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}
