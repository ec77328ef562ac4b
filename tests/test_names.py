"""The table of names holds: each noun's methods, its commands and its routes are in it, and what it names is there."""

from __future__ import annotations

import inspect
import json
import re
from functools import cached_property

import click

from learnloop.cli.main import cli
from learnloop.loop import Workspace
from tests.project import ROOT

_ROW = re.compile(r"^\| `ws\.(\w+)\.(\w+)` \| (.+?) \| (.+?) \|$", re.MULTILINE)
ROWS = _ROW.findall((ROOT / "docs" / "names.md").read_text(encoding="utf-8"))
ROUTES = json.loads((ROOT / "docs" / "openapi.json").read_text(encoding="utf-8"))["paths"]
NONE = "—"
ELSEWHERE = {
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
            kind = inspect.signature(value.func, eval_str=False).return_annotation
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
        name = ELSEWHERE.get((noun, method), f"learnloop {noun} {method.strip('_').replace('_', '-')}")
        assert command in (NONE, f"`{name}`")
    context = click.Context(cli)
    for noun in nouns():
        group = cli.get_command(context, noun)
        if group is not None:
            assert isinstance(group, click.Group)
            assert {f"learnloop {noun} {name}" for name in group.commands} <= told, noun
    groups = {command.split()[1] for command in told}
    assert told <= {f"learnloop {group} {name}" for group in groups for name in _commands(context, group)}


def _commands(context: click.Context, noun: str) -> list[str]:
    group = cli.get_command(context, noun)
    return list(group.commands) if isinstance(group, click.Group) else []


def test_routes_of_the_table_exist() -> None:
    for noun, method, _, route in ROWS:
        if route != NONE:
            verb, path = route.strip("`").split()
            assert verb.lower() in ROUTES[path], f"{noun}.{method}"
