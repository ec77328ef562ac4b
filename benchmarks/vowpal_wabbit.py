"""Vowpal Wabbit on a recorded problem: the peer of ``decide``, run by the Python of its own environment.

Reads one JSON object from standard input and writes one to standard output; imports nothing of learnloop.
"""

from __future__ import annotations

import json
import random
import sys
import time
from typing import Any


def main() -> None:
    from vowpalwabbit import Workspace  # type: ignore[import-not-found]  # it lives in an environment of its own

    task = json.load(sys.stdin)
    workspace = Workspace(f"--quiet --random_seed {task['seed']} {task['arguments']}")
    json.dump(play(workspace, task), sys.stdout)
    workspace.finish()


def play(workspace: Any, task: dict[str, Any]) -> dict[str, Any]:
    """Returns the expected reward of each decision, and the seconds that choosing and learning took."""
    rng = random.Random(task["seed"])
    names = [f"|a {action}" for action in task["actions"]]
    expected = []
    wall, cpu = time.perf_counter(), time.process_time()
    for shared, rewards, means in zip(task["contexts"], task["rewards"], task["means"], strict=True):
        distribution = workspace.predict([shared, *names])
        chosen = draw(distribution, rng)
        labelled = [shared, *names]
        labelled[1 + chosen] = f"0:{-rewards[chosen]:.6f}:{distribution[chosen]:.6f} {names[chosen]}"
        workspace.learn(labelled)
        expected.append(sum(p * mean for p, mean in zip(distribution, means, strict=True)))
    return {
        "expected": expected,
        "wall_seconds": time.perf_counter() - wall,
        "cpu_seconds": time.process_time() - cpu,
    }


def draw(distribution: list[float], rng: random.Random) -> int:
    """Returns an index drawn from ``distribution``."""
    return rng.choices(range(len(distribution)), weights=distribution)[0]


if __name__ == "__main__":
    main()
