"""``learnloop probe``: train an algorithm, one's own too, where what it must learn is known, and judge it.

The one command that imports ``learnloop.testing``: it is a tool for those who write algorithms.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from learnloop.cli.assignments import values_by_name
from learnloop.cli.output import json_option, print_table, printed_json, progress, say
from learnloop.core.errors import NotFoundError, UsageError, one_of
from learnloop.core.importing import import_named

if TYPE_CHECKING:
    from learnloop.testing.probe_subjects import Subject
    from learnloop.testing.probing import ProbeOutcome

FAMILIES = ("actor-critic", "q", "soft-q")


@click.command("probe")
@click.argument("algorithm", metavar="MODULE:ALGORITHM")
@click.option(
    "--probe", "names", metavar="PROBE", multiple=True, help="P1 to P12; again for more [default: P1 to P11]."
)
@click.option("--family", type=click.Choice(FAMILIES), help="What it says [default: by the methods that it has].")
@click.option("--continuous", is_flag=True, help="With one continuous action in the place of discrete ones.")
@click.option("--set", "assignments", metavar="KEY=VALUE", multiple=True, help="An option of its config.")
@click.option("--steps", type=click.IntRange(1), help="Environment steps of each probe [default: 8,000, or as ours].")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of algorithm and environment.")
@json_option
@click.pass_context
def probe(
    ctx: click.Context,
    algorithm: str,
    names: tuple[str, ...],
    family: Any,
    continuous: bool,
    assignments: tuple[str, ...],
    steps: int | None,
    seed: int,
) -> None:
    """Train an algorithm on probes, where what it must learn is known, and judge it; exit 7 if it fails one.

    MODULE:ALGORITHM is a subclass of Algorithm, or a callable make(spaces, num_envs, seed) that returns one with a
    gamma of 0.5; or the name of one of ours. Modules are looked for in this folder too.

    \b
    Examples:
      learnloop probe ppo
      learnloop probe my_package.mine:Mine --probe P4 --probe P7 --set learning_rate=0.01
      learnloop probe my_package.mine:make --family q --steps 20000 --json
    """
    from learnloop.testing.probes import PROBES
    from learnloop.testing.probing import DEFAULT_PROBES, Plan, check_probes, run_probe

    default = tuple(PROBES) if continuous else DEFAULT_PROBES
    chosen = check_probes(names or default, continuous=continuous)
    subject = find_subject(algorithm)
    plan = Plan(family, continuous, values_by_name(assignments), steps, None, seed)
    outcomes = []
    for name in chosen:
        with progress(f"{name} {subject.name}", plan.settings(subject, name).steps) as advance:
            outcomes.append(run_probe(subject, name, plan, on_progress=advance))
    failed = [outcome.probe for outcome in outcomes if outcome.verdict == "failed"]
    if not printed_json("learnloop.probe/v1", algorithm=algorithm, data=outcomes, failed=failed):
        _show(subject, outcomes, failed)
    if failed:
        ctx.exit(7)


def _show(subject: Subject, outcomes: list[ProbeOutcome], failed: list[str]) -> None:
    rows = [(each.probe, each.catches, each.verdict, "; ".join(each.said), f"{each.seconds:.1f}") for each in outcomes]
    print_table(("probe", "catches", "verdict", "what it said, and what is right", "seconds"), rows, empty="")
    if failed:
        say(f"{subject.name} fails {len(failed)} of {len(outcomes)} probes: {', '.join(failed)}", error=True)
    else:
        say(f"{subject.name} passes {len(outcomes)} probes, as {outcomes[0].family}")


def find_subject(target: str) -> Subject:
    """Returns the algorithm that ``target`` names: one of ours, or MODULE:NAME.

    Raises:
        NotFoundError: there is no such module, or it has no such name.
        UsageError: the module cannot be imported, or what it has there is not an algorithm.
    """
    from learnloop.testing.probe_subjects import subject_of

    module_name, colon, attribute = target.partition(":")
    if not colon:
        return subject_of(target)
    if not module_name or not attribute:
        raise UsageError(f"{target!r} is not MODULE:ALGORITHM, such as my_package.mine:Mine")
    if "" not in sys.path:
        sys.path.insert(0, "")  # as python -m does: a module of one's own lies in the folder one is in
    module = import_named(module_name, f"the algorithm {target!r}", "my_package.mine:Mine")
    try:
        found = getattr(module, attribute)
    except AttributeError as error:
        names = one_of(name for name in vars(module) if not name.startswith("_"))
        raise NotFoundError(f"{module_name} has no {attribute!r}; it has {names}") from error
    return subject_of(found, target)
