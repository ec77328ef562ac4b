"""``learnloop extensions``: what can be used by name, and where it is from."""

from __future__ import annotations

import click

from learnloop.cli.output import json_option, print_json, print_table, say, shown

KINDS = ("algorithm", "environment", "reward", "encoder", "network")
"""As in ``core.extensions``, which ``--help`` does not load."""


@click.command("extensions")
@click.option("--kind", type=click.Choice(KINDS), help="Only those of one kind.")
@json_option
def extensions(kind: str | None, as_json: bool) -> None:
    """List algorithms, environments, rewards, encoders and networks by name, those of plug-ins too.

    What cannot be used is listed with the reason; the rest works.

    \b
    Examples:
      learnloop extensions
      learnloop extensions --kind algorithm --json
    """
    from learnloop.loop.workspace.extensions import extensions as list_extensions

    found = list_extensions(kind)
    if as_json:
        print_json("learnloop.extensions/v1", extensions=found)
        return
    rows = [(each.kind, each.name, each.source, shown(each.description)) for each in found if each.error is None]
    print_table(("kind", "name", "source", "what"), rows, empty="")
    for each in found:
        if each.error is not None:
            say(shown(f"not usable: {each.error}"), error=True)
