"""How every command opens the workspace and prints."""

from __future__ import annotations

import re
import sys
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
_MIN_FLEXIBLE = 12
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")

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


def say(message: str, *, error: bool = False) -> None:
    """Prints a line for a person; what is stored comes from anywhere, so control characters in it are shown."""
    click.echo("\n".join(shown(line) for line in message.split("\n")), err=error)


def shown(value: str) -> str:
    r"""Returns text as a terminal may be given it: control and direction characters become escapes such as \x1b."""
    return _CONTROLS.sub(lambda found: ascii(found.group())[1:-1], value)


def console(*, error: bool = False) -> Console:
    """Returns a rich console on standard output, or on standard error; plain and wide where that is no terminal."""
    from rich.console import Console

    terminal = Console(stderr=error, highlight=False)
    return terminal if terminal.is_terminal else Console(stderr=error, highlight=False, width=_WIDE)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str) -> None:
    """Prints rows under their columns, each row on one line; ``empty``, on standard error, where there are none.

    On a terminal that is too narrow a column of prose is cut; where that is not enough, lines are longer than it.
    """
    from rich.table import Table
    from rich.text import Text

    found = [[text(cell) for cell in row] for row in rows]
    if not found:
        say(empty, error=True)
        return
    terminal = console()
    widths = [max(map(len, [name, *(row[index] for row in found)])) for index, name in enumerate(columns)]
    left = terminal.width - sum(widths) - 2 * (len(columns) - 1)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for index, name in enumerate(columns):
        if name in _FLEXIBLE and left < 0:
            kept = max(_MIN_FLEXIBLE, widths[index] + left)
            left += widths[index] - kept
            widths[index] = kept
        table.add_column(name, no_wrap=True, overflow="ellipsis", width=widths[index])
    for row in found:
        table.add_row(*map(Text, row))
    terminal.print(table, width=max(terminal.width, terminal.width - left), crop=False, soft_wrap=left < 0)


def text(value: object) -> str:
    """Returns ``value`` as a table shows it; a dash where it is not known."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4f}"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    return shown(str(value))


@contextmanager
def progress(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """Gives a function that takes what was done since its last call; shows a bar where standard error is a terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.progress import Progress

    with Progress(console=console(error=True), transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda done: bar.advance(task, done)
