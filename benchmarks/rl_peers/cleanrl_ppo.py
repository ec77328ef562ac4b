"""CleanRL's own ``ppo.py``, unmodified: hooks from outside look at it; run by the Python of its own environment."""

from __future__ import annotations

import os
import runpy
import sys
import tempfile
from typing import Any

import gymnasium
import torch

from benchmarks.rl_peers.measuring import Watch, answer


class Ended(Exception):
    """All that is wanted was measured."""


def measure(task: dict[str, Any]) -> dict[str, Any]:
    """Returns what ``task["script"]`` costs from its first reset on, with the arguments of the task."""
    torch.set_num_threads(1)
    watch = Watch(task)
    hook(watch)
    arguments = {"seed": task["seed"], "total-timesteps": task["total"], "num-envs": task["n_envs"]}
    sys.argv = [task["script"], *(part for name, value in arguments.items() for part in (f"--{name}", str(value)))]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # its logs for TensorBoard go to ./runs
        try:
            runpy.run_path(task["script"], run_name="__main__")
        except Ended:
            watch.stop()
        os.chdir("/")
    return watch.result()


def hook(watch: Watch) -> None:
    """Has the watch started by the first reset of the environments, and looked at before each of their steps."""
    agents: list[Any] = []
    modules: Any = torch.nn.Module
    move = modules.to
    envs: Any = gymnasium.vector.SyncVectorEnv
    reset, step = envs.reset, envs.step
    num_steps = 0

    def remember(module: Any, *arguments: Any, **keywords: Any) -> Any:
        if type(module).__name__ == "Agent":
            agents.append(module)
        return move(module, *arguments, **keywords)

    def start(self: Any, **keywords: Any) -> Any:
        watch.start()
        return reset(self, **keywords)

    def look(self: Any, actions: Any) -> Any:
        nonlocal num_steps
        if watch.look(num_steps, act):  # at the beginning of a rollout the one before it is learned
            raise Ended
        num_steps += self.num_envs
        return step(self, actions)

    def act(observations: Any) -> Any:
        with torch.no_grad():
            return agents[0].actor(torch.from_numpy(observations)).argmax(dim=1).numpy()

    modules.to = remember
    envs.reset, envs.step = start, look


if __name__ == "__main__":
    answer(measure)
