"""The commands about what agents did; one file for those that read, one for those that change, one for files."""

from __future__ import annotations

import click

from learnloop.cli.traces.changes import label, redact, remove
from learnloop.cli.traces.files import export, import_
from learnloop.cli.traces.reading import list_, show, stats, tail


@click.group()
def traces() -> None:
    """Import, list, search, show, label, redact, remove and export what agents did."""


for _command in (import_, list_, show, tail, stats, label, redact, remove, export):
    traces.add_command(_command)
