"""What joint policies learn."""

from __future__ import annotations

import numpy as np
import pytest

from learnloop.algorithms import HashedConfig, HashedTrainer
from learnloop.core.errors import ActionError, ContextError, DivergedError, RewardError, UsageError
from learnloop.core.protocols import Question, Sample
from learnloop.core.records import Verdict
from learnloop.evaluation import LoggedDecisions, VerificationOptions, verify_learning
from tests.algorithms.joint_problems import changing_items, sample, share_of_optimum, vectors


def test_learns_what_users_like_in_items_that_keep_changing() -> None:
    test, means = changing_items(400, 2, first=10_000)  # none of these items was logged
    samples = changing_items(5_000, 1)[0]
    assert share_of_optimum(HashedTrainer().train(samples, 0), test, means) >= 0.95
    per_name = [each._replace(context=dict(each.context)) for each in samples]  # names of actions alone
    unaware = [each._replace(context=dict(each.context)) for each in test]
    assert abs(share_of_optimum(HashedTrainer().train(per_name, 0), unaware, means)) < 0.2


@pytest.mark.parametrize("scale", [1e-6, 1e6])
def test_the_size_of_features_does_not_matter(scale: float) -> None:
    test, means = changing_items(200, 2)
    samples = changing_items(1_500, 1)[0]

    def scaled(one: Sample) -> Sample:
        assert isinstance(one.context, Question)
        assert one.context.action_features is not None
        features = [
            {**each, "f0": each["f0"] * scale, "f1": each["f1"] + scale} for each in one.context.action_features
        ]
        user = dict(one.context["user"])
        return one._replace(context=Question({"user": {**user, "u0": user["u0"] * scale}}, features))

    policy = HashedTrainer().train([scaled(one) for one in samples], 0)
    assert share_of_optimum(policy, [scaled(one) for one in test], means) >= 0.9


def test_learns_from_vectors() -> None:
    test, means = vectors(300, 2)
    policy = HashedTrainer(HashedConfig(interactions=False)).train(vectors(3_000, 1)[0], 0)
    assert share_of_optimum(policy, test, means) >= 0.9


def test_half_life_forgets() -> None:
    rng = np.random.default_rng(0)
    samples = []
    for row in range(2_000):
        means = np.array([1.0, 0.0]) if row < 1_500 else np.array([0.0, 1.0])
        samples.append(sample(row, Question({}), ["a", "b"], int(rng.integers(2)), means, 0.5, rng))
    assert HashedTrainer().train(samples, 0).probabilities({}, ["a", "b"]).tolist() == [1.0, 0.0]
    forgetful = HashedTrainer(HashedConfig(half_life=200)).train(samples, 0)
    assert forgetful.probabilities({}, ["a", "b"]).tolist() == [0.0, 1.0]


def test_an_offset_of_the_rewards_does_not_matter() -> None:
    test, means = changing_items(200, 2)
    samples = [one._replace(reward=one.reward + 1e6) for one in changing_items(1_500, 1)[0]]
    policy = HashedTrainer().train(samples, 0)
    assert share_of_optimum(policy, test, means) >= 0.9
    assert abs(policy.reward_offset - 1e6) < 1


def test_constant_rewards_prefer_nothing() -> None:
    samples = [one._replace(reward=0.1) for one in changing_items(50, 1)[0]]
    policy = HashedTrainer().train(samples, 0)
    assert policy.probabilities(samples[0].context, samples[0].actions).tolist() == [0.25] * 4
    assert (policy.reward_offset, policy.reward_scale, policy.num_updates) == (0.1, 1.0, 50)


def test_importance_weights_make_up_for_a_skewed_log() -> None:
    """One weight for "cheap" in two places, of which the log took cheap actions rarely where they are good."""
    rng = np.random.default_rng(3)
    samples = []
    for row in range(4_000):
        place = row % 2  # not known to the policy
        cheap_share = 0.9 if place else 0.1
        is_cheap = rng.random() < cheap_share
        means = np.array([-1.0, 0.0]) if place else np.array([1.5, 0.0])  # cheap is better on average: 0.25 against 0
        propensity = cheap_share if is_cheap else 1 - cheap_share
        question = Question({}, [{"cheap": True}, {"cheap": False}])
        samples.append(sample(row, question, ["x", "y"], 0 if is_cheap else 1, means, propensity, rng))
    unweighted = [one._replace(propensity=None) for one in samples]
    assert HashedTrainer().train(samples, 0).probabilities(samples[0].context, ["x", "y"])[0] == 1.0
    assert HashedTrainer().train(unweighted, 0).probabilities(samples[0].context, ["x", "y"])[0] == 0.0


def test_training_is_deterministic_whatever_the_trainer_has_read_before() -> None:
    samples = changing_items(300, 1)[0]
    trainer = HashedTrainer()
    trainer.train(changing_items(100, 5)[0], 0)
    first, again, other = trainer.train(samples, 3), HashedTrainer().train(samples, 3), trainer.train(samples, 4)
    ask = samples[0].context, samples[0].actions
    assert np.array_equal(first.scores(*ask), again.scores(*ask))
    assert not np.array_equal(first.scores(*ask), other.scores(*ask))
    assert trainer.diagnostics["train/num_samples"] == 300
    assert all(np.isfinite(value) for value in trainer.diagnostics.values())


def test_nothing_to_learn_from() -> None:
    policy = HashedTrainer().train([], 0)
    assert policy.num_updates == 0
    assert policy.probabilities({"x": 1}, ["a", "b"]).tolist() == [0.5, 0.5]


def one(**changes: object) -> Sample:
    return Sample("u", {"x": 1.0}, ["a", "b"], None, "a", 0.5, 1.0)._replace(**changes)


@pytest.mark.parametrize(
    ("samples", "error"),
    [
        ([one(reward=float("nan"))], RewardError),
        ([one(reward=None)], RewardError),
        ([one(propensity=0.0)], UsageError),
        ([one(propensity=float("nan"))], UsageError),
        ([one(action="c")], ActionError),
        ([one(context={"x": float("inf")})], ContextError),
        ([one(context={"x": 1e300}), one(context={"x": -1e300})], ContextError),
        ([one(reward=1e300), one(reward=-1e300)], DivergedError),
        ([one(context=Question({}, None, np.ones(n, dtype=np.float32))) for n in (2, 3)], ContextError),
    ],
)
def test_wrong_samples_are_refused(samples: list[Sample], error: type[Exception]) -> None:
    with pytest.raises(error):
        HashedTrainer().train(samples, 0)


def test_the_proof_of_learning_accepts_it_and_only_with_true_rewards() -> None:
    samples = changing_items(500, 1)[0]
    train, test = samples[:250], samples[250:]
    mean = float(np.mean([each.reward for each in train]))
    options = VerificationOptions(num_permutations=2_000, min_effective_sample_size=50)
    config = HashedConfig(num_bits=12, num_passes=4)
    found = verify_learning(HashedTrainer(config), train, LoggedDecisions(test, mean), options=options)
    assert found.verdict is Verdict.LEARNED, found.reasons
    order = np.random.default_rng(0).permutation(len(train))
    noise = [each._replace(reward=train[row].reward) for each, row in zip(train, order, strict=True)]
    found = verify_learning(HashedTrainer(config), noise, LoggedDecisions(test, mean), options=options)
    assert found.verdict is not Verdict.LEARNED


def test_one_long_sample_does_not_slow_the_others() -> None:
    samples, means = changing_items(2_000, 1)
    long = Question({f"x{i}": 1.0 for i in range(1_000)}, [{}, {}])
    broad = Question({}, [{f"x{i}": 1.0 for i in range(1_000)}, {}])
    samples += [one(context=long), one(context=broad)]
    policy = HashedTrainer(HashedConfig(num_passes=2)).train(samples, 0)
    assert share_of_optimum(policy, samples[:300], means[:300]) >= 0.9


def test_too_many_pairs_are_refused_by_trainer_and_policy() -> None:
    large = {f"x{i}": True for i in range(200)}
    question = Question(large, [large, large])
    with pytest.raises(ContextError, match="pairs"):
        HashedTrainer().train([one(context=question)], 0)
    with pytest.raises(ContextError, match="pairs"):
        HashedTrainer().train([one()], 0).scores(question, ["a", "b"])
    without = HashedTrainer(HashedConfig(interactions=False)).train([one(context=question)], 0)
    assert without.scores(question, ["a", "b"]).shape == (2,)
