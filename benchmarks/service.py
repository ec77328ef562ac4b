"""The decision service over HTTP: how many decisions a second, how fast one is answered, and what learning costs them.

A decision is ``POST /select_action`` of seed 1 with an embedding of 1536 numbers, as JSON or as base64 float32, through
the network 1536-256-256-128-5 and its value network; ours is in the log, with an fsync, before it is answered. The
clients run in one thread of this process, on the same cores. Peers: seed 1's server rebuilt from its description, and
FastAPI with a pydantic model; neither logs anything. And, measured in turns with ours, the least that can serve the
network from Python (no framework, no checks), without a log and with one as durable as ours: a reference.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.http_load import Load, closed_loop, open_loop, post
from benchmarks.peers import ROOT, PeerError, peer_python
from benchmarks.report import Goal, Options, Row, make_row
from benchmarks.rl_settings import THREADS
from learnloop.core.arrays import F32

TORCH = ("stable-baselines3==2.9.2", "torch==2.13.0", "gymnasium==1.4.0", "numpy==2.4.6")
"""The environment that the benchmark of training has for SB3; torch and numpy are what is used of it."""
FASTAPI = ("fastapi==0.165.0", "uvicorn[standard]==0.54.0", "msgspec==0.22.0", "numpy==2.4.6")
UNLOGGED = "bare ASGI (uvicorn[standard] 0.54.0, msgspec 0.22.0, numpy), no log"
LOGGED = "bare ASGI with a durable log (SQLite)"
PEERS = {
    "seed_one": ("seed 1's server rebuilt (http.server, torch 2.13.0)", "sb3", TORCH),
    "fastapi_model": ("FastAPI 0.165.0, pydantic, uvicorn[standard] 0.54.0, numpy", "fastapi", FASTAPI),
    "bare_asgi": (UNLOGGED, "fastapi", FASTAPI),
}
SIZE = 1536
NUM_BODIES = 32
WARM_SECONDS = 1.0
_OURS = "learnloop"


def run(options: Options) -> list[Row]:
    seconds = 2.0 if options.quick else 8.0
    repetitions = options.repetitions(published=3, quick=1)
    return [*_serving_rows(repetitions, seconds), *_learning_rows(repetitions, seconds), _choose_row(options)]


# Requests ----------------------------------------------------------------------------------------------------------


def embeddings() -> list[F32]:
    rng = np.random.default_rng(0)
    return [rng.normal(size=SIZE).astype(np.float32) for _ in range(NUM_BODIES)]


def as_json(path: str, name: str, **fields: object) -> list[bytes]:
    """Returns requests with the numbers as text, as clients write them."""
    bodies = []
    for vector in embeddings():
        numbers = ",".join(repr(float(x)) for x in vector.astype(np.float64))
        rest = json.dumps(fields)[1:]
        bodies.append(f'{{"{name}":[{numbers}]{"," if fields else ""}{rest}'.encode())
    return [post(path, body) for body in bodies]


def as_base64(path: str, name: str, **fields: object) -> list[bytes]:
    """Returns requests with the numbers as base64 float32."""
    return [
        post(path, json.dumps({name: base64.b64encode(vector.tobytes()).decode(), **fields}).encode())
        for vector in embeddings()
    ]


# Servers -----------------------------------------------------------------------------------------------------------


@contextmanager
def our_server(*arguments: str) -> Iterator[int]:
    """Gives the port of ``learnloop serve`` over a store of its own, on the disk of this checkout."""
    folder = ROOT / ".bench"
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as home:
        command = [sys.executable, "-m", "learnloop", "--home", home, "serve", "--port", "0", "--json", *arguments]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **THREADS}) as process:
            try:
                told = process.stdout.readline() if process.stdout else ""
                yield int(json.loads(told)["urls"][0].rpartition(":")[2])
            finally:
                process.terminate()
                process.wait(30)


@contextmanager
def peer_server(script: str, *arguments: str) -> Iterator[int]:
    """Gives the port of a peer.

    Raises:
        PeerError: it cannot be installed, or does not start.
    """
    _, folder, requirements = PEERS[script]
    python = peer_python(folder, requirements)
    command = [str(python), str(Path(__file__).parent / "service_peers" / f"{script}.py"), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **THREADS}) as process:
        try:
            told = process.stdout.readline() if process.stdout else ""
            if not told.strip().isdigit():
                raise PeerError(f"{script} did not start: it said {told!r}")
            yield int(told)
        finally:
            process.terminate()
            process.wait(30)


def warmed(port: int, requests: Sequence[bytes], num_clients: int = 4) -> None:
    """Sends requests that do not count; waits until the server accepts them."""
    deadline = time.monotonic() + 20
    while True:
        try:
            closed_loop(port, requests, num_clients, WARM_SECONDS)
            return
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


# Rows --------------------------------------------------------------------------------------------------------------


class _Asking(NamedTuple):
    """How decisions are asked for."""

    is_packed: bool
    """As base64; else as JSON."""
    num_clients: int
    rate: float | None = None
    """How often each client asks, per second; None: again as soon as it is answered."""

    def run(self, port: int, requests: Sequence[bytes], seconds: float) -> Load:
        """Returns what the server at ``port`` did."""
        if self.rate is None:
            return closed_loop(port, requests, self.num_clients, seconds)
        return open_loop(port, requests, self.num_clients, self.rate, seconds)


class _Figure(NamedTuple):
    """What is published of it."""

    name: str
    asking: _Asking
    bound: float
    percent: int | None = None
    """The percentile of the delay, in ms; None: decisions a second."""

    def of(self, loads: Sequence[Load]) -> list[float]:
        """Returns the figure of each load."""
        return [load.rate if self.percent is None else load.percentile_ms(self.percent) for load in loads]

    def row(self, ours: Sequence[Load], peer: str, theirs: Sequence[Load], problem: str | None) -> Row:
        """Returns our figure beside that of a peer."""
        unit = "1/s" if self.percent is None else "ms"
        goal = Goal(of="value", relation=">=" if self.percent is None else "<=", bound=self.bound)
        return make_row(self.name, self.of(ours), unit, peer=peer, peer_values=self.of(theirs), goal=goal, note=problem)


_JSON = _Asking(is_packed=False, num_clients=16)
_BASE64 = _Asking(is_packed=True, num_clients=16)
_ALONE = _Asking(is_packed=False, num_clients=1)
_AGENTS = _Asking(is_packed=False, num_clients=100, rate=10.0)
_FIGURES = (
    _Figure("decisions a second, JSON, 16 clients", _JSON, 2_500),
    _Figure("decisions a second, base64, 16 clients", _BASE64, 5_000),
    _Figure("p50, JSON, one client", _ALONE, 2.0, percent=50),
    _Figure("p99, JSON, 16 clients in a closed loop", _JSON, 20.0, percent=99),
    _Figure("p99, base64, 100 agents at 10/s each", _AGENTS._replace(is_packed=True), 10.0, percent=99),
    _Figure("p99, JSON, 100 agents at 10/s each", _AGENTS, 10.0, percent=99),
)


def _serving_rows(repetitions: int, seconds: float) -> list[Row]:
    path = "/select_action"
    bodies = {False: as_json(path, "embedding"), True: as_base64(path, "embedding")}
    found: dict[tuple[str, _Asking], list[Load]] = {}
    problems: dict[str, str] = {}
    for _ in range(repetitions):
        with _in_turns(problems) as ports:
            for port in ports.values():
                warmed(port, bodies[False])
            for asking in dict.fromkeys(figure.asking for figure in _FIGURES):
                for server, port in ports.items():
                    load = asking.run(port, bodies[asking.is_packed], seconds)
                    found.setdefault((server, asking), []).append(load)
        # Seed 1's server serves one connection until that is closed.
        for script, asking in (("seed_one", _ALONE), ("fastapi_model", _JSON)):
            peer = PEERS[script][0]
            try:
                with peer_server(script) as port:
                    warmed(port, bodies[False], asking.num_clients)
                    found.setdefault((peer, _JSON), []).append(asking.run(port, bodies[False], seconds))
            except PeerError as error:
                problems[peer] = str(error)
    others = [PEERS[script][0] for script in ("seed_one", "fastapi_model")]
    return [
        figure.row(found[_OURS, figure.asking], peer, found.get((peer, figure.asking), ()), problems.get(peer))
        for figure in _FIGURES
        for peer in [*(others if figure is _FIGURES[0] else ()), UNLOGGED, LOGGED]
    ]


@contextmanager
def _in_turns(problems: dict[str, str]) -> Iterator[dict[str, int]]:
    """Gives the ports of our server and of the bare ones, each idle while another is measured."""
    with ExitStack() as stack:
        ports = {_OURS: stack.enter_context(our_server())}
        log = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=ROOT / ".bench"))) / "log.db"
        for peer, arguments in ((UNLOGGED, ()), (LOGGED, (str(log),))):
            try:
                ports[peer] = stack.enter_context(peer_server("bare_asgi", *arguments))
            except PeerError as error:
                problems[peer] = str(error)
        yield ports


def _learning_rows(repetitions: int, seconds: float) -> list[Row]:
    """Returns what learning does to p99: of a bandit that is learned beside, and of seed 1's network at updates."""
    found: dict[str, list[float]] = {"bandit": [], "network": []}
    for _ in range(repetitions):
        for name, measure in (("bandit", _bandit_load), ("network", _network_load)):
            with our_server("--no-learning") as port:
                quiet = measure(port, seconds, learning=False)
            with our_server() as port:
                busy = measure(port, seconds, learning=True)
            found[name].append(busy.percentile_ms(99) / quiet.percentile_ms(99))
    goal = Goal(of="value", relation="<=", bound=2.0)
    return [
        make_row("p99 while a bandit learns / while it does not", found["bandit"], "x", goal=goal),
        make_row("p99 while the network learns / while it does not", found["network"], "x", goal=goal),
    ]


def _bandit_load(port: int, seconds: float, *, learning: bool) -> Load:
    """Returns the load of 100 agents while updates follow each other; the log has 2,000 rewarded decisions."""
    import httpx2

    url = f"http://127.0.0.1:{port}"
    topics = [{"id": f"item{number}", "features": {"topic": f"t{number % 7}", "size": number}} for number in range(5)]
    rng = np.random.default_rng(1)
    with httpx2.Client(base_url=url, timeout=60) as client:
        settings = {"learning": {"min_new_rewards": 1}}
        path = "/v1/agents/default/policies/front/settings"
        client.put(path, json=settings, headers={"if-match": '"0"'}).raise_for_status()
        contexts = [{"user": f"u{rng.integers(20)}", "hour": int(rng.integers(24))} for _ in range(2_000)]
        kind = {"content-type": "application/x-ndjson"}
        lines = "\n".join(json.dumps({"policy": "front", "context": each, "actions": topics}) for each in contexts)
        made = client.post("/v1/decisions/batch", content=lines, headers=kind).text.splitlines()
        chosen = [json.loads(line)["result"] for line in made]
        if learning:
            rewards = "\n".join(
                json.dumps({"decision_id": each["decision_id"], "value": float(each["action"] == "item2")})
                for each in chosen
            )
            client.post("/v1/decisions/rewards/batch", content=rewards, headers=kind).raise_for_status()
    requests = [
        post("/v1/decisions", json.dumps({"policy": "front", "context": each, "actions": topics}).encode())
        for each in contexts[:NUM_BODIES]
    ]
    warmed(port, requests)
    ended = threading.Event()
    feeder = threading.Thread(target=_feed, args=(url, [each["decision_id"] for each in chosen], ended))
    if learning:
        feeder.start()
    load = open_loop(port, requests, 100, 10.0, seconds)
    ended.set()
    if learning:
        feeder.join()
    return load


def _feed(url: str, decision_ids: Sequence[str], ended: threading.Event) -> None:
    """Sends a reward every now and then, so that there is always something new to learn from."""
    import httpx2

    with httpx2.Client(base_url=url, timeout=60) as client:
        for decision_id in decision_ids:
            client.post(f"/v1/decisions/{decision_id}/reward", json={"value": 0.5}).raise_for_status()
            if ended.wait(0.2):
                return


def _network_load(port: int, seconds: float, *, learning: bool) -> Load:
    """Returns the load of 100 agents while another client has the network updated again and again."""
    requests = as_base64("/select_action", "embedding")
    warmed(port, requests)
    ended = threading.Event()
    trainer = threading.Thread(target=_train, args=(f"http://127.0.0.1:{port}", ended))
    if learning:
        trainer.start()
        time.sleep(1.0)
    load = open_loop(port, requests, 100, 10.0, seconds)
    ended.set()
    if learning:
        trainer.join()
    return load


def _train(url: str, ended: threading.Event) -> None:
    import httpx2

    state = base64.b64encode(embeddings()[0].tobytes()).decode()
    with httpx2.Client(base_url=url, timeout=120) as client:
        while not ended.is_set():
            chosen = client.post("/select_action", json={"embedding": state}).json()
            experience = {
                "state": state,
                "next_state": state,
                "action": chosen["action"],
                "reward": 1.0,
                "done": True,
                "log_prob": chosen["log_prob"],
                "value": chosen["value"],
            }
            for _ in range(256):
                client.post("/store_experience", json=experience).raise_for_status()
                if ended.is_set():
                    return
            client.post("/update", json={}).raise_for_status()


def _choose_row(options: Options) -> Row:
    """Returns what one decision takes in this process, through the network of seed 1, without the log."""
    from benchmarks.service_choice import median_microseconds

    values = [median_microseconds(500 if options.quick else 5_000) for _ in range(options.repetitions(5, 1))]
    name = "p50 of a decision in process, 1536-256-256-128-5"
    return make_row(name, values, "us", goal=Goal(of="value", relation="<=", bound=200))
