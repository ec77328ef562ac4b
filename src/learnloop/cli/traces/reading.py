"""Commands that read what agents did."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from learnloop.cli.output import (
    console,
    json_option,
    open_workspace,
    page_options,
    print_table,
    printed_json,
    printed_record,
    say,
    say_more,
    shown,
)
from learnloop.cli.traces.files import groups_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from learnloop.core.records import Json, Span
    from learnloop.loop.nouns.episodes import EpisodeDetail, EpisodeRow
    from learnloop.loop.traces.stats import TraceStats
    from learnloop.loop.workspace.following import Happening
    from learnloop.store.queries.spans import SpanOutline
    from learnloop.traces.conversation.steps import Step

_EMPTY = "no episodes; record some with learnloop.Loop, or: learnloop traces import FILE"


@click.command("list")
@click.option("--agent", help="Only this agent's.")
@click.option("--task", help="Only tries at this task.")
@click.option("--status", type=click.Choice(["running", "completed", "failed"]), help="Only those.")
@click.option("--source", help="Only those recorded here (loop), or imported from this format.")
@click.option("--since", metavar="TIME", help="Started then or later: 2026-01-31, or how long ago, such as 7d.")
@click.option("--until", metavar="TIME", help="Started before.")
@click.option("--reward-below", type=float, metavar="X", help="With a known reward that is smaller.")
@click.option("--reward-above", type=float, metavar="X", help="With a known reward that is larger.")
@click.option("--search", metavar="TEXT", help='With a span that holds all words, "phrases" and beginnings*.')
@page_options()
@json_option
def list_(limit: int, after: str | None, **narrowed: Any) -> None:
    """List episodes, the newest first.

    \b
    Examples:
      learnloop traces list --agent packer --limit 10
      learnloop traces list --status failed --since 24h --json
      learnloop traces list --search 'refund "order 17" cancel*' --reward-below 0.5
    """
    from learnloop.loop.workspace.times import parse_moment

    for name in ("since", "until"):
        narrowed[name] = None if narrowed[name] is None else parse_moment(narrowed[name])
    page = open_workspace().episodes.list(limit=limit, after=after, **narrowed)
    if printed_json("learnloop.traces/v1", data=page, next_cursor=page.next_cursor):
        return
    if narrowed["search"] is None:
        _print_rows(page)
    else:
        _print_found(page)
    say_more(page.next_cursor)


@click.command("show")
@click.argument("episode_id")
@click.option("--tree", is_flag=True, help="Only the tree of its spans: durations, errors, tokens.")
@click.option("--steps", is_flag=True, help="Only its steps: what was said, tools and their results.")
@json_option
def show(episode_id: str, tree: bool, steps: bool) -> None:
    """Show the spans, decisions and rewards of the episode whose id is EPISODE_ID, or alone begins with it.

    \b
    Examples:
      learnloop traces show 019b2f3c
      learnloop traces show 019b2f3c --steps
      learnloop traces show 019b2f3c --tree --json
    """
    from learnloop.loop.traces.reading import span_tree

    if tree and steps:
        raise click.UsageError("--tree and --steps are two views; give one")
    workspace = open_workspace()
    found = workspace.episodes.find(episode_id)
    if steps:
        listed = workspace.episodes.steps(found)
        if not printed_json("learnloop.steps/v1", episode_id=found, steps=listed):
            _say_steps(listed)
        return
    if tree:
        spans, usage = workspace.spans.outline(found), workspace.spans.usage(found)
        if not printed_json("learnloop.skeleton/v1", episode_id=found, spans=spans, usage=usage):
            _say_tree(span_tree(spans), usage)
        return
    detail = workspace.episodes.show(found)
    if not printed_record("learnloop.trace/v1", detail):
        _say_detail(detail, workspace.spans.usage(found))


@click.command()
@click.option("--agent", help="Only what this agent does.")
@click.option("--last", default=0, show_default=True, type=click.IntRange(0, 10_000), help="Begin so many events ago.")
@json_option
def tail(agent: str | None, last: int) -> None:
    """Follow episodes as they start and end, and rewards as they come, until Ctrl-C.

    \b
    Examples:
      learnloop traces tail --agent packer
      learnloop traces tail --last 100 --json
    """
    for found in open_workspace().episodes.follow(agent=agent, last=last):
        if not printed_record("learnloop.happening/v1", found):
            say(_happening_line(found))


@click.command()
@click.option("--agent", help="Only of this agent's episodes.")
@json_option
def stats(agent: str | None) -> None:
    """Count episodes, steps, tools and their failures, tokens, rewards and groups of attempts.

    \b
    Examples:
      learnloop traces stats
      learnloop traces stats --agent packer --json
    """
    found = open_workspace().episodes.stats(agent=agent)
    if not printed_record("learnloop.stats/v1", found):
        _say_stats(found)


def _print_rows(rows: Iterable[EpisodeRow]) -> None:
    table = [
        (row.episode.episode_id, row.episode.agent_id, row.episode.task_id, row.episode.status.value,
         _shown_reward(row), row.episode.started_at, row.duration_seconds)
        for row in rows
    ]  # fmt: skip
    columns = ("episode id", "agent", "task", "status", "reward", "started (UTC)", "seconds")
    print_table(columns, table, empty=_EMPTY)


def _shown_reward(row: EpisodeRow) -> float | str | None:
    return "pending" if row.reward_state == "pending" else row.reward


def _print_found(rows: Iterable[EpisodeRow]) -> None:
    listed = list(rows)
    for row in listed:
        episode = row.episode
        shown = _shown_reward(row)
        reward = f"{shown:.4f}" if isinstance(shown, float) else shown or "-"
        say(f"{episode.episode_id}  {episode.agent_id}  {episode.task_id or '-'}  {episode.status.value}  {reward}")
        if row.snippet is not None:
            click.echo("  " + _marked(row.snippet.text, row.snippet.marks))
    if not listed:
        say("nothing found", error=True)


def _marked(text: str, marks: Iterable[tuple[int, int]]) -> str:
    """Returns a snippet on one line, the words that were asked for set apart."""
    parts = []
    last = 0
    for start, end in marks:
        parts += [_flat(text[last:start]), click.style(f"«{_flat(text[start:end])}»", bold=True)]
        last = end
    return "".join([*parts, _flat(text[last:])])


def _flat(text: str) -> str:
    """Returns text without line ends and without what a terminal would obey."""
    return shown(text.replace("\r", " ").replace("\n", " ").replace("\t", " "))


def _cut(text: str, indent: int = 0) -> str:
    """Returns text on one line that fits the terminal."""
    flat, width = _flat(text), console().width - indent
    return flat if len(flat) <= width else f"{flat[: max(1, width - 1)]}…"


def _say_tree(tree: Iterable[tuple[int, Span | SpanOutline]], usage: Mapping[str, Json]) -> None:
    for depth, span in tree:
        milliseconds = (span.ended_at - span.started_at).total_seconds() * 1000
        lasted = f"{milliseconds:.1f} ms" if milliseconds else "-"
        error = f"  {span.error or 'failed'}" if span.status.value == "error" else ""
        tokens = _tokens(usage.get(span.span_id, {}))
        say(f"{'  ' * depth}{span.operation} {span.name}  {lasted}{tokens}{error}")


def _in_reading_order(kinds: Iterable[str]) -> list[str]:
    """Returns the kinds of tokens, those of all calls first: input, output, then what is a part of these."""
    return sorted(kinds, key=lambda name: (name not in ("input_tokens", "output_tokens"), name))


def _tokens_of_kind(name: str, count: int) -> str:
    return f"{count:,} {name.removesuffix('_tokens').replace('_', ' ')}"


def _tokens(usage: Json) -> str:
    counts = [f"{usage[name]:,} {word}" for name, word in (("input_tokens", "in"), ("output_tokens", "out"))
              if isinstance(usage.get(name), int)]  # fmt: skip
    return f"  {' / '.join(counts)} tokens" if counts else ""


def _say_detail(detail: EpisodeDetail, usage: Mapping[str, Json]) -> None:
    from learnloop.loop.traces.reading import span_tree

    episode = detail.episode
    say(f"{episode.agent_id}  task {episode.task_id or '-'}  {episode.status.value}  {episode.error or ''}".rstrip())
    _say_tree(span_tree(detail.spans), usage)
    for decision in detail.decisions:
        chance = "?" if decision.propensity is None else f"{decision.propensity:.3f}"
        say(f"decision {decision.policy}: {decision.action} (propensity {chance}) of {', '.join(decision.actions)}")
    for reward in detail.rewards:
        value = "unknown" if reward.value is None else f"{reward.value:g}"
        of = f" for span {reward.span_id}" if reward.span_id else ""
        note = f": {reward.reason}" if reward.reason else ""
        say(f"reward {reward.name}: {value} x {reward.weight:g} from {reward.source}{of}{note}")


def _say_steps(steps: Iterable[Step]) -> None:
    for number, step in enumerate(steps, start=1):
        who = step.model or ("model" if step.messages or step.output else "tool")
        say(_cut(f"{number}. {who}  {step.error or ''}".rstrip()))
        for line in _step_lines(step):
            say("   " + _cut(line, indent=3))


def _step_lines(step: Step) -> Iterator[str]:
    from learnloop.traces.conversation.messages import as_text, text_of

    for message in step.messages:
        yield f"{message['role']}: {text_of(message) or as_text(message['parts'])}"
    if step.output is not None and (answer := text_of(step.output)):
        yield f"assistant: {answer}"
    for call in step.tool_calls:
        result = f"failed: {call.error}" if call.error else as_text(call.result)
        yield f"-> {call.name}({as_text(call.arguments)})"
        yield f"<- {result if call.result is not None or call.error else '(not recorded)'}"


def _happening_line(found: Happening) -> str:
    what = found.status or ""
    if found.name is not None:
        what = f"{found.name} = {'unknown' if found.value is None else f'{found.value:g}'}"
    parts = [f"{found.at:%Y-%m-%d %H:%M:%S}", found.kind, found.agent_id or "-", found.episode_id or "-"]
    return "  ".join([*parts, found.task_id or "-", what]).rstrip()


def _say_stats(found: TraceStats) -> None:
    statuses = ", ".join(f"{number:,} {status}" for status, number in sorted(found.statuses.items()))
    say(f"{found.num_episodes:,} episodes{f' ({statuses})' if statuses else ''}, {found.num_spans:,} spans, "
        f"{found.num_steps:,} steps")  # fmt: skip
    if found.num_model_calls:
        known = ", ".join(_tokens_of_kind(name, found.tokens[name]) for name in _in_reading_order(found.tokens))
        known = known or "none known"
        unknown = found.num_model_calls_without_tokens
        share = unknown / found.num_model_calls
        say(f"tokens: {known}; unknown for {unknown:,} of {found.num_model_calls:,} calls ({share:.1%})")
    rewards = found.rewards
    mean = "unknown" if rewards.mean is None else f"{rewards.mean:.4f}"
    waiting = f", of which {rewards.num_pending:,} may still come" if rewards.num_pending else ""
    say(f"reward: mean {mean} of {rewards.num_known:,} episodes; unknown for {rewards.num_unknown:,}{waiting}")
    if found.num_durations:
        say(f"duration: p50 {found.duration_p50_seconds:.3f} s, p95 {found.duration_p95_seconds:.3f} s "
            f"of {found.num_durations:,} episodes")  # fmt: skip
    say(groups_line(found.groups))
    if found.tools:
        rows = [(tool.name, f"{tool.num_calls:,}", f"{tool.num_failed:,}", f"{tool.failure_rate:.1%}")
                for tool in found.tools]  # fmt: skip
        print_table(("tool", "calls", "failed", "rate"), rows, empty="")
