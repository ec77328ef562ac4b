"""Decisions with learning per second, and what 2,000 of them earn on the published problem.

The peer is Vowpal Wabbit's SquareCB. It gets the features that our encoder makes (fitted on the contexts that ours is
fitted on) with the same interactions, and the same contexts and noise; its time does not include making them, ours
does. It is run with its default learning rate and with the one that we found best for it among 0.5, 1, 2 and 4.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers import PeerError, peer_python, run_peer
from benchmarks.report import Goal, Options, Row, make_row
from learnloop.algorithms import ContextualBandit, build_config, draw
from learnloop.nn import ContextEncoder, ContextSchema
from learnloop.testing.problems import ACTIONS, JobContext, RoutingProblem, expected_rewards

VERSION = "9.11.9"
NUM_DECISIONS = 2000
NUM_LATE = 200
ALGORITHMS = ("squarecb", "linucb", "thompson")
VW_ARGUMENTS = "--cb_explore_adf --squarecb -q ka -q la -q sa --cubic kla --cubic ksa --cubic lsa"
LEARNING_RATES = (0.5, 2.0)


class Recording(NamedTuple):
    """A problem written down, so that all play the same."""

    seed: int
    contexts: list[JobContext]
    rewards: NDArray[np.float64]
    """What each arm would earn, shape ``(num_decisions, num_actions)``."""
    means: NDArray[np.float64]


class Played(NamedTuple):
    """How one algorithm fared on one recording."""

    expected: list[float]
    """The expected reward of each decision."""
    wall_seconds: float
    cpu_seconds: float


def run(options: Options) -> list[Row]:
    seeds = range(options.repetitions(published=20, quick=2))
    ours: dict[str, list[Played]] = {name: [] for name in ALGORITHMS}
    peers: dict[float, list[Played]] = {rate: [] for rate in LEARNING_RATES}
    problem: str | None = None
    for seed in seeds:  # in turn, so that a busy moment of the machine meets all of them
        recording = record(seed)
        for name in ALGORITHMS:
            ours[name].append(play(name, recording))
        if problem is None:
            try:
                for rate in LEARNING_RATES:
                    peers[rate].append(play_peer(rate, recording))
            except PeerError as error:
                problem = f"not measured: {error}"
                peers = {rate: [] for rate in LEARNING_RATES}
    return _rows(ours, peers, problem)


def record(seed: int) -> Recording:
    problem = RoutingProblem(seed)
    contexts = problem.contexts(NUM_DECISIONS)
    means = np.array([expected_rewards(context) for context in contexts])
    rewards = np.array([problem.rewards(context) for context in contexts])
    return Recording(seed, contexts, rewards, means)


def play(name: str, recording: Recording) -> Played:
    """Returns how our algorithm ``name`` fares."""
    bandit = ContextualBandit(build_config(name))
    rng = np.random.default_rng(recording.seed)
    chances = np.empty_like(recording.means)
    rewards = recording.rewards.tolist()
    wall, cpu = time.perf_counter(), time.process_time()
    for index, context in enumerate(recording.contexts):
        prepared = bandit.prepare(context)
        probabilities = bandit.probabilities(prepared, ACTIONS, None, rng)
        chosen = draw(probabilities, rng)
        bandit.learn(prepared, ACTIONS[chosen], rewards[index][chosen])
        chances[index] = probabilities
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return Played(np.vecdot(chances, recording.means).tolist(), wall, cpu)


def play_peer(learning_rate: float, recording: Recording) -> Played:
    """Returns how Vowpal Wabbit fares.

    Raises:
        PeerError: it cannot be installed or fails.
    """
    task = {
        "seed": recording.seed + 1,
        "arguments": f"{VW_ARGUMENTS} -l {learning_rate}",
        "actions": list(ACTIONS),
        "contexts": vw_contexts(recording.contexts),
        "rewards": recording.rewards.tolist(),
        "means": recording.means.tolist(),
    }
    python = peer_python("vowpalwabbit", f"vowpalwabbit=={VERSION}")
    return Played(**run_peer(python, "vowpal_wabbit.py", task))


def vw_contexts(contexts: Sequence[JobContext]) -> list[str]:
    """Returns the contexts in Vowpal Wabbit's text format: our columns, a namespace for each feature."""
    num_warm_up = build_config("squarecb").num_warm_up
    encoder = ContextEncoder.fit(ContextSchema.infer(contexts[0]), contexts[:num_warm_up], interactions=False)
    return [_vw_context(encoder, context) for context in contexts]


def _vw_context(encoder: ContextEncoder, context: JobContext) -> str:
    x = encoder.encode(context).tolist()
    namespaces = [
        f"|{feature[0]} " + " ".join(f"{column}:{x[column]:.5f}" for column in columns if x[column])
        for feature, columns in encoder.columns.items()
    ]
    return "shared " + " ".join(namespaces)


def _rows(ours: dict[str, list[Played]], peers: dict[float, list[Played]], note: str | None) -> list[Row]:
    rows = []
    for clock in ("cpu", "wall"):
        for name in ALGORITHMS:
            goal = Goal(of="value", relation=">=", bound=5000) if name == "squarecb" else None
            rates = _rates(ours[name], clock)
            rows.append(
                make_row(
                    f"{name}: choose + learn ({clock} time)",
                    rates,
                    "1/s",
                    peer=_peer_name(LEARNING_RATES[0]),
                    peer_values=_rates(peers[LEARNING_RATES[0]], clock),
                    goal=goal,
                    note=note,
                )
            )
    for first, last in ((1, NUM_DECISIONS), (NUM_DECISIONS - NUM_LATE + 1, NUM_DECISIONS)):
        for rate in LEARNING_RATES:
            for name in ALGORITHMS:
                rows.append(
                    make_row(
                        f"{name}: reward, decisions {first:,}-{last:,}",
                        _rewards(ours[name], first),
                        "reward",
                        peer=_peer_name(rate),
                        peer_values=_rewards(peers[rate], first),
                        goal=Goal(of="ratio", relation=">=", bound=1),
                        note=note,
                    )
                )
    return rows


def _peer_name(learning_rate: float) -> str:
    return f"Vowpal Wabbit {VERSION} --squarecb -l {learning_rate:g}"


def _rates(played: Sequence[Played], clock: str) -> list[float]:
    seconds = [one.cpu_seconds if clock == "cpu" else one.wall_seconds for one in played]
    return [NUM_DECISIONS / value for value in seconds]


def _rewards(played: Sequence[Played], first: int) -> list[float]:
    return [statistics.fmean(one.expected[first - 1 :]) for one in played]
