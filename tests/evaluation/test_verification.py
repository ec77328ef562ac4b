"""Known positives and negatives for the proof of learning.

The toy world has a binary feature x and three actions. ``EFFECTS[x][action]`` is what an action truly earns, so the
best action depends on x, and actions also differ on average: a policy that learned nothing but prefers a good action
looks better than random.
"""

import json
import math
from collections.abc import Sequence

import msgspec
import numpy as np
import pytest

from learnloop.core.errors import RewardError, UsageError
from learnloop.core.protocols import Context, Policy, Sample
from learnloop.core.records import Verdict
from learnloop.evaluation.controls import RewardShuffle
from learnloop.evaluation.held_out import OutcomeTable
from learnloop.evaluation.logged import LoggedDecisions
from learnloop.evaluation.permutation import sign_flip_p_value
from learnloop.evaluation.policies import FixedPolicy, UniformPolicy
from learnloop.evaluation.verification import VerificationOptions, verify_learning
from tests.repeats import repeats

ACTIONS = ["a", "b", "c"]
EFFECTS = np.array([[1.0, 0.2, -0.6], [0.3, 0.9, -0.6]])


class Table:
    """Takes an action by the feature x; ``choice`` has one action index for each x."""

    def __init__(self, choice: Sequence[int]) -> None:
        self.choice = choice
        self.rows = np.eye(3)

    def probabilities(self, context: Context, actions: Sequence[str], mask: object = None) -> np.ndarray:
        return self.rows[self.choice[int(context["x"])]]


def mean_rewards(samples: Sequence[Sample]) -> np.ndarray:
    cells = np.array([3 * int(sample.context["x"]) + ACTIONS.index(sample.action) for sample in samples])
    sums = np.bincount(cells, [sample.reward for sample in samples], minlength=6)
    return (sums / np.maximum(np.bincount(cells, minlength=6), 1)).reshape(2, 3)


class Greedy:
    """Learns the action with the best mean reward for each x."""

    sign = 1.0

    def train(self, samples: Sequence[Sample], seed: int) -> Policy:
        return Table((self.sign * mean_rewards(samples)).argmax(axis=1))


class WrongWay(Greedy):
    """Has the sign of the reward wrong."""

    sign = -1.0


class Always:
    """Gives the same policy whatever the samples."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy

    def train(self, samples: Sequence[Sample], seed: int) -> Policy:
        return self.policy


class Drifting:
    """Its weights move far from where they started, by noise alone."""

    def train(self, samples: Sequence[Sample], seed: int) -> Policy:
        noise = np.random.default_rng(len(samples) + int(1e6 * abs(samples[0].reward))).normal(size=(2, 3))
        return Table(noise.argmax(axis=1))


def make_samples(num_units: int, seed: int, *, kind: str = "real", per_unit: int = 1) -> list[Sample]:
    rng = np.random.default_rng(seed)
    rows = []
    for index in range(num_units * per_unit):
        x, action = int(rng.integers(2)), int(rng.integers(3))
        signal = {"real": EFFECTS[x, action], "noise": 0.0, "context": 3.0 * x}.get(kind, 0.0)
        reward = 1.0 if kind == "constant" else float(signal + rng.normal(0, 0.5))
        rows.append(Sample(f"t{index // per_unit}", {"x": x}, ACTIONS, None, ACTIONS[action], 1 / 3, reward))
    return rows


def make_table(num_units: int, seed: int) -> OutcomeTable:
    rng = np.random.default_rng(seed)
    x = rng.integers(2, size=num_units)
    rewards = EFFECTS[x] + rng.normal(0, 0.5, size=(num_units, 3))
    return OutcomeTable([f"h{i}" for i in range(num_units)], [{"x": int(v)} for v in x], ACTIONS, rewards)


def make_log(num_units: int, seed: int, kind: str = "real") -> LoggedDecisions:
    rows = [row._replace(unit=f"h{row.unit}") for row in make_samples(num_units, seed, kind=kind)]
    return LoggedDecisions(rows, 0.3)


# --- known positives ---


def test_a_clear_signal_is_learned_and_reported() -> None:
    result = verify_learning(Greedy(), make_samples(300, 0), make_table(100, 1))
    assert result.verdict is Verdict.LEARNED
    assert isinstance(result.policy, Table)
    assert list(result.policy.choice) == [0, 1]
    assert [(test.name, test.against) for test in result.tests] == [
        ("control_rank", "shuffled_controls"),
        ("replica_two_sample", "shuffled_controls"),
        ("paired_sign_flip", "random"),
    ]
    assert all(test.p_value <= 0.05 < test.p_value_worse for test in result.tests)
    # Truth: .95 for the best action of each x, 0.2 for random.
    assert result.arms["trained"].mean == pytest.approx(0.95, abs=0.2)
    assert result.arms["random"].mean == pytest.approx(0.2, abs=0.2)
    assert result.arms["random"].mean < result.arms["trained"].mean
    assert (result.num_samples, result.num_training_units, result.num_units) == (300, 300, 100)
    assert len(result.control_means) == 40
    assert np.mean(result.control_means) == pytest.approx(result.arms["shuffled_controls"].mean)
    assert len(result.reasons) == 3
    assert len(result.replica_means) == 9
    assert "p = 0.0244" in " ".join(result.reasons)  # 1 / 41: ahead of all 40 controls


def test_learned_from_a_log() -> None:
    result = verify_learning(Greedy(), make_samples(300, 0), make_log(900, 1))
    assert result.verdict is Verdict.LEARNED
    overlap = result.overlap["trained"]
    assert overlap.effective_sample_size == pytest.approx(300, rel=0.15)  # one logged action in three is its own
    assert set(result.overlap) == {"trained", "random"}


def test_units_of_many_samples_are_learned_from() -> None:
    result = verify_learning(Greedy(), make_samples(60, 0, per_unit=5), make_table(100, 1))
    assert result.verdict is Verdict.LEARNED
    assert (result.num_samples, result.num_training_units) == (300, 60)


def test_same_seed_same_result_and_another_seed_another() -> None:
    samples, held_out = make_samples(60, 3), make_table(40, 4)
    runs = [
        verify_learning(Greedy(), samples, held_out, options=VerificationOptions(seed=seed)).to_statistics()
        for seed in (7, 7, 8)
    ]
    assert runs[0] == runs[1]
    assert runs[0]["control_means"] != runs[2]["control_means"]


@pytest.mark.slow
def test_power_on_a_clear_signal() -> None:
    verdicts = [verify_learning(Greedy(), make_samples(200, i), make_table(60, 10_000 + i)).verdict for i in range(60)]
    assert verdicts.count(Verdict.LEARNED) >= 57  # 95 %


def test_a_twin_that_hits_the_best_action_does_not_hide_learning() -> None:
    """One twin in nine makes the optimal policy by chance, so held-out reward alone could hardly tell it apart."""
    result = verify_learning(Greedy(), make_samples(300, 0), make_table(100, 1))
    assert max(result.control_means) >= result.arms["trained"].mean
    assert result.verdict is Verdict.LEARNED


def test_without_propensities_only_held_out_reward_counts() -> None:
    samples = [sample._replace(propensity=None) for sample in make_samples(300, 0)]
    result = verify_learning(Greedy(), samples, make_table(100, 1))
    assert result.verdict is Verdict.NO_SIGNAL
    assert "not all training samples have a propensity" in result.reasons[-1]


# --- known negatives ---


def test_equal_rewards_are_no_signal_without_any_training() -> None:
    class Never:
        def train(self, samples: Sequence[Sample], seed: int) -> Policy:
            raise AssertionError("trained on rewards that are all equal")

    result = verify_learning(Never(), make_samples(100, 0, kind="constant"), make_table(50, 1))
    assert (result.verdict, result.policy, result.tests) == (Verdict.NO_SIGNAL, None, [])
    assert result.reasons == ["all 100 training rewards are equal (1): nothing to learn"]


def test_a_lucky_fixed_action_beats_random_but_not_its_twins() -> None:
    """Better than random by the paired test alone is no proof: the twins catch it."""
    result = verify_learning(Always(FixedPolicy("a")), make_samples(300, 0), make_table(400, 1))
    by_name = {test.against: test for test in result.tests}
    assert by_name["random"].p_value <= 0.001
    assert by_name["shuffled_controls"].p_value == 1.0  # each twin is exactly as good
    assert result.verdict is Verdict.NO_SIGNAL
    assert result.reasons == [
        "not better than shuffled_controls: 0 (control_rank, p = 1) > 0.05",
        "not better than shuffled_controls: 0 (replica_two_sample, p = 1) > 0.05",
    ]


def test_weights_that_move_are_no_evidence() -> None:
    """F2.8, F2.6: the weights end far from where they started, and nothing was learned."""
    verdicts = [verify_learning(Drifting(), make_samples(200, i), make_table(50, 900 + i)).verdict for i in range(40)]
    assert verdicts.count(Verdict.LEARNED) <= 6  # level .05: more than 6 of 40 happens in 3 of 1,000


def test_paired_test_alone_would_call_noise_learned_half_of_the_time() -> None:
    held_out = make_table(400, 1)
    random = held_out.random()
    fooled = [
        sign_flip_p_value(held_out.rewards(Greedy().train(make_samples(100, i, kind="noise"), 0)) - random) <= 0.05
        for i in range(60)
    ]
    assert sum(fooled) >= 20


def test_a_policy_that_learned_the_opposite_has_regressed() -> None:
    result = verify_learning(WrongWay(), make_samples(300, 0), make_table(100, 1))
    assert result.verdict is Verdict.REGRESSED
    assert any(reason.startswith("worse than random by") and "paired_sign_flip" in reason for reason in result.reasons)


def test_an_unlucky_fixed_action_learned_nothing_and_is_not_called_regressed() -> None:
    result = verify_learning(Always(FixedPolicy("c")), make_samples(300, 0), make_table(400, 1))
    assert result.verdict is Verdict.NO_SIGNAL
    assert any(reason.startswith("worse than random") for reason in result.reasons)


def test_each_baseline_must_be_beaten() -> None:
    samples, held_out = make_samples(300, 0), make_table(100, 1)

    def run(baseline: Policy) -> tuple[Verdict, str]:
        result = verify_learning(
            Greedy(), samples, held_out, options=VerificationOptions(baselines={"champion": baseline})
        )
        return result.verdict, "; ".join(result.reasons)

    assert run(FixedPolicy("c"))[0] is Verdict.LEARNED
    verdict, reasons = run(Table([0, 1]))  # the same policy
    assert verdict is Verdict.NO_SIGNAL
    assert "not better than champion: 0 (paired_sign_flip, p = 1) > 0.05" in reasons


def test_worse_than_a_baseline_is_regressed() -> None:
    options = VerificationOptions(baselines={"champion": Table([0, 1])}, num_controls=40)
    result = verify_learning(SecondBest(), make_samples(600, 0), make_table(300, 1), options=options)
    assert [test.p_value <= 0.05 for test in result.tests] == [True, True, True, False]
    assert result.verdict is Verdict.REGRESSED
    assert [reason.split(" by ")[0] for reason in result.reasons] == ["worse than champion"]


# --- losses that are too rare to be seen ---


class Dearest:
    """Learns which of two actions has the better mean, whatever the context."""

    def train(self, samples: Sequence[Sample], seed: int) -> Policy:
        means = {
            name: np.mean([sample.reward for sample in samples if sample.action == name] or [-math.inf])
            for name in ("safe", "risky")
        }
        return FixedPolicy(max(means, key=means.__getitem__))


def risky_world(num_train: int, num_held_out: int, risk: float, seed: int) -> tuple[list[Sample], OutcomeTable]:
    """Safe earns 1, risky 1.01, but risky fails with probability ``risk`` and then earns 0."""
    rng = np.random.default_rng(seed)
    names = ["safe", "risky"]

    def outcomes(number: int) -> np.ndarray:
        return np.stack([np.ones(number), np.where(rng.random(number) < risk, 0.0, 1.01)], axis=1)

    table, taken = outcomes(num_train), rng.integers(2, size=num_train)
    samples = [
        Sample(f"t{row}", {}, names, None, names[column], 0.5, float(table[row, column]))
        for row, column in enumerate(taken.tolist())
    ]
    return samples, OutcomeTable(
        [f"h{row}" for row in range(num_held_out)], [{}] * num_held_out, names, outcomes(num_held_out)
    )


def test_a_gain_that_an_unseen_loss_could_undo_is_inconclusive() -> None:
    """Without a failure among 100 units, 1 in 34 may fail still, and 1 in 101 undoes the gain."""
    samples, held_out = risky_world(100, 100, 0.0, 0)
    result = verify_learning(Dearest(), samples, held_out)
    assert all(test.p_value <= 0.05 for test in result.tests)
    assert result.verdict is Verdict.INCONCLUSIVE
    # Half of the gain and of a failure over random; random earns 1.005 and a failure 0: n .005 = -ln(.05) 1.005.
    test = result.tests[-1]
    assert (test.difference, test.worst_loss) == (pytest.approx(0.005), pytest.approx(1.005))
    assert test.p_value_rare_loss == pytest.approx((1.005 / 1.01) ** 100, abs=0.02)
    assert test.units_needed == math.ceil(-math.log(0.05) * 201)
    assert result.reasons == [
        "better than random by 0.005 (paired_sign_flip, p = 0.0001), but losses of 1 that are too rare to be seen "
        f"could undo that (p = {test.p_value_rare_loss:.3g}): about 603 held-out units are needed, or a least_reward "
        "if no unit can earn as little"
    ]
    samples, held_out = risky_world(100, 620, 0.0, 0)
    assert verify_learning(Dearest(), samples, held_out).verdict is Verdict.LEARNED


def test_a_known_least_reward_says_what_can_be_lost() -> None:
    samples, held_out = risky_world(100, 100, 0.0, 0)
    known = VerificationOptions(least_reward=0.95)
    assert verify_learning(Dearest(), samples, held_out, options=known).verdict is Verdict.LEARNED
    for least in (1.001, -math.inf, math.nan):  # the lowest training reward is 1
        with pytest.raises(UsageError, match=f"least_reward is {least}.*lowest training reward, which is 1"):
            verify_learning(Dearest(), samples, held_out, options=VerificationOptions(least_reward=least))


def test_losses_that_were_seen_count_as_seen() -> None:
    """The largest loss on a held-out unit is worse than what a failure at the mean would lose."""
    samples, table = make_samples(300, 0), make_table(100, 1)
    result = verify_learning(Greedy(), samples, table)
    difference = table.rewards(Table([0, 1])) - table.random()
    lowest = min(sample.reward for sample in samples if sample.reward is not None)
    failure = float(table.random().mean()) - min(0.0, lowest)
    assert result.tests[-1].worst_loss == pytest.approx(max(failure, -difference.min()))


def test_in_a_log_an_unseen_loss_weighs_as_much_as_a_decision_of_its_own() -> None:
    samples, log = make_samples(300, 0), make_log(900, 1)
    result = verify_learning(Greedy(), samples, log)
    lowest = min(sample.reward for sample in samples if sample.reward is not None)
    failure = result.arms["random"].mean - lowest
    assert result.tests[-1].worst_loss == pytest.approx(failure * 900 / result.overlap["trained"].effective_sample_size)


@pytest.mark.slow
@pytest.mark.parametrize("num_runs", repeats([100, 300]))
@pytest.mark.parametrize(("risk", "num_train", "num_held_out"), [(0.01, 100, 100), (0.02, 60, 60), (0.02, 60, 100)])
def test_a_rare_failure_is_not_called_learned(risk: float, num_train: int, num_held_out: int, num_runs: int) -> None:
    """Truth: risky earns .0001 or .0102 less than safe. Sign flips alone call up to 22 % of these runs ``learned``."""
    fooled, learned = 0, 0
    for run in range(num_runs):
        samples, held_out = risky_world(num_train, num_held_out, risk, run)
        result = verify_learning(
            Dearest(), samples, held_out, options=VerificationOptions(seed=run, num_permutations=999)
        )
        is_risky = isinstance(result.policy, FixedPolicy) and result.policy.action == "risky"
        learned += is_risky and result.verdict is Verdict.LEARNED
        fooled += is_risky and bool(result.tests) and all(test.p_value <= 0.05 for test in result.tests)
    assert learned == 0
    assert fooled > 0.05 * num_runs


# --- what is known only in hindsight ---


class SecondBest:
    """Learns, but takes the second best action where x is 1."""

    def train(self, samples: Sequence[Sample], seed: int) -> Policy:
        order = np.argsort(-mean_rewards(samples), axis=1)
        return Table([order[0, 0], order[1, 1]])


def test_worse_than_hindsight_is_no_signal_and_not_a_step_back() -> None:
    options = VerificationOptions(hindsight={"best-fixed": Table([0, 1])})
    result = verify_learning(SecondBest(), make_samples(600, 0), make_table(300, 1), options=options)
    assert result.tests[-1].p_value_worse <= 0.05
    assert result.verdict is Verdict.NO_SIGNAL
    assert len(result.reasons) == 1
    assert result.reasons[0].startswith("not better than best-fixed, which is known only in hindsight: -")
    both = VerificationOptions(hindsight={"best-fixed": Table([0, 1])}, baselines={"champion": Table([0, 1])})
    result = verify_learning(SecondBest(), make_samples(600, 0), make_table(300, 1), options=both)
    assert result.verdict is Verdict.REGRESSED


def test_hindsight_must_be_beaten() -> None:
    samples, held_out = make_samples(300, 0), make_table(100, 1)
    for baseline, verdict in ((FixedPolicy("c"), Verdict.LEARNED), (Table([0, 1]), Verdict.NO_SIGNAL)):
        options = VerificationOptions(hindsight={"best-fixed": baseline})
        result = verify_learning(Greedy(), samples, held_out, options=options)
        assert (result.verdict, result.tests[-1].against) == (verdict, "best-fixed")
        assert "best-fixed" in result.arms


@pytest.mark.slow
@pytest.mark.parametrize("num_runs", repeats([100, 500]))
@pytest.mark.parametrize("kind", ["noise", "shuffled", "log", "drifting"])
def test_false_learned_stays_at_its_level(kind: str, num_runs: int) -> None:
    """At most 5 % of null runs end ``learned``, whatever the held-out set."""
    learned = 0
    for run in range(num_runs):
        samples = make_samples(100, run, kind="real" if kind in {"shuffled", "drifting"} else "noise")
        if kind == "shuffled":
            samples = RewardShuffle(samples).draw(np.random.default_rng(50_000 + run))
        held_out = make_log(300, 70_000 + run) if kind == "log" else make_table(60, 70_000 + run)
        options = VerificationOptions(seed=run, num_permutations=999, min_effective_sample_size=60)
        trainer = Drifting() if kind == "drifting" else Greedy()
        learned += verify_learning(trainer, samples, held_out, options=options).verdict is Verdict.LEARNED
    assert learned / num_runs <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / num_runs)


@pytest.mark.slow
@pytest.mark.parametrize("num_runs", repeats([100, 500]))
def test_false_learned_stays_at_its_level_where_no_policy_is_better_than_another(num_runs: int) -> None:
    """Training rewards carry information that is worth nothing on the held-out tasks: the paired test holds."""
    learned = 0
    for run in range(num_runs):
        rng = np.random.default_rng(run)
        contexts = [{"x": int(x)} for x in rng.integers(2, size=60)]
        held_out = OutcomeTable([f"h{i}" for i in range(60)], contexts, ACTIONS, rng.normal(size=(60, 3)))
        options = VerificationOptions(seed=run, num_permutations=999)
        learned += verify_learning(Greedy(), make_samples(100, run), held_out, options=options).verdict is (
            Verdict.LEARNED
        )
    assert learned / num_runs <= 0.05 + 3 * math.sqrt(0.05 * 0.95 / num_runs)


# --- inconclusive ---


@pytest.mark.parametrize(
    ("num_train", "num_held_out", "reason"),
    [
        (0, 50, "no samples to learn from; at least 20 units are needed"),
        (100, 19, "19 held-out units; at least 20 are needed"),
        (100, 0, "0 held-out units"),
        (19, 50, "19 of 19 training units"),
    ],
)
def test_too_little_is_inconclusive_and_says_how_much_is_needed(num_train: int, num_held_out: int, reason: str) -> None:
    held_out = make_log(num_held_out, 1) if num_held_out == 0 else make_table(num_held_out, 1)
    result = verify_learning(Greedy(), make_samples(num_train, 0), held_out)
    assert (result.verdict, result.policy) == (Verdict.INCONCLUSIVE, None)
    assert reason in result.reasons[0]
    json.dumps(result.to_statistics(), allow_nan=False)


def test_units_that_cannot_trade_rewards_are_inconclusive() -> None:
    samples = [
        row._replace(unit=f"t{size}") for size in range(1, 30) for row in make_samples(size, size)
    ]  # 29 units, each of another size
    result = verify_learning(Greedy(), samples, make_table(50, 1))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "0 of 29 training units have as many samples as another one" in result.reasons[0]


def test_a_log_that_says_too_little_is_inconclusive() -> None:
    result = verify_learning(Greedy(), make_samples(300, 0), make_log(300, 1))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert result.reasons[0].startswith("the log says too little about 'trained': its 300 held-out decisions are worth")
    assert "100 are needed" in result.reasons[0]
    assert result.policy is not None


def test_wrong_propensities_are_inconclusive() -> None:
    rows = [row._replace(unit=f"h{row.unit}", propensity=0.5) for row in make_samples(1500, 1)]
    result = verify_learning(Greedy(), make_samples(300, 0), LoggedDecisions(rows, 0.3))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "propensities are wrong" in result.reasons[0]


def test_a_reward_range_holds_for_what_is_judged_on_too() -> None:
    samples, log = make_samples(50, 0), make_log(50, 1)
    beyond = [each._replace(reward=50.0) for each in log.samples[:2]]
    held_out = LoggedDecisions([*beyond, *log.samples[2:]], 0.3)
    with pytest.raises(UsageError, match="2 of 100 rewards are not within reward_range, -9 to 9"):
        verify_learning(Greedy(), samples, held_out, options=VerificationOptions(reward_range=(-9.0, 9.0)))


def test_rewards_that_can_hardly_move_say_nothing_of_chance() -> None:
    """30 units of one sample each can trade rewards; 20 others, each of a size of its own, hold 290 of 320 samples."""
    few = make_samples(30, 0)
    many = [row._replace(unit=f"large{number}") for number in range(20) for row in make_samples(5 + number, number + 1)]
    result = verify_learning(Greedy(), [*few, *many], make_table(100, 1))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "only 9% of the samples" in result.reasons[0]


# --- refusals ---


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_controls": 38}, "num_controls is 38.*at least 39 are needed"),
        ({"alpha": 0.01}, "at least 199 are needed"),
        ({"num_replicas": 0}, "num_replicas is 0"),
        ({"alpha": 0.0}, "alpha is 0.0"),
        ({"alpha": math.nan}, "alpha is nan"),
        ({"reward_range": (1.0, 0.0)}, "reward_range is 1 to 0"),
        ({"reward_range": (0.0, math.inf)}, "reward_range is 0 to inf"),
        ({"reward_range": (0.0, 0.5)}, r"\d+ of 50 rewards are not within reward_range, 0 to 0.5"),
        ({"baselines": {"random": UniformPolicy()}}, "'random'"),
        ({"hindsight": {"trained": UniformPolicy()}}, "'trained'"),
        ({"hindsight": {"x": UniformPolicy()}, "baselines": {"x": UniformPolicy()}}, "'x'"),
    ],
)
def test_options_that_make_a_verdict_impossible_are_refused(options: dict, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        verify_learning(Greedy(), make_samples(50, 0), make_table(50, 1), options=VerificationOptions(**options))


def test_more_controls_than_the_most_of_a_second_stage_are_those_of_the_first() -> None:
    options = VerificationOptions(num_controls=199, max_controls=40, alpha=0.01)
    result = verify_learning(Greedy(), make_samples(300, 0), make_table(100, 1), options=options)
    assert (result.verdict, len(result.control_means)) == (Verdict.LEARNED, 199)


def test_thirty_nine_twins_are_enough() -> None:
    options = VerificationOptions(num_controls=39)
    result = verify_learning(Greedy(), make_samples(300, 0), make_table(100, 1), options=options)
    assert result.verdict is Verdict.LEARNED


@pytest.mark.parametrize("reward", [None, math.nan, math.inf])
def test_missing_rewards_never_enter(reward: float) -> None:
    samples = make_samples(50, 0)
    samples[3] = samples[3]._replace(reward=reward)
    with pytest.raises(RewardError, match="1 of 50 samples"):
        verify_learning(Greedy(), samples, make_table(50, 1))


def test_units_in_both_sets_are_refused() -> None:
    samples = make_samples(50, 0)
    samples[0] = samples[0]._replace(unit="h3")
    with pytest.raises(UsageError, match="1 units are both trained on and held out, 'h3'"):
        verify_learning(Greedy(), samples, make_table(50, 1))


def test_a_nan_from_a_policy_names_the_arm() -> None:
    class Broken:
        def probabilities(self, context: Context, actions: object, mask: object = None) -> np.ndarray:
            return np.array([math.nan, 0.5, 0.5])

    options = VerificationOptions(baselines={"champion": Broken()})
    with pytest.raises(
        UsageError, match=r"arm 'champion': the policy \(Broken\) gave a probability that is not finite"
    ):
        verify_learning(Greedy(), make_samples(50, 0), make_table(50, 1), options=options)
    with pytest.raises(UsageError, match="arm 'trained'"):
        verify_learning(Always(Broken()), make_samples(50, 0), make_table(50, 1))


def test_a_held_out_that_returns_nan_names_the_arm() -> None:
    class Holes:
        units = tuple(f"h{i}" for i in range(30))

        def rewards(self, policy: Policy) -> np.ndarray:
            return np.full(30, math.nan)

    with pytest.raises(UsageError, match="arm 'trained': the held-out rewards must be 30 finite numbers"):
        verify_learning(Greedy(), make_samples(50, 0), Holes())


def test_a_trainer_that_changes_what_it_handed_out_is_refused() -> None:
    class Shared(Greedy):
        def __init__(self) -> None:
            self.policy = Table([0, 0])

        def train(self, samples: Sequence[Sample], seed: int) -> Policy:
            self.policy.choice = [(self.policy.choice[0] + 1) % 3, 2]
            return self.policy

    with pytest.raises(UsageError, match="changes policies that it has handed out"):
        verify_learning(Shared(), make_samples(300, 0), make_table(50, 1))


# --- the certificate ---


def test_statistics_are_json_with_all_figures() -> None:
    result = verify_learning(Greedy(), make_samples(300, 0), make_log(900, 1))
    statistics = json.loads(json.dumps(result.to_statistics(), allow_nan=False))
    assert set(statistics) == {
        *(
            "arms",
            "tests",
            "control_means",
            "replica_means",
            "overlap",
            "assumptions",
            "num_samples",
            "num_training_units",
            "num_units",
            "seed",
            "alpha",
        )
    }
    assert set(statistics["arms"]) == {"trained", "random", "shuffled_controls", "replicas"}
    assert set(statistics["tests"][0]) == {
        *("name", "against", "difference", "interval", "p_value", "p_value_worse", "p_adjusted"),
        *("p_value_missing", "p_value_rare_loss", "worst_loss", "units_needed"),
    }
    first = statistics["tests"][0]
    assert first["interval"]["low"] < first["difference"] < first["interval"]["high"]
    assert first["difference"] == pytest.approx(
        statistics["arms"]["trained"]["mean"] - statistics["arms"][first["against"]]["mean"]
    )
    assert msgspec.json.decode(msgspec.json.encode(statistics)) == statistics
