"""Commands about what agents did."""

from __future__ import annotations

from pathlib import Path

import click

from learnloop.cli.output import json_option, open_workspace, print_json, print_table, progress, say


@click.group()
def traces() -> None:
    """Import, list, show and export what agents did."""


@traces.command("import")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--format", "format_name", metavar="NAME", help="learnloop, goal or rag; recognised where not given.")
@click.option("--agent", default="imported", show_default=True, help="Whose runs, where the file does not say.")
@click.option("--strict", is_flag=True, help="Stop at the first bad line and import nothing.")
@json_option
@click.pass_context
def import_(ctx: click.Context, file: Path, format_name: str | None, agent: str, strict: bool, as_json: bool) -> None:
    """Import a JSON Lines FILE of traces, gzipped or not; a second import adds nothing.

    \b
    Examples:
      learnloop traces import runs.jsonl
      learnloop traces import goals.jsonl --format goal --agent shell --strict
    """
    from learnloop.core.names import check_name
    from learnloop.traces import import_file

    check_name("an agent", agent)
    workspace = open_workspace(ctx, create=True)
    size = file.stat().st_size if file.is_file() else 0
    with progress(f"Importing {file.name}", size) as advance:
        report = import_file(
            workspace.store, file, agent_id=agent, format_name=format_name, strict=strict, progress=advance
        )
    if as_json:
        print_json("learnloop.import/v1", report=report)
        return
    counts = ", ".join(f"{count:,} {name}s" for name, count in sorted(report.num_records.items())) or "no records"
    say(f"{report.format}: {report.num_lines:,} lines, {counts}; {report.num_new:,} records are new")
    unknown = {
        "the outcome of {:,} episodes": report.num_episodes_without_reward,
        "the propensity of {:,} decisions": report.num_decisions_without_propensity,
    }
    if any(unknown.values()):
        say("unknown: " + ", ".join(words.format(count) for words, count in unknown.items() if count))
    for fault in report.bad_lines:
        say(f"line {fault.line}: {fault.reason}", error=True)
    if report.num_bad_lines:
        say(f"{report.num_bad_lines:,} bad lines were left out", error=True)


@traces.command("list")
@click.option("--agent", help="Only this agent's.")
@click.option("--task", help="Only tries at this task.")
@click.option("--status", type=click.Choice(["running", "completed", "failed"]), help="Only those.")
@click.option("--limit", default=50, show_default=True, type=click.IntRange(1, 1000), help="How many.")
@click.option("--after", metavar="CURSOR", help="Go on after the cursor that the last page gave.")
@json_option
@click.pass_context
def list_(
    ctx: click.Context,
    agent: str | None,
    task: str | None,
    status: str | None,
    limit: int,
    after: str | None,
    as_json: bool,
) -> None:
    """List episodes, the newest first.

    \b
    Examples:
      learnloop traces list --agent packer --limit 10
      learnloop traces list --status failed --json
    """
    from learnloop.loop.tracing import list_episodes

    workspace = open_workspace(ctx)
    page = list_episodes(workspace, agent=agent, task=task, status=status, limit=limit, after=after)
    if as_json:
        print_json("learnloop.traces/v1", data=page.rows, next_cursor=page.next_cursor)
        return
    rows = [
        (row.episode.episode_id, row.episode.agent_id, row.episode.task_id, row.episode.status.value, row.reward,
         row.episode.started_at, row.duration_seconds)
        for row in page.rows
    ]  # fmt: skip
    columns = ("episode id", "agent", "task", "status", "reward", "started (UTC)", "seconds")
    print_table(columns, rows, empty="no episodes; record some with learnloop.Loop, or: learnloop traces import FILE")
    if page.next_cursor:
        say(f"more: --after {page.next_cursor}", error=True)


@traces.command("show")
@click.argument("episode_id")
@json_option
@click.pass_context
def show(ctx: click.Context, episode_id: str, as_json: bool) -> None:
    """Show the spans, decisions and rewards of the episode with the id EPISODE_ID.

    \b
    Examples:
      learnloop traces show 019b2f3c-...
      learnloop traces show 019b2f3c-... --json
    """
    from learnloop.loop.tracing import show_episode, span_tree

    workspace = open_workspace(ctx)
    detail = show_episode(workspace, episode_id)
    if as_json:
        print_json("learnloop.trace/v1", **{name: getattr(detail, name) for name in detail.__struct_fields__})
        return
    episode = detail.episode
    say(f"{episode.agent_id}  task {episode.task_id or '-'}  {episode.status.value}  {episode.error or ''}".rstrip())
    for depth, span in span_tree(detail.spans):
        milliseconds = (span.ended_at - span.started_at).total_seconds() * 1000
        error = f"  {span.error}" if span.error else ""
        say(f"{'  ' * depth}{span.operation} {span.name}  {milliseconds:.1f} ms{error}")
    for decision in detail.decisions:
        chance = "?" if decision.propensity is None else f"{decision.propensity:.3f}"
        say(f"decision {decision.policy}: {decision.action} (propensity {chance}) of {', '.join(decision.actions)}")
    for reward in detail.rewards:
        value = "unknown" if reward.value is None else f"{reward.value:g}"
        say(f"reward {reward.name}: {value} x {reward.weight:g} from {reward.source}")


@traces.command("export")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--agent", help="Only this agent's records.")
@json_option
@click.pass_context
def export(ctx: click.Context, file: Path, agent: str | None, as_json: bool) -> None:
    """Write agents, tasks, episodes, spans, decisions and rewards to FILE as JSON Lines; - is standard output.

    \b
    Examples:
      learnloop traces export runs.jsonl
      learnloop traces export - --agent packer | gzip > packer.jsonl.gz
    """
    from learnloop.loop.tracing import export_to

    workspace = open_workspace(ctx)
    count = export_to(workspace, file, agent_id=agent)
    if as_json and str(file) != "-":
        print_json("learnloop.export/v1", file=str(file), num_records=count)
    else:
        say(f"{count:,} records", error=True)
