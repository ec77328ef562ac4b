"""The frozen policy: greedy, checked, and the same after a round trip."""

from __future__ import annotations

import json

import numpy as np
import pytest

from learnloop.algorithms import ContextualBandit, LinearPolicy, build_config, load_policy
from learnloop.core.errors import ActionError, ContextError, CorruptError
from learnloop.core.protocols import SavedPolicy
from learnloop.nn import ContextEncoder, ContextSchema
from learnloop.testing.problems import ACTIONS, RoutingProblem, expected_rewards


def test_linear_policies_survive_a_round_trip_and_refuse_damage() -> None:
    bandit = ContextualBandit(build_config("linucb"))
    uniform = load_policy(bandit.policy().to_artifact())
    assert uniform.probabilities({"x": 1}, ["a", "b"], [False, True]).tolist() == [0, 1]
    for index, context in enumerate(RoutingProblem(1).contexts(200)):
        bandit.learn(bandit.prepare(context), ACTIONS[index % 5], float(expected_rewards(context)[index % 5]))
    policy: SavedPolicy = bandit.policy()
    good = policy.to_artifact()
    assert good.algorithm == "linear"
    good = good._replace(config=json.loads(json.dumps(good.config)))
    again = load_policy(good)
    assert isinstance(again, LinearPolicy)
    assert again.learned_by == "linucb"
    for context in RoutingProblem(18).contexts(50):
        np.testing.assert_array_equal(
            again.probabilities(context, ACTIONS, [True, False, True, True, False]),
            policy.probabilities(context, ACTIONS, [True, False, True, True, False]),
        )
    weights = good.tensors["weights"]
    damaged = {
        "no policy is called 'ppo'": good._replace(algorithm="ppo"),
        "cannot be read": good._replace(config={"actions": 3}),
        r"not \('float64', \(5, 188\)\)": good._replace(tensors={"weights": weights[:, :-1]}),
        "are None": good._replace(tensors={}),
        "not all finite": good._replace(tensors={"weights": np.where(weights == weights[0, 0], np.nan, weights)}),
        "context encoder": good._replace(config={**good.config, "encoder": {}}),
    }
    for message, artifact in damaged.items():
        with pytest.raises(CorruptError, match=message):
            load_policy(artifact)


def test_linear_policies_check_their_input_and_split_ties() -> None:
    encoder = ContextEncoder.fit(ContextSchema(features={"x": "number"}), [{"x": 1}, {"x": 2}])
    policy = LinearPolicy(encoder, ["a", "b"], np.zeros((2, encoder.dimension)), "squarecb")
    assert policy.probabilities({"x": 1}, ["a", "b", "new"], [True, True, False]).tolist() == [0.5, 0.5, 0]
    with pytest.raises(ContextError):
        policy.probabilities({"x": "one"}, ["a"])
    with pytest.raises(ActionError):
        policy.probabilities({"x": 1}, ["a", "a"])
    with pytest.raises(ActionError):
        policy.probabilities({"x": 1}, ["a", "b"], [False, False])
