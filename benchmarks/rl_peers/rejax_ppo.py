"""rejax's PPO, which is one compiled program with its environment; run by the Python of its own environment."""

from __future__ import annotations

from typing import Any

import jax
from rejax import PPO

from benchmarks.rl_peers.measuring import Watch, answer, evaluate


def measure(task: dict[str, Any]) -> dict[str, Any]:
    """Returns what one training costs, compilation included, its evaluations left out."""
    options, n_envs, watch = task["options"], task["n_envs"], Watch(task)
    rollout = options["n_steps"] * n_envs
    num_steps = -(-task["at_most"] // rollout) * rollout
    algorithm = PPO.create(
        env=task["env"],
        agent_kwargs={"activation": "tanh", "hidden_layer_sizes": (64, 64)},
        num_envs=n_envs,
        num_steps=options["n_steps"],
        num_minibatches=rollout // options["batch_size"],
        num_epochs=options["n_epochs"],
        learning_rate=options["learning_rate"],
        gamma=options["gamma"],
        gae_lambda=options["gae_lambda"],
        clip_eps=options["clip_range"],
        ent_coef=options["ent_coef"],
        vf_coef=0.5,
        max_grad_norm=0.5,
        total_timesteps=num_steps,
        eval_freq=num_steps,
        skip_initial_evaluation=True,
    ).replace(eval_callback=lambda algorithm, state, rng: state.global_step)
    key = jax.random.PRNGKey(task["seed"])
    jax.block_until_ready(key)
    watch.start()
    state, _ = jax.block_until_ready(jax.jit(algorithm.train)(key))
    watch.stop()
    watch.num_steps = int(state.global_step)

    def act(observations: Any) -> Any:
        return algorithm.actor.apply(state.actor_ts.params, observations, method="_action_dist").mode()

    return watch.result(final_return=evaluate(jax.jit(act)))


if __name__ == "__main__":
    answer(measure)
