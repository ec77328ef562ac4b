"""Writes the reference pages that are made from the code; ``make docs`` runs it, a test compares."""

from __future__ import annotations

import json
from collections.abc import Iterator

import click

from learnloop.cli.main import COMMANDS, cli
from learnloop.compat.groups import COMPATIBLE_GROUPS
from learnloop.serve.app import GROUPS
from learnloop.serve.http.openapi import describe
from learnloop.serve.http.site import Site
from learnloop.serve.service import ABOUT
from tests.project import ROOT

CLI_PAGE = ROOT / "docs" / "cli.md"
API_PAGE = ROOT / "docs" / "openapi.json"

_HEAD = """\
# Command line

Written from the commands' own help by `make docs`; do not edit.

Data goes to standard output, everything else to standard error. `--json` prints one object that begins with its
schema. Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 not allowed, 5 conflict, 6 unreachable, 7 a check said no,
130 interrupted.
"""


def commands() -> Iterator[tuple[str, click.Command, click.Context]]:
    """Yields every command with its full name and a context to format it in."""
    settings = {"max_content_width": 100, "terminal_width": 100, "help_option_names": ["-h", "--help"]}
    root = click.Context(cli, info_name="learnloop", **settings)
    yield "learnloop", cli, root
    for name in COMMANDS:
        command = cli.get_command(root, name)
        if command is None:
            raise LookupError(name)
        context = click.Context(command, parent=root, info_name=name, **settings)
        yield f"learnloop {name}", command, context
        if isinstance(command, click.Group):
            for child_name, child in command.commands.items():
                yield (
                    f"learnloop {name} {child_name}",
                    child,
                    click.Context(child, parent=context, info_name=child_name, **settings),
                )


def cli_page() -> str:
    """Returns the text of docs/cli.md."""
    parts = [_HEAD]
    for name, command, context in commands():
        parts.append(f"## {name}\n\n```text\n{command.get_help(context).strip()}\n```\n")
    return "\n".join(parts)


def api_page() -> str:
    """Returns the text of docs/openapi.json."""
    return json.dumps(describe(Site(about=ABOUT), (*GROUPS, *COMPATIBLE_GROUPS)), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    CLI_PAGE.parent.mkdir(exist_ok=True)
    CLI_PAGE.write_text(cli_page(), encoding="utf-8")
    API_PAGE.write_text(api_page(), encoding="utf-8")
