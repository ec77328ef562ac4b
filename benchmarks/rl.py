"""Reinforcement learning on one thread: environment steps a second, time to a solved CartPole, microseconds of parts.

Each measurement is a process of its own, ours and the peers' in turn, with the same hyper-parameters and the same
environments of gymnasium unless a row says otherwise. Rates are by CPU time (a second row has wall time), from the
first reset to the last update; building and imports are left out, evaluations stop the clock. Our diagnostics are on.
A run that is evaluated plays 20 greedy episodes every 2,048 steps; CartPole is solved at the first of three evaluations
in a row of at least 475. Medians over seeds are given for the time until then: a run that does not get there counts
with all the time it took, and the note says so.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import Any

from benchmarks.peers import ROOT, PeerError, peer_python, peer_source, run_peer
from benchmarks.report import Options, Row
from benchmarks.rl_rows import make_rows
from benchmarks.rl_settings import PEERS, THREADS, Peer, Side, sides


@dataclass
class Measured:
    """What was measured so far."""

    found: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """By the name of the measurement, one of each seed."""
    problems: dict[str, str] = field(default_factory=dict)
    """Why a peer could not be measured, by its name."""

    def take(self, name: str, side: Side, seed: int) -> None:
        """Takes one measurement; one of a peer that has failed is left out."""
        if side.peer in self.problems:
            return
        started = time.monotonic()
        task = {**side.task, "seed": seed}
        if side.peer is None:
            self.found.setdefault(name, []).append(measure_ours(task))
        else:
            try:
                self.found.setdefault(name, []).append(measure_peer(PEERS[side.peer], task))
            except PeerError as error:
                self.problems[side.peer] = f"not measured: {error}"
        sys.stderr.write(f"rl: seed {seed}: {name}: {time.monotonic() - started:.1f} s\n")


def run(options: Options) -> list[Row]:
    measured = Measured()
    for seed in range(options.repetitions(published=5, quick=2)):  # in turn: a busy moment of the machine meets all
        for name, side in sides(options.quick).items():
            measured.take(name, side, seed)
    for name, side in sides(options.quick).items():
        if side.peer in measured.problems:
            measured.found[name] = []
    return make_rows(measured.found, measured.problems)


def measure_ours(task: dict[str, Any]) -> dict[str, Any]:
    """Returns what learnloop takes, in a fresh process as the peers'."""
    command = [sys.executable, "-m", "benchmarks.rl_ours"]
    variables = {**os.environ, **THREADS}
    child = subprocess.run(
        command, input=json.dumps(task), stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT, env=variables
    )
    measured: dict[str, Any] = json.loads(child.stdout)
    return measured


def measure_peer(peer: Peer, task: dict[str, Any]) -> dict[str, Any]:
    """Returns what a peer takes.

    Raises:
        PeerError: it cannot be installed or fails.
    """
    python = peer_python(peer.folder, peer.requirements)
    if peer.source is not None:
        task = {**task, "script": str(peer_source(peer.folder, *peer.source) / "cleanrl" / "ppo.py")}
    variables = {**THREADS, "PYTHONPATH": str(ROOT)}
    measured: dict[str, Any] = run_peer(python, f"rl_peers/{peer.script}", task, variables)
    return measured
