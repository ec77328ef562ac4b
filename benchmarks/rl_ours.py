"""Our side of ``rl``, one measurement a process: ``python -m benchmarks.rl_ours``, with a task on standard input."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.rl_peers.measuring import Watch, answer
from benchmarks.rl_peers.prompts import Prompts
from benchmarks.rl_settings import CARTPOLE, PROMPTS
from learnloop.algorithms.base.algorithm import Algorithm
from learnloop.algorithms.building import build_algorithm, configure
from learnloop.algorithms.policies.network_policy import NetworkPolicy
from learnloop.algorithms.replay.prioritised import Entries, PrioritisedReplay
from learnloop.core.arrays import F32
from learnloop.core.spaces import Box, Discrete, Spaces
from learnloop.envs import EnvStream, make_stream
from learnloop.training.options import make_options
from learnloop.training.trainers.trainers import EnvTrainer

SHAPES: dict[str, tuple[int, tuple[int, ...], int]] = {
    "1536-256-256-128-5": (1536, (256, 256, 128), 5),
    "4-64-64-2": (4, (64, 64), 2),
}
"""Numbers of an observation, hidden layers, actions."""
NUM_ENTRIES = 100_000
NUM_SAMPLED = 256
MEGABYTE = 1_000_000


def measure(task: dict[str, Any]) -> dict[str, Any]:
    """Returns what was measured, as JSON."""
    return KINDS[task["kind"]](task)


def train(task: dict[str, Any]) -> dict[str, Any]:
    """Returns what one training costs, as its peers do. Diagnostics are on, and taken once an update."""
    stream, algorithm = _build(task)
    watch, greedy, total = Watch(task), Greedy(algorithm), task["total"]
    num_episodes = 0
    watch.start()
    observations, masks = stream.reset(task["seed"])
    while True:
        step = stream.step(algorithm.choose(observations, masks))
        algorithm.record(step)
        observations, masks = step.observations, step.masks
        algorithm.set_progress(algorithm.num_steps / total)
        if algorithm.learn():
            num_episodes += len(stream.episodes())
            algorithm.metrics.take()
            if watch.look(algorithm.num_steps, greedy):
                break
    stream.close()
    return watch.result(num_episodes=num_episodes)


class Greedy:
    """The greedy policy of an algorithm as it is now."""

    def __init__(self, algorithm: Algorithm) -> None:
        self._algorithm = algorithm
        self._policy = algorithm.policy()
        self._num_updates = algorithm.num_updates

    def __call__(self, observations: F32) -> Any:
        """Returns its actions, shape ``(batch,)``."""
        if self._num_updates != self._algorithm.num_updates:
            self._policy, self._num_updates = self._algorithm.policy(), self._algorithm.num_updates
        return self._policy.choose(observations)


def run_trainer(task: dict[str, Any]) -> dict[str, Any]:
    """Returns what the same training costs through the public ``EnvTrainer``, its one evaluation included."""
    options = make_options(
        task["algorithm"],
        task["env"],
        steps=task["steps"],
        options=task["options"],
        n_envs=task["n_envs"],
        vectorization=task["vectorization"],
        eval_interval=task["steps"],
        eval_episodes=1,
    )
    with TemporaryDirectory() as folder:
        trainer = EnvTrainer(options, task["seed"], folder=Path(folder))
        watch = Watch({"at_most": task["steps"]})
        watch.start()
        result = trainer.run()
        watch.stop()
    watch.num_steps = result.num_steps
    return watch.result()


def time_update(task: dict[str, Any]) -> dict[str, Any]:
    """Returns the CPU milliseconds of one gradient step, all of ``learn`` counted, and of its bare matrix products."""
    stream, algorithm = _build(task)
    products = bare_products(task["options"]["batch_size"], SHAPES["1536-256-256-128-5"])
    observations, masks = stream.reset(task["seed"])
    ours, bare = [], []
    for _ in range(task["rounds"] + 1):
        before = algorithm.num_updates
        for _ in range(task["options"]["n_steps"]):
            step = stream.step(algorithm.choose(observations, masks))
            algorithm.record(step)
            observations, masks = step.observations, step.masks
        started = time.process_time()
        algorithm.learn()
        spent = time.process_time() - started
        count = algorithm.num_updates - before
        ours.append(spent / count * 1e3)
        started = time.process_time()
        for _ in range(count):
            products()
        bare.append((time.process_time() - started) / count * 1e3)
    stream.close()
    return {"update_ms": statistics.median(ours[1:]), "products_ms": statistics.median(bare[1:])}


def bare_products(batch: int, shape: tuple[int, tuple[int, ...], int]) -> Callable[[], None]:
    """Returns what does the matrix products of one gradient step, and nothing else, of a policy and a value network."""
    rng = np.random.default_rng(0)
    num_inputs, hidden, num_actions = shape
    products: list[tuple[F32, F32, F32]] = []
    for num_outputs in (num_actions, 1):
        sizes = (num_inputs, *hidden, num_outputs)
        for index, (inner, outer) in enumerate(pairwise(sizes)):
            seen, weight, gradient = (
                rng.standard_normal(dimensions, dtype=np.float32)
                for dimensions in ((batch, inner), (outer, inner), (batch, outer))
            )
            products.append((seen, weight.T, np.empty((batch, outer), dtype=np.float32)))
            products.append((gradient.T, seen, np.empty((outer, inner), dtype=np.float32)))
            if index:  # nobody asks for the gradient of the observations
                products.append((gradient, weight, np.empty((batch, inner), dtype=np.float32)))

    def multiply() -> None:
        for left, right, out in products:
            np.matmul(left, right, out)

    return multiply


def time_act(task: dict[str, Any]) -> dict[str, Any]:
    """Returns microseconds of ``NetworkPolicy.act``: p50 and p99, greedy and drawn, for each of ``SHAPES``."""
    found = {}
    for name, shape in SHAPES.items():
        policy = build_policy(*shape)
        observation = np.random.default_rng(task["seed"]).standard_normal(shape[0], dtype=np.float32)
        for way, acting in (("greedy", policy), ("drawn", policy.sampled)):
            found[f"{name} {way}"] = _percentiles(partial(acting.act, observation), task["num_calls"])
    return found


def build_policy(num_inputs: int, hidden: tuple[int, ...], num_actions: int) -> NetworkPolicy:
    """Returns a fresh policy of PPO, as it would be served."""
    box = Box(shape=(num_inputs,), low=(None,) * num_inputs, high=(None,) * num_inputs)
    spaces = Spaces(observation=box, action=Discrete(n=num_actions))
    return build_algorithm(configure("ppo", {"net_arch": hidden, "activation": "relu"}), spaces).policy()


def time_replay(task: dict[str, Any]) -> dict[str, Any]:
    """Returns microseconds of drawing a prioritised batch and giving it new priorities: p50 and p99."""
    rng = np.random.default_rng(task["seed"])
    replay = fill_replay(rng)
    errors = rng.exponential(size=(64, NUM_SAMPLED))
    turn = 0

    def draw_and_update() -> None:
        nonlocal turn
        turn = (turn + 1) % len(errors)
        replay.update_priorities(replay.sample(NUM_SAMPLED, rng, beta=0.4), errors[turn])

    return _percentiles(draw_and_update, task["num_calls"])


def fill_replay(rng: np.random.Generator) -> PrioritisedReplay:
    """Returns a full replay of CartPole-like transitions."""
    replay = PrioritisedReplay(NUM_ENTRIES, 4, Discrete(n=2))
    count = replay.margin
    ends = np.arange(count) == count - 1
    while replay.num_added < NUM_ENTRIES:
        first = np.arange(count) + replay.see(rng.standard_normal((count, 4), dtype=np.float32))
        actions = rng.integers(2, size=count)
        replay.add(Entries(first, actions, np.ones(count), np.where(ends, first, first + 1), 0.99, ends, ~ends & ends))
    return replay


def weigh_checkpoint(task: dict[str, Any]) -> dict[str, Any]:
    """Returns the megabytes of a training's checkpoint, for CartPole and for seed 1's problem."""
    cartpole = make_options("ppo", CARTPOLE, steps=4096, checkpoint_interval=2048, eval_interval=4096)
    prompts = make_options(
        "ppo", PROMPTS, steps=4096, preset="prompt-mutation", checkpoint_interval=2048, eval_interval=4096
    )
    found = {}
    for name, options, env in (("CartPole-v1", cartpole, None), ("seed 1's problem", prompts, Prompts)):
        with TemporaryDirectory() as folder:
            EnvTrainer(options, task["seed"], env=env, folder=Path(folder)).run()
            newest = max(Path(folder, "checkpoints").glob("*.safetensors"))
            found[name] = newest.stat().st_size / MEGABYTE
    return found


def _build(task: dict[str, Any]) -> tuple[EnvStream, Algorithm]:
    env = Prompts if task["env"] == PROMPTS else task["env"]
    stream = make_stream(env, task["n_envs"], vectorization=task["vectorization"])
    config = configure(task["algorithm"], task["options"])
    return stream, build_algorithm(config, stream.spaces, num_envs=task["n_envs"], seed=task["seed"])


def _percentiles(call: Callable[[], Any], num_calls: int) -> dict[str, float]:
    """Returns p50 and p99 of the microseconds that ``call`` takes."""
    clock = time.perf_counter_ns
    spent = np.empty(num_calls)
    for _ in range(num_calls // 10):
        call()
    for index in range(num_calls):
        started = clock()
        call()
        spent[index] = clock() - started
    p50, p99 = np.percentile(spent, [50, 99]) / 1e3
    return {"p50": float(p50), "p99": float(p99)}


KINDS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "training": train,
    "trainer": run_trainer,
    "update": time_update,
    "act": time_act,
    "replay": time_replay,
    "checkpoint": weigh_checkpoint,
}

if __name__ == "__main__":
    answer(measure)
