"""What ``rl`` runs: hyper-parameters, which are the same on both sides, lengths, and the peers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

THREADS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

CARTPOLE = "CartPole-v1"
PENDULUM = "Pendulum-v1"
PROMPTS = "prompts"
"""``benchmarks.rl_peers.prompts.Prompts``."""

PPO_ZOO: dict[str, Any] = {
    "n_steps": 32,
    "batch_size": 256,
    "gae_lambda": 0.8,
    "gamma": 0.98,
    "n_epochs": 20,
    "ent_coef": 0.0,
    "learning_rate": "lin_0.001",
    "clip_range": "lin_0.2",
}
"""rl-baselines3-zoo, ``hyperparams/ppo.yml``, CartPole-v1."""

PPO_CLEANRL: dict[str, Any] = {
    "n_steps": 128,
    "batch_size": 256,
    "gae_lambda": 0.95,
    "gamma": 0.99,
    "n_epochs": 4,
    "ent_coef": 0.01,
    "vf_coef": 0.25,
    "max_grad_norm": 0.5,
    "learning_rate": "lin_0.00025",
    "clip_range": 0.2,
    "clip_range_vf": 0.2,
}
"""CleanRL's ``ppo.py``, its defaults with 8 environments. Its value loss is half of ours, so its .5 is our .25."""

PPO_MANY: dict[str, Any] = {
    "n_steps": 32,
    "batch_size": 256,
    "gae_lambda": 0.95,
    "gamma": 0.98,
    "n_epochs": 4,
    "ent_coef": 0.0,
    "learning_rate": 3e-3,
    "clip_range": 0.2,
}
"""Our preset ``many-envs``, with 64 environments."""

PPO_SEED_1: dict[str, Any] = {
    "n_steps": 2048,
    "batch_size": 64,
    "n_epochs": 4,
    "gae_lambda": 0.95,
    "gamma": 0.99,
    "ent_coef": 0.01,
    "learning_rate": 3e-4,
    "clip_range": 0.2,
    "net_arch": [256, 256, 128],
    "activation": "relu",
}

DQN_ZOO: dict[str, Any] = {
    "learning_rate": 2.3e-3,
    "batch_size": 64,
    "buffer_size": 100_000,
    "learning_starts": 1000,
    "gamma": 0.99,
    "target_update_interval": 10,
    "train_freq": 256,
    "gradient_steps": 128,
    "exploration_fraction": 0.16,
    "exploration_final_eps": 0.04,
    "net_arch": [256, 256],
    "activation": "relu",
}
"""rl-baselines3-zoo, ``hyperparams/dqn.yml``, CartPole-v1; the activation is Stable-Baselines3's default."""

SAC_ZOO: dict[str, Any] = {
    "learning_rate": 1e-3,
    "batch_size": 256,
    "buffer_size": 1_000_000,
    "learning_starts": 100,
    "tau": 0.005,
    "gamma": 0.99,
    "train_freq": 1,
    "gradient_steps": 1,
    "net_arch": [256, 256],
    "activation": "relu",
}
"""rl-baselines3-zoo, ``hyperparams/sac.yml``, Pendulum-v1, with Stable-Baselines3's defaults written out."""


@dataclass(frozen=True, kw_only=True)
class Peer:
    """A library that ours is compared with."""

    label: str
    folder: str
    """Of its environment, under ``.bench``."""
    requirements: tuple[str, ...]
    script: str
    """Under ``benchmarks/rl_peers``."""
    source: tuple[str, str] | None = None
    """URL and commit of its own repository, which is run as it is."""


PEERS = {
    "sb3": Peer(
        label="Stable-Baselines3 2.9.2",
        folder="sb3",
        requirements=("stable-baselines3==2.9.2", "torch==2.13.0", "gymnasium==1.4.0", "numpy==2.4.6"),
        script="stable_baselines.py",
    ),
    "cleanrl": Peer(
        label="CleanRL ppo.py fe8d8a0, gymnasium 0.29.1",
        folder="cleanrl",
        requirements=("torch==2.13.0", "gymnasium==0.29.1", "numpy==2.4.6", "tyro==1.0.17", "tensorboard==2.21.0"),
        script="cleanrl_ppo.py",
        source=("https://github.com/vwxyzjn/cleanrl", "fe8d8a03c41a7ef5b523e2e354bd01c363e786bb"),
    ),
    "tianshou": Peer(
        label="Tianshou 2.0.1",
        folder="tianshou",
        requirements=("tianshou==2.0.1", "torch==2.13.0", "gymnasium==1.4.0", "numpy==2.4.6"),
        script="tianshou_ppo.py",
    ),
    "sbx": Peer(
        label="SBX 0.28.0",
        folder="sbx",
        requirements=("sbx-rl==0.28.0", "stable-baselines3==2.9.2", "jax==0.10.2", "gymnasium==1.4.0", "numpy==2.4.6"),
        script="stable_baselines.py",
    ),
    "rejax": Peer(
        label="rejax 0.1.3",
        folder="rejax",
        requirements=("rejax==0.1.3", "gymnax==0.0.9", "jax==0.10.2", "flax==0.12.8", "numpy==2.4.6"),
        script="rejax_ppo.py",
    ),
}


@dataclass(frozen=True, kw_only=True)
class Side:
    """One measurement: who does what."""

    peer: str | None
    """A name of ``PEERS``; None: ours."""
    task: dict[str, Any]
    """But for its seed."""


def sides(quick: bool) -> dict[str, Side]:
    """Returns every measurement by its name, in the order in which they are taken."""

    def training(options: dict[str, Any], **more: Any) -> dict[str, Any]:
        task = {"kind": "training", "algorithm": "ppo", "env": CARTPOLE, "n_envs": 8, "options": options}
        return {**task, "vectorization": "sync", **more}

    evaluated = {"eval_interval": 2048}
    zoo = training(PPO_ZOO, total=100_000, at_least=20_480 if quick else 98_304, at_most=98_304, **evaluated)
    until = {"at_least": 20_480 if quick else 51_200, "at_most": 102_400 if quick else 307_200}
    cleanrl = training(PPO_CLEANRL, total=500_000, **until, **evaluated)
    many = training(PPO_MANY, n_envs=64, vectorization="auto", total=100_000)
    tianshou = training(PPO_ZOO, total=100_000, at_most=6_144 if quick else 20_480)
    sbx = training(PPO_ZOO, total=100_000, at_most=10_240 if quick else 49_152, library="sbx")
    dqn = training(DQN_ZOO, algorithm="dqn", n_envs=1, total=50_000, at_most=5_120 if quick else 20_480)
    sac = training(SAC_ZOO, algorithm="sac", env=PENDULUM, n_envs=1, total=20_000, at_most=400 if quick else 1_500)
    seed_1 = training(PPO_SEED_1, env=PROMPTS, n_envs=1, total=100_000, at_most=4_096 if quick else 10_240)
    stable = {"library": "stable_baselines3"}
    return {
        "ppo sync": Side(peer=None, task=zoo),
        "ppo trainer": Side(peer=None, task={**zoo, "kind": "trainer", "steps": 20_480 if quick else 98_304}),
        "ppo sb3": Side(peer="sb3", task={**zoo, **stable}),
        "ppo vector": Side(peer=None, task={**zoo, "vectorization": "vector"}),
        "ppo tianshou": Side(peer="tianshou", task=tianshou),
        "ppo sbx": Side(peer="sbx", task=sbx),
        "ppo cleanrl settings": Side(peer=None, task=cleanrl),
        "ppo cleanrl": Side(peer="cleanrl", task=cleanrl),
        "dqn": Side(peer=None, task=dqn),
        "dqn sb3": Side(peer="sb3", task={**dqn, **stable}),
        "sac": Side(peer=None, task=sac),
        "sac sb3": Side(peer="sb3", task={**sac, **stable}),
        "ppo many": Side(peer=None, task={**many, "at_least": 0, "at_most": 100_352, **evaluated}),
        "ppo compiled": Side(peer=None, task={**many, "at_most": 100_352}),
        "ppo rejax": Side(peer="rejax", task={**many, "at_most": 100_352}),
        "seed 1": Side(peer=None, task=seed_1),
        "seed 1 sb3": Side(peer="sb3", task={**seed_1, **stable}),
        "update": Side(peer=None, task={**seed_1, "kind": "update", "rounds": 2 if quick else 5}),
        "act": Side(peer=None, task={"kind": "act", "num_calls": 3_000 if quick else 20_000}),
        "replay": Side(peer=None, task={"kind": "replay", "num_calls": 300 if quick else 2_000}),
        "checkpoint": Side(peer=None, task={"kind": "checkpoint"}),
    }
