"""The simulated mutation of prompts: named so, consistent, with a known optimum that can be learned."""

from __future__ import annotations

import pickle
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env as gymnasium_check

from learnloop.algorithms.building import build_algorithm, configure
from learnloop.core.errors import UsageError
from learnloop.envs import check_env, make_stream, register_envs
from learnloop.envs.prompt_mutation import MAX_DEFICIT, MUTATIONS, PromptMutationSimulator
from learnloop.evaluation.returns import evaluate_returns
from tests.repeats import repeats

register_envs()


def test_it_keeps_the_rules_and_says_what_it_is() -> None:
    assert check_env("prompt-mutation") == []
    gymnasium_check(gymnasium.make("learnloop/PromptMutation-v0").unwrapped)
    env = PromptMutationSimulator()
    assert env.observation_space.shape == (1536,)
    assert env.action_space.n == len(MUTATIONS) == 5
    _, info = env.reset(seed=0)
    assert info["simulated"] is True
    assert env.step(0)[4]["simulated"] is True


def test_mutations_by_hand() -> None:
    env = PromptMutationSimulator(size=16)
    for seed in range(30):
        env.reset(seed=seed)
        assert 1 <= sum(env.deficits) <= 10
        assert env.quality == pytest.approx(1 - sum(env.deficits) / 10)
        before = list(env.deficits)
        action = seed % 5
        reward, terminated = env.step(action)[1:3]
        if before[action]:
            before[action] -= 1
            assert reward == pytest.approx(0.1)
        else:
            was = before[(action + 1) % 5]
            before[(action + 1) % 5] = min(MAX_DEFICIT, was + 1)
            assert reward == pytest.approx(-0.1 if was < MAX_DEFICIT else 0.0)
        assert env.deficits == tuple(before)
        assert terminated == (not any(before))


def test_any_missing_part_is_the_optimum() -> None:
    """What a policy that sees the deficits earns is what is said to be the most."""
    env = PromptMutationSimulator(size=16)
    for seed in range(50):
        env.reset(seed=seed)
        wanted, earned, terminated, num_steps = env.optimum(), 0.0, False, 0
        assert wanted == pytest.approx(1 - env.quality)
        while not terminated:
            action = next(number for number, deficit in enumerate(env.deficits) if deficit)
            _, reward, terminated, truncated, info = env.step(action)
            earned, num_steps = earned + reward, num_steps + 1
            assert not truncated
        assert earned == pytest.approx(wanted)
        assert (num_steps, info["is_success"], env.quality) == (round(10 * wanted), True, 1.0)


def test_the_limit_cuts_and_does_not_end() -> None:
    """F1.3: an episode that is cut at its limit is bootstrapped."""
    env = PromptMutationSimulator(size=16, max_steps=3)
    env.reset(seed=0)
    while sum(env.deficits) < 6:
        env.reset()
    assert [env.step(0)[2:4] for _ in range(3)] == [(False, False), (False, False), (False, True)]
    with pytest.raises(UsageError, match="prompt-mutation is stepped while no episode runs"):
        env.step(0)


def test_embeddings_are_consistent() -> None:
    """The deficits are read from embeddings of prompts that were never seen, by one linear map."""
    env = PromptMutationSimulator(size=64, world_seed=3)
    shown, hidden = [], []
    for seed in range(1_500):
        shown.append(env.reset(seed=seed)[0])
        hidden.append(env.deficits)
    inputs, outputs = np.column_stack([shown, np.ones(1_500)]), np.array(hidden, dtype=float)
    solved = np.linalg.lstsq(inputs[:1_000], outputs[:1_000], rcond=None)[0]
    left = outputs[1_000:] - inputs[1_000:] @ solved
    assert left.var() < 0.3 * outputs.var()
    np.testing.assert_allclose(np.linalg.norm(shown, axis=1), 1.0, rtol=1e-5)


def test_a_mutation_moves_a_prompt_the_same_way_and_keeps_its_subject() -> None:
    env = PromptMutationSimulator(size=256, subject_weight=2.0)
    first, _ = env.reset(seed=1)
    action = int(np.argmax(env.deficits))
    after = env.step(action)[0]
    other, _ = env.reset(seed=2)
    assert first @ after > 0.9 > abs(first @ other), "it is still that prompt"
    direction = env._directions[1 + action]
    assert first @ direction > after @ direction


def test_seeds() -> None:
    def episode(env: PromptMutationSimulator, seed: int) -> list[Any]:
        steps: list[Any] = [env.reset(seed=seed)[0].tolist()]
        while env.is_running:
            steps.append(env.step(len(steps) % 5)[:2])
        return [str(each) for each in steps]

    env = PromptMutationSimulator(size=16)
    assert episode(env, 1) == episode(PromptMutationSimulator(size=16), 1)
    assert episode(env, 1) != episode(PromptMutationSimulator(size=16, world_seed=1), 1)
    assert episode(pickle.loads(pickle.dumps(env)), 2) == episode(env, 2)  # noqa: S301 - our own


def test_a_line_on_each_step() -> None:
    env = PromptMutationSimulator(size=16, render_mode="ansi")
    env.reset(seed=0)
    assert env.render() == f"simulated, step 0 of 12: nothing yet; quality {env.quality:.1f}\n"
    action = next(number for number, deficit in enumerate(env.deficits) if deficit)
    env.step(action)
    assert f"step 1 of 12: {MUTATIONS[action]} changed the quality by +0.1; quality" in str(env.render())
    assert PromptMutationSimulator(size=16).render() is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": 6}, "size of prompt-mutation is 6; a whole number from 7"),
        ({"max_steps": 0}, "max_steps of prompt-mutation is 0"),
        ({"world_seed": -1}, "world_seed of prompt-mutation is -1"),
        ({"subject_weight": -0.5}, "subject_weight of prompt-mutation is -0.5; a number from 0 to 10"),
    ],
)
def test_what_has_no_meaning_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        PromptMutationSimulator(**options)


@pytest.mark.slow
@pytest.mark.parametrize("seed", repeats([0, 1, 2]))
def test_ppo_learns_it(seed: int) -> None:
    kwargs = {"size": 32}
    stream = make_stream("prompt-mutation", 8, env_kwargs=kwargs)
    options = {"learning_rate": "lin_0.003", "n_steps": 64, "batch_size": 128, "n_epochs": 4}
    algorithm = build_algorithm(configure("ppo", options), stream.spaces, num_envs=8, seed=seed)
    random = evaluate_returns(
        algorithm.policy().sampled, "prompt-mutation", num_episodes=200, seed=7, env_kwargs=kwargs
    )
    observations, masks = stream.reset(seed)
    while algorithm.num_steps < 40_000:
        step = stream.step(algorithm.choose(observations, masks))
        algorithm.record(step)
        observations, masks = step.observations, step.masks
        algorithm.set_progress(algorithm.num_steps / 40_000)
        algorithm.learn()
    found = evaluate_returns(algorithm.policy(), "prompt-mutation", num_episodes=200, seed=7, env_kwargs=kwargs)
    assert found.mean > 0.45, "of 0.5, what prompts lack on the average"
    assert found.mean > 2 * random.mean
