"""P11 and P12: the checkers refuse what is wrong, and our algorithms pass."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from learnloop.algorithms.base.algorithm import Algorithm
from learnloop.algorithms.building import build_algorithm, configure
from learnloop.core.errors import UsageError
from learnloop.envs import make_stream
from learnloop.testing.choice_probes import check_masked, check_recovery
from learnloop.testing.probes import GAMMA, ProbeError

# The checkers ------------------------------------------------------------------------------------------------------


def best_legal(observations: Any, masks: Any) -> Any:
    assert observations.shape == (len(masks), 1)
    return np.where(masks[:, 2], 2, 1)


def test_the_best_legal_action_passes() -> None:
    check_masked(best_legal)
    check_masked(best_legal, batch_size=7, num_draws=50)


def test_one_illegal_pick_of_ten_thousand_is_found() -> None:
    count = 0

    def choose(observations: Any, masks: Any) -> Any:
        nonlocal count
        picks = best_legal(observations, masks)
        count += len(picks)
        if count == 5_000:  # the last ones where -1 is shown
            picks[-1] = 2
        return picks

    with pytest.raises(ProbeError, match="1 of 5000 picks where -1 is shown were illegal"):
        check_masked(choose)


@pytest.mark.parametrize(
    ("choose", "message"),
    [
        (lambda o, m: np.full(len(o), 2), "5000 of 5000 picks where -1 is shown were illegal"),
        (
            lambda o, m: np.zeros(len(o), dtype=int),
            r"0.000 of the picks where -1 is shown were the best legal action, 1",
        ),
        (lambda o, m: np.ones(len(o), dtype=int), r"0.000 of the picks where 1 is shown were the best legal action, 2"),
    ],
)
def test_wrong_picks_are_refused(choose: Any, message: str) -> None:
    with pytest.raises(ProbeError, match=message):
        check_masked(choose)


def test_what_explores_need_only_be_legal() -> None:
    rng = np.random.default_rng(0)

    def explore(observations: Any, masks: Any) -> Any:
        return np.where(masks[:, 2], rng.integers(3, size=len(masks)), rng.integers(2, size=len(masks)))

    check_masked(explore, best_share=0.0)
    with pytest.raises(ProbeError, match=r"wanted 0\.95"):
        check_masked(explore)


@pytest.mark.parametrize("picks", [np.zeros(3, dtype=int), np.zeros(100), np.zeros((100, 1), dtype=int)])
def test_picks_of_another_kind_are_refused(picks: Any) -> None:
    with pytest.raises(UsageError, match="100 actions, one for each observation, are needed"):
        check_masked(lambda observations, masks: picks)


def test_recovery() -> None:
    check_recovery([0.97, 0.03], [0.05, 0.95])
    with pytest.raises(ProbeError, match=r"before the flip the best arm has 0.500, wanted 0.9"):
        check_recovery([0.5, 0.5], [0.05, 0.95])
    with pytest.raises(ProbeError, match=r"after it the best arm has 0.030"):
        check_recovery([0.97, 0.03], [0.97, 0.03])
    with pytest.raises(ProbeError, match="nan"):
        check_recovery([0.97, 0.03], [np.nan, np.nan])


# Our algorithms ----------------------------------------------------------------------------------------------------

ON_POLICY: dict[str, Any] = {"learning_rate": 0.01, "net_arch": (32,)}
OFF_POLICY: dict[str, Any] = {
    "learning_rate": 3e-3,
    "net_arch": (32,),
    "learning_starts": 100,
    "batch_size": 64,
    "train_freq": 2,
}
OPTIONS: dict[str, dict[str, Any]] = {
    "ppo": {**ON_POLICY, "n_steps": 16, "batch_size": 64, "n_epochs": 4},
    "a2c": {**ON_POLICY, "n_steps": 8, "use_rms_prop": False},
    "dqn": {**OFF_POLICY, "buffer_size": 2_000, "target_update_interval": 50, "exploration_fraction": 0.3},
    "sac": {**OFF_POLICY, "buffer_size": 2_000, "ent_coef": 0.05, "tau": 0.05},
}


class Training:
    """An algorithm that learns in an environment, stepwise."""

    def __init__(self, name: str, env: str, seed: int, **options: Any) -> None:
        self.num_envs = 8 if name in ("ppo", "a2c") else 2
        self.stream = make_stream(env, self.num_envs)
        config = configure(name, {"gamma": GAMMA, **OPTIONS[name], **options})
        self.algorithm: Algorithm = build_algorithm(config, self.stream.spaces, num_envs=self.num_envs, seed=seed)
        self.observations, self.masks = self.stream.reset(seed)
        self.num_illegal = 0

    def advance(self, steps: int, total: int) -> None:
        until = self.algorithm.num_steps + steps
        while self.algorithm.num_steps < until:
            actions = self.algorithm.choose(self.observations, self.masks)
            if self.masks is not None:
                self.num_illegal += int(np.count_nonzero(~self.masks[np.arange(len(actions)), actions]))
            step = self.stream.step(actions)
            self.algorithm.record(step)
            self.observations, self.masks = step.observations, step.masks
            self.algorithm.set_progress(self.algorithm.num_steps / total)
            self.algorithm.learn()


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIONS)
def test_our_algorithms_keep_to_masks(name: str) -> None:
    """P11: neither 10,000 draws of what was learned nor any step of the training is illegal."""
    training = Training(name, "learnloop/MaskedReward-v0", seed=0)
    training.advance(10_000, total=10_000)
    assert training.num_illegal == 0
    policy = training.algorithm.policy()
    check_masked(policy.choose)
    check_masked(policy.sampled.choose, best_share=0.9)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ppo", "a2c"])
def test_whoever_does_not_see_the_mask_is_found(name: str) -> None:
    """The checker can fail: the same algorithm, judged and trained without its masks."""
    training = Training(name, "learnloop/MaskedReward-v0", seed=0)
    training.masks = None
    while training.algorithm.num_steps < 4_000:
        step = training.stream.step(training.algorithm.choose(training.observations, None))
        training.algorithm.record(step._replace(masks=None, final_masks=None))
        training.observations = step.observations
        training.algorithm.learn()
    policy = training.algorithm.policy()
    with pytest.raises(ProbeError, match="were illegal"):
        check_masked(lambda observations, masks: policy.choose(observations))


EXPLORING: dict[str, dict[str, Any]] = {"ppo": {"ent_coef": 0.4, "normalize_advantage": False}, "dqn": {}}
"""An entropy bonus of .4 holds the best of two arms that pay 1 and -1 at 1 / (1 + exp(-2 / .4)) = .993."""
STEPS = 8_000
"""Of which half are before the flip; each env flips after its share."""


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("name", ["ppo", "dqn"])
def test_what_has_changed_is_learned_anew(name: str, seed: int) -> None:
    """P12: with a learning rate that does not fall, exploration that goes on, and a replay that forgets."""
    check_recovery(*lived(name, seed, **EXPLORING[name]))


DEAD = {"type": "linear", "final": 0.0, "fraction": 0.5}
"""A learning rate that is 0 from the flip on."""


@pytest.mark.slow
def test_whoever_stops_learning_is_found() -> None:
    """The checker can fail: a dead learning rate, a policy that no longer explores."""
    with pytest.raises(ProbeError, match="after it the best arm has"):
        check_recovery(*lived("ppo", 2))
    with pytest.raises(ProbeError, match="after it the best arm has"):
        check_recovery(*lived("ppo", 0, learning_rate={**DEAD, "initial": 0.01}, **EXPLORING["ppo"]))
    with pytest.raises(ProbeError, match="after it the best arm has"):
        check_recovery(*lived("dqn", 0, learning_rate={**DEAD, "initial": 0.003}))


def lived(name: str, seed: int, **options: Any) -> tuple[Any, Any]:
    """Returns the probability of each arm before the flip and at the end."""
    lanes = 8 if name == "ppo" else 2
    training = Training(name, "learnloop/ChangingReward-v0", seed, **options)
    training.stream = make_stream("learnloop/ChangingReward-v0", lanes, env_kwargs={"flip_steps": STEPS // 2 // lanes})
    training.observations, training.masks = training.stream.reset(seed)
    shown = np.zeros(1, dtype=np.float32)
    training.advance(STEPS // 2, STEPS)
    before = training.algorithm.policy().probabilities(shown)
    training.advance(STEPS // 2, STEPS)
    return before, training.algorithm.policy().probabilities(shown)
