"""Stable-Baselines3, and SBX, which has its interface: one training, run by the Python of its own environment."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

from benchmarks.rl_peers.measuring import Watch, answer
from benchmarks.rl_peers.prompts import Prompts


def measure(task: dict[str, Any]) -> dict[str, Any]:
    """Returns what one training costs; ``task["library"]`` is ``stable_baselines3`` or ``sbx``."""
    torch.set_num_threads(1)
    library = importlib.import_module(task["library"])
    envs = make_vec_env(Prompts if task["env"] == "prompts" else task["env"], n_envs=task["n_envs"])
    algorithm = getattr(library, task["algorithm"].upper())
    model = algorithm("MlpPolicy", envs, seed=task["seed"], device="cpu", **keywords(task["options"]))
    watch = Watch(task)
    watch.start()
    model.learn(task["total"], callback=_Looker(watch))
    return watch.result()


def keywords(options: dict[str, Any]) -> dict[str, Any]:
    """Returns the constructor's arguments for options as learnloop writes them."""
    found = {name: _schedule(value) for name, value in options.items()}
    network: dict[str, Any] = {}
    if "net_arch" in found:
        network["net_arch"] = list(found.pop("net_arch"))
    if "activation" in found:
        network["activation_fn"] = {"tanh": torch.nn.Tanh, "relu": torch.nn.ReLU}[found.pop("activation")]
    return {**found, "policy_kwargs": network} if network else found


def _schedule(value: Any) -> Any:
    if not isinstance(value, str) or not value.startswith("lin_"):
        return value
    initial = float(value.removeprefix("lin_"))
    fall: Callable[[float], float] = lambda left: left * initial  # noqa: E731  # of the part of training that is left
    return fall


class _Looker(BaseCallback):  # type: ignore[misc]  # the library is not in the environment that is checked
    """Looks at the watch before each rollout, when what was collected is learned."""

    def __init__(self, watch: Watch) -> None:
        super().__init__()
        self._watch = watch
        self._goes_on = True

    def _on_rollout_start(self) -> None:
        self._goes_on = not self._watch.look(self.num_timesteps, self._act)

    def _on_step(self) -> bool:
        return self._goes_on

    def _act(self, observations: Any) -> Any:
        return self.model.predict(observations, deterministic=True)[0]


if __name__ == "__main__":
    answer(measure)
