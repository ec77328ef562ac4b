"""The contextual bandit: propensities, masks, late rewards, scale, and going on after a stop."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from learnloop.algorithms import (
    BanditConfig,
    BanditTrainer,
    ContextualBandit,
    Prepared,
    build_config,
    draw,
)
from learnloop.core.arrays import F64, I64
from learnloop.core.errors import ActionError, ContextError, CorruptError, RewardError, UsageError
from learnloop.core.protocols import PolicyArtifact, Sample
from learnloop.nn import ContextSchema
from learnloop.testing.problems import ACTIONS, JobContext, RoutingProblem

NAMES = ("squarecb", "linucb", "thompson")
MASK = [True, False, True, True, False]


def play(
    bandit: ContextualBandit, seed: int, count: int, change: Callable[[float], float] = float
) -> list[tuple[Prepared, str, float]]:
    """Acts and learns ``count`` times; returns what was learned."""
    problem, rng = RoutingProblem(seed), np.random.default_rng(seed)
    learned = []
    for _ in range(count):
        context = problem.context()
        prepared = bandit.prepare(context)
        chosen = draw(bandit.probabilities(prepared, ACTIONS, None, rng), rng)
        reward = change(problem.rewards(context)[chosen])
        bandit.learn(prepared, ACTIONS[chosen], reward)
        learned.append((prepared, ACTIONS[chosen], reward))
    return learned


def chi_square_p(counts: I64, probabilities: F64) -> float:
    """Returns the p value of Pearson's test (Wilson and Hilferty's normal approximation of its tail)."""
    possible = probabilities > 0
    assert counts[~possible].sum() == 0
    expected = counts.sum() * probabilities[possible]
    statistic = float(np.sum((counts[possible] - expected) ** 2 / expected))
    freedom = int(possible.sum()) - 1
    z = ((statistic / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / math.sqrt(2 / (9 * freedom))
    return 0.5 * math.erfc(z / math.sqrt(2))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("num_learned", "mask"), [(10, None), (10, MASK), (300, None), (300, MASK)])
def test_100000_replayed_draws_match_the_logged_propensities(
    name: str, num_learned: int, mask: list[bool] | None
) -> None:
    """The logged probability is the one with which an action is drawn, in the warm-up and after it (F2.4)."""
    bandit = ContextualBandit(build_config(name))
    play(bandit, 1, num_learned)
    rng = np.random.default_rng(2)
    prepared = bandit.prepare(RoutingProblem(3).context())
    probabilities = bandit.probabilities(prepared, ACTIONS, mask, rng)
    counts = np.bincount([draw(probabilities, rng) for _ in range(100_000)], minlength=5)
    assert probabilities.sum() == pytest.approx(1)
    assert chi_square_p(counts, probabilities) > 1e-4
    if num_learned == 10:
        allowed = np.array(mask or [True] * 5)
        np.testing.assert_array_equal(probabilities, allowed / allowed.sum())


@pytest.mark.parametrize("name", NAMES)
def test_inverse_propensities_average_to_one_while_acting(name: str) -> None:
    """Whole decisions, posterior draws included: the mean of [action = a] / propensity is 1 for each action."""
    bandit = ContextualBandit(build_config(name, epsilon=0.2) if name != "squarecb" else build_config(name))
    play(bandit, 1, 200)
    rng = np.random.default_rng(5)
    prepared = bandit.prepare(RoutingProblem(3).context())
    count = 8_000
    sums, variances = np.zeros(5), np.zeros(5)
    for _ in range(count):
        probabilities = bandit.probabilities(prepared, ACTIONS, None, rng)
        chosen = draw(probabilities, rng)
        sums[chosen] += 1 / probabilities[chosen]
        variances += 1 / probabilities - 1
    assert (np.abs(sums - count) < 5 * np.sqrt(variances)).all()


@pytest.mark.parametrize("name", NAMES)
def test_a_masked_action_is_never_drawn(name: str) -> None:
    """10,000 draws at each of two states."""
    for num_learned in (5, 200):
        bandit = ContextualBandit(build_config(name))
        play(bandit, 4, num_learned)
        problem, rng = RoutingProblem(9), np.random.default_rng(9)
        drawn = set()
        for context in problem.contexts(100):
            prepared = bandit.prepare(context)
            for _ in range(100):
                drawn.add(draw(bandit.probabilities(prepared, ACTIONS, MASK, rng), rng))
        assert drawn <= {0, 2, 3}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("factor", "offset"), [(1024.0, 0.0), (1e-3, -5.0), (3.7, 1e3)])
def test_rewards_may_have_any_offset_and_scale(name: str, factor: float, offset: float) -> None:
    """The same decisions: acting and learning see the same numbers."""
    plain, changed = (ContextualBandit(build_config(name)) for _ in range(2))
    actions = [action for _, action, _ in play(plain, 6, 400)]
    others = [action for _, action, _ in play(changed, 6, 400, lambda reward: factor * reward + offset)]
    assert actions == others
    x = RoutingProblem(8).context()
    np.testing.assert_allclose(
        plain.policy().predict(x, ACTIONS), changed.policy().predict(x, ACTIONS), atol=1e-7, rtol=1e-7
    )


@pytest.mark.parametrize("num_learned", [3, 41, 400])
@pytest.mark.parametrize("name", NAMES)
def test_a_saved_bandit_goes_on_bit_for_bit(name: str, num_learned: int) -> None:
    """In the warm-up, just after it and later; through JSON; saving changes nothing (F1.9)."""
    saved, uninterrupted = (ContextualBandit(build_config(name)) for _ in range(2))
    for bandit in (saved, uninterrupted):
        play(bandit, 7, num_learned)
    artifact = saved.to_artifact()
    artifact = PolicyArtifact(artifact.algorithm, json.loads(json.dumps(artifact.config)), artifact.tensors)
    resumed = ContextualBandit.from_artifact(artifact)
    assert resumed.num_updates == num_learned
    for bandit in (saved, resumed, uninterrupted):
        play(bandit, 8, 150)
    wanted = uninterrupted.to_artifact()
    for bandit in (saved, resumed):
        found = bandit.to_artifact()
        assert found.config == wanted.config
        for key, tensor in wanted.tensors.items():
            np.testing.assert_array_equal(found.tensors[key], tensor)


def test_late_rewards_in_any_order_are_learned_as_if_they_came_in_time() -> None:
    config = build_config("squarecb")
    problem, rng = RoutingProblem(11), np.random.default_rng(11)
    late, timely = ContextualBandit(config), ContextualBandit(config)
    play(late, 1, 30)  # the warm-up ends while the decisions below wait for their rewards
    play(timely, 1, 30)
    waiting = []
    for context in problem.contexts(60):
        chosen = ACTIONS[int(rng.integers(5))]
        waiting.append((late.prepare(context), context, chosen, float(problem.rewards(context)[0])))
    assert {prepared.x is None for prepared, *_ in waiting} == {True}
    for prepared, context, action, reward in waiting:
        timely.learn(timely.prepare(context), action, reward)
        late.learn(prepared, action, reward)
    np.testing.assert_array_equal(late.to_artifact().tensors["weights"], timely.to_artifact().tensors["weights"])
    reordered = ContextualBandit(config)
    play(reordered, 1, 30)
    for prepared, _, action, reward in waiting[:10] + waiting[:9:-1]:
        reordered.learn(prepared, action, reward)
    context = problem.context()
    np.testing.assert_allclose(
        reordered.policy().predict(context, ACTIONS), late.policy().predict(context, ACTIONS), atol=1e-9
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_corrected_reward_equals_the_sum(name: str) -> None:
    """A further part of a reward that came when the warm-up was over."""
    parts, whole = (ContextualBandit(build_config(name)) for _ in range(2))
    problem = RoutingProblem(12)
    for index, context in enumerate(problem.contexts(420)):
        action, (first, second) = ACTIONS[index % 5], problem.rewards(context)[:2].tolist()
        late = index >= 40  # the scale of the rewards is fitted on the same numbers in both
        whole.learn(whole.prepare(context), action, first + second)
        parts.learn(parts.prepare(context), action, first if late else first + second)
        if late:
            parts.correct(parts.prepare(context), action, second)
    for context in problem.contexts(20):
        difference = parts.policy().predict(context, ACTIONS) - whole.policy().predict(context, ACTIONS)
        assert np.abs(difference).max() < 1e-9
    assert parts.num_updates == whole.num_updates == 420


def test_a_correction_in_the_warm_up_finds_its_reward() -> None:
    parts, whole = (ContextualBandit(build_config("linucb", num_warm_up=3)) for _ in range(2))
    for x, reward in ((1, 0.5), (2, 0.25)):
        whole.learn(whole.prepare({"x": x}), "a", reward)
        parts.learn(parts.prepare({"x": x}), "a", 0.0)
    parts.correct(parts.prepare({"x": 2}), "a", 0.25)
    parts.correct(parts.prepare({"x": 1}), "a", 0.5)
    for bandit in (parts, whole):
        bandit.learn(bandit.prepare({"x": 3}), "b", 1.0)
    assert parts.to_artifact().config == whole.to_artifact().config
    again = ContextualBandit(build_config("linucb"))
    again.learn(again.prepare({"x": 1}), "a", 0.0)
    with pytest.raises(UsageError, match="no reward of 'b'"):
        again.correct(again.prepare({"x": 1}), "b", 1.0)
    with pytest.raises(RewardError):
        again.correct(again.prepare({"x": 1}), "a", math.nan)


@pytest.mark.parametrize("reward", [math.nan, math.inf, "1", None])
def test_a_bad_reward_is_refused_and_changes_nothing(reward: Any) -> None:
    """F1.5: NaN rewards were accepted."""
    for num_learned in (5, 60):
        bandit = ContextualBandit(build_config("squarecb"))
        play(bandit, 1, num_learned)
        before = bandit.to_artifact()
        with pytest.raises(RewardError):
            bandit.learn(bandit.prepare(RoutingProblem(1).context()), ACTIONS[0], reward)
        after = bandit.to_artifact()
        assert before.config == after.config
        for key, tensor in before.tensors.items():
            np.testing.assert_array_equal(after.tensors[key], tensor)


def test_bad_contexts_and_actions_are_refused_before_and_after_the_warm_up() -> None:
    for num_learned in (0, 5, 60):
        bandit = ContextualBandit(build_config("squarecb"))
        play(bandit, 1, num_learned)
        good: JobContext = RoutingProblem(1).context()
        prepared, rng = bandit.prepare(good), np.random.default_rng(0)
        for change in ({"load": "high"}, {"load": math.nan}, {"more": 1}):
            with pytest.raises(ContextError):
                bandit.prepare(good | change)
        with pytest.raises(ContextError, match="lacks 'kind', 'size'"):
            bandit.prepare({"load": 0.5})
        for actions, mask in (([], None), (["a", "a"], None), (["a"], [False]), (["a", "b"], [True])):
            with pytest.raises(ActionError):
                bandit.probabilities(prepared, actions, mask, rng)


def test_a_refused_first_context_declares_nothing() -> None:
    bandit = ContextualBandit(build_config("squarecb"))
    with pytest.raises(ContextError):
        bandit.prepare({"x": math.nan})
    bandit.prepare({"y": "text"})
    assert bandit.schema == ContextSchema(features={"y": "category"}, inferred=True)


def test_a_declared_schema_holds_from_the_first_context() -> None:
    bandit = ContextualBandit(build_config("squarecb", features={"x": "text"}))
    with pytest.raises(ContextError, match="declared text"):
        bandit.prepare({"x": 3})


def test_a_kept_context_is_a_copy() -> None:
    bandit = ContextualBandit(build_config("squarecb"))
    context: dict[str, Any] = {"x": 1}
    prepared = bandit.prepare(context)
    context["x"] = "changed"
    bandit.learn(prepared, "a", 1.0)
    assert bandit.to_artifact().config["warm_up"] == [{"context": {"x": 1}, "action": "a", "reward": 1.0}]


def test_without_context_the_best_arm_is_found() -> None:
    for name in NAMES:
        bandit, rng = ContextualBandit(build_config(name)), np.random.default_rng(13)
        for _ in range(800):
            prepared = bandit.prepare({})
            chosen = draw(bandit.probabilities(prepared, ["a", "b", "c"], None, rng), rng)
            bandit.learn(prepared, "abc"[chosen], float(rng.random() < (0.2, 0.7, 0.4)[chosen]))
        assert bandit.policy().probabilities({}, ["a", "b", "c"]).tolist() == [0, 1, 0]


def test_equal_rewards_prolong_the_warm_up_but_not_for_ever() -> None:
    bandit = ContextualBandit(build_config("squarecb", num_warm_up=10))
    for _ in range(60):
        bandit.learn(bandit.prepare({"x": 1}), "a", 0.3)
    assert not bandit.is_fitted
    bandit.learn(bandit.prepare({"x": 1}), "b", 0.4)
    assert bandit.is_fitted
    constant = ContextualBandit(build_config("squarecb", num_warm_up=10))
    for _ in range(100):
        constant.learn(constant.prepare({"x": 1}), "a", 0.3)
    assert constant.is_fitted
    assert constant.policy().predict({"x": 1}, ["a", "new"]).tolist() == [0, 0]


def test_actions_may_appear_later_and_start_at_the_mean_reward() -> None:
    bandit, rng = ContextualBandit(build_config("squarecb")), np.random.default_rng(14)
    play(bandit, 1, 100)
    prepared = bandit.prepare(RoutingProblem(2).context())
    assert bandit.probabilities(prepared, [*ACTIONS, "new"], None, rng).shape == (6,)
    for _ in range(50):
        bandit.learn(prepared, "new", 30.0)
    assert bandit.probabilities(prepared, ["new", *ACTIONS[::-1]], None, rng)[0] > 0.9


@pytest.mark.parametrize("name", NAMES)
def test_the_policy_is_a_frozen_greedy_copy(name: str) -> None:
    bandit = ContextualBandit(build_config(name))
    assert bandit.policy().probabilities({"any": 1}, ["a", "b"]).tolist() == [0.5, 0.5]
    play(bandit, 1, 300)
    policy = bandit.policy()
    context = RoutingProblem(15).context()
    before = policy.predict(context, ACTIONS).copy()
    greedy = policy.probabilities(context, ACTIONS)
    assert greedy.tolist() == [float(index == before.argmax()) for index in range(5)]
    play(bandit, 2, 100)
    np.testing.assert_array_equal(policy.predict(context, ACTIONS), before)


def test_training_replays_the_samples_in_order() -> None:
    bandit = ContextualBandit(build_config("squarecb"))
    learned = play(bandit, 16, 500)
    samples = [
        Sample(f"u{index}", prepared.context, ACTIONS, None, action, 0.2, reward)
        for index, (prepared, action, reward) in enumerate(learned)
    ]
    trainer = BanditTrainer()
    policy = trainer.train(samples, seed=1)
    context = RoutingProblem(17).context()
    np.testing.assert_allclose(
        policy.predict(context, ACTIONS), bandit.policy().predict(context, ACTIONS), rtol=1e-8, atol=1e-9
    )
    np.testing.assert_array_equal(
        trainer.train(samples, seed=2).predict(context, ACTIONS), policy.predict(context, ACTIONS)
    )
    few = trainer.train(samples[:20], seed=1)
    assert few.encoder is not None
    with pytest.raises(UsageError, match="0 samples"):
        trainer.train([], seed=1)
    with pytest.raises(RewardError):
        trainer.train([*samples, samples[0]._replace(reward=math.nan)], seed=1)


def test_a_damaged_bandit_is_corrupt() -> None:
    """F1.9: loading checked no shapes."""
    bandit = ContextualBandit(build_config("squarecb"))
    play(bandit, 1, 60)
    good = bandit.to_artifact()
    damaged = [
        good._replace(config={}),
        good._replace(config={**good.config, "config": {"algorithm": "squarecb", "gamma_scale": -1}}),
        good._replace(config={**good.config, "actions": ["one"]}),
        good._replace(tensors={}),
        good._replace(tensors={**good.tensors, "weights": good.tensors["weights"][:, :3]}),
    ]
    for artifact in damaged:
        with pytest.raises(CorruptError):
            ContextualBandit.from_artifact(artifact)


def test_configs_are_records() -> None:
    config = build_config("thompson", num_draws=7)
    assert isinstance(config, BanditConfig)
    assert json.loads(msgspec.json.encode(config.exploration))["algorithm"] == "thompson"
    assert json.loads(msgspec.json.encode(config.model))["kind"] == "online"
    with pytest.raises(AttributeError):
        config.model.num_warm_up = 3  # type: ignore[misc]
