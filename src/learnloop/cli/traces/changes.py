"""Commands that change what is stored of runs: label, redact, remove."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING

import click

from learnloop.cli.assignments import texts_by_name
from learnloop.cli.output import json_option, open_workspace, printed_json, progress, say
from learnloop.core.clock import now

if TYPE_CHECKING:
    from collections.abc import Callable

    from learnloop.traces.privacy.removal import Removal


@click.command()
@click.argument("episode")
@click.argument("value", metavar="good|bad|0..1")
@click.option("--name", default="label", show_default=True, help="Which part of the reward it is.")
@click.option("--note", metavar="TEXT", help="Why.")
@click.option("--span", metavar="ID", help="For this span of it, not for the whole.")
@click.option("--author", envvar="LEARNLOOP_AUTHOR", help="Who says so [LEARNLOOP_AUTHOR].")
@json_option
def label(episode: str, value: str, name: str, note: str | None, span: str | None, author: str | None) -> None:
    """Say what EPISODE was worth: good (1), bad (0) or a number between; saying it again replaces it.

    \b
    Examples:
      learnloop traces label 019b2f3c good --author ada
      learnloop traces label 019b2f3c 0.3 --name helpful --note "right, but slow"
    """
    reward = open_workspace().labels.give(episode, value, name=name, note=note, span=span, author=author)
    if not printed_json("learnloop.reward/v1", reward=reward):
        where = f"span {reward.span_id}" if reward.span_id else f"episode {reward.episode_id}"
        say(f"{where}: {reward.name} = {reward.value:g}")


@click.command()
@click.argument("episodes", metavar="[EPISODE...]", nargs=-1)
@click.option("--all", "is_all", is_flag=True, help="All that is stored.")
@click.option("--agent", help="All of this agent's episodes.")
@click.option("--pattern", "patterns", multiple=True, metavar="NAME=REGEX", help="Also take out what it finds.")
@click.option("--dry-run", is_flag=True, help="Only say what would change.")
@json_option
def redact(
    episodes: tuple[str, ...],
    is_all: bool,
    agent: str | None,
    patterns: tuple[str, ...],
    dry_run: bool,
) -> None:
    """Take keys, e-mail addresses and what patterns find out of what is stored already.

    The rules are those of learnloop.toml, which all that is recorded or imported passes anyway. The old bytes are
    overwritten; backups keep theirs.

    \b
    Examples:
      learnloop traces redact --all --dry-run
      learnloop traces redact --agent support --pattern 'order=ORD-[0-9]{6}'
      learnloop traces redact 019b2f3c
    """
    if (bool(episodes) + is_all + (agent is not None)) != 1:
        raise click.UsageError("say what to look through: EPISODE..., --agent NAME or --all")
    rules = texts_by_name(patterns, "--pattern", "order=ORD-[0-9]{6}")
    found = open_workspace().episodes.redact(episodes=episodes or None, agent=agent, patterns=rules, dry_run=dry_run)
    if printed_json("learnloop.redaction/v1", dry_run=dry_run, result=found):
        return
    counts = ", ".join(f"{count:,} {name.replace('_', ' ')}s" for name, count in found.num_changed.items()) or "nothing"
    tokens = ", ".join(f"{count:,} x {token}" for token, count in found.num_found.items())
    verb = "would change" if dry_run else "changed"
    say(f"{found.num_records:,} records looked through, {counts} {verb}{': ' if tokens else ''}{tokens}")
    _say_scrubbed(found.scrubbed)


@click.command("rm")
@click.argument("episodes", metavar="[EPISODE...]", nargs=-1)
@click.option("--older-than", metavar="AGE", help="Those that ended so long ago, such as 30d or 12h.")
@click.option("--expired", is_flag=True, help="Those older than retention_days in learnloop.toml.")
@click.option("--agent", help="Of those, only this agent's.")
@click.option("--dry-run", is_flag=True, help="Only say how much would go.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
def remove(
    episodes: tuple[str, ...],
    older_than: str | None,
    expired: bool,
    agent: str | None,
    dry_run: bool,
    yes: bool,
) -> None:
    """Remove episodes for good, with their spans, decisions and rewards.

    Episodes that run stay, unless they are named. By age, what belongs to no episode goes too. Others may record
    meanwhile. Backups keep theirs.

    \b
    Examples:
      learnloop traces rm 019b2f3c
      learnloop traces rm --older-than 30d --agent support --dry-run
      learnloop traces rm --expired --yes
    """
    from learnloop.loop.traces.retention import expiry
    from learnloop.loop.workspace.times import parse_age

    if (bool(episodes) + expired + (older_than is not None)) != 1 or (episodes and agent is not None):
        raise click.UsageError(
            "say what to remove: EPISODE..., --older-than AGE or --expired; --agent narrows the latter"
        )
    workspace = open_workspace()
    noun = workspace.episodes
    run: Callable[..., Removal]
    if episodes:
        run = partial(noun.remove, *episodes)
    else:  # one moment for what is shown and what goes, however long it takes to confirm
        before = expiry(workspace) if older_than is None else now() - parse_age(older_than)
        run = partial(noun.remove_old, before, agent=agent)
    found = run(dry_run=True)
    if not dry_run:
        if not yes:
            _confirm(found)
        with progress("Removing", found.num_episodes) as advance:
            found = run(progress=advance)
    if printed_json("learnloop.removal/v1", dry_run=dry_run, removed=found):
        return
    say(f"{_counts(found)} {'would be removed' if dry_run else 'removed'}")
    _say_scrubbed(found.scrubbed)


def _confirm(planned: Removal) -> None:
    """Asks whether that is to go; who cannot be asked has to say so in the call."""
    if not sys.stdin.isatty():
        raise click.UsageError(f"{_counts(planned)} would be removed for good; say --yes to do it")
    click.confirm(f"Remove {_counts(planned)} for good?", abort=True, err=True)


def _counts(found: Removal) -> str:
    text = (
        f"{found.num_episodes:,} episodes, {found.num_spans:,} spans, {found.num_decisions:,} decisions, "
        f"{found.num_rewards:,} rewards"
    )
    if found.num_shares:
        text += f", {found.num_shares:,} shares of rewards"
    return f"{text}, {found.num_label_requests:,} label requests" if found.num_label_requests else text


def _say_scrubbed(scrubbed: bool) -> None:
    if not scrubbed:
        say("old bytes stay in the database's log until others have finished reading; run this again later", error=True)
