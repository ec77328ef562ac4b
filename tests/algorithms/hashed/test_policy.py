"""Joint policies: their answers and what is stored of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from learnloop.algorithms import HashedConfig, HashedPolicy, HashedTrainer, load_policy
from learnloop.algorithms.hashed.policy import untrained
from learnloop.core.errors import ActionError, ContextError, CorruptError
from learnloop.core.protocols import PolicyArtifact, Question, SavedPolicy
from tests.algorithms.joint_problems import changing_items, vectors


@pytest.fixture(scope="module")
def learned() -> HashedPolicy:
    return HashedTrainer(HashedConfig(num_bits=8)).train(changing_items(100, 1)[0], 0)


@pytest.mark.parametrize("interactions", [True, False])
def test_round_trip_keeps_scores_exactly(interactions: bool) -> None:
    for samples in (changing_items(60, 1)[0], vectors(60, 1)[0]):
        policy = HashedTrainer(HashedConfig(num_bits=8, interactions=interactions)).train(samples, 0)
        again = load_policy(policy.to_artifact())
        assert isinstance(again, HashedPolicy)
        assert isinstance(again, SavedPolicy)
        for sample in samples[:10]:
            scores = policy.scores(sample.context, sample.actions)
            assert scores.dtype == np.float64
            assert np.array_equal(again.scores(sample.context, sample.actions), scores)
        assert (again.num_updates, again.reward_offset) == (60, policy.reward_offset)


def without(name: str) -> Callable[[dict[str, Any], dict[str, Any]], object]:
    return lambda config, tensors: tensors.pop(name)


def put(name: str, value: Any) -> Callable[[dict[str, Any], dict[str, Any]], object]:
    return lambda config, tensors: (tensors if name in tensors else config).update({name: value})


@pytest.mark.parametrize(
    "change",
    [
        without("weights"),
        put("weights", np.zeros(255)),
        put("weights", np.zeros(256, dtype=np.float32)),
        put("weights", np.full(256, np.nan)),
        put("number_scales", np.zeros(8)),
        put("number_means", np.zeros(7)),
        put("vector_weights", np.zeros(3)),
        put("vector_means", np.zeros((2, 2))),
        put("reward_scale", 0.0),
        put("reward_offset", float("inf")),
        put("num_updates", -1),
        put("numbers", ["c:x"] * 8),
        put("more", 1),
        put("joint", {"num_bits": 99}),
        put("joint", {"unknown": 1}),
    ],
)
def test_damaged_artifacts_are_corrupt(learned: HashedPolicy, change: Callable[..., object]) -> None:
    artifact = learned.to_artifact()
    config, tensors = dict(artifact.config), dict(artifact.tensors)
    change(config, tensors)
    with pytest.raises(CorruptError):
        load_policy(PolicyArtifact(artifact.algorithm, config, tensors))


def test_masks_and_ties() -> None:
    policy = untrained(HashedConfig(num_bits=4))
    question = Question({"x": 1.0}, None, np.ones(3, dtype=np.float32))
    assert policy.probabilities(question, ["a", "b", "c"], [True, False, True]).tolist() == [0.5, 0.0, 0.5]
    with pytest.raises(ActionError):
        policy.probabilities(question, ["a", "b"], [False, False])
    with pytest.raises(ActionError):
        policy.probabilities(question, ["a", "a"])


def test_changed_features_are_not_answered_from_memory(learned: HashedPolicy) -> None:
    sample = changing_items(1, 3)[0][0]
    assert isinstance(sample.context, Question)
    assert sample.context.action_features is not None
    before = learned.scores(sample.context, sample.actions)
    features = dict(sample.context.action_features[0])
    sample.context.action_features[0]["f0"] = features["f0"] + 1.0  # type: ignore[index]
    after = learned.scores(sample.context, sample.actions)
    assert after[0] != before[0]
    assert np.array_equal(after[1:], before[1:])


def test_plain_contexts_and_unknown_features_are_taken(learned: HashedPolicy) -> None:
    assert np.isfinite(learned.scores({"never": 1e100, "seen": ["t"]}, ["a", "b"])).all()
    assert np.isfinite(learned.scores({"user": {"u0": 1e100}}, ["a"])).all()
    many = Question({}, [{"f0": np.float64(1.0)}])  # no JSON, but a number
    assert learned.scores(many, ["a"])[0] == learned.scores(Question({}, [{"f0": 1.0}]), ["a"])[0]


def test_vectors_of_another_length_are_refused(learned: HashedPolicy) -> None:
    with pytest.raises(ContextError, match="without a vector"):
        learned.scores(Question({}, None, np.ones(3, dtype=np.float32)), ["a"])
    policy = HashedTrainer(HashedConfig(num_bits=8)).train(vectors(20, 1)[0], 0)
    with pytest.raises(ContextError, match="64 numbers"):
        policy.scores(Question({}, None, np.ones(3, dtype=np.float32)), ["a"])
    assert policy.scores({}, ["a"]).shape == (1,)  # None is absent


@pytest.mark.parametrize("context", [{"n": 1e308}, {"n": -(10**200)}, {f"n{number}": 1.5 for number in range(900)}])
def test_what_could_not_be_learned_from_is_refused_before_anything_was_learned(context: dict[str, Any]) -> None:
    """One such decision in the log would fail each update as long as it is among the newest."""
    features = [{f"f{number}": float(number) for number in range(30)}]
    with pytest.raises(ContextError):
        untrained(HashedConfig()).scores(Question(context, features), ["a"])
