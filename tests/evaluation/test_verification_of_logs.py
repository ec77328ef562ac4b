"""Proofs from logs as people have them: rewards that are missing, propensities that are wrong, users, gaps.

Two or three actions; what they truly earn is known, so that each ``learned`` is known to be right or false.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from learnloop.core.arrays import Bools
from learnloop.core.protocols import Context, Policy, Sample
from learnloop.core.records import Verdict
from learnloop.evaluation.assumptions.assumption import AssumptionState
from learnloop.evaluation.context_model import ContextModel
from learnloop.evaluation.logged import LoggedDecisions
from learnloop.evaluation.proof import Verification, VerificationOptions
from learnloop.evaluation.splitting import split_by_unit
from learnloop.evaluation.verification import verify_learning

NAMES = ["a", "b"]
START = 1_760_000_000.0


class ByGroup:
    """Takes an action for each group."""

    def __init__(self, choices: dict[int, int]) -> None:
        self.choices = choices

    def probabilities(self, context: Context, actions: Sequence[str], mask: object = None) -> np.ndarray:
        return np.eye(len(actions))[self.choices[int(context["group"])]]


class Means:
    """Learns the action with the best mean reward in each of four groups."""

    def train(self, samples: Sequence[Sample], seed: int) -> Policy:
        cells = np.array([4 * NAMES.index(each.action) + int(each.context["group"]) for each in samples])
        sums = np.bincount(cells, [each.reward for each in samples], minlength=8)
        means = (sums / np.maximum(np.bincount(cells, minlength=8), 1)).reshape(2, 4)
        return ByGroup({group: int(means[:, group].argmax()) for group in range(4)})


def decisions(size: int, seed: int, effect: float = 0.0) -> list[Sample]:
    """Returns decisions at .5 each; a reward of 1 has probability .5 + effect for b and .5 - effect for a."""
    rng = np.random.default_rng(seed)
    group, taken = rng.integers(4, size=size), rng.integers(2, size=size)
    rewards = rng.random(size) < 0.5 + effect * (2 * taken - 1)
    return [
        Sample(
            f"u{i}", {"group": int(group[i])}, NAMES, None, NAMES[taken[i]], 0.5, float(rewards[i]), made_at=START + i
        )
        for i in range(size)
    ]


def verify(log: Sequence[Sample], lost: Bools | None = None, seed: int = 0, **options: object) -> Verification:
    """Returns the verdict on a log of which the rewards of ``lost`` rows are missing."""
    gone = np.zeros(len(log), dtype=bool) if lost is None else lost
    split = split_by_unit([each for each, without in zip(log, gone, strict=True) if not without])
    missing = split_by_unit([each for each, without in zip(log, gone, strict=True) if without]).held_out
    unknown = [each._replace(reward=math.nan) for each in missing]
    held_out = LoggedDecisions(split.held_out, ContextModel(split.train), unknown)
    chosen = VerificationOptions(seed=seed, num_permutations=999, **options)  # type: ignore[arg-type]
    return verify_learning(Means(), split.train, held_out, options=chosen)


def finding(result: Verification, name: str) -> AssumptionState:
    return next(each.finding for each in result.assumptions if each.name == name)


# --- sound logs ---


def test_a_sound_log_is_learned_from_and_says_what_was_checked() -> None:
    result = verify(decisions(1_500, 0, effect=0.15))
    assert result.verdict is Verdict.LEARNED, result.reasons
    found = {each.name: each.finding for each in result.assumptions}
    assert found == {
        "propensities": AssumptionState.HOLDS,
        "independence": AssumptionState.HOLDS,
        "missing_rewards": AssumptionState.HOLDS,
        "rewards_of_decisions": AssumptionState.UNKNOWN,
        "support": AssumptionState.HOLDS,
    }
    assert all(test.p_value_missing is None for test in result.tests)
    assert result.to_statistics()["assumptions"][0]["name"] == "propensities"


# --- rewards that are missing ---


def unreported_failures(log: Sequence[Sample], share: float, seed: int) -> Bools:
    """Returns of which decisions the rewards are missing: ``share`` of the failures of b."""
    chance = np.random.default_rng(seed).random(len(log)) < share
    return chance & np.array([each.action == "b" and each.reward == 0 for each in log])


def test_failures_of_one_action_that_are_not_reported_are_never_taken_for_learning() -> None:
    """Both actions earn .5. Without three in ten of its failures b seems to earn .5 / .85 = .59."""
    verdicts, is_fooled = [], False
    for seed in range(5):
        log = decisions(2_000, seed)
        lost = unreported_failures(log, 0.3, seed)
        result = verify(log, lost, seed)
        verdicts.append(result.verdict)
        reported = [each for each, gone in zip(log, lost, strict=True) if not gone]
        is_fooled = is_fooled or verify(reported, seed=seed).verdict is Verdict.LEARNED
        assert finding(result, "missing_rewards") is AssumptionState.BROKEN
    assert set(verdicts) == {Verdict.INCONCLUSIVE}
    assert is_fooled  # what it would be if nobody knew of them


def test_a_strong_effect_is_learned_although_rewards_are_missing_by_chance() -> None:
    """Truly b earns .8 and a .2. If each of the 3 % that are missing spoke against b it would still earn far more."""
    log = decisions(2_000, 0, effect=0.3)
    lost = np.random.default_rng(1).random(2_000) < 0.03
    result = verify(log, lost)
    assert result.verdict is Verdict.LEARNED, result.reasons
    assert "better even if each of them was as bad for it as rewards can be" in result.reasons[-1]
    paired = [test for test in result.tests if test.name == "paired_sign_flip"]
    assert all(test.p_value <= test.p_value_missing <= 0.05 for test in paired if test.p_value_missing is not None)
    assert all(test.p_value_missing is not None for test in paired)
    assert finding(result, "missing_rewards") is AssumptionState.BROKEN


def test_a_weak_effect_is_inconclusive_where_missing_rewards_could_undo_it() -> None:
    """Truly b earns .08 more than chance; 20 % are missing, half of which would be its own."""
    log = decisions(2_500, 0, effect=0.08)
    assert verify(log).verdict is Verdict.LEARNED
    result = verify(log, np.random.default_rng(1).random(2_500) < 0.2)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "if they were as bad for what was learned as rewards can be, it would not be better" in result.reasons[0]
    assert "wait for them, give a default reward, or log failures too" in result.reasons[0]


def test_up_to_one_in_a_hundred_changes_nothing() -> None:
    log = decisions(2_000, 0, effect=0.3)
    lost = np.zeros(2_000, dtype=bool)
    lost[::110] = True
    result = verify(log, lost)
    assert result.verdict is Verdict.LEARNED
    assert finding(result, "missing_rewards") is AssumptionState.HOLDS
    assert all(test.p_value_missing is None for test in result.tests)


def test_the_share_that_is_missing_is_that_of_what_is_judged_on() -> None:
    """2 % of all are missing, so 2 % of what is held out, whatever part of the log was learned from."""
    log = decisions(2_500, 0, effect=0.05)
    lost = np.zeros(2_500, dtype=bool)
    lost[::50] = True
    result = verify(log, lost)
    assert finding(result, "missing_rewards") is AssumptionState.BROKEN
    detail = next(each.detail for each in result.assumptions if each.name == "missing_rewards")
    held_out = split_by_unit(log).held_out
    num_lost = len(split_by_unit([each for each, gone in zip(log, lost, strict=True) if gone]).held_out)
    assert f"{num_lost} of {len(held_out):,} decisions have no reward" in detail


def test_what_missing_rewards_may_have_been_is_as_wide_as_is_said() -> None:
    """Rewards are 0 or 1 here, but may come to -50: then 3 % can undo any gain."""
    log = decisions(2_000, 0, effect=0.3)
    lost = np.random.default_rng(1).random(2_000) < 0.03
    assert verify(log, lost, reward_range=(0.0, 1.0)).verdict is Verdict.LEARNED
    assert verify(log, lost, reward_range=(-50.0, 1.0)).verdict is Verdict.INCONCLUSIVE


def test_more_missing_rewards_make_no_other_verdict_of_no_signal_than_inconclusive() -> None:
    log = decisions(1_000, 3)
    assert verify(log).verdict is Verdict.NO_SIGNAL
    result = verify(log, np.random.default_rng(1).random(1_000) < 0.1)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "decisions have no reward" in result.reasons[0]


# --- logs that are wrong ---


class Never:
    def train(self, samples: Sequence[Sample], seed: int) -> Policy:
        raise AssertionError("trained on a log that is broken")


def copied(log: list[Sample]) -> list[Sample]:
    """Returns a log with each third decision once more under another id, a moment later."""
    copies = [each._replace(unit=f"{each.unit}-again", made_at=(each.made_at or 0) + 0.01) for each in log[::3]]
    return sorted([*log, *copies], key=lambda each: each.made_at or 0)


def by_the_hour(log: list[Sample]) -> list[Sample]:
    """Returns a log in which b is taken in 80 % of the first half and 20 % of the second, and .5 is written down."""
    rng = np.random.default_rng(0)
    half = len(log) // 2
    return [
        each._replace(action=NAMES[int(rng.random() < (0.8 if row < half else 0.2))], reward=float(row < half))
        for row, each in enumerate(log)
    ]


def by_the_group(log: list[Sample]) -> list[Sample]:
    """Returns a log in which b is taken in 80 % of groups 0 and 1, which are rewarded, and in 20 % of the others."""
    rng = np.random.default_rng(0)
    found = []
    for each in log:
        is_good = each.context["group"] < 2
        action = NAMES[int(rng.random() < (0.8 if is_good else 0.2))]
        found.append(each._replace(action=action, reward=float(is_good)))
    return found


@pytest.mark.parametrize(
    ("change", "name"),
    [(copied, "independence"), (by_the_hour, "propensities"), (by_the_group, "propensities")],
)
def test_a_log_that_is_broken_is_not_learned_from(change: Callable[[list[Sample]], list[Sample]], name: str) -> None:
    log = change(decisions(1_500, 0))
    split = split_by_unit(log)
    held_out = LoggedDecisions(split.held_out, ContextModel(split.train))
    result = verify_learning(Never(), split.train, held_out)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert result.policy is None
    assert finding(result, name) is AssumptionState.BROKEN
    assert result.reasons == [each.detail for each in result.assumptions if each.finding is AssumptionState.BROKEN]


def test_a_policy_that_does_what_was_never_tried_there_is_not_judged() -> None:
    """Nobody tried b in group 3; it is the best elsewhere. A policy that takes it there too is ``inconclusive``."""
    log = []
    for each in decisions(2_000, 0, effect=0.3):
        if each.context["group"] != 3:
            log.append(each)
        elif len(log) % 3 == 0:  # a tenth of all
            log.append(each._replace(action="a", propensity=1.0, reward=0.2))
    split = split_by_unit(log)
    held_out = LoggedDecisions(split.held_out, ContextModel(split.train))

    class Generalises(Means):
        def train(self, samples: Sequence[Sample], seed: int) -> Policy:
            found = super().train(samples, seed)
            assert isinstance(found, ByGroup)
            return ByGroup(found.choices | {3: found.choices[2]})

    careful = verify_learning(Means(), split.train, held_out)
    assert finding(careful, "support") is AssumptionState.HOLDS
    assert not any("'trained'" in reason for reason in careful.reasons)  # of random, which takes b there, too little
    bold = verify_learning(Generalises(), split.train, held_out)
    assert bold.verdict is Verdict.INCONCLUSIVE
    assert finding(bold, "support") is AssumptionState.BROKEN
    assert "was never tried in contexts like these" in "; ".join(bold.reasons)


def test_decisions_that_share_a_reward_are_judged_together() -> None:
    """Two decisions, reward 1 if they differ; a log with a in 70 %. Always b earns 0, and no stationary policy .5."""
    rng = np.random.default_rng(0)
    log = []
    for number in range(1_200):
        taken = (rng.random(2) < 0.3).astype(int)
        for turn, action in enumerate(taken.tolist()):
            log.append(
                Sample(
                    f"e{number}", {"group": turn}, NAMES, None, NAMES[action], 0.3 if action else 0.7,
                    float(taken[0] != taken[1]), made_at=START + 2 * number + turn, shared=f"e{number}",
                )
            )  # fmt: skip
    result = verify(log)
    assert result.verdict is not Verdict.LEARNED
    alone = verify([each._replace(shared=None) for each in log])
    assert alone.verdict is Verdict.LEARNED  # what it was taken for
