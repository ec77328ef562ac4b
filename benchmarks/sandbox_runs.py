"""What a sandbox costs: one run against a bare process of the same interpreter, and a hundred side by side."""

from __future__ import annotations

import os
import secrets
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from benchmarks.report import Goal, Options, Row, make_row
from learnloop.sandbox import Command, Limits, Sandbox

NUM_PARALLEL = 100
_NOTHING = ["-I", "-S", "-c", "pass"]
_KEEP = """
import glob, os, sys, time
secret = sys.stdin.read()
for place in ('secret', '/tmp/secret', '/dev/shm/secret'):
    with open(place, 'w') as file:
        file.write(secret)
time.sleep(0.2)
found = {open(path).read() for path in ('secret', '/tmp/secret', '/dev/shm/secret')}
for path in glob.glob('/proc/[0-9]*/environ') + glob.glob('/box/*/*'):
    try:
        found.add(open(path).read()) if 'environ' not in path else None
    except OSError:
        continue
processes = [name for name in os.listdir('/proc') if name.isdigit()]
print('|'.join(sorted(found)), len(processes), len(os.listdir('/proc/self/fd')))
"""


def rows(options: Options) -> list[Row]:
    """Returns the overhead of a run (the medians of each repetition) and what leaked between many."""
    repetitions = options.repetitions(published=5, quick=1)
    sandbox = Sandbox()
    sandbox.require()
    bare, inside = [], []
    for _ in range(repetitions):
        pair = _medians(sandbox, 10 if options.quick else 40)
        bare.append(pair[0])
        inside.append(pair[1])
    added = [each - plain for each, plain in zip(inside, bare, strict=True)]
    foreign = [float(_count_foreign(sandbox)) for _ in range(repetitions)]
    note = f"a bare process takes {statistics.median(bare):.1f} ms, in a sandbox {statistics.median(inside):.1f} ms"
    return [
        make_row(
            "added by the sandbox to a run of the interpreter (median)",
            added,
            "ms",
            goal=Goal(of="value", relation="<=", bound=30),
            note=note,
        ),
        make_row(
            f"of {NUM_PARALLEL} sandboxed runs side by side, those that saw what is not theirs",
            foreign,
            "runs",
            goal=Goal(of="value", relation="<=", bound=0),
        ),
    ]


def _medians(sandbox: Sandbox, number: int) -> tuple[float, float]:
    """Returns the medians of a bare run and of one in the sandbox, in turn, so that a busy moment meets both."""
    executable = os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)
    command = Command(argv=["python", *_NOTHING])

    def bare() -> None:
        subprocess.run([executable, *_NOTHING], capture_output=True, stdin=subprocess.DEVNULL, check=True)

    def inside() -> None:
        if not sandbox.run(command).is_success:
            raise RuntimeError("a run in the sandbox failed")

    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(number):
        for kept, act in zip(times, (bare, inside), strict=True):
            kept.append(_milliseconds(act))
    return statistics.median(times[0]), statistics.median(times[1])


def _milliseconds(act: Callable[[], None]) -> float:
    begun = time.perf_counter()
    act()
    return (time.perf_counter() - begun) * 1000


def _count_foreign(sandbox: Sandbox) -> int:
    """Returns how many of many runs side by side saw another's secret, process or descriptor, or lost their own."""
    limits = Limits(wall_seconds=60.0)

    def keep(secret: str) -> bool:
        outcome = sandbox.run(Command(argv=["python", "-I", "-S", "-c", _KEEP], stdin=secret.encode()), limits)
        return outcome.is_success and outcome.stdout.decode().split() == [secret, "2", "4"]

    with ThreadPoolExecutor(NUM_PARALLEL) as pool:
        return sum(not is_own for is_own in pool.map(keep, [secrets.token_hex(16) for _ in range(NUM_PARALLEL)]))
