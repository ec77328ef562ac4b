"""How every command opens the workspace and prints."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from msgspec import Struct
    from rich.console import Console

    from learnloop.loop import Settings, Workspace
    from learnloop.loop.nouns.listing import Listing

_JSON = "learnloop.json"
_WIDE = 4096
"""Columns where nobody looks: a file or a pipe gets whole lines."""
_FLEXIBLE = frozenset({"task", "what to do", "parts", "description", "message"})
_MIN_FLEXIBLE = 10
_GAP = "  "
_UNSEEN = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069\\ud800-\\udfff]")
"""What moves the cursor, colours, reorders or cannot be printed: C0, C1, bidirectional controls, lone surrogates."""

Command = TypeVar("Command", bound=Callable[..., Any])
T = TypeVar("T")


def json_option(function: Command) -> Command:
    """Adds ``--json`` to a command, which ``wants_json`` and ``printed_json`` heed."""

    def keep(ctx: click.Context, parameter: click.Parameter, value: bool) -> None:
        ctx.meta[_JSON] = value

    words = "Print JSON with a schema name."
    return click.option("--json", is_flag=True, expose_value=False, callback=keep, help=words)(function)


def page_options(default: int = 50) -> Callable[[Command], Command]:
    """Returns what adds ``--limit`` and ``--after`` to a command that lists."""
    limit = click.option("--limit", type=click.IntRange(1, 1000), default=default, show_default=True,
                         help="The most to list.")  # fmt: skip
    after = click.option("--after", metavar="CURSOR", help="Where the page before ended.")
    return lambda function: limit(after(function))


def command_settings() -> Settings:
    """Returns the settings that the options, the environment or the settings file name."""
    from learnloop.loop import find_settings

    return find_settings(**click.get_current_context().obj)


def open_workspace(*, create: bool = False) -> Workspace:
    """Returns the workspace of ``command_settings``, closed with the command."""
    from learnloop.loop import Workspace

    workspace = Workspace(command_settings(), create=create)
    click.get_current_context().call_on_close(workspace.close)
    return workspace


def wants_json() -> bool:
    """Returns whether ``--json`` was given."""
    return bool(click.get_current_context().meta[_JSON])


def printed_json(schema: str, **fields: Any) -> bool:
    """Prints one JSON object that begins with its schema where ``--json`` was given, and returns whether it was."""
    if wants_json():
        import msgspec

        click.echo(msgspec.json.encode({"schema": schema, **fields}))
    return wants_json()


def printed_record(schema: str, record: Struct) -> bool:
    """Prints the fields of a record as ``printed_json`` does, and returns whether it did."""
    from msgspec.structs import asdict

    return printed_json(schema, **asdict(record))


def print_listing(
    schema: str, found: Listing[T], columns: Sequence[str], row: Callable[[T], Sequence[object]], *, empty: str
) -> None:
    """Prints what a noun lists, as JSON or as a table with a row each, and where the next page begins."""
    from learnloop.loop.nouns.listing import Page

    place = {"next_cursor": found.next_cursor} if isinstance(found, Page) else {}
    if not printed_json(schema, data=found, **place):
        print_table(columns, map(row, found), empty=empty)
        say_more(place.get("next_cursor"))


def say_more(cursor: str | None) -> None:
    """Says how the next page is asked for, where there is one."""
    if cursor is not None:
        say(f"more with --after {cursor}", error=True)


def console(*, error: bool = False) -> Console:
    """Returns a rich console on standard output, or on standard error; plain and wide where that is not a terminal."""
    from rich.console import Console

    class OurConsole(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError("nobody reads any more")  # rich would exit with 1

    terminal = OurConsole(stderr=error, highlight=False)
    return terminal if terminal.is_terminal else OurConsole(stderr=error, highlight=False, width=_WIDE)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str) -> None:
    """Prints rows under their columns, each row on one line; ``empty``, on standard error, where there are none.

    On a terminal that is too narrow the column ``task`` and those of prose are cut; ``--json`` has all of it. All
    others are whole, on longer lines if need be.
    """
    from rich.cells import cell_len, set_cell_size

    found = [[text(cell) for cell in row] for row in rows]
    if not found:
        say(empty, error=True)
        return
    widths = [max(map(cell_len, cells)) for cells in zip(columns, *found, strict=True)]
    too_wide = sum(widths) + len(_GAP) * (len(widths) - 1) - console().width
    for index, column in enumerate(columns):
        if column in _FLEXIBLE and too_wide > 0:
            widths[index] = min(widths[index], max(_MIN_FLEXIBLE, widths[index] - too_wide))
    for number, row in enumerate([columns, *found]):
        cells = [
            cell if cell_len(cell) <= width else set_cell_size(cell, width - 1) + "…"
            for cell, width in zip(row, widths, strict=True)
        ]
        line = _GAP.join(set_cell_size(cell, width) for cell, width in zip(cells, widths, strict=True)).rstrip()
        click.echo(line if number else click.style(line, bold=True))


def say(line: object, *, error: bool = False) -> None:
    """Prints one line for a person; what is stored comes from anywhere, so nothing in it can command the terminal."""
    click.echo(shown(line), err=error)


def shown(value: object) -> str:
    """Returns text in which what a terminal would obey, or could not print, is written as an escape: ``\\x1b``."""
    return _UNSEEN.sub(lambda found: _escaped(ord(found[0])), str(value))


def _escaped(code: int) -> str:
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def text(value: object) -> str:
    """Returns ``value`` as a table shows it; a dash where it is not known."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4f}"
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S")
    return shown(value)


@contextmanager
def progress(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """Gives a function that takes what was done since its last call; shows a bar where standard error is a terminal."""
    from rich.markup import escape
    from rich.progress import Progress

    terminal = console(error=True)
    if not terminal.is_terminal:
        yield lambda done: None
        return
    with Progress(console=terminal, transient=True) as bar:
        task = bar.add_task(escape(shown(label)), total=total)
        yield lambda done: bar.advance(task, done)
