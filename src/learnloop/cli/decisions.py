"""Commands about the decision service: its log, its policies' settings, and what was learned."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from learnloop.cli.assignments import changed_settings, numbers_by_name
from learnloop.cli.output import (
    json_option,
    open_workspace,
    page_options,
    print_listing,
    print_table,
    printed_json,
    printed_record,
    progress,
    say,
    wants_json,
)

if TYPE_CHECKING:
    from learnloop.loop.decisions.counterfactual import Counterfactual
    from learnloop.loop.decisions.importing import DecisionImport

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.group()
def decisions() -> None:
    """Import, look at, reward and evaluate decisions; set how policies choose and learn."""


@decisions.command("import")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=_FILE)
@click.option("--agent", required=True, help="Whose decisions.")
@click.option("--policy", required=True, help="Of which policy.")
@click.option(
    "--format", "format_name", default="auto", show_default=True, type=click.Choice(["auto", "dsjson", "vw"]),
    help="Azure Personalizer's and VW's dsjson, or VW's text for cb and cb_adf.",
)  # fmt: skip
@click.option("--first-is-baseline", is_flag=True, help="The first action is your own logic's, as in Personalizer.")
@click.option("--strict", is_flag=True, help="Import nothing of a file that has a bad line.")
@json_option
def import_(
    files: tuple[Path, ...],
    agent: str,
    policy: str,
    format_name: str,
    first_is_baseline: bool,
    strict: bool,
) -> None:
    """Import logs of Azure Personalizer or Vowpal Wabbit with their propensities; a second import adds nothing.

    \b
    Examples:
      learnloop decisions import log.dsjson.gz --agent shop --policy banner
      learnloop decisions import 2026/*.json --agent shop --policy banner --first-is-baseline
      learnloop decisions import train.vw --agent shop --policy banner --format vw --strict
    """
    from learnloop.core.errors import NotFoundError

    for file in files:
        if not file.is_file():
            raise NotFoundError(f"no file {str(file)!r}; nothing was imported")
    workspace = open_workspace(create=True)
    found = []
    with progress(f"Importing {files[0].name}", sum(file.stat().st_size for file in files)) as advance:
        for file in files:
            one = workspace.decisions.import_(
                file,
                agent=agent,
                policy=policy,
                format_name=None if format_name == "auto" else format_name,
                first_is_baseline=first_is_baseline,
                strict=strict,
                progress=advance,
            )
            found.append(one)
            if not wants_json():
                _say_import(one)
    printed_json("learnloop.decision-import/v1", files=found)


def _say_import(found: DecisionImport) -> None:
    say(
        f"{found.file}: {found.format}, {found.num_lines:,} lines, {found.num_decisions:,} decisions, "
        f"{found.num_rewards:,} rewards; {found.num_new:,} records are new"
    )
    notes = {
        "{:,} decisions have no reward": found.num_without_reward,
        "{:,} decisions count only once they are activated": found.num_deferred - found.num_activated,
        "{:,} decisions stand for others that the log left out; estimates weigh them by 1 / (1 - pdrop)": (
            found.num_dropping
        ),
        "{:,} observations are of decisions that are not here": found.num_unmatched,
        "{:,} bad lines were left out": found.num_bad_lines,
    }
    for fault in found.bad_lines:
        say(f"line {fault.line}: {fault.reason}", error=True)
    for words, number in notes.items():
        if number > 0:
            say(words.format(number), error=True)


@decisions.command("list")
@click.option("--agent", help="Only this agent's.")
@click.option("--policy", help="Only of this policy.")
@click.option("--episode", help="Only of this episode.")
@page_options()
@json_option
def list_(agent: str | None, policy: str | None, episode: str | None, limit: int, after: str | None) -> None:
    """List decisions, what was stored last first.

    \b
    Examples:
      learnloop decisions list --agent shop --policy banner --limit 10
    """
    page = open_workspace().decisions.list(agent=agent, policy=policy, episode=episode, limit=limit, after=after)
    print_listing(
        "learnloop.decisions/v1",
        page,
        ("decision", "policy", "action", "propensity", "mode", "made"),
        lambda each: (
            each.decision_id, f"{each.agent_id}.{each.policy}", each.action, each.propensity, each.mode, each.created_at
        ),
        empty="no decisions; make some with: learnloop serve, or: learnloop decisions import FILE",
    )  # fmt: skip


@decisions.command()
@click.argument("decision_id")
@json_option
def show(decision_id: str) -> None:
    """Show a decision with its rewards.

    \b
    Examples:
      learnloop decisions show 019b2f3c-5a1e-7c33-b2d4-90a1c7e8f012
    """
    found = open_workspace().decisions.show(decision_id)
    decision = found.decision
    if printed_record("learnloop.decision/v1", found):
        return
    say(f"{decision.decision_id}: {decision.action} of {decision.agent_id}.{decision.policy}")
    if decision.is_deferred:
        used = f"activated at {found.activated_at}" if found.activated_at else "not activated: it does not count"
        say(f"deferred; {used}")
    probabilities: list[float] | list[None] = decision.probabilities or [None] * len(decision.actions)
    allowed = decision.mask or [True] * len(decision.actions)
    rows = [
        (action, probability, "yes" if ok else "no")
        for action, probability, ok in zip(decision.actions, probabilities, allowed, strict=True)
    ]
    print_table(("action", "probability", "allowed"), rows, empty="no actions")
    parts = [(each.name, each.value, each.weight, each.source, each.created_at) for each in found.rewards]
    print_table(("reward", "value", "weight", "source", "given"), parts, empty="no rewards yet")
    say(found.reward_state if found.reward is None else f"counts as {found.reward:g}")


@decisions.command()
@click.argument("decision_id")
@click.argument("parts", metavar="[PART=]VALUE...", nargs=-1, required=True)
@click.option("--author", envvar="LEARNLOOP_AUTHOR", help="Who says so [LEARNLOOP_AUTHOR].")
@click.option("--reason", help="Why.")
@json_option
def reward(decision_id: str, parts: tuple[str, ...], author: str | None, reason: str | None) -> None:
    """Say what a decision was worth: a number, or parts by name, which add up.

    The same part again replaces it.

    \b
    Examples:
      learnloop decisions reward 019b2f3c-5a1e-7c33-b2d4-90a1c7e8f012 1
      learnloop decisions reward 019b2f3c-5a1e-7c33-b2d4-90a1c7e8f012 click=1 minutes=-0.3
    """
    values = numbers_by_name((each if "=" in each else f"reward={each}" for each in parts), "PART=VALUE", "click=1")
    rewards = open_workspace().decisions.reward(decision_id, values, author=author, reason=reason)
    if not printed_json("learnloop.decision-rewards/v1", decision_id=decision_id, rewards=rewards):
        say(f"{decision_id}: " + ", ".join(f"{each.name} {each.value:g}" for each in rewards if each.value is not None))


@decisions.command()
@click.argument("decision_id")
@json_option
def activate(decision_id: str) -> None:
    """Say that a deferred decision was used: it counts from now on.

    \b
    Examples:
      learnloop decisions activate 019b2f3c-5a1e-7c33-b2d4-90a1c7e8f012
    """
    found = open_workspace().decisions.activate(decision_id)
    if not printed_json("learnloop.decision-activation/v1", activation=found):
        say(f"{decision_id}: counts since {found.created_at}")


@decisions.command()
@click.argument("agent")
@click.argument("policy")
@click.option("--target", "targets", multiple=True, help="champion, uniform, baseline, best-fixed or NAME@3; repeat.")
@click.option("--since", metavar="TIME", help="Made then or later: 2026-01-31, or how long ago, such as 7d.")
@click.option("--until", metavar="TIME", help="Made before.")
@click.option("--estimator", type=click.Choice(["dr", "ips", "snips"]), default="dr", show_default=True)
@click.option("--max-missing", type=click.FloatRange(0, 1), help="A larger share without a reward is refused [0.01].")
@click.option("--reward-range", type=(float, float), metavar="LOW HIGH", help="Rewards lie between: gives sure bounds.")
@click.option("--held-out-share", type=float, help="Only units held out at this share, as versions were trained [all].")
@click.option("--unit", help="What is independent: episode, task, or a feature or key such as user [episode].")
@json_option
def evaluate(agent: str, policy: str, targets: tuple[str, ...], **options: Any) -> None:
    """Show what other policies would have earned on the logged decisions.

    \b
    Examples:
      learnloop decisions evaluate shop banner
      learnloop decisions evaluate shop banner --target champion --target uniform --since 7d --json
      learnloop decisions evaluate shop banner --reward-range 0 1 --held-out-share 0.4 --unit user
    """
    from learnloop.loop.decisions.counterfactual import CounterfactualOptions
    from learnloop.loop.workspace.times import parse_moment

    for name in ("since", "until"):
        options[name] = None if options[name] is None else parse_moment(options[name])
    chosen = CounterfactualOptions(**{name: value for name, value in options.items() if value is not None})
    found = open_workspace().decisions.evaluate(agent, policy, targets or None, chosen)
    if not printed_json("learnloop.counterfactual/v1", report=found):
        _print_evaluation(found)


def _print_evaluation(found: Counterfactual) -> None:
    rows = found.rows()
    names = ("policy", "value", "from", "to", "effective_sample_size")
    table = [tuple(row[name] for name in names) for row in rows]
    print_table(("policy", "reward", "from", "to", "effective"), table, empty="")
    pending = f"; {found.num_pending:,} may still get one" if found.num_pending else ""
    say(f"{found.num_rewarded:,} of {found.num_decisions:,} decisions have a reward{pending}")
    by_note: dict[str, list[str]] = {}
    for row in rows:
        for note in row["notes"]:
            by_note.setdefault(note, []).append(row["policy"])
    for note, policies in by_note.items():
        say(f"{', '.join(policies)}: {note}", error=True)


@decisions.command("match-rate")
@click.argument("agent")
@click.argument("policy")
@click.option("--newest", type=click.IntRange(min=1), help="Of so many decisions, the newest [all].")
@json_option
def match_rate_(agent: str, policy: str, newest: int | None) -> None:
    """Show how often the policy would have chosen what your own logic chose.

    \b
    Examples:
      learnloop decisions match-rate shop banner --newest 1000
    """
    found = open_workspace().decisions.match_rate(agent, policy, newest=newest)
    if printed_json("learnloop.match-rate/v1", report=found):
        return
    if found.share is None or found.interval is None:
        say("no decision of which both choices are known", error=True)
    else:
        between = f"{found.interval.low:.1%} to {found.interval.high:.1%}"
        say(f"{found.share:.1%} of {found.num_decisions:,} ({between})")


@decisions.command()
@click.argument("agent")
@click.argument("policy")
@page_options(20)
@json_option
def updates(agent: str, policy: str, limit: int, after: str | None) -> None:
    """List what the learner tried, the newest first, with its verdicts.

    \b
    Examples:
      learnloop decisions updates shop banner --json
    """
    print_listing(
        "learnloop.learning-updates/v1",
        open_workspace().decisions.updates(agent, policy, limit=limit, after=after),
        ("ended", "verdict", "samples", "held out", "message"),
        lambda each: (
            each.ended_at, each.verdict, each.num_samples, each.num_held_out, each.error or "; ".join(each.reasons)
        ),
        empty="no updates yet",
    )  # fmt: skip


@decisions.command("champion-tests")
@click.argument("agent")
@click.argument("policy")
@page_options(20)
@json_option
def champion_tests(agent: str, policy: str, limit: int, after: str | None) -> None:
    """List how versions fared, while they were served, against what was tried besides them.

    \b
    Examples:
      learnloop decisions champion-tests shop banner
    """
    print_listing(
        "learnloop.champion-tests/v1",
        open_workspace().decisions.champion_tests(agent, policy, limit=limit, after=after),
        ("began", "decisions", "others", "missing", "evidence", "put out", "message"),
        lambda each: (
            each.started_at, each.num_decisions, each.num_others, each.num_missing, each.evidence, each.put_out_at,
            each.reason,
        ),
        empty="no version was tested while it was served",
    )  # fmt: skip


@decisions.command()
@click.argument("agent")
@click.argument("policy")
@click.option("--set", "changes", metavar="KEY=VALUE", multiple=True, help="Change a value; VALUE is JSON or a word.")
@click.option("--file", "given", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Replace all.")
@click.option("--version", type=click.IntRange(min=0), help="Only if this version holds (exit 5 otherwise).")
@click.option("--history", "is_history", is_flag=True, help="List all versions.")
@click.option("--author", envvar="LEARNLOOP_AUTHOR", help="Who says so [LEARNLOOP_AUTHOR].")
@json_option
def settings(
    agent: str,
    policy: str,
    changes: tuple[str, ...],
    given: Path | None,
    is_history: bool,
    **how: Any,
) -> None:
    """Show or change how a policy chooses and learns; each change is a new version.

    \b
    Examples:
      learnloop decisions settings shop banner
      learnloop decisions settings shop banner --set mode=apprentice --set exploration.epsilon=0.1
      learnloop decisions settings shop banner --file settings.json --version 3
      learnloop decisions settings shop banner --history
    """
    import msgspec

    from learnloop.decisions.service.settings import read_settings

    is_change = bool(changes) or given is not None
    if is_change and is_history:
        raise click.UsageError("--history lists; give it without --set and --file")
    if how["version"] is not None and not is_change:
        raise click.UsageError(
            "--version says which version is changed; give it with --set or --file, or use --history"
        )
    found = open_workspace(create=is_change).decisions
    if is_history:
        print_listing(
            "learnloop.policy-settings-history/v1",
            found.settings_history(agent, policy),
            ("version", "set", "by", "description"),
            lambda each: (each.version, each.created_at, each.author, msgspec.json.encode(each.settings).decode()),
            empty="nothing was set: the defaults hold",
        )
        return
    held = found.settings(agent, policy)
    if is_change:
        wanted = read_settings(changed_settings(held.settings, changes, given))
        # what was read is what is changed: a version that came meanwhile must not be lost
        expected = how["version"] if how["version"] is not None else (held.version if changes else None)
        held = found.change_settings(agent, policy, wanted, author=how["author"], expected_version=expected)
    told = {"agent_id": agent, "policy": policy, "version": held.version, "settings": held.settings}
    if printed_json("learnloop.policy-settings/v1", **told):
        return
    say(f"version {held.version}" + (", the defaults: nothing was set" if held.version == 0 else ""), error=True)
    for line in msgspec.json.format(msgspec.json.encode(held.settings), indent=2).decode().splitlines():
        say(line)
