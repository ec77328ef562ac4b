"""Runs one benchmark: ``python -m benchmarks NAME [--quick] [--json] [--seeds N]``.

The table goes to standard output, messages to standard error. Exits with 7 if a goal fails, and with 1 if one could
not be checked because its peer is missing.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from benchmarks.report import Options, exit_code, format_table, to_json

BENCHMARKS = {
    "capture": "what recording costs the caller, and durable spans per second",
    "decide": "decisions with learning per second, and what they earn",
    "service": "decisions a second over HTTP, how fast one is answered, and what learning costs them",
    "traces": "spans received a second, what recording a model's client costs, and how fast traces are read",
    "rewards": "attempts scored a second, and what a run in the sandbox costs",
    "proof": "how often a proof says learned where nothing can be, and where something is",
    "rl": "training steps per second, time to a solved CartPole, and the cost of the parts",
}
"""Name -> what it measures. The module of the same name has ``run(options: Options) -> list[Row]``."""


def main(arguments: Sequence[str] | None = None) -> int:
    names = "\n".join(f"  {name:10}{text}" for name, text in BENCHMARKS.items())
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", epilog=names, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", choices=list(BENCHMARKS))
    parser.add_argument("--quick", action="store_true", help="few repetitions, to see that it runs")
    parser.add_argument("--json", action="store_true", help="print JSON, with the value of each repetition")
    parser.add_argument("--seeds", type=_count, metavar="N", help="how many seeds, or repetitions")
    chosen = parser.parse_args(arguments)
    module = importlib.import_module(f"benchmarks.{chosen.name}")
    rows = module.run(Options(quick=chosen.quick, seeds=chosen.seeds))
    sys.stdout.write((to_json(chosen.name, rows) if chosen.json else format_table(rows)) + "\n")
    return exit_code(rows)


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"{count} is not at least 1")
    return count


if __name__ == "__main__":
    sys.exit(main())
