"""Commands that make and check a store."""

from __future__ import annotations

from pathlib import Path

import click

from learnloop.cli.output import json_option, print_json, print_table

_SETTINGS = """\
# Settings of learnloop. An option or LEARNLOOP_HOME / LEARNLOOP_DATABASE wins over this file.
home = ".learnloop"                        # the store's folder, relative to this file
# database = "postgresql://user@host/name"   # SQLite in the folder above unless set
"""


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), default=Path())
@json_option
@click.pass_context
def init(ctx: click.Context, folder: Path, as_json: bool) -> None:
    """Make a store for the agents of FOLDER (here, if not named).

    \b
    Examples:
      learnloop init
      learnloop --database postgresql://me@localhost/agents init
    """
    from learnloop.core.errors import StoreReadOnlyError
    from learnloop.loop.workspace import HOME_FOLDER, SETTINGS_FILE, Workspace, find_settings

    settings_file = folder / SETTINGS_FILE
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not settings_file.exists():
            settings_file.write_text(_SETTINGS, encoding="utf-8")
    except OSError as error:
        raise StoreReadOnlyError(
            f"{folder} cannot be written ({error.strerror}); name a folder that you own"
        ) from error
    home = ctx.obj["home"] or folder / HOME_FOLDER
    with Workspace(find_settings(home, ctx.obj["database"]), create=True) as workspace:
        found = workspace.settings
        if as_json:
            paths = {"home": str(found.home), "settings": str(settings_file)}
            print_json("learnloop.init/v1", database=found.shown_database, **paths)
            return
        click.echo(f"Store:    {found.shown_database}")
        click.echo(f"Settings: {settings_file}")
        click.echo(
            "Next: learnloop doctor; learnloop traces import FILE; or in Python: learnloop.Loop('my-agent')", err=True
        )


@click.command()
@json_option
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> None:
    """Check this installation and its store; exit 7 if something is broken.

    \b
    Examples:
      learnloop doctor
      learnloop doctor --json
    """
    from learnloop.loop.doctor import examine
    from learnloop.loop.workspace import find_settings

    checks = examine(find_settings(**ctx.obj))
    healthy = all(check.ok for check in checks)
    if as_json:
        print_json("learnloop.doctor/v1", ok=healthy, checks=checks)
    else:
        rows = [("ok" if check.ok else "BROKEN", check.name, check.found, check.advice) for check in checks]
        print_table(("", "check", "found", "what to do"), rows, empty="nothing to check")
    if not healthy:
        ctx.exit(7)
