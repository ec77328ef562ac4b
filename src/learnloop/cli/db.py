"""Commands about the database."""

from __future__ import annotations

from pathlib import Path

import click

from learnloop.cli.output import json_option, print_json, say


@click.group()
def db() -> None:
    """Upgrade, back up and restore the database."""


@db.command()
@json_option
@click.pass_context
def upgrade(ctx: click.Context, as_json: bool) -> None:
    """Bring the database's schema up to this version of learnloop.

    \b
    Examples:
      learnloop db upgrade
      learnloop --database postgresql://me@localhost/agents db upgrade
    """
    from learnloop.loop.workspace.maintenance import upgrade as upgrade_database
    from learnloop.loop.workspace.settings import find_settings

    before, after = upgrade_database(find_settings(**ctx.obj))
    if as_json:
        print_json("learnloop.upgrade/v1", before=before, after=after)
    else:
        say(f"schema {after} (was {before or 'empty'})")


@db.command()
@json_option
@click.pass_context
def current(ctx: click.Context, as_json: bool) -> None:
    """Show the revision of the database's schema and the newest one.

    \b
    Examples:
      learnloop db current --json
    """
    from learnloop.loop.workspace.maintenance import revisions
    from learnloop.loop.workspace.settings import find_settings

    found, newest = revisions(find_settings(**ctx.obj))
    if as_json:
        print_json("learnloop.revision/v1", current=found, newest=newest)
    else:
        say(f"schema {found or 'empty'}, newest {newest}")


@db.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@json_option
@click.pass_context
def backup(ctx: click.Context, file: Path, as_json: bool) -> None:
    """Write database, blobs and policies to FILE, also while agents are running.

    \b
    Examples:
      learnloop db backup learnloop-2026-01-31.tar
    """
    from learnloop.loop.workspace.maintenance import backup as back_up
    from learnloop.loop.workspace.settings import find_settings

    back_up(find_settings(**ctx.obj), file)
    if as_json:
        print_json("learnloop.backup/v1", file=str(file), num_bytes=file.stat().st_size)
    else:
        say(f"{file}: {file.stat().st_size:,} bytes")


@db.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Replace what the store holds.")
@json_option
@click.pass_context
def restore(ctx: click.Context, file: Path, force: bool, as_json: bool) -> None:
    """Bring back the backup FILE, into SQLite or PostgreSQL whichever it came from.

    \b
    Examples:
      learnloop db restore learnloop-2026-01-31.tar
      learnloop --database postgresql://me@localhost/agents db restore laptop.tar
    """
    from learnloop.loop.workspace.maintenance import restore as bring_back
    from learnloop.loop.workspace.settings import find_settings

    settings = find_settings(**ctx.obj)
    bring_back(settings, file, force=force)
    if as_json:
        print_json("learnloop.restore/v1", database=settings.shown_database)
    else:
        say(f"restored into {settings.shown_database}")
