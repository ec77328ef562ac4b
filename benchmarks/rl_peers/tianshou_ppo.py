"""Tianshou's PPO with given settings, run by the Python of its own environment."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import torch
from tianshou.algorithm import PPO
from tianshou.algorithm.modelfree.reinforce import DiscreteActorPolicy
from tianshou.algorithm.optim import AdamOptimizerFactory, LRSchedulerFactoryLinear
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv
from tianshou.trainer import OnPolicyTrainerParams
from tianshou.utils.net.common import Net
from tianshou.utils.net.discrete import DiscreteActor, DiscreteCritic

from benchmarks.rl_peers.measuring import Watch, answer

BUFFER_SIZE = 20_000


class Ended(Exception):
    """All that is wanted was measured."""


def measure(task: dict[str, Any]) -> dict[str, Any]:
    """Returns what one training costs. Its clip range is constant: it has no schedule for it."""
    torch.set_num_threads(1)
    np.random.seed(task["seed"])
    torch.manual_seed(task["seed"])
    options, n_envs, watch = task["options"], task["n_envs"], Watch(task)
    envs = DummyVectorEnv([lambda: gymnasium.make(task["env"]) for _ in range(n_envs)])
    envs.seed(task["seed"])
    rollout = options["n_steps"] * n_envs
    algorithm = build(options, envs.action_space[0], envs.observation_space[0].shape, task["total"], rollout)
    collector = Collector(algorithm, envs, VectorReplayBuffer(BUFFER_SIZE, n_envs))
    collector.reset()

    def act(observations: Any) -> Any:
        with torch.no_grad():
            return algorithm.policy.actor(observations)[0].argmax(dim=1).numpy()

    def look(epoch: int, num_steps: int) -> None:
        if watch.look(num_steps, act):
            raise Ended

    params = OnPolicyTrainerParams(
        max_epochs=1,
        epoch_num_steps=task["total"],
        training_collector=collector,
        collection_step_num_env_steps=rollout,
        batch_size=options["batch_size"],
        update_step_num_repetitions=options["n_epochs"],
        training_fn=look,
        verbose=False,
        show_progress=False,
    )
    watch.start()
    try:
        algorithm.run_training(params)
    except Ended:
        watch.stop()
    return watch.result()


def build(options: dict[str, Any], actions: Any, shape: Any, total: int, rollout: int) -> Any:
    """Returns PPO with two networks of 64-64 and tanh."""

    def network() -> Any:
        return Net(state_shape=shape, hidden_sizes=(64, 64), activation=torch.nn.Tanh)

    actor = DiscreteActor(preprocess_net=network(), action_shape=actions.n, softmax_output=False)
    critic = DiscreteCritic(preprocess_net=network())
    policy = DiscreteActorPolicy(actor=actor, action_space=actions)
    rate = float(str(options["learning_rate"]).removeprefix("lin_"))
    schedule = LRSchedulerFactoryLinear(1, total, rollout)
    return PPO(
        policy=policy,
        critic=critic,
        optim=AdamOptimizerFactory(lr=rate, eps=1e-5).with_lr_scheduler_factory(schedule),
        gamma=options["gamma"],
        gae_lambda=options["gae_lambda"],
        eps_clip=float(str(options["clip_range"]).removeprefix("lin_")),
        vf_coef=0.5,
        ent_coef=options["ent_coef"],
        max_grad_norm=0.5,
    )


if __name__ == "__main__":
    answer(measure)
