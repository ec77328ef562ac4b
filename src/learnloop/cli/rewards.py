"""Commands about rewards: what runs were worth, who is credited, and whether the scores can be trusted."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from learnloop.cli.output import json_option, open_workspace, print_json, print_table, progress, say

if TYPE_CHECKING:
    from learnloop.loop import Workspace
    from learnloop.loop.rewards.attempts import Truths
    from learnloop.loop.rewards.rewarding import RewardProcess
    from learnloop.loop.rewards.scoring import Regraded, ScoredEpisode

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
@click.pass_context
def calculate(
    ctx: click.Context,
    /,
    episodes: tuple[str, ...],
    tasks: Path | None,
    weights: tuple[str, ...],
    credit: str | None,
    dry_run: bool,
    as_json: bool,
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
    from learnloop.loop.rewards.scoring import EpisodeChoice, count_episodes, score_episodes

    if bool(episodes) == any(which[name] for name in ("agent", "task", "is_all")) or (episodes and which["missing"]):
        raise click.UsageError("say what to score: EPISODE..., --agent NAME, --task TASK or --all")
    workspace = open_workspace(ctx)
    choice = EpisodeChoice(episodes=episodes, agent=which["agent"], task=which["task"], without_reward=which["missing"])
    process = _process(workspace, weights, credit)
    shown = _as_json if as_json else _as_row  # all that is kept of each: there may be many
    rows: list[Any] = []
    known: list[float] = []
    with progress("scoring", count_episodes(workspace, choice)) as advance:
        for each in score_episodes(workspace, choice, process, _truths(tasks), dry_run=dry_run):
            rows.append(shown(each))
            known += [] if each.scored.total is None else [each.scored.total]
            advance(1)
    _print_scored(rows, known, dry_run, as_json)


def _as_row(each: ScoredEpisode) -> tuple[object, ...]:
    return each.episode_id, each.task_id, each.scored.total, _parts(each.scored)


def _as_json(each: ScoredEpisode) -> object:
    import msgspec

    return msgspec.Raw(msgspec.json.encode(each))


def _print_scored(rows: list[Any], known: list[float], dry_run: bool, as_json: bool) -> None:
    mean = math.fsum(known) / len(known) if known else None
    if as_json:
        counts = {"num_scored": len(known), "num_unknown": len(rows) - len(known), "mean": mean}
        print_json("learnloop.rewards/v1", dry_run=dry_run, **counts, data=rows)
        return
    print_table(("episode", "task", "reward", "parts"), rows, empty="no such episodes")
    shown = "-" if mean is None else f"{mean:.4f}"
    verb = "would be scored" if dry_run else "scored"
    say(f"{len(known):,} {verb}, {len(rows) - len(known):,} unknown, mean {shown}", error=True)


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
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="The most to list.")
@click.option("--after", metavar="CURSOR", help="Where the page before ended; the last agent, with --totals.")
@click.option("--totals", is_flag=True, help="One line for each agent: what counts of its runs.")
@json_option
@click.pass_context
def history(ctx: click.Context, /, limit: int, after: str | None, totals: bool, as_json: bool, **which: Any) -> None:
    """List who was credited with how much.

    The newest first: what the run was worth (raw), what was shared out (shaped), and this share of it (credited).

    \b
    Examples:
      learnloop rewards history --agent solver
      learnloop rewards history --episode 019b2f3c --json
      learnloop rewards history --totals
    """
    from learnloop.loop.traces.reading import resolve_episode
    from learnloop.rewards.sharing.ledger import RewardLedger

    workspace = open_workspace(ctx)
    ledger = RewardLedger(workspace.store)
    run = None if which["episode"] is None else resolve_episode(workspace, which["episode"])
    narrowed = {"agent": which["agent"], "task": which["task"], "episode": run}
    steps = {"span": which["span"], "step": which["step"]}
    if totals:
        if any(value is not None for value in steps.values()):
            raise click.UsageError("--totals are of agents; leave --span and --step out")
        listed = ledger.totals(**narrowed, limit=limit, after=after)
        if as_json:
            print_json("learnloop.reward-totals/v1", data=listed)
            return
        lines = [(each.agent_id, each.credit, each.num_completions, each.num_shares) for each in listed]
        print_table(("agent", "credit", "runs", "shares"), lines, empty="nothing was shared out yet")
        if len(listed) == limit:
            say(f"there may be more with --after {listed[-1].agent_id}", error=True)
        return
    page = ledger.shares(**narrowed, **steps, limit=limit, after=after)
    if as_json:
        print_json("learnloop.reward-history/v1", data=page.rows, next_cursor=page.next_cursor)
        return
    rows = [
        (each.created_at, each.episode_id, each.task_id, each.agent_id, each.step, each.raw_reward, each.shaped_reward,
         each.credit_assigned, each.method)
        for each in page.rows
    ]  # fmt: skip
    columns = ("time (UTC)", "episode", "task", "agent", "step", "raw", "shaped", "credited", "method")
    print_table(columns, rows, empty="nothing was shared out yet; run: learnloop rewards calculate --all")
    if page.next_cursor is not None:
        say(f"more with --after {page.next_cursor}", error=True)


@rewards.command()
@json_option
@click.pass_context
def components(ctx: click.Context, as_json: bool) -> None:
    """List the reward functions and their weights.

    Those with a weight are in force here.

    \b
    Examples:
      learnloop rewards components
    """
    from learnloop.loop.rewards.scoring import list_components

    found = list_components(open_workspace(ctx, create=True))
    if as_json:
        print_json("learnloop.reward-components/v1", data=found)
        return
    rows = [
        (
            each.name,
            each.weight,
            " ".join(each.needs),
            " ".join(each.task_types) or "all",
            each.error or each.description,
        )
        for each in found
    ]
    print_table(("name", "weight", "needs", "task types", "description"), rows, empty="there are none")


@rewards.command()
@click.argument("file", type=_FILE)
@_weight
@json_option
@click.pass_context
def test(ctx: click.Context, file: Path, weights: tuple[str, ...], as_json: bool) -> None:
    """Score the attempts of FILE; exit 7 if wrong.

    A line is {"attempt": {"output": ..., "expected": ..., "task_type": ...}, "want": 1.0}; "want" may be null (not
    known) or missing. Each attempt is scored once more with an empty answer: one that would earn more fails the test.

    \b
    Examples:
      learnloop rewards test attempts.jsonl --weight correctness=1
    """
    from learnloop.core.errors import CheckFailedError
    from learnloop.loop.rewards.scoring import try_examples

    found = list(try_examples(_process(open_workspace(ctx, create=True), weights, None).engine, file))
    wrong = [each for each in found if not each.is_wanted or each.pays_for_nothing]
    if as_json:
        print_json("learnloop.reward-test/v1", ok=not wrong, data=found)
    else:
        rows = [(each.number, each.scored.total, _said(each), _parts(each.scored)) for each in found]
        print_table(("line", "reward", "test", "parts"), rows, empty="the file has no attempts")
    if wrong:
        lines = ", ".join(str(each.number) for each in wrong[:10])
        raise CheckFailedError(
            f"{len(wrong)} of {len(found)} attempts are not worth what they should be: lines {lines}"
        )


def _said(tried: Any) -> str:
    if tried.pays_for_nothing:
        return "an empty answer would earn more"
    return "ok" if tried.is_wanted else "not what is wanted"


@rewards.command()
@click.argument("component")
@click.option("--min-kappa", type=click.FloatRange(-1, 1), default=0.6, show_default=True, help="What it must reach.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the bootstrap.")
@json_option
@click.pass_context
def calibrate(ctx: click.Context, component: str, min_kappa: float, seed: int, as_json: bool) -> None:
    """Hold the scores of COMPONENT against labels.

    Exits with 7 unless the stored scores surely agree with what people said.

    \b
    Examples:
      learnloop rewards calibrate judge
      learnloop rewards calibrate total --min-kappa 0.4 --json
    """
    from learnloop.core.errors import CheckFailedError
    from learnloop.loop.rewards.scoring import calibrate as hold_against_labels

    report = hold_against_labels(open_workspace(ctx), component, min_kappa=min_kappa, seed=seed)
    if as_json:
        print_json("learnloop.calibration/v1", component=component, report=report)
    else:
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
@click.pass_context
def audit(ctx: click.Context, regrade: float, seed: int, tasks: Path | None, as_json: bool) -> None:
    """Check that all shares add up; exit 7 if not.

    With --regrade a random share of the stored rewards is worked out once more; more than 2 % that differ fail.

    \b
    Examples:
      learnloop rewards audit
      learnloop rewards audit --regrade 0.01 --json
    """
    from learnloop.core.errors import CheckFailedError
    from learnloop.loop.rewards.scoring import MAX_DISAGREEMENT
    from learnloop.loop.rewards.scoring import regrade as work_out_again
    from learnloop.rewards.sharing.ledger import RewardLedger

    workspace = open_workspace(ctx)
    findings = list(RewardLedger(workspace.store).audit())
    num_again = 0
    different: list[Regraded] = []
    if regrade:
        for each in work_out_again(workspace, _process(workspace, (), None), regrade, seed=seed, truths=_truths(tasks)):
            num_again += 1
            different += [] if each.agrees else [each]
    fails = bool(findings) or len(different) > MAX_DISAGREEMENT * num_again
    if as_json:
        counts = {"num_regraded": num_again, "num_different": len(different)}
        print_json("learnloop.reward-audit/v1", ok=not fails, findings=findings, **counts, different=different)
    else:
        rows: Iterable[tuple[object, ...]] = [(each.kind, each.episode_id, each.message) for each in findings]
        rows = [*rows, *(("regrade", each.episode_id, f"{each.stored} is {each.again} now") for each in different)]
        print_table(("finding", "episode", "message"), rows, empty="all shares add up")
        if num_again:
            say(f"{num_again} scored again, {len(different)} differ", error=True)
    if fails:
        raise CheckFailedError(
            f"{len(findings)} findings, {len(different)} of {num_again} rewards differ when scored again"
        )


def _process(workspace: Workspace, weights: Iterable[str], credit: str | None) -> RewardProcess:
    import msgspec

    from learnloop.loop.rewards.rewarding import RewardProcess

    changes: dict[str, Any] = {}
    given = dict(map(_weight_of, weights))
    if given:
        changes["weights"] = given
    if credit is not None:
        changes.update(credit=credit, credit_options={})
    return RewardProcess(workspace, msgspec.structs.replace(workspace.settings.rewards, **changes))


def _weight_of(text: str) -> tuple[str, float]:
    name, equals, number = text.partition("=")
    try:
        return name, float(number) if equals else 1.0
    except ValueError as error:
        raise click.UsageError(
            f"--weight {text!r}: {number!r} is no number; write NAME=W, such as correctness=1"
        ) from error


def _truths(file: Path | None) -> Truths | None:
    from learnloop.loop.rewards.scoring import read_truths

    return None if file is None else read_truths(file)
