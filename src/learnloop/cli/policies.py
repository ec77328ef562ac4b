"""Commands about policies."""

from __future__ import annotations

from typing import Any

import click

from learnloop.cli.output import json_option, open_workspace, print_listing, print_table, printed_json, say


def not_empty(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    """Returns an option's text, refusing one without a word."""
    if not value.strip():
        raise click.BadParameter("say it in a few words", ctx=ctx, param=parameter)
    return value


@click.group()
def policies() -> None:
    """List, show, prove, alias, evaluate and export policies; remove old versions."""


@policies.command("list")
@json_option
def list_() -> None:
    """List all policies with their versions, the newest last, and whether their learning is proven.

    \b
    Examples:
      learnloop policies list
      learnloop policies list --json
    """
    print_listing(
        "learnloop.policies/v1",
        open_workspace().policies.list(),
        ("policy", "held-out", "kind", "registered (UTC)", "aliases"),
        lambda each: (
            f"{each.version.policy}@{each.version.version}", each.version.metrics.get("reward"), each.version.algorithm,
            each.version.created_at, ", ".join(each.aliases) or (None if each.proven else "not proven"),
        ),
        empty="no policies yet; see one made with: learnloop demo, or prove yours with Loop.prove(NAME)",
    )  # fmt: skip


@policies.command("show")
@click.argument("name")
@json_option
def show(name: str) -> None:
    """Show the version NAME (NAME, NAME@3 or NAME@alias), its proof and where its aliases point.

    \b
    Examples:
      learnloop policies show packer.codec
      learnloop policies show packer.codec@candidate --json
    """
    found = open_workspace().policies.show(name)
    version, aliases, certificates = found.version, found.aliases, found.certificates
    if printed_json("learnloop.policy/v1", version=version, aliases=aliases, certificates=certificates):
        return
    say(f"{version.policy}@{version.version}  {version.algorithm}  {version.content_hash}")
    say(f"registered {version.created_at:%Y-%m-%d %H:%M:%S} UTC, parent {version.parent_id or 'none'}")
    for metric, value in version.metrics.items():
        say(f"  {metric}: {value:.4f}" if isinstance(value, float) else f"  {metric}: {value}")
    if not found.proven:
        say("its learning is not proven: no alias can point to it")
    say("aliases: " + (", ".join(f"{alias} -> {number}" for alias, number in aliases.items()) or "none"))
    for certificate in certificates:
        say(f"certificate {certificate.certificate_id}: {certificate.verdict.value}")
        for reason in certificate.reasons:
            say(f"  {reason}")


@policies.command("prove")
@click.argument("agent")
@click.argument("policy")
@click.option("--unit", default="episode", help="What is independent: episode, task, or a feature or key [episode].")
@click.option("--alpha", type=click.FloatRange(0, 1, min_open=True, max_open=True), help="Level of each test [0.05].")
@click.option("--seed", type=int, help="Of training and tests [0].")
@click.option("--reward-range", type=(float, float), metavar="LOW HIGH", help="What missing rewards may have been.")
@json_option
@click.pass_context
def prove(ctx: click.Context, /, agent: str, policy: str, unit: str, **options: Any) -> None:
    """Learn a policy from its log, judge it on held-out units, register it if it learned; exit 7 if not.

    It is trained 50 times: once, 9 times on resampled and 40 times on shuffled rewards (200 times where that is close).

    \b
    Examples:
      learnloop policies prove shop banner
      learnloop policies prove shop banner --unit user --reward-range 0 1 --json
    """
    from learnloop.core.records import Verdict

    given = {name: value for name, value in options.items() if value is not None}
    found = open_workspace().policies.prove(agent, policy, unit=unit, **given)
    verification, version = found.verification, found.version
    if not printed_json(
        "learnloop.proof/v1",
        verdict=verification.verdict,
        reasons=verification.reasons,
        version=version,
        statistics=verification.to_statistics(),
    ):
        units = f"trained on {verification.num_training_units:,} units, judged on {verification.num_units:,}"
        say(f"{verification.verdict}: {units}")
        for reason in verification.reasons:
            say(f"  {reason}")
        for each in verification.assumptions:
            say(f"  {each.name} {each.finding}: {each.detail}")
        if version is not None:
            say(f"registered as {version.policy}@{version.version}")
    if verification.verdict is not Verdict.LEARNED:
        ctx.exit(7)


@policies.command("alias")
@click.argument("name")
@click.argument("alias")
@click.option("--reason", required=True, callback=not_empty, help="Why it is moved; kept with the move.")
@click.option("--actor", envvar="USER", default="cli", show_default=True, help="Who moves it.")
@json_option
def alias_(name: str, alias: str, reason: str, actor: str) -> None:
    """Point ALIAS (champion, candidate or any name) at the version NAME.

    \b
    Examples:
      learnloop policies alias packer.codec@2 champion --reason "better on held-out files"
      learnloop policies alias packer.codec@previous champion --reason "roll back"
    """
    found = open_workspace().policies
    version = found.find(name)
    move = found.alias(name, alias, actor=actor, reason=reason)
    if not printed_json("learnloop.alias/v1", move=move):
        say(f"{version.policy}@{alias} is now version {version.version}")


@policies.command("prune")
@click.argument("name")
@click.option("--keep", required=True, type=click.IntRange(1), help="How many of the newest versions to keep.")
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@json_option
def prune(name: str, keep: int, dry_run: bool) -> None:
    """Remove old versions of NAME, never the best, an aliased or a referenced one.

    \b
    Examples:
      learnloop policies prune packer.codec --keep 5 --dry-run
    """
    removed = open_workspace().policies.prune(name, keep=keep, dry_run=dry_run)
    if not printed_json("learnloop.prune/v1", dry_run=dry_run, removed=removed):
        say(f"{len(removed)} versions {'would be removed' if dry_run else 'removed'}")
        for each in removed:
            say(f"  {each.policy}@{each.version}")


@policies.command("export")
@click.argument("name")
@click.argument("file", type=click.Path(dir_okay=False))
@click.option("--format", "format_", default="onnx", show_default=True, type=click.Choice(["onnx"]), help="Of FILE.")
@click.option("--masked", is_flag=True, help="Give the model a second input: which choices are allowed.")
@json_option
def export(name: str, file: str, format_: str, masked: bool) -> None:
    """Write the policy NAME (NAME, NAME@3 or NAME@alias) as FILE, for runtimes without Python.

    \b
    Examples:
      learnloop policies export cartpole cartpole.onnx
      learnloop policies export cartpole@champion cartpole.onnx --masked --json
    """
    version = open_workspace().policies.export(name, file, masked=masked)
    if not printed_json("learnloop.export/v1", version=version, file=file, format=format_, masked=masked):
        say(f"{version.policy}@{version.version} is in {file}")


@policies.command()
@click.argument("name")
@click.option("--baseline", default="random", show_default=True, help="random, best-fixed, optimum, or NAME@version.")
@click.option("--seed", default=0, show_default=True, help="Of the permutation test.")
@json_option
def evaluate(name: str, baseline: str, seed: int) -> None:
    """Compare the policy NAME with a baseline on tasks that it was not trained on.

    \b
    Examples:
      learnloop policies evaluate packer.codec --baseline random
      learnloop policies evaluate packer.codec@2 --baseline packer.codec@1 --json
    """
    version, comparison = open_workspace().policies.evaluate(name, baseline=baseline, seed=seed)
    label = f"{version.policy}@{version.version}"
    if printed_json("learnloop.eval/v1", policy=label, comparison=comparison):
        return
    found = comparison.interval
    interval = "none (fewer than 20 units)" if found is None else f"{found.low:+.4f} to {found.high:+.4f}"
    rows = [
        (label, comparison.mean),
        (comparison.baseline, comparison.baseline_mean),
        ("difference", f"{comparison.difference:+.4f}"),
        ("95 % interval", interval),
        ("p (better)", comparison.p_value),
        ("held-out units", comparison.num_units),
    ]
    print_table(("", "reward"), rows, empty="")
