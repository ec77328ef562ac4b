"""Commands about the database."""

from __future__ import annotations

from pathlib import Path

import click

from learnloop.cli.output import command_settings, json_option, printed_json, say


@click.group()
def db() -> None:
    """Upgrade, back up and restore the database."""


@db.command()
@json_option
def upgrade() -> None:
    """Bring the database's schema up to this version of learnloop.

    \b
    Examples:
      learnloop db upgrade
      learnloop --database postgresql://me@localhost/agents db upgrade
    """
    from learnloop.loop.workspace.maintenance import upgrade as upgrade_database

    before, after = upgrade_database(command_settings())
    if not printed_json("learnloop.upgrade/v1", before=before, after=after):
        say(f"schema {after} (was {before or 'empty'})")


@db.command()
@json_option
def current() -> None:
    """Show the revision of the database's schema and the newest one.

    \b
    Examples:
      learnloop db current --json
    """
    from learnloop.loop.workspace.maintenance import revisions

    found, newest = revisions(command_settings())
    if not printed_json("learnloop.revision/v1", current=found, newest=newest):
        say(f"schema {found or 'empty'}, newest {newest}")


@db.command()
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@json_option
def backup(file: Path) -> None:
    """Write database, blobs and policies to FILE, also while agents are running.

    \b
    Examples:
      learnloop db backup learnloop-2026-01-31.tar
    """
    from learnloop.loop.workspace.maintenance import backup as back_up

    back_up(command_settings(), file)
    if not printed_json("learnloop.backup/v1", file=str(file), num_bytes=file.stat().st_size):
        say(f"{file}: {file.stat().st_size:,} bytes")


@db.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Replace what the store holds.")
@json_option
def restore(file: Path, force: bool) -> None:
    """Bring back the backup FILE, into SQLite or PostgreSQL whichever it came from.

    \b
    Examples:
      learnloop db restore learnloop-2026-01-31.tar
      learnloop --database postgresql://me@localhost/agents db restore laptop.tar
    """
    from learnloop.loop.workspace.maintenance import restore as bring_back

    settings = command_settings()
    bring_back(settings, file, force=force)
    if not printed_json("learnloop.restore/v1", database=settings.shown_database):
        say(f"restored into {settings.shown_database}")
