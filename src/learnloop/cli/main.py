"""The command line and its table of commands, which are imported only when they are used.

Exit codes: 0 ok, 1 failed, 2 usage, 3 not found, 4 not allowed, 5 conflict, 6 unreachable, 7 a check said no,
130 interrupted.
"""

from __future__ import annotations

import importlib
import io
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple, cast

import click
from click.shell_completion import CompletionItem

from learnloop.cli.output import say
from learnloop.core.errors import LearnloopError
from learnloop.core.version import __version__


class Entry(NamedTuple):
    """A command: where it lies and what it does, known without importing it."""

    path: str
    help: str


COMMANDS: Mapping[str, Entry] = {
    "demo": Entry("learnloop.cli.demo:demo", "Watch an agent learn from real files, and see it proven, in a minute."),
    "init": Entry("learnloop.cli.setup:init", "Make a store in a folder."),
    "doctor": Entry("learnloop.cli.setup:doctor", "Check this installation and its store."),
    "traces": Entry(
        "learnloop.cli.traces.group:traces", "Import, list, search, label, redact and export what agents did."
    ),
    "rewards": Entry("learnloop.cli.rewards:rewards", "Score runs, see who is credited, and check the scores."),
    "labels": Entry("learnloop.cli.labels:labels", "Ask people what runs were worth, and learn from the answers."),
    "decisions": Entry("learnloop.cli.decisions:decisions", "Import, reward and evaluate decisions; set policies."),
    "train": Entry("learnloop.cli.train:train", "Train a policy in an environment, and register it if it learned."),
    "runs": Entry("learnloop.cli.runs:runs", "List trainings, look at one again, and compare two."),
    "probe": Entry("learnloop.cli.probe:probe", "Train an algorithm where what it must learn is known, and judge it."),
    "extensions": Entry("learnloop.cli.setup:extensions", "List what can be used by name, plug-ins included."),
    "policies": Entry(
        "learnloop.cli.policies:policies", "List, show, alias, evaluate and export policies; remove old versions."
    ),
    "serve": Entry("learnloop.cli.serve:serve", "Serve the HTTP API until Ctrl-C."),
    "keys": Entry("learnloop.cli.keys:keys", "Make, list and revoke the keys of the HTTP API."),
    "rl": Entry("learnloop.cli.rl:rl", "Train and list policies in the words of sentientctl rl."),
    "db": Entry("learnloop.cli.db:db", "Upgrade, back up and restore the database."),
}


class LazyGroup(click.Group):
    """A group that imports a command when it is called, and lists all of them without importing any."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the names of the commands, in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Returns the command ``cmd_name``, imported now."""
        entry = COMMANDS.get(cmd_name)
        if entry is None:
            return None
        module, _, attribute = entry.path.partition(":")
        return cast(click.Command, getattr(importlib.import_module(module), attribute))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the list of commands from the table."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in COMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Returns the commands that begin with ``incomplete``, from the table."""
        names = [name for name in COMMANDS if name.startswith(incomplete)]
        options = click.Command.shell_complete(self, ctx, incomplete)
        return [CompletionItem(name, help=COMMANDS[name].help) for name in names] + options


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, "-V", "--version", message="%(prog)s %(version)s")
@click.option("--home", metavar="FOLDER", help="The store's folder [LEARNLOOP_HOME; default: ./.learnloop].")
@click.option("--database", metavar="URL", help="sqlite:///... or postgresql://... [LEARNLOOP_DATABASE].")
@click.pass_context
def cli(ctx: click.Context, home: str | None, database: str | None) -> None:
    """Self-hosted learning loop for AI agents: record, reward, learn, prove, release.

    \b
    Start here:
      learnloop demo                 see it work on this machine's own files
      learnloop init                 make a store for your agent
    """
    ctx.obj = {"home": home, "database": database}


def run(arguments: list[str] | None = None) -> int:
    """Runs the command line and returns its exit code; errors go to standard error, in words."""
    if sys.stdout is None:  # nothing is done: what is opened next would get its number
        _complain("Error: standard output is closed; send it somewhere, such as to /dev/null")
        return 1
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = _invoke(arguments)
        sys.stdout.flush()
        return code
    except (click.exceptions.Abort, KeyboardInterrupt):
        _complain("Interrupted.")
        return 130
    except click.ClickException as error:
        _show(error)
        return error.exit_code
    except LearnloopError as error:
        _complain(f"Error: {error}")
        return error.exit_code
    except BrokenPipeError:  # the reader, such as head, has seen enough
        _discard_output()
        return 0
    except OSError as error:
        place = "standard output" if error.filename is None else error.filename
        _complain(f"Error: {place} cannot be used: {error.strerror or error}")
        _discard_output()
        return 1


def _invoke(arguments: list[str] | None) -> int:
    """Runs the command line as click's own ``main`` would, but lets errors through as they are."""
    if "_LEARNLOOP_COMPLETE" in os.environ:
        cli.main(arguments, prog_name="learnloop")  # answers the shell and exits
    try:
        with cli.make_context("learnloop", sys.argv[1:] if arguments is None else list(arguments)) as context:
            cli.invoke(context)
    except click.exceptions.Exit as stop:
        return stop.exit_code
    return 0


def _show(error: click.ClickException) -> None:
    """Prints what click has to say about a wrong call; the words of the call may be another's, such as file names."""
    text = io.StringIO()
    error.show(text)
    for line in text.getvalue().splitlines():
        _complain(line.expandtabs(4))


def _complain(line: object) -> None:
    """Prints a line on standard error; where that cannot be written, the exit code says enough."""
    with suppress(OSError):
        say(line, error=True)


def _discard_output() -> None:
    """Lets what is still buffered go nowhere, so that Python does not try to write it once more when it ends."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
