"""What recording costs the caller, and how many spans a second become durable.

The peer is the OpenTelemetry SDK with a batch processor that writes JSON lines to a file and fsyncs it at the end. Both
run the same work, a child process each, in turn. The caller's cost is CPU time of the caller's own thread, less that
of the same loop without recording. A traced call records its arguments and its result.

Durable means: on the disk when ``flush`` returns. The rate counts from the first span to that moment, so it includes
the caller, the writer and fsync. Ours commits to SQLite with ``synchronous=FULL`` all the time; the peer's file is
fsynced once.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.peers import ROOT, PeerError, peer_python, run_peer
from benchmarks.report import Goal, Options, Row, make_row

VERSION = "1.45.2"
NUM_CALLS = 20_000
NUM_DURABLE = 60_000
MEASURES = ("span_us", "call_us", "durable_per_second", "durable_cpu_us")


def run(options: Options) -> list[Row]:
    repetitions = options.repetitions(published=7, quick=2)
    ours: list[dict[str, float]] = []
    peers: list[dict[str, float]] = []
    problem: str | None = None
    for _ in range(repetitions):  # in turn, so that a busy moment of the machine meets both
        ours.append(_measure_ours())
        if problem is None:
            try:
                python = peer_python("opentelemetry", f"opentelemetry-sdk=={VERSION}")
                peers.append(run_peer(python, "opentelemetry_sdk.py", _task()))
            except PeerError as error:
                problem, peers = f"not measured: {error}", []
    return [
        _row(
            "added to the caller per span (cpu time)",
            "span_us",
            "us",
            ours,
            peers,
            problem,
            Goal(of="value", relation="<=", bound=20),
        ),
        _row("added to a traced call (cpu time)", "call_us", "us", ours, peers, problem, None),
        _row(
            "durable spans (wall time)",
            "durable_per_second",
            "1/s",
            ours,
            peers,
            problem,
            Goal(of="value", relation=">=", bound=20_000),
        ),
        _row("durable spans, whole process (cpu time)", "durable_cpu_us", "us/span", ours, peers, problem, None),
    ]


def _task() -> dict[str, int]:
    return {"num_calls": NUM_CALLS, "num_durable": NUM_DURABLE}


def _measure_ours() -> dict[str, float]:
    """Returns the measures of learnloop, taken in a fresh process as the peer's are."""
    command = [sys.executable, "-m", "benchmarks.capture"]
    child = subprocess.run(command, input=json.dumps(_task()), capture_output=True, text=True, check=True, cwd=ROOT)
    measured: dict[str, float] = json.loads(child.stdout)
    return measured


def measure(task: dict[str, Any], folder: Path) -> dict[str, float]:
    """Returns the measures, one float each, of a loop that records into ``folder``."""
    from learnloop.loop import Loop

    with Loop("bench", home=folder) as loop:
        traced = loop.tool(_work)
        with loop.episode():
            bare = _thread_us(task["num_calls"], lambda: None)
            span_us = _thread_us(task["num_calls"], lambda: _span(loop)) - bare
            loop.flush()
            call_us = _thread_us(task["num_calls"], lambda: traced(3, text="abc"))
            call_us -= _thread_us(task["num_calls"], lambda: _work(3, text="abc"))
            loop.flush()
            wall, cpu = time.perf_counter(), time.process_time()
            for _ in range(task["num_durable"]):
                with loop.span("step"):
                    pass
            loop.flush()
            wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        counters = loop.counters()
        if counters.num_dropped or counters.num_failed:
            raise RuntimeError(f"{counters.num_dropped} records were dropped, {counters.num_failed} failed")
    return {
        "span_us": span_us,
        "call_us": call_us,
        "durable_per_second": task["num_durable"] / wall,
        "durable_cpu_us": cpu / task["num_durable"] * 1e6,
    }


def _span(loop: Any) -> None:
    with loop.span("step"):
        pass


def _work(number: int, text: str) -> str:
    return text * number


def _thread_us(count: int, call: Any) -> float:
    """Returns the microseconds of this thread's CPU time that one ``call`` takes, mean of ``count``."""
    started = time.thread_time()
    for _ in range(count):
        call()
    return (time.thread_time() - started) / count * 1e6


def _row(
    name: str,
    measure_name: str,
    unit: str,
    ours: list[dict[str, float]],
    peers: list[dict[str, float]],
    problem: str | None,
    goal: Goal | None,
) -> Row:
    return make_row(
        name,
        [one[measure_name] for one in ours],
        unit,
        peer=f"OpenTelemetry SDK {VERSION}, batch processor, JSON file",
        peer_values=[one[measure_name] for one in peers],
        goal=goal,
        note=problem,
    )


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=ROOT / ".bench" if (ROOT / ".bench").exists() else None) as temporary:
        sys.stdout.write(json.dumps(measure(json.load(sys.stdin), Path(temporary))))
