"""Agreement against published tables and against computations that share nothing with ours."""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learnloop.core.errors import UsageError
from learnloop.rewards.judge.agreement import (
    CalibrationReport,
    Judgement,
    calibration_report,
    kappas,
    nominal,
    quadratic,
)
from learnloop.rewards.judge.pairwise import PairComparison
from learnloop.rewards.learned.score_quality import rank_correlation

# Kappa ---------------------------------------------------------------------------------------------------------------

CARCINOMA = [[22, 2, 2, 0], [5, 7, 14, 0], [0, 2, 36, 0], [0, 1, 17, 10]]
"""Two pathologists, 118 slides: Agresti, Categorical Data Analysis, 2nd edition, table 10.8; kappa is .493 there."""
COHEN_1968 = [[0.44, 0.07, 0.09], [0.05, 0.20, 0.05], [0.01, 0.03, 0.06]]
"""Cohen 1968, as the R package psych gives it (cohen.kappa): kappa .492, and .348 with the weights below."""
COHEN_1968_WEIGHTS = [[0, 1, 3], [1, 0, 6], [3, 6, 0]]


def array(rows: object) -> np.ndarray:
    return np.array(rows, dtype=float)


def confusion(first: Sequence[int], second: Sequence[int], num_levels: int) -> np.ndarray:
    """Returns how often the first gave the row and the second the column."""
    table = np.zeros((num_levels, num_levels))
    np.add.at(table, (list(first), list(second)), 1.0)
    return table


def cohen_kappa(table: np.ndarray, weights: np.ndarray | None = None) -> float | None:
    (found,) = kappas(table[None], nominal(len(table)) if weights is None else weights)
    return None if np.isnan(found) else float(found)


@pytest.mark.parametrize(
    ("table", "kappa"),
    [
        (CARCINOMA, 0.493),
        (COHEN_1968, 0.492),
        ([[20, 5], [10, 15]], 0.4),  # Wikipedia, "Cohen's kappa", the first example
        ([[45, 15], [25, 15]], 0.130),  # the same, "same percentage but different numbers"
        ([[25, 35], [5, 35]], 0.259),
        ([[5, 0], [0, 5]], 1.0),
        ([[0, 5], [5, 0]], -1.0),
        ([[25, 25], [25, 25]], 0.0),
    ],
)
def test_published_kappas(table: list[list[float]], kappa: float) -> None:
    assert cohen_kappa(array(table)) == pytest.approx(kappa, abs=5e-4)


def test_published_weighted_kappa() -> None:
    assert cohen_kappa(array(COHEN_1968), array(COHEN_1968_WEIGHTS)) == pytest.approx(0.348, abs=5e-4)


def kappa_by_fractions(table: list[list[int]], power: int) -> Fraction | None:
    """Returns kappa cell by cell with exact numbers."""
    size = len(table)
    total = sum(map(sum, table))
    observed = by_chance = Fraction(0)
    for i in range(size):
        for j in range(size):
            weight = abs(i - j) ** power if power else int(i != j)
            observed += weight * Fraction(table[i][j], total)
            row, column = sum(table[i]), sum(each[j] for each in table)
            by_chance += weight * Fraction(row, total) * Fraction(column, total)
    return 1 - observed / by_chance if by_chance else None


@given(
    st.integers(2, 5).flatmap(
        lambda k: st.lists(st.lists(st.integers(0, 9), min_size=k, max_size=k), min_size=k, max_size=k)
    )
)
@settings(max_examples=200, deadline=None)
def test_kappa_cell_by_cell(table: list[list[int]]) -> None:
    if sum(map(sum, table)) == 0:
        assert cohen_kappa(array(table)) is None
        return
    for power, weights in ((0, None), (2, quadratic(len(table)))):
        expected = kappa_by_fractions(table, power)
        found = cohen_kappa(array(table), weights)
        assert found == (None if expected is None else pytest.approx(float(expected)))


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=2, max_size=40))
@settings(max_examples=100, deadline=None)
def test_quadratic_kappa_is_a_correlation(pairs: list[tuple[int, int]]) -> None:
    """It is 2 cov / (var + var + squared difference of means): Fleiss & Cohen 1973; Lin 1989."""
    first, second = array(pairs).T
    below = first.var() + second.var() + (first.mean() - second.mean()) ** 2
    found = cohen_kappa(confusion(*zip(*pairs, strict=True), 5), quadratic(5))  # type: ignore[arg-type]
    if below == 0:
        assert found is None
    else:
        covariance = ((first - first.mean()) * (second - second.mean())).mean()
        assert found == pytest.approx(2 * covariance / below)


def test_one_class_only_is_none() -> None:
    assert cohen_kappa(array([[7, 0], [0, 0]])) is None
    assert cohen_kappa(array([[0, 0], [0, 0]])) is None
    assert cohen_kappa(array([[7, 3], [0, 0]])) == 0.0, "the one says always good, the other does not"


# Correlation ---------------------------------------------------------------------------------------------------------


def test_spearman() -> None:
    """Wikipedia's example of IQ and hours of television: -29/165; with ties against ranks made by counting."""
    iq = array([106, 100, 86, 101, 99, 103, 97, 113, 112, 110])
    hours = array([7, 27, 2, 50, 28, 29, 20, 12, 6, 17])
    assert rank_correlation(iq, hours) == pytest.approx(-29 / 165)
    rng = random.Random(1)
    first, second = ([rng.randrange(6) for _ in range(40)] for _ in range(2))
    ranks = [[sum(o < v for o in xs) + (sum(o == v for o in xs) + 1) / 2 for v in xs] for xs in (first, second)]
    assert rank_correlation(array(first), array(second)) == pytest.approx(np.corrcoef(ranks)[0, 1])
    assert rank_correlation(array([1, 1, 1]), array([1, 2, 3])) is None


def test_two_pairs_tell_nothing_of_length() -> None:
    judged = [Judgement(attempt_id=str(n), score=n / 2, num_characters=n) for n in range(2)]
    report = calibration_report(judged, {"0": 0.0, "1": 1.0})
    assert report.length_correlation.value is None
    assert "fewer than 3" in str(report.length_correlation.reason)


# The report ----------------------------------------------------------------------------------------------------------


def judged(scores: list[float | None], per_task: int = 1, lengths: list[int] | None = None) -> list[Judgement]:
    return [
        Judgement(
            attempt_id=str(place),
            task_id=f"task {place // per_task}",
            score=score,
            num_characters=None if lengths is None else lengths[place],
        )
        for place, score in enumerate(scores)
    ]


def labelled(values: list[float]) -> dict[str, float]:
    return {str(place): value for place, value in enumerate(values)}


def noisy(num: int, share_wrong: float, seed: int = 3) -> tuple[list[float | None], list[float]]:
    rng = random.Random(seed)
    labels = [float(rng.random() < 0.5) for _ in range(num)]
    return [1 - label if rng.random() < share_wrong else label for label in labels], labels


def test_a_judge_that_agrees() -> None:
    scores, labels = noisy(200, 0.05)
    report = calibration_report(judged(scores), labelled(labels))
    table = confusion([int(score or 0) for score in scores], [int(label) for label in labels], 2)
    assert report.kappa.value == pytest.approx(cohen_kappa(table))
    assert report.agreement.value == pytest.approx(np.trace(table) / 200)
    assert report.weighted_kappa.value == pytest.approx(report.kappa.value), "with 0 and 1 alone they are the same"
    assert (report.verdict, report.warnings) == ("agrees", [])
    assert (report.num_pairs, report.num_tasks) == (200, 200)


def test_a_judge_by_chance_and_one_that_is_not_known() -> None:
    scores, labels = noisy(200, 0.5)
    assert calibration_report(judged(scores), labelled(labels)).verdict == "disagrees"
    scores, labels = noisy(40, 0.2)
    assert calibration_report(judged(scores), labelled(labels)).verdict == "inconclusive"
    scores, labels = noisy(19, 0.0)
    few = calibration_report(judged(scores), labelled(labels))
    assert (few.verdict, few.kappa.value) == ("inconclusive", 1.0)
    assert "19 tasks" in few.warnings[0]


def test_the_interval_is_by_task() -> None:
    """Attempts at one task that say the same thing ten times are one piece of evidence, not ten.

    By hand: the error of a share p of n tasks is about sqrt(p (1 - p) / n).
    """
    rng = random.Random(5)
    rights = [rng.random() < 0.8 for _ in range(60)]
    labels = [float(rng.random() < 0.5) for _ in range(60)]
    scores = [label if right else 1 - label for right, label in zip(rights, labels, strict=True)]
    tenfold = [score for score in scores for _ in range(10)], [label for label in labels for _ in range(10)]
    one = calibration_report(judged(list(scores)), labelled(labels)).agreement
    by_task = calibration_report(judged(list(tenfold[0]), 10), labelled(tenfold[1])).agreement
    apart = calibration_report(judged(list(tenfold[0])), labelled(tenfold[1])).agreement

    def width(estimate: object) -> float:
        return estimate.upper - estimate.lower  # type: ignore[attr-defined, no-any-return]

    share = sum(rights) / 60
    assert one.value == by_task.value == apart.value == pytest.approx(share)
    assert width(one) == pytest.approx(2 * 1.96 * (share * (1 - share) / 60) ** 0.5, rel=0.15)
    assert width(by_task) == pytest.approx(width(one), rel=0.1)
    assert width(apart) == pytest.approx(width(one) / 10**0.5, rel=0.2)


def test_the_interval_covers() -> None:
    """Of 200 samples of 80 tasks, the 95 % interval holds the true kappa (0.6) in about 95 %: in 92 % at least."""
    covered = 0
    for seed in range(200):
        scores, labels = noisy(80, 0.2, seed)
        kappa = calibration_report(judged(scores), labelled(labels), num_resamples=400).kappa
        covered += kappa.lower <= 0.6 <= kappa.upper  # type: ignore[operator]
    assert covered >= 184


def test_what_is_missing_is_counted() -> None:
    report = calibration_report(judged([1.0, None, 0.0, 1.0]), {"0": 1.0, "1": 0.0, "2": 0.0, "99": 1.0})
    assert (report.num_pairs, report.num_unscored, report.num_unlabelled) == (2, 1, 1)
    nothing = calibration_report([], {})
    assert nothing.verdict == "inconclusive"
    for estimate in (nothing.kappa, nothing.agreement, nothing.weighted_kappa):
        assert (estimate.value, estimate.reason) == (None, "no attempt has both a score and a label")
    assert nothing.position_bias.value is None
    assert nothing.length_correlation.value is None


def test_kappa_of_one_class_is_none() -> None:
    report = calibration_report(judged([1.0] * 30), labelled([1.0] * 30))
    assert (report.agreement.value, report.kappa.value) == (1.0, None)
    assert "one class only" in (report.kappa.reason or "")
    assert report.verdict == "inconclusive"
    rare = calibration_report(judged([0.0] + [1.0] * 29), labelled([0.0] + [1.0] * 29))
    assert (rare.kappa.value, rare.kappa.lower) == (1.0, None)
    assert "not defined" in (rare.kappa.reason or "")
    assert rare.verdict == "inconclusive"


def test_length_bias() -> None:
    """A judge that gives what is long, held against labels that do not."""
    rng = random.Random(7)
    lengths = [rng.randrange(1000) for _ in range(100)]
    labels = [rng.random() for _ in range(100)]
    report = calibration_report(judged([length / 1000 for length in lengths], lengths=lengths), labelled(labels))
    assert report.length_correlation.value == pytest.approx(1.0)
    assert abs(report.label_length_correlation.value or 1.0) < 0.25
    assert any("grow with length" in warning for warning in report.warnings)
    fair = calibration_report(judged(list(labels), lengths=lengths), labelled(labels))
    assert not any("length" in warning for warning in fair.warnings)


def test_position_bias() -> None:
    votes = [
        PairComparison(win_probability=0.5, num_votes=3, num_valid=3, num_front=2, num_back=1),
        PairComparison(win_probability=1.0, num_votes=3, num_valid=3, num_wins=3),
        PairComparison(win_probability=None, num_votes=3, num_valid=0),
        PairComparison(win_probability=0.5),
    ]
    report = calibration_report([], {}, votes)
    assert report.position_bias.value == pytest.approx(3 / 6)
    assert any("50% of pairwise votes went to a place" in warning for warning in report.warnings)


def test_the_same_seed_has_the_same_report() -> None:
    scores, labels = noisy(50, 0.2)
    reports = [calibration_report(judged(scores), labelled(labels), seed=seed) for seed in (1, 1, 2)]
    assert reports[0] == reports[1]
    assert isinstance(reports[0], CalibrationReport)
    assert reports[0].kappa.lower != reports[2].kappa.lower


def test_levels() -> None:
    """Of five levels 0.2 begins the second and 1.0 is in the last; by hand, agreement of all but one by one level."""
    report = calibration_report(judged([0.0, 0.2, 0.4, 0.6, 1.0]), labelled([0.1, 0.3, 0.5, 0.99, 0.8]))
    table = confusion([0, 1, 2, 3, 4], [0, 1, 2, 4, 4], 5)
    assert report.weighted_kappa.value == pytest.approx(cohen_kappa(table, quadratic(5)))


@pytest.mark.parametrize(
    ("judgements", "labels"),
    [
        (judged([1.5]), {"0": 1.0}),
        (judged([float("nan")]), {"0": 1.0}),
        (judged([1.0]), {"0": -0.1}),
        (judged([1.0]) * 2, {"0": 1.0}),
    ],
)
def test_bad_input(judgements: list[Judgement], labels: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        calibration_report(judgements, labels)


@pytest.mark.parametrize("given", [{"threshold": 0.0}, {"num_levels": 1}, {"num_resamples": 0}])
def test_parameters_without_a_meaning(given: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        calibration_report([], {}, **given)  # type: ignore[arg-type]
