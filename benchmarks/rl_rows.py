"""The rows of ``rl``: what was measured, beside the peer's and the goals."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from benchmarks.report import Goal, Row, make_row
from benchmarks.rl_peers.measuring import reached
from benchmarks.rl_settings import PEERS

Results = Sequence[Mapping[str, Any]]
SEED_0 = "seed 0's claim"


def make_rows(found: Mapping[str, Results], problems: Mapping[str, str]) -> list[Row]:
    """Returns all rows.

    Args:
        found: the results of each seed by the name of the measurement.
        problems: why a peer could not be measured, by its name.
    """
    table = _Table(found, problems)
    return [
        *table.rates("PPO CartPole-v1, rl-zoo", "ppo sync", "ppo sb3", "sb3", 5, "goal 8"),
        *table.rates("PPO CartPole-v1, rl-zoo, gymnasium's vector env", "ppo vector", "ppo sb3", "sb3"),
        *table.rates("PPO CartPole-v1, rl-zoo, through Trainer", "ppo trainer", "ppo sb3", "sb3"),
        *table.rates(
            "PPO CartPole-v1, rl-zoo", "ppo sync", "ppo tianshou", "tianshou", None, "its clip range is constant"
        ),
        *table.rates(
            "PPO CartPole-v1, rl-zoo",
            "ppo sync",
            "ppo sbx",
            "sbx",
            None,
            "JAX chooses its threads; compiling is included",
        ),
        *table.rates("PPO CartPole-v1, CleanRL's", "ppo cleanrl settings", "ppo cleanrl", "cleanrl", 3.5, "goal 5"),
        *table.rates("DQN CartPole-v1, rl-zoo", "dqn", "dqn sb3", "sb3", 3, "goal 5"),
        *table.rates("SAC Pendulum-v1, rl-zoo", "sac", "sac sb3", "sb3", 2, "goal 3"),
        *table.solved("ppo many", "ppo sb3", "sb3", "rl-zoo"),
        *table.solved("ppo many", "ppo cleanrl", "cleanrl", "defaults, 8 envs"),
        table.compiled(),
        *table.rates("PPO seed 1's problem", "seed 1", "seed 1 sb3", "sb3", 1.5, "1536 numbers, 256-256-128 twice"),
        table.update(),
        *table.acting(),
        table.replay(),
        *table.claims(),
    ]


class _Table:
    def __init__(self, found: Mapping[str, Results], problems: Mapping[str, str]) -> None:
        self._found = found
        self._problems = problems

    def rates(
        self, name: str, ours: str, theirs: str, peer: str, floor: float | None = None, note: str | None = None
    ) -> list[Row]:
        """Returns environment steps a second by CPU time, with the floor of their ratio, and by wall time."""
        rows = []
        for clock in ("cpu", "wall"):
            goal = Goal(of="ratio", relation=">=", bound=floor) if floor is not None and clock == "cpu" else None
            row = make_row(
                f"{name} ({clock} time)",
                _rates(self._found[ours], clock),
                "steps/s",
                peer=PEERS[peer].label,
                peer_values=_rates(self._found[theirs], clock),
                goal=goal,
                note=self._problems.get(peer) or _learned(name, note, self._found[ours], self._found[theirs]),
            )
            rows.append(row)
        return rows

    def solved(self, ours: str, theirs: str, peer: str, settings: str) -> list[Row]:
        """Returns the medians of the seconds until CartPole was solved."""
        rows = []
        for clock in ("cpu", "wall"):
            own, their = _seconds(self._found[ours], clock), _seconds(self._found[theirs], clock)
            note = f"{_solved_steps(self._found[ours])}; the peer {_solved_steps(self._found[theirs])}"
            row = make_row(
                f"time to 475, many-envs ({clock} time)",
                [statistics.median(own)],
                "s, median",
                peer=f"{PEERS[peer].label}, {settings}",
                peer_values=[statistics.median(their)] if their else [],
                goal=Goal(of="ratio", relation="<=", bound=0.1) if clock == "cpu" else None,
                note=self._problems.get(peer) or note,
            )
            unsolved = sum(reached(result["curve"]) is None for result in self._found[ours])
            if unsolved * 2 >= len(own) and row.holds:
                row = replace(row, holds=False)  # a median that was not reached is only a lower bound
            rows.append(replace(row, values=own, peer_values=their, repetitions=len(own)))
        return rows

    def compiled(self) -> Row:
        """Returns the wall time of 100,000 steps of PPO, the peer's compilation included."""
        theirs = self._found["ppo rejax"]
        learned = statistics.fmean(result["final_return"] for result in theirs) if theirs else None
        return make_row(
            "100,000 steps of PPO, vectorised CartPole (wall time)",
            [result["wall_seconds"] for result in self._found["ppo compiled"]],
            "s",
            peer=f"{PEERS['rejax'].label} with compiling",
            peer_values=[result["wall_seconds"] for result in theirs],
            goal=Goal(of="ratio", relation="<=", bound=1),
            note=self._problems.get("rejax")
            or f"64 envs x 32, batch 256, 4 epochs; the peer's last return {learned:.0f}",
        )

    def update(self) -> Row:
        """Returns the time of one gradient step of seed 1's problem."""
        return make_row(
            "one update of seed 1's problem (cpu time)",
            [result["update_ms"] for result in self._found["update"]],
            "ms",
            peer="its bare matrix products in numpy",
            peer_values=[result["products_ms"] for result in self._found["update"]],
            goal=Goal(of="ratio", relation="<=", bound=1.6),
            note="all of learn counts: advantages, minibatches, loss, Adam, diagnostics",
        )

    def acting(self) -> list[Row]:
        """Returns the p50 of acting on one observation."""
        rows = []
        for shape, bound in (("1536-256-256-128-5", 60.0), ("4-64-64-2", 20.0)):
            for way in ("greedy", "drawn"):
                results = [result[f"{shape} {way}"] for result in self._found["act"]]
                rows.append(
                    make_row(
                        f"act, {shape}, {way}",
                        [result["p50"] for result in results],
                        "us, p50",
                        goal=Goal(of="value", relation="<=", bound=bound) if way == "greedy" else None,
                        note=f"p99 {statistics.fmean(result['p99'] for result in results):.0f} us",
                    )
                )
        return rows

    def replay(self) -> Row:
        """Returns the p50 of sampling and updating priorities."""
        results = self._found["replay"]
        return make_row(
            "prioritised replay, 100,000 entries: sample + update of 256",
            [result["p50"] for result in results],
            "us, p50",
            goal=Goal(of="value", relation="<=", bound=250),
            note=f"p99 {statistics.fmean(result['p99'] for result in results):.0f} us",
        )

    def claims(self) -> list[Row]:
        """Returns what seed 0 claimed figures for; plain Stable-Baselines3 beats them too, so they are no headline."""
        runs, files = self._found["ppo sync"], self._found["checkpoint"]
        episodes = make_row(
            "episodes of CartPole-v1 a minute (wall time)",
            [result["num_episodes"] / result["wall_seconds"] * 60 for result in runs],
            "1/min",
            peer=f"{SEED_0}, 100-200",
            peer_values=[200.0],
            note="no headline: it is a figure of the environment, and every library here beats it",
        )
        sizes = [
            make_row(
                f"checkpoint, PPO, {name}",
                [result[name] for result in files],
                "MB",
                peer=f"{SEED_0}, 10-50",
                peer_values=[10.0],
                note="no headline: it is a figure of the network's size",
            )
            for name in files[0]
        ]
        return [episodes, *sizes]


def _rates(results: Results, clock: str) -> list[float]:
    return [result["num_steps"] / result[f"{clock}_seconds"] for result in results]


def _seconds(results: Results, clock: str) -> list[float]:
    """Returns the seconds until CartPole was solved; of a run that did not solve it, all that it took."""
    seconds = []
    for result in results:
        mark = reached(result["curve"])
        if mark is None:
            seconds.append(result[f"{clock}_seconds"])
        else:
            seconds.append(mark.cpu_seconds if clock == "cpu" else mark.wall_seconds)
    return seconds


def _solved_steps(results: Results) -> str:
    marks = [reached(result["curve"]) for result in results]
    steps = [f"{mark.num_steps:,}" for mark in marks if mark is not None]
    return f"solved it in {len(steps)} of {len(results)} runs (after {', '.join(steps) or 'no'} steps)"


def _learned(name: str, note: str | None, ours: Results, theirs: Results) -> str | None:
    """Returns the note, with the best evaluations of both sides where there were any: that both learned."""
    parts = [] if note is None else [note]
    if ours and theirs and ours[0]["curve"] and theirs[0]["curve"]:
        own, their = (_best(results) for results in (ours, theirs))
        parts.append(f"best evaluation {own:.0f}, the peer's {their:.0f}")
    return f"{name}: {'; '.join(parts)}" if parts else None


def _best(results: Results) -> float:
    """Returns the mean over seeds of the best evaluation."""
    return statistics.fmean(max(mark[1] for mark in result["curve"]) for result in results)
