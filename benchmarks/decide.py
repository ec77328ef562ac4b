"""Decisions with learning per second, and what 2,000 of them earn on the published problem.

The peer is Vowpal Wabbit's SquareCB, on the same contexts and noise, with the interactions that our encoder makes and
with two sets of features: the columns of our encoder, and one-hot bins, which suit it better. Both are fitted on the
contexts that ours is fitted on; its time does not include making them, ours does. With our columns it runs with its
defaults; with bins at the learning rate that we found best for it (of 0.5, 1, 2 and 4), and its default exploration,
which was better for it than a gamma_scale of 3 or 30.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np

from benchmarks.peers import PeerError, peer_python, run_peer
from benchmarks.report import Goal, Options, Row, make_row
from learnloop.algorithms import ContextualBandit, build_config, draw
from learnloop.core.arrays import F64
from learnloop.loop import Loop
from learnloop.nn import ContextEncoder, ContextSchema
from learnloop.testing.problems import ACTIONS, JobContext, RoutingProblem, expected_rewards

VERSION = "9.11.9"
NUM_DECISIONS = 2000
NUM_LATE = 200
ALGORITHMS = ("squarecb", "linucb", "thompson")
VW_ARGUMENTS = "--cb_explore_adf --squarecb -q ka -q la -q sa --cubic kla --cubic ksa --cubic lsa"
NUM_BINS = 8
NUM_FITTED = build_config("squarecb").model.num_warm_up
PEERS = {
    "our columns": VW_ARGUMENTS,
    "one-hot bins": f"{VW_ARGUMENTS} -l 2",
}
"""Features -> Vowpal Wabbit's arguments."""


class Recording(NamedTuple):
    """A problem written down, so that all play the same."""

    seed: int
    contexts: list[JobContext]
    rewards: F64
    """What each arm would earn, shape ``(num_decisions, num_actions)``."""
    means: F64


class Played(NamedTuple):
    """How one algorithm fared on one recording."""

    expected: list[float]
    """The expected reward of each decision."""
    wall_seconds: float
    cpu_seconds: float


def run(options: Options) -> list[Row]:
    seeds = range(options.repetitions(published=20, quick=2))
    ours: dict[str, list[Played]] = {name: [] for name in ALGORITHMS}
    peers: dict[str, list[Played]] = {features: [] for features in PEERS}
    logged: list[Played] = []
    problem: str | None = None
    for seed in seeds:  # in turn, so that a busy moment of the machine meets all of them
        recording = record(seed)
        for name in ALGORITHMS:
            ours[name].append(play(name, recording))
        logged.append(play_logged(recording))
        if problem is None:
            try:
                for features in PEERS:
                    peers[features].append(play_peer(features, recording))
            except PeerError as error:
                problem = f"not measured: {error}"
                peers = {features: [] for features in PEERS}
    return [*_rows(ours, peers, problem), *_logged_rows(logged)]


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


def play_logged(recording: Recording) -> Played:
    """Returns how ``Loop`` fares, which also records each decision and each reward durably."""
    rewards = recording.rewards.tolist()
    expected = []
    with TemporaryDirectory() as folder, Loop("bench", home=folder, seed=recording.seed) as loop:
        wall, cpu = time.perf_counter(), time.process_time()
        for index, context in enumerate(recording.contexts):
            choice = loop.choose("route", ACTIONS, context)
            loop.reward(choice, solved=rewards[index][choice.position])
            expected.append(float(recording.means[index, choice.position]))
        loop.flush()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        counters = loop.counters()
        if counters.num_dropped or counters.num_failed:
            raise RuntimeError(f"{counters.num_dropped} records were dropped, {counters.num_failed} failed")
    return Played(expected, wall, cpu)


def play_peer(features: str, recording: Recording) -> Played:
    """Returns how Vowpal Wabbit fares.

    Raises:
        PeerError: it cannot be installed or fails.
    """
    task = {
        "seed": recording.seed + 1,
        "arguments": PEERS[features],
        "actions": list(ACTIONS),
        "contexts": WRITERS[features](recording.contexts),
        "rewards": recording.rewards.tolist(),
        "means": recording.means.tolist(),
    }
    python = peer_python("vowpalwabbit", f"vowpalwabbit=={VERSION}")
    return Played(**run_peer(python, "vowpal_wabbit.py", task))


def write_columns(contexts: Sequence[JobContext]) -> list[str]:
    """Returns the contexts in Vowpal Wabbit's text format: our columns, a namespace for each feature."""
    encoder = ContextEncoder.fit(ContextSchema.infer(contexts[0]), contexts[:NUM_FITTED], interactions=False)
    lines = []
    for context in contexts:
        x = encoder.encode(context).tolist()
        namespaces = [
            f"|{feature[0]} " + " ".join(f"{column}:{x[column]:.5f}" for column in columns if x[column])
            for feature, columns in encoder.columns.items()
        ]
        lines.append("shared " + " ".join(namespaces))
    return lines


def write_bins(contexts: Sequence[JobContext]) -> list[str]:
    """Returns the contexts in Vowpal Wabbit's text format: category, standardised number and its quantile bin."""
    numbers = {name: np.array([float(context[name]) for context in contexts]) for name in ("load", "size")}
    numbers["size"] = np.log1p(numbers["size"])
    written = {}
    for name, values in numbers.items():
        fitted = values[:NUM_FITTED]
        bins = np.searchsorted(np.quantile(fitted, np.arange(1, NUM_BINS) / NUM_BINS), values, side="right")
        standardised = (values - fitted.mean()) / fitted.std()
        written[name] = [f"{name}:{z:.4f} bin={index}" for z, index in zip(standardised, bins, strict=True)]
    return [
        f"shared |k kind={context['kind']} |l {load} |s {size}"
        for context, load, size in zip(contexts, written["load"], written["size"], strict=True)
    ]


WRITERS = {"our columns": write_columns, "one-hot bins": write_bins}


def _rows(ours: dict[str, list[Played]], peers: dict[str, list[Played]], note: str | None) -> list[Row]:
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
                    peer=_peer_name("one-hot bins"),
                    peer_values=_rates(peers["one-hot bins"], clock),
                    goal=goal,
                    note=note,
                )
            )
    for first, last in ((1, NUM_DECISIONS), (NUM_DECISIONS - NUM_LATE + 1, NUM_DECISIONS)):
        for features in PEERS:
            for name in ALGORITHMS:
                rows.append(
                    make_row(
                        f"{name}: reward, decisions {first:,}-{last:,}",
                        _rewards(ours[name], first),
                        "reward",
                        peer=_peer_name(features),
                        peer_values=_rewards(peers[features], first),
                        goal=Goal(of="ratio", relation=">=", bound=1),
                        note=note,
                    )
                )
    return rows


def _logged_rows(logged: Sequence[Played]) -> list[Row]:
    return [
        make_row(f"squarecb: Loop.choose + reward, both durable ({clock} time)", _rates(logged, clock), "1/s")
        for clock in ("cpu", "wall")
    ]


def _peer_name(features: str) -> str:
    return f"Vowpal Wabbit {VERSION} --squarecb, {features}"


def _rates(played: Sequence[Played], clock: str) -> list[float]:
    seconds = [one.cpu_seconds if clock == "cpu" else one.wall_seconds for one in played]
    return [NUM_DECISIONS / value for value in seconds]


def _rewards(played: Sequence[Played], first: int) -> list[float]:
    return [statistics.fmean(one.expected[first - 1 :]) for one in played]
