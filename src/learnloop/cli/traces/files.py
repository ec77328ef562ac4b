"""Commands about files of traces."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from learnloop.cli.output import json_option, open_workspace, printed_json, progress, say

if TYPE_CHECKING:
    from learnloop.loop.traces.importing import Imports
    from learnloop.traces.datasets.groups import GroupReport

_FORMATS = ("learnloop", "atif", "execution-trace")


@click.command("import")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--format", "format_name", metavar="NAME", help="Of all files; recognised where not given.")
@click.option("--agent", default="imported", show_default=True, help="Whose runs, where a file does not say.")
@click.option("--source", metavar="NAME", help="What tells these files from others of the same runs [their names].")
@click.option("--strict", is_flag=True, help="Import nothing of a file that has a bad line.")
@json_option
@click.pass_context
def import_(
    ctx: click.Context,
    paths: tuple[Path, ...],
    format_name: str | None,
    agent: str,
    source: str | None,
    strict: bool,
) -> None:
    """Import files of traces, gzipped or not, and all files in folders; a second import adds nothing.

    The format of each is recognised. Files of no known format are listed at the end; exit 2 where a file is damaged, or
    nothing could be imported.

    \b
    Examples:
      learnloop traces import runs.jsonl
      learnloop traces import results/ --agent airline --source 2026-01-31
      learnloop traces import goals.jsonl --format goal --agent shell --strict
    """
    from learnloop.core.checks import check_name
    from learnloop.loop.traces.importing import find_files

    check_name("an agent", agent)
    files = find_files(paths)  # before a store is made: wrong names are told, and the store's own files are not meant
    num_bytes = sum(file.stat().st_size for file, _ in files)
    noun = open_workspace(create=True).episodes
    how = {"format_name": format_name, "source": source, "strict": strict}
    with progress(f"Importing {paths[0].name}", num_bytes) as advance:
        found = noun.import_(agent=agent, files=files, progress=advance, **how)
    sums = {name: getattr(found, name) for name in found.__struct_fields__ if name not in ("files", "left")}
    if not printed_json("learnloop.import/v1", report=sums, files=found.files, left=found.left):
        _say_imports(found)
    if any(each.is_damaged for each in found.left):
        ctx.exit(2)


@click.command("export")
@click.argument("target", type=click.Path(path_type=Path))
@click.option("--format", "export_format", default="learnloop", show_default=True, type=click.Choice(_FORMATS),
              help="What to write.")  # fmt: skip
@click.option("--agent", help="Only this agent's records.")
@json_option
def export(target: Path, export_format: Any, agent: str | None) -> None:
    """Write what is stored to TARGET.

    learnloop: agents, tasks, episodes, spans, decisions and rewards as JSON Lines; - is standard output. atif: a folder
    with a trajectory a file, or one file of lines where TARGET ends with .jsonl. execution-trace: a folder with a
    folder a day.

    \b
    Examples:
      learnloop traces export runs.jsonl
      learnloop traces export - --agent packer | gzip > packer.jsonl.gz
      learnloop traces export trajectories --format atif
      learnloop traces export rl_traces --format execution-trace
    """
    number, unit = open_workspace().episodes.export(target, export_format, agent=agent)
    if str(target) == "-" or not printed_json("learnloop.export/v1", file=str(target), **{f"num_{unit}": number}):
        say(f"{number:,} {unit}", error=True)


def _say_imports(found: Imports) -> None:
    for each in found.files:
        report = each.report
        counts = ", ".join(f"{count:,} {name}s" for name, count in sorted(report.num_records.items())) or "no records"
        of = "" if len(found.files) == 1 else f" in {each.file}"
        say(f"{report.format}: {report.num_lines:,} lines, {counts}; {report.num_new:,} records are new{of}")
    known, unknown = found.num_episodes_with_outcome, found.num_episodes_without_reward
    say(f"{found.num_steps:,} steps; {known:,} of {known + unknown:,} episodes have an outcome")
    say(groups_line(found.groups))
    missing = {
        "the outcome of {:,} episodes": unknown,
        "the propensity of {:,} decisions": found.num_decisions_without_propensity,
        "the token ids of {:,} calls of models": found.num_model_calls_without_token_ids,
    }
    if any(missing.values()):
        say("unknown: " + ", ".join(words.format(count) for words, count in missing.items() if count))
    for each in found.files:
        of = "" if len(found.files) == 1 else f"{each.file}, "
        for fault in each.report.bad_lines:
            say(f"{of}line {fault.line}: {fault.reason}", error=True)
    if found.num_bad_lines:
        say(f"{found.num_bad_lines:,} bad lines were left out", error=True)
    for left in found.left:
        why = f"damaged: {left.file}: {left.reason}" if left.is_damaged else f"of no known format: {left.file}"
        say(why, error=True)


def groups_line(groups: GroupReport) -> str:
    """Returns what there is to compare, in words."""
    return (
        f"{groups.num_groups:,} groups of attempts, {groups.num_repeated:,} with several: {groups.num_mixed:,} mixed, "
        f"{groups.num_without_signal:,} without signal, {groups.num_unknown:,} unknown"
    )
