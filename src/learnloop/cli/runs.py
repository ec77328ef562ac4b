"""Commands about trainings that were made."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout

import click

from learnloop.cli.output import json_option, open_workspace, print_listing, print_table, printed_json, say

_EPISODES = click.IntRange(1, 100_000)


@click.group()
def runs() -> None:
    """List trainings, look at one again, and compare two."""


@runs.command("list")
@json_option
def list_() -> None:
    """List all trainings, the newest last.

    \b
    Examples:
      learnloop runs list
      learnloop runs list --json
    """
    print_listing(
        "learnloop.runs/v1",
        found := open_workspace().runs.list(),
        ("run", "algorithm", "environment", "status", "seeds", "best return", "started (UTC)"),
        lambda run: tuple(found.row(run).values()),
        empty="no runs yet; make one with: learnloop train",
    )


@runs.command()
@click.argument("run", default="latest")
@click.option("--evaluate", is_flag=True, help="Measure what its policies earn on held-out episodes.")
@click.option("--episodes", type=_EPISODES, show_default="100", help="Of each seed, with --evaluate.")
@json_option
def show(run: str, evaluate: bool, episodes: int | None) -> None:
    """Show what each seed of RUN (the newest, if not named) learned.

    \b
    Examples:
      learnloop runs show
      learnloop runs show 019b2f3c-5a1e-7c33-b2d4-90a1c7e8f012 --evaluate --json
    """
    from learnloop.cli.train import show_run

    if episodes is not None and not evaluate:
        raise click.UsageError("--episodes is for --evaluate; add that, or leave it out")
    found = open_workspace().runs.open(run)
    with redirect_stdout(sys.stderr):  # what environments print is not a result
        evaluation = found.evaluate(episodes or 100) if evaluate else None
    if not printed_json("learnloop.training/v1", run=found.record, evaluation=evaluation):
        show_run(found, evaluation)


@runs.command()
@click.argument("first")
@click.argument("second")
@click.option("--episodes", type=_EPISODES, default=100, show_default=True, help="Held out, of each seed.")
@json_option
def compare(first: str, second: str, episodes: int) -> None:
    """Show how two trainings in one environment fare against each other on held-out episodes.

    \b
    Examples:
      learnloop runs compare 019b2f3c-5a1e-7c33-b2d4-90a1c7e8f012 latest
    """
    with redirect_stdout(sys.stderr):
        found = open_workspace().runs.compare(first, second, num_episodes=episodes)
    if printed_json("learnloop.run-comparison/v1", comparison=found):
        return
    rows = [(each["run_id"], each["algorithm"], each["num_seeds"], each["mean"], each["iqm"]) for each in found.rows()]
    print_table(("run", "algorithm", "seeds", "mean", "IQM"), rows, empty="")
    better = found.improvement
    sure = better.reason if better.interval is None else f"{better.interval.low:.2f} to {better.interval.high:.2f}"
    say(f"a seed of the first is better with probability {better.probability:.2f}; {sure}")
