"""Commands about rewards: what runs were worth, who is credited, and whether the scores can be trusted."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from learnloop.cli.assignments import numbers_by_name
from learnloop.cli.output import (
    json_option,
    open_workspace,
    page_options,
    print_listing,
    print_table,
    printed_json,
    progress,
    say,
)

if TYPE_CHECKING:
    from learnloop.loop.nouns.listing import Listing
    from learnloop.loop.rewards.attempts import Truths
    from learnloop.loop.rewards.scoring import ScoredEpisode

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_weight = click.option(
    "--weight", "weights", metavar="NAME=W", multiple=True, help="Of a reward function; instead of learnloop.toml's."
)
_tasks = click.option("--tasks", type=_FILE, help="JSON Lines with task_id, task_type, expected: the ground truth.")


@click.group()
def rewards() -> None:
    """Score runs, look at who was credited, and check the scores."""


@rewards.command()
@click.argument("episodes", metavar="[EPISODE...]", nargs=-1)
@click.option("--agent", help="All of this agent.")
@click.option("--task", help="All tries at this task.")
@click.option("--all", "is_all", is_flag=True, help="All episodes.")
@click.option("--missing", is_flag=True, help="Only those whose reward is not known.")
@_tasks
@_weight
@click.option("--credit", help="How it is shared out: last, uniform or discounted.")
@click.option("--dry-run", is_flag=True, help="Only show what would come out.")
@json_option
def calculate(
    episodes: tuple[str, ...],
    tasks: Path | None,
    weights: tuple[str, ...],
    credit: str | None,
    dry_run: bool,
    **which: Any,
) -> None:
    """Score episodes and share the rewards out.

    Each reward is shared out over the steps and agents of its run; both are stored.

    What cannot be scored is stored as unknown, with the reason; it is never 0. Scoring again replaces the reward; the
    history keeps both. Of a run that has not ended nothing is stored.

    \b
    Examples:
      learnloop rewards calculate 019b2f3c --tasks tasks.jsonl
      learnloop rewards calculate --agent solver --missing --weight correctness=1
      learnloop rewards calculate --all --dry-run --json
    """
    from learnloop.loop.rewards.scoring import EpisodeChoice, count_episodes

    if bool(episodes) == any(which[name] for name in ("agent", "task", "is_all")) or (episodes and which["missing"]):
        raise click.UsageError("say what to score: EPISODE..., --agent NAME, --task TASK or --all")
    workspace = open_workspace()
    choice = EpisodeChoice(episodes=episodes, agent=which["agent"], task=which["task"], without_reward=which["missing"])
    noun = workspace.rewards
    process = noun.make_process(_weights(weights), credit)
    with progress("scoring", count_episodes(workspace, choice)) as advance:
        found = noun.calculate(choice, process=process, truths=_truths(tasks), dry_run=dry_run, progress=advance)
    _print_scored(found, dry_run)


def _print_scored(found: Listing[ScoredEpisode], dry_run: bool) -> None:
    known = [each.scored.total for each in found if each.scored.total is not None]
    mean = math.fsum(known) / len(known) if known else None
    counts = {"num_scored": len(known), "num_unknown": len(found) - len(known), "mean": mean}
    if printed_json("learnloop.rewards/v1", dry_run=dry_run, **counts, data=found):
        return
    rows = ((each.episode_id, each.task_id, each.scored.total, _parts(each.scored)) for each in found)
    print_table(("episode", "task", "reward", "parts"), rows, empty="no such episodes")
    shown = "-" if mean is None else f"{mean:.4f}"
    verb = "would be scored" if dry_run else "scored"
    say(f"{len(known):,} {verb}, {len(found) - len(known):,} unknown, mean {shown}", error=True)


def _parts(scored: Any) -> str:
    if scored.total is None:
        return str(scored.reason)
    return ", ".join(f"{name} {score.value:.3f}" for name, score in scored.scores.items() if score.value is not None)


@rewards.command()
@click.option("--agent", help="Only this agent's.")
@click.option("--episode", help="Only this run's.")
@click.option("--task", help="Only tries at this task.")
@click.option("--span", help="Only the step with this span.")
@click.option("--step", type=click.IntRange(min=0), help="Only steps with this number, from 0.")
@page_options()
@click.option("--totals", is_flag=True, help="One line for each agent: what counts of its runs.")
@json_option
def history(limit: int, after: str | None, totals: bool, **which: Any) -> None:
    """List who was credited with how much.

    The newest first: what the run was worth (raw), what was shared out (shaped), and this share of it (credited).

    \b
    Examples:
      learnloop rewards history --agent solver
      learnloop rewards history --episode 019b2f3c --json
      learnloop rewards history --totals
    """
    workspace = open_workspace()
    run = None if which["episode"] is None else workspace.episodes.find(which["episode"])
    narrowed = {"agent": which["agent"], "task": which["task"], "episode": run, "limit": limit, "after": after}
    if not totals:
        print_listing(
            "learnloop.reward-history/v1",
            workspace.rewards.history(**narrowed, span=which["span"], step=which["step"]),
            ("time (UTC)", "episode", "task", "agent", "step", "raw", "shaped", "credited", "method"),
            lambda each: (
                each.created_at, each.episode_id, each.task_id, each.agent_id, each.step, each.raw_reward,
                each.shaped_reward, each.credit_assigned, each.method,
            ),
            empty="nothing was shared out yet; run: learnloop rewards calculate --all",
        )  # fmt: skip
        return
    if which["span"] is not None or which["step"] is not None:
        raise click.UsageError("--totals are of agents; leave --span and --step out")
    print_listing(
        "learnloop.reward-totals/v1",
        workspace.rewards.totals(**narrowed),
        ("agent", "credit", "runs", "shares"),
        lambda each: (each.agent_id, each.credit, each.num_completions, each.num_shares),
        empty="nothing was shared out yet",
    )


@rewards.command()
@json_option
def components() -> None:
    """List the reward functions and their weights.

    Those with a weight are in force here.

    \b
    Examples:
      learnloop rewards components
    """
    print_listing(
        "learnloop.reward-components/v1",
        open_workspace(create=True).rewards.components(),
        ("name", "weight", "needs", "task types", "description"),
        lambda each: (
            each.name, each.weight, " ".join(each.needs), " ".join(each.task_types) or "all",
            each.error or each.description,
        ),
        empty="there are none",
    )  # fmt: skip


@rewards.command()
@click.argument("file", type=_FILE)
@_weight
@json_option
def test(file: Path, weights: tuple[str, ...]) -> None:
    """Score the attempts of FILE; exit 7 if wrong.

    A line is {"attempt": {"output": ..., "expected": ..., "task_type": ...}, "want": 1.0}; "want" may be null (not
    known) or missing. Each attempt is scored once more with an empty answer: one that would earn more fails the test.

    \b
    Examples:
      learnloop rewards test attempts.jsonl --weight correctness=1
    """
    from learnloop.core.errors import CheckFailedError

    noun = open_workspace(create=True).rewards
    found = noun.test(file, process=noun.make_process(_weights(weights)))
    wrong = [each for each in found if not each.is_wanted or each.pays_for_nothing]
    if not printed_json("learnloop.reward-test/v1", ok=not wrong, data=found):
        rows = [(each.number, each.scored.total, _outcome(each), _parts(each.scored)) for each in found]
        print_table(("line", "reward", "test", "parts"), rows, empty="the file has no attempts")
    if wrong:
        lines = ", ".join(str(each.number) for each in wrong[:10])
        raise CheckFailedError(
            f"{len(wrong)} of {len(found)} attempts are not worth what they should be: lines {lines}"
        )


def _outcome(tried: Any) -> str:
    if tried.pays_for_nothing:
        return "an empty answer would earn more"
    return "ok" if tried.is_wanted else "not what is wanted"


@rewards.command()
@click.argument("component")
@click.option("--min-kappa", type=click.FloatRange(-1, 1), default=0.6, show_default=True, help="What it must reach.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the bootstrap.")
@json_option
def calibrate(component: str, min_kappa: float, seed: int) -> None:
    """Compare the scores of COMPONENT with labels.

    Exits with 7 unless it is certain that the stored scores agree with what people said.

    \b
    Examples:
      learnloop rewards calibrate judge
      learnloop rewards calibrate total --min-kappa 0.4 --json
    """
    from learnloop.core.errors import CheckFailedError

    report = open_workspace().rewards.calibrate(component, min_kappa=min_kappa, seed=seed)
    if not printed_json("learnloop.calibration/v1", component=component, report=report):
        names = ("kappa", "weighted_kappa", "agreement", "length_correlation", "label_length_correlation")
        estimates = [(name.replace("_", " "), getattr(report, name)) for name in names]
        rows = [(name, each.value, each.lower, each.upper, each.reason) for name, each in estimates]
        print_table(("figure", "value", "from", "to", "message"), rows, empty="")
        say(f"{report.verdict}: {report.num_pairs} pairs, {report.num_tasks} tasks, {report.num_unscored} not scored")
        for warning in report.warnings:
            say(f"note: {warning}", error=True)
    if report.verdict != "agrees":
        raise CheckFailedError(
            f"{component} {report.verdict} with the labels (kappa of at least {min_kappa} is asked for)"
        )


@rewards.command()
@click.option("--regrade", metavar="SHARE", type=click.FloatRange(0, 1), default=0.0, help="Score so many again.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of their choice.")
@_tasks
@json_option
def audit(regrade: float, seed: int, tasks: Path | None) -> None:
    """Check that all shares add up; exit 7 if not.

    With --regrade a random share of the stored rewards is worked out once more; more than 2 % that differ fail.

    \b
    Examples:
      learnloop rewards audit
      learnloop rewards audit --regrade 0.01 --json
    """
    from learnloop.core.errors import CheckFailedError

    found = open_workspace().rewards.audit(share=regrade, seed=seed, truths=_truths(tasks))
    counts = {"num_regraded": found.num_regraded, "num_different": len(found.different)}
    told = {"ok": found.ok, "findings": found.findings, **counts, "different": found.different}
    if not printed_json("learnloop.reward-audit/v1", **told):
        rows: list[tuple[object, ...]] = [(each.kind, each.episode_id, each.message) for each in found.findings]
        rows += [("regrade", each.episode_id, f"{each.stored} is {each.again} now") for each in found.different]
        print_table(("finding", "episode", "message"), rows, empty="all shares add up")
        if found.num_regraded:
            say(f"{found.num_regraded} scored again, {len(found.different)} differ", error=True)
    if not found.ok:
        differ = f"{len(found.different)} of {found.num_regraded} rewards differ when scored again"
        raise CheckFailedError(f"{len(found.findings)} findings, {differ}")


def _weights(given: tuple[str, ...]) -> dict[str, float]:
    """Returns the weights of ``--weight``; 1 where none is said."""
    whole = (each if "=" in each else f"{each}=1" for each in given)
    return numbers_by_name(whole, "--weight", "correctness=1")


def _truths(file: Path | None) -> Truths | None:
    from learnloop.loop.rewards.scoring import read_truths

    return None if file is None else read_truths(file)
