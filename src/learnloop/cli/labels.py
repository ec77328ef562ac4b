"""Commands about what people say of runs, and the reward that is learned from it."""

from __future__ import annotations

from typing import Any

import click

from learnloop.cli.output import json_option, open_workspace, page_options, print_table, printed_json, say, say_more

_author = click.option("--author", required=True, envvar="LEARNLOOP_AUTHOR", help="Who says so [LEARNLOOP_AUTHOR].")


@click.group()
def labels() -> None:
    """Ask people what runs were worth, and learn a reward from the answers."""


@labels.command()
@click.argument("number", type=click.IntRange(1, 1000))
@click.option("--agent", help="Only this agent's.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of what is chosen by chance.")
@json_option
def ask(number: int, agent: str | None, seed: int) -> None:
    """Ask about NUMBER episodes that teach most.

    They are put into the queue, with what a learned reward takes them to be worth, where there is one.

    \b
    Examples:
      learnloop labels ask 20
      learnloop labels ask 20 --agent support --json
    """
    opened = open_workspace().labels.ask(number, agent=agent, seed=seed)
    if not printed_json("learnloop.label-requests/v1", data=opened):
        how = "learnloop labels list, learnloop labels answer ID good --author YOU"
        say(f"{len(opened)} requests; answer them with: {how}")


@labels.command("list")
@page_options(20)
@json_option
def list_(limit: int, after: str | None) -> None:
    """List the open requests, the best first.

    With each: what was asked and answered in its episode, and the suggestion.

    \b
    Examples:
      learnloop labels list --limit 5
    """
    page = open_workspace().labels.list(limit=limit, after=after)
    if printed_json("learnloop.label-requests/v1", data=page, next_cursor=page.next_cursor):
        return
    for each in page:
        say(f"{each.request.label_request_id}  episode {each.request.episode_id}  {each.request.reason}")
        say(f"  asked:     {_short(each.prompt)}")
        say(f"  answered:  {_short(each.output)}")
        if each.request.suggested_value is not None:
            say(f"  suggested: {each.request.suggested_value:.2f}")
    if not page:
        say("no open requests; make some with: learnloop labels ask 20", error=True)
    say_more(page.next_cursor)


def _short(text: str | None, limit: int = 300) -> str:
    if text is None:
        return "-"
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else f"{flat[: limit - 1]}…"


@labels.command()
@click.argument("request_id")
@click.argument("value", required=False)
@click.option("--accept", is_flag=True, help="Take the suggestion.")
@click.option("--note", help="Why.")
@_author
@json_option
def answer(request_id: str, value: str | None, accept: bool, note: str | None, author: str) -> None:
    """Answer a request: good, bad, or 0 to 1.

    up and down are other words for good and bad.

    Of two people who answer one request, the second is told so (exit 5).

    \b
    Examples:
      learnloop labels answer 019b2f3c-5a1e-7c33-b2d4-90a1c7e8f012 good --author ada
      learnloop labels answer 019b2f3c-5a1e-7c33-b2d4-90a1c7e8f012 --accept --author ada
    """
    if (value is None) != accept:
        raise click.UsageError("give a VALUE, or --accept to take the suggestion")
    found = open_workspace().labels
    if value is None:
        reward = found.accept(request_id, author=author, note=note)
    else:
        reward = found.answer(request_id, value, author=author, note=note)
    if not printed_json("learnloop.label/v1", reward=reward):
        say(f"{reward.episode_id}: {reward.value:g} by {reward.author}")


@labels.command()
@click.argument("request_id")
@_author
@json_option
def skip(request_id: str, author: str) -> None:
    """Close a request without an answer.

    \b
    Examples:
      learnloop labels skip 019b2f3c-5a1e-7c33-b2d4-90a1c7e8f012 --author ada
    """
    closed = open_workspace().labels.skip(request_id, author=author)
    if not printed_json("learnloop.label-request/v1", request=closed):
        say(f"{closed.episode_id}: skipped by {closed.closed_by}")


@labels.command()
@click.option("--seed", type=int, default=0, show_default=True, help="Of the split by task.")
@json_option
def learn(seed: int) -> None:
    """Learn a reward from all labels.

    It is judged on held-out tasks; exits with 7 if it is no better than chance.

    It is used where learnloop.toml says rewards.learned = "newest" and gives "learned" a weight, beside others.

    \b
    Examples:
      learnloop labels learn
    """
    learned, place = open_workspace().labels.learn(seed=seed)
    report, reason = learned.report, learned.report.reason_against
    told = {"content_hash": place.name, "ok": reason is None, "reason": reason, "report": report}
    if not printed_json("learnloop.learned-reward/v1", **told):
        say(f"learned {place.name[:12]} from {report.num_labels} labels of {report.num_tasks} tasks")
        print_table(("figure", "value", "from", "to"), _figures(report), empty="")
        curve = [(each.n, each.kl, each.proxy, each.gold) for each in report.curve.points]
        print_table(("best of n", "KL", "learned", "labels"), curve, empty="too few attempts a task for a curve")
    if report.curve.falls:
        say("note: what it likes best is not what people like best: too much of it makes answers worse", error=True)
    learned.check_usable()


def _figures(report: Any) -> list[tuple[Any, ...]]:
    names = (
        "calibration_error",
        "brier",
        "brier_of_mean",
        "length_auc",
        "length_correlation",
        "label_length_correlation",
    )
    rows = [(name.replace("_", " "), getattr(report, name), None, None) for name in names]
    return [("held-out AUC", report.auc.value, report.auc.low, report.auc.high), *rows]
