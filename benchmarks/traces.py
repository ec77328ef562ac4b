"""How fast spans that others send become durable, what recording a client's calls costs, and how fast traces are read.

Receiver: 4 clients post protobuf requests of 500 spans each; the rate counts from the first byte to the last
acknowledgement. Both servers write to SQLite. Ours acknowledges what is on the disk (``synchronous=FULL``). The client
shares the two cores with the server.

Wrap: calls of an OpenAI client to a server on the loopback that answers at once, with and without ``loop.wrap``, in
turn, so that a busy moment meets both; the difference of the medians. The peer is OpenInference's instrumentor with a
batch processor that writes to a file.

Import: a tau-bench file of 100 trials and 1.9 MB, made here in the form of the published one, from the start of the
command to its end.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.otlp_client import SPANS_PER_TRACE, make_requests, send_all
from benchmarks.peers import ROOT, PeerError, peer_python, run_peer
from benchmarks.report import Goal, Options, Row, make_row

MLFLOW = "3.17.2"
OPENINFERENCE = "0.1.66"
SPANS_PER_REQUEST = 500
NUM_SKELETON = 10_000
_START_SECONDS = 180.0


def run(options: Options) -> list[Row]:
    repetitions = options.repetitions(published=5, quick=1)
    with tempfile.TemporaryDirectory(dir=_bench_folder()) as temporary:
        folder = Path(temporary)
        return [
            *_receiver_rows(folder, repetitions, num_requests=4 if options.quick else 40),
            *_wrap_rows(repetitions),
            _skeleton_row(folder, repetitions),
            _import_row(folder, repetitions),
        ]


def _receiver_rows(folder: Path, repetitions: int, num_requests: int) -> list[Row]:
    ours, theirs, problem = [], [], None
    for number in range(repetitions):
        bodies = make_requests(num_requests, SPANS_PER_REQUEST)
        with _our_server(folder / f"ours-{number}") as url:
            ours.append(_rate(url, bodies, {}))
        if problem is None:
            try:
                # A tenth of the spans: it is slower by more than that.
                with _mlflow_server(folder / f"mlflow-{number}") as url:
                    few = make_requests(max(1, num_requests // 10), SPANS_PER_REQUEST)
                    theirs.append(_rate(url, few, {"x-mlflow-experiment-id": "0"}))
            except PeerError as error:
                problem, theirs = f"not measured: {error}", []
    peer = f"MLflow {MLFLOW}, SQLite, 1 worker"
    name = "received spans, durable on SQLite (wall time)"
    return [
        make_row(name, ours, "1/s", goal=Goal(of="value", relation=">=", bound=5_000)),
        make_row(
            f"{name}, beside a peer",
            ours,
            "1/s",
            peer=peer,
            peer_values=theirs,
            goal=Goal(of="ratio", relation=">=", bound=3),
            note=problem,
        ),
    ]


def _rate(url: str, bodies: Sequence[bytes], headers: dict[str, str]) -> float:
    return len(bodies) * SPANS_PER_REQUEST / send_all(f"{url}/v1/traces", bodies, headers=headers)


@contextmanager
def _our_server(home: Path) -> Iterator[str]:
    command = [sys.executable, "-m", "learnloop", "--home", str(home), "serve", "--port", "0"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as process:
        try:
            line = process.stdout.readline() if process.stdout else ""
            if not line.startswith("Listening on "):
                raise RuntimeError(f"the server said {line!r}")
            yield line.removeprefix("Listening on ").strip()
        finally:
            process.terminate()
            process.wait(30)
    _check_stored(home)


def _check_stored(home: Path) -> None:
    """Looks whether all that was acknowledged is there."""
    from learnloop.core.records import Span
    from learnloop.store import Store

    with Store.open(f"sqlite:///{home / 'learnloop.db'}") as store:
        if store.count(Span) % SPANS_PER_REQUEST or not store.count(Span):
            raise RuntimeError(f"{store.count(Span)} spans are stored, which are no whole requests")


@contextmanager
def _mlflow_server(folder: Path) -> Iterator[str]:
    python = peer_python("mlflow", f"mlflow=={MLFLOW}")
    folder.mkdir()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(python), "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{folder / 'mlflow.db'}", "--default-artifact-root", str(folder)]
    quiet = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true"}
    log = folder / "log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=out, cwd=folder, env={**os.environ, **quiet}, start_new_session=True
        )
    try:
        url = f"http://127.0.0.1:{port}"
        _wait_for(f"{url}/health", process, log)
        yield url
    finally:
        os.killpg(process.pid, 15)
        process.wait(30)


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            with urllib.request.urlopen(url, timeout=2):
                return
        except OSError:
            time.sleep(0.2)
    raise PeerError(f"MLflow's server did not start: {log.read_text(errors='replace')[-300:]}")


def _wrap_rows(repetitions: int) -> list[Row]:
    ours = [_measure("benchmarks.wrapped_client") for _ in range(repetitions)]
    theirs, problem = [], None
    try:
        python = peer_python(
            "openinference",
            [
                f"openinference-instrumentation-openai=={OPENINFERENCE}",
                "openai==3.57.0",
                "opentelemetry-sdk==1.45.2",
            ],
        )
        theirs = [run_peer(python, "openinference_client.py", {}) for _ in range(repetitions)]
    except PeerError as error:
        problem = f"not measured: {error}"
    peer = f"OpenInference {OPENINFERENCE}, batch processor, JSON file"
    return [
        make_row(
            f"added to a call of a model, {kind} (median)",
            [each[kind] for each in ours],
            "ms",
            peer=peer,
            peer_values=[each[kind] for each in theirs],
            goal=Goal(of="value", relation="<=", bound=1.0),
            note=problem,
        )
        for kind in ("answer", "stream")
    ]


def _measure(module: str, *arguments: str) -> Any:
    command = [sys.executable, "-m", module, *arguments]
    child = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    return json.loads(child.stdout)


def _skeleton_row(folder: Path, repetitions: int) -> Row:
    from learnloop.core.records import Episode
    from learnloop.loop import Workspace, find_settings

    home = folder / "skeleton"
    _record_long_trace(home)
    values = []
    with Workspace(find_settings(home)) as workspace:
        (episode,) = workspace.store.iterate(Episode)
        for _ in range(max(3, repetitions)):
            begun = time.perf_counter()
            if len(workspace.spans.outline(episode.episode_id)) != NUM_SKELETON:
                raise RuntimeError("the skeleton is not whole")
            values.append((time.perf_counter() - begun) * 1000)
    name = f"skeleton of a trace of {NUM_SKELETON:,} spans (wall time)"
    return make_row(name, values, "ms", goal=Goal(of="value", relation="<=", bound=100))


def _record_long_trace(home: Path) -> None:
    from learnloop.loop import Loop

    with Loop("bench", home=home) as loop, loop.episode("long"):
        for number in range(NUM_SKELETON // SPANS_PER_TRACE - 1):
            with loop.span(f"step {number}"):
                for _ in range(SPANS_PER_TRACE - 1):
                    with loop.span("search", "execute_tool", input={"query": "flights"}, output="none" * 50):
                        pass
        for _ in range(SPANS_PER_TRACE - 1):
            with loop.span("end"):
                pass


def _import_row(folder: Path, repetitions: int) -> Row:
    file = folder / "gpt-airline.json"
    file.write_text(json.dumps(_trials()))
    values = []
    for number in range(repetitions):
        home = folder / f"import-{number}"
        command = [sys.executable, "-m", "learnloop", "--home", str(home), "traces", "import", str(file), "--json"]
        begun = time.perf_counter()
        child = subprocess.run(command, capture_output=True, text=True, check=True)
        values.append(time.perf_counter() - begun)
        if json.loads(child.stdout)["report"]["num_records"]["episode"] != 100:
            raise RuntimeError("not all was imported")
    name = f"import of a tau-bench file of {file.stat().st_size / 1e6:.1f} MB (wall time, with the start)"
    return make_row(name, values, "s", goal=Goal(of="value", relation="<=", bound=2.0))


def _trials() -> list[dict[str, Any]]:
    """Returns 25 tasks x 4 trials of 28 messages, about 19 KB each, as in the published file."""
    policy = "You may change a reservation only where its fare allows it. " * 120
    return [
        {"task_id": task, "trial": trial, "reward": float((task + trial) % 2), "info": {}, "traj": _messages(policy)}
        for task in range(25)
        for trial in range(4)
    ]


def _messages(policy: str) -> list[dict[str, Any]]:
    said: list[dict[str, Any]] = [{"role": "system", "content": policy}, {"role": "user", "content": "I want to fly."}]
    for number in range(13):
        call = {"id": f"c{number}", "type": "function", "function": {"name": "search", "arguments": '{"from": "JFK"}'}}
        said.append({"role": "assistant", "content": None, "tool_calls": [call]})
        said.append({"role": "tool", "tool_call_id": f"c{number}", "name": "search", "content": "HAT136 260 " * 60})
    return said


def _bench_folder() -> Path | None:
    folder = ROOT / ".bench"
    return folder if folder.exists() else None
