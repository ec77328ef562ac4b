"""Commands that make and check a store, and list what can be used by name."""

from __future__ import annotations

from pathlib import Path

import click

from learnloop.cli.output import command_settings, json_option, print_table, printed_json, say, shown

KINDS = ("algorithm", "environment", "reward", "encoder", "network")
"""As in ``core.extensions``, which ``--help`` does not load."""


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path), default=Path())
@json_option
@click.pass_context
def init(ctx: click.Context, folder: Path) -> None:
    """Make a store for the agents of FOLDER (here, if not named).

    \b
    Examples:
      learnloop init
      learnloop --database postgresql://me@localhost/agents init
    """
    from learnloop.loop.workspace.maintenance import init as make_store

    settings, file, later = make_store(folder, ctx.obj["home"], ctx.obj["database"])
    paths = {"home": str(settings.home), "settings": None if file is None else str(file)}
    if not printed_json("learnloop.init/v1", database=settings.shown_database, **paths):
        say(f"Store:    {settings.shown_database}")
        say(f"Settings: {file or '-'}")
        next_steps = "Next: learnloop doctor; learnloop traces import FILE; or in Python: learnloop.Loop('my-agent')"
        say(next_steps, error=True)
    if (later.home, later.database) != (settings.home, settings.database):
        say(
            f"Note: other commands use {later.shown_database} in {later.home} (home: {later.origins['home']}, "
            f"database: {later.origins['database']}) unless they are told --home and --database, or LEARNLOOP_HOME "
            "and LEARNLOOP_DATABASE are set",
            error=True,
        )


@click.command()
@json_option
@click.pass_context
def doctor(ctx: click.Context) -> None:
    """Check this installation and its store; exit 7 if something is broken.

    \b
    Examples:
      learnloop doctor
      learnloop doctor --json
    """
    from learnloop.loop.workspace.doctor import examine

    checks = examine(command_settings())
    healthy = all(check.ok for check in checks)
    if not printed_json("learnloop.doctor/v1", ok=healthy, checks=checks):
        rows = [("ok" if check.ok else "BROKEN", check.name, check.found, check.advice) for check in checks]
        print_table(("", "check", "found", "what to do"), rows, empty="nothing to check")
        for check in checks:
            if not check.ok:
                say(f"{check.name}: {check.advice}", error=True)
    if not healthy:
        ctx.exit(7)


@click.command("extensions")
@click.option("--kind", type=click.Choice(KINDS), help="Only those of one kind.")
@json_option
def extensions(kind: str | None) -> None:
    """List algorithms, environments, rewards, encoders and networks by name, those of plug-ins too.

    What cannot be used is listed with the reason; the rest works.

    \b
    Examples:
      learnloop extensions
      learnloop extensions --kind algorithm --json
    """
    from learnloop.loop.workspace.extensions import extensions as list_extensions

    found = list_extensions(kind)
    if printed_json("learnloop.extensions/v1", extensions=found):
        return
    rows = [(each.kind, each.name, each.source, shown(each.description)) for each in found if each.error is None]
    print_table(("kind", "name", "source", "what"), rows, empty="")
    for each in found:
        if each.error is not None:
            say(shown(f"not usable: {each.error}"), error=True)
