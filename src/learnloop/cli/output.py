"""How every command opens the workspace and prints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from rich.console import Console

    from learnloop.loop import Workspace

_WIDE = 4096
"""Columns where nobody looks: a file or a pipe gets whole lines."""
_FLEXIBLE = frozenset({"task", "what to do"})

Command = TypeVar("Command", bound=Callable[..., Any])


def json_option(function: Command) -> Command:
    """Adds ``--json`` to a command."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON with a schema name.")(function)


def open_workspace(ctx: click.Context, *, create: bool = False) -> Workspace:
    """Returns the workspace that the options, the environment or the settings file name, closed with the command."""
    from learnloop.loop import Workspace, find_settings

    settings = find_settings(**ctx.obj)
    workspace = Workspace(settings, create=create)
    ctx.call_on_close(workspace.close)
    return workspace


def print_json(schema: str, **fields: Any) -> None:
    """Prints one JSON object that begins with its schema."""
    import msgspec

    click.echo(msgspec.json.encode({"schema": schema, **fields}))


def console(*, error: bool = False) -> Console:
    """Returns a rich console on standard output, or on standard error; plain and wide where that is no terminal."""
    from rich.console import Console

    terminal = Console(stderr=error, highlight=False)
    return terminal if terminal.is_terminal else Console(stderr=error, highlight=False, width=_WIDE)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str) -> None:
    """Prints rows under their columns, each row on one line; ``empty``, on standard error, where there are none.

    On a terminal that is too narrow the column ``task`` and those of prose are cut; ``--json`` has all of it.
    """
    from rich.table import Table
    from rich.text import Text

    found = [[Text(text(cell)) for cell in row] for row in rows]
    if not found:
        click.echo(empty, err=True)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        flexible = column in _FLEXIBLE
        table.add_column(column, no_wrap=True, overflow="ellipsis", ratio=1 if flexible else None)
    for row in found:
        table.add_row(*row)
    console().print(table)


def text(value: object) -> str:
    """Returns ``value`` as a table shows it; a dash where it is not known."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4f}"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    return str(value)


@contextmanager
def progress(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """Gives a function that takes what was done since its last call; shows a bar where standard error is a terminal."""
    from rich.progress import Progress

    with Progress(console=console(error=True), transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda done: bar.advance(task, done)
