"""The command that shows the whole loop on real input."""

from __future__ import annotations

import click

from learnloop.cli.output import console, json_option, printed_json, progress


@click.command()
@click.option("--seed", default=0, show_default=True, help="Of the files' order and of the choices.")
@click.option("--shuffle-rewards", is_flag=True, help="Give each choice another file's reward: nothing can be learned.")
@json_option
@click.pass_context
def demo(ctx: click.Context, seed: int, shuffle_rewards: bool) -> None:
    """Watch an agent learn to pack this machine's files; exit 7 if it did not learn.

    For each file it chooses one of six real packers, and is rewarded by the share of its bytes that this saved less
    0.02 x the CPU seconds that it took for each MB. Then it is judged on files that it has never seen. Everything is
    recorded in ./.learnloop.

    \b
    Examples:
      learnloop demo
      learnloop demo --seed 3 --json
      learnloop demo --shuffle-rewards
    """
    from learnloop.demo.job import AGENT, NUM_STEPS, run_job
    from learnloop.demo.report import print_report
    from learnloop.loop import Loop

    with Loop(AGENT, **ctx.obj, seed=seed) as loop, progress("Packing files", NUM_STEPS) as advance:
        folder = loop.workspace.settings.home / "demo"
        result = run_job(loop, folder, seed=seed, shuffle_rewards=shuffle_rewards, advance=advance)
    if not printed_json("learnloop.demo/v1", **result.summary()):
        print_report(result, console())
    if not result.learned:
        ctx.exit(7)
