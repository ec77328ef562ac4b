"""``learnloop train``: train a policy in an environment, watch it, and put it into the registry."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from learnloop.cli.assignments import values_by_name
from learnloop.cli.output import (
    command_settings,
    console,
    json_option,
    print_table,
    printed_json,
    say,
    shown,
    wants_json,
)
from learnloop.core.checks import check_name

if TYPE_CHECKING:
    from learnloop.core.datasets import Dataset
    from learnloop.loop.training.training import Run
    from learnloop.training.runs import RunEvaluation
    from learnloop.training.trainers.seed_trainer import TrainingProgress

REPLAYS = ("jsonl", "trace-replay", "learnloop/TraceReplay-v0")
"""Environments that show a log and try nothing out: not what a policy can be evaluated in."""
LINE_SECONDS = 10.0
"""Where standard error is not a terminal, a line of progress appears so often."""


@click.command("train")
@click.option("--algorithm", help="ppo, dqn, a2c, a3c, sac, random; from logs bc, cql, iql, awac [default: ppo; cql].")
@click.option("--agent", hidden=True, help="The same as --algorithm.")
@click.option("--env", help="A gymnasium id, or an alias such as cartpole [default: CartPole-v1; none with a log].")
@click.option("--trace-file", metavar="FILE", help="Learn from logged episodes: bc, cql, iql or awac.")
@click.option("--steps", type=click.IntRange(1), help="Environment steps [default: the preset's].")
@click.option("--episodes", type=click.IntRange(1), help="End after so many episodes.")
@click.option("--updates", type=click.IntRange(1), help="Gradient steps, with --trace-file [default: 20,000].")
@click.option("--seeds", type=click.IntRange(1), default=1, show_default=True, help="How many seeds, side by side.")
@click.option("--network", metavar="NAME", help="A network that was added, in the place of net_arch; needs torch.")
@click.option("--device", default=None, help="cpu (numpy) or one of torch's, such as cuda [default: cpu].")
@click.option("--checkpoint-interval", type=click.IntRange(1), help="Steps between checkpoints [default: none].")
@click.option("--resume", metavar="RUN", help="Go on with an interrupted run; latest is the newest.")
@click.option("--set", "assignments", metavar="KEY=VALUE", multiple=True, help="A hyper-parameter, n_envs, preset ...")
@click.option("--register", "name", metavar="NAME", help="Prove the best policy and register it under NAME.")
@json_option
@click.pass_context
def train(
    ctx: click.Context,
    algorithm: str | None,
    agent: str | None,
    env: str | None,
    trace_file: str | None,
    steps: int | None,
    episodes: int | None,
    updates: int | None,
    seeds: int,
    network: str | None,
    device: str | None,
    checkpoint_interval: int | None,
    resume: str | None,
    assignments: tuple[str, ...],
    name: str | None,
) -> None:
    """Train a policy in an environment, or from logged episodes.

    Without options: PPO in CartPole-v1 with rl-zoo's settings. Figures go to the store's folder, under runs. With a
    trace file nothing is tried out; what the policy earns is measured only in an --env that is named.

    \b
    Examples:
      learnloop train
      learnloop train --algorithm dqn --env cartpole --seeds 5
      learnloop train --env Acrobot-v1 --steps 200000 --set learning_rate=lin_0.001 --set n_envs=16
      learnloop train --checkpoint-interval 20000 --register cartpole
      learnloop train --algorithm cql --trace-file traces.jsonl --updates 5000
      learnloop train --resume latest
      learnloop train --resume latest --register cartpole
    """
    from learnloop.loop.training.training import open_run
    from learnloop.loop.training.training import resume as resume_run
    from learnloop.loop.training.training import train as start

    if name is not None:
        check_name("a policy", name)  # before hours of training
    _refuse_contradictions(ctx)
    settings = command_settings()
    named = _keep_given(network=network, device=device, checkpoint_interval=checkpoint_interval)
    options = _joined(values_by_name(assignments), named)
    # What environments print is not a result of this command.
    with redirect_stdout(sys.stderr), _watch() as on_progress:
        if resume is not None and name is not None and open_run(resume, home=settings).record.status == "completed":
            run = open_run(resume, home=settings)  # nothing is left to train; it is to be registered
        elif resume is not None:
            run = resume_run(resume, home=settings, on_progress=on_progress)
        else:
            chosen = agent or algorithm or ("ppo" if trace_file is None else "cql")
            read = None if trace_file is None else _read(chosen, trace_file)
            run = start(
                chosen,
                None if trace_file is not None and env in REPLAYS else env,
                steps=steps,
                episodes=episodes,
                updates=updates,
                dataset=read,
                seeds=seeds,
                options=options,
                home=settings,
                on_progress=on_progress,
            )
        evaluation = run.evaluate() if run.can_evaluate else None
    if not wants_json():
        show_run(run, evaluation)
    version = None
    if name is not None:
        with redirect_stdout(sys.stderr), _watch() as on_progress:
            best = run.best
            version = best.register(name, on_progress)
        if not wants_json():
            say(f"registered as {version.policy}@{version.version}: {'; '.join(best.prove().reasons)}")
    printed_json("learnloop.train/v1", run=run.record, evaluation=evaluation, version=version)


def _read(algorithm: str, trace_file: str) -> Dataset:
    """Returns the data set of a file for ``algorithm``, and says what is in it and what was left out."""
    from learnloop.loop.training.training import read_traces
    from learnloop.training.options import check_source

    check_source(algorithm, has_dataset=True)
    dataset, report = read_traces(trace_file)
    actions = ", ".join(f"{name} {count:,}" for name, count in report.actions.items())
    say(shown(f"learning from {report.num_steps:,} steps of {report.num_episodes:,} episodes: {actions}"), error=True)
    for reason, count in report.left_out.items():
        say(shown(f"left out: {count:,} episodes ({reason})"), error=True)
    if report.num_bad_lines:
        first = report.bad_lines[0]
        say(shown(f"left out: {report.num_bad_lines:,} lines; line {first.line}: {first.reason}"), error=True)
    return dataset


_WITH_RESUME = {"resume", "name"}


def _refuse_contradictions(ctx: click.Context) -> None:
    """Refuses options that would be passed over in silence."""
    given = {
        option
        for option in ctx.params
        if ctx.get_parameter_source(option) not in (ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP)
    }
    if {"agent", "algorithm"} <= given:
        raise click.UsageError("--agent is another name of --algorithm; give one of them")
    if {"trace_file", "name"} <= given and ("env" not in given or ctx.params["env"] in REPLAYS):
        raise click.UsageError("what a policy learned is proven in the environment that was logged: name it with --env")
    if "resume" in given and given - _WITH_RESUME:
        names = ", ".join(option.opts[0] for option in ctx.command.params if option.name in given - _WITH_RESUME)
        raise click.UsageError(f"a run that is resumed goes on with its own options; leave out {names}")


def show_run(run: Run, evaluation: RunEvaluation | None) -> None:
    """Prints what each seed learned, and the statistics over seeds."""
    results = run.record.results
    is_offline = run.record.options.dataset is not None
    means = [None] * len(results) if evaluation is None else evaluation.means
    rows = []
    for result, mean in zip(results, means, strict=True):
        done, best = (result.num_updates, result.best_updates) if is_offline else (result.num_steps, result.best_steps)
        rate = f"{done / result.seconds:,.0f}" if result.seconds else None
        shown_mean = None if mean is None else f"{mean:.1f}"
        counts = (str(result.seed), f"{done:,}", f"{result.num_episodes:,}")
        rows.append((*counts, rate, f"{result.seconds:.1f}", f"{best:,}", shown_mean))
    unit = "updates" if is_offline else "steps"
    print_table(("seed", unit, "episodes", f"{unit}/s", "seconds", "best at", "held-out return"), rows, empty="")
    if evaluation is not None:
        summary = evaluation.summary
        found = summary.iqm_interval
        interval = summary.reason if found is None else f"95 % interval of the IQM {found.low:.1f} to {found.high:.1f}"
        say(f"mean {summary.mean:.1f}, IQM {summary.iqm:.1f} over {len(rows)} seeds; {interval}")
    elif not run.can_evaluate:
        say("what these policies earn is not measured: name the environment that was logged with --env")
    say(f"run {run.run_id} in {run.folder}")


def _joined(assigned: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    for name in given:
        if name in assigned:
            raise click.UsageError(f"--{name.replace('_', '-')} and --set {name} say the same; give one of them")
    return {**assigned, **given}


def _keep_given(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


@contextmanager
def _watch() -> Iterator[Callable[[TrainingProgress], None]]:
    """Gives a function that shows progress: a bar for each seed on a terminal, else a line now and then."""
    terminal = console(error=True)
    if not terminal.is_terminal:
        yield _Lines()
        return
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[figures]}"),
        TimeRemainingColumn(),
    )
    with Bars(*columns, console=terminal, transient=True) as bars:
        tasks: dict[int, Any] = {}
        lock = threading.Lock()

        def show(progress: TrainingProgress) -> None:
            with lock:
                if progress.seed not in tasks:
                    tasks[progress.seed] = bars.add_task(_label(progress), total=1.0, figures="")
            bars.update(tasks[progress.seed], completed=progress.fraction, figures=_figures(progress))

        yield show


def _label(progress: TrainingProgress) -> str:
    """Returns what a training is called; the seeds of shuffled controls are long numbers."""
    return f"seed {progress.seed}" if progress.seed < 1_000_000 else "shuffled control"


class _Lines:
    def __init__(self) -> None:
        self._last: dict[int, float] = {}

    def __call__(self, progress: TrainingProgress) -> None:
        if time.monotonic() - self._last.setdefault(progress.seed, time.monotonic()) >= LINE_SECONDS:
            self._last[progress.seed] = time.monotonic()
            left = "" if progress.seconds_left is None else f", {progress.seconds_left:.0f} s left"
            say(shown(f"{_label(progress)}: {progress.fraction:.0%}, {_figures(progress)}{left}"), error=True)


def _figures(progress: TrainingProgress) -> str:
    known = progress.evaluated if progress.is_offline else progress.mean_return
    mean = "-" if known is None else f"{known:.1f}"
    done = f"{progress.num_updates:,} updates" if progress.is_offline else f"{progress.num_steps:,} steps"
    return f"{done}, {progress.per_second:,.0f}/s, return {mean}"
