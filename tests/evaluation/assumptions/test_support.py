"""What a log never tried in contexts like these, in logs of which it is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from learnloop.core.protocols import Context, Question, Sample
from learnloop.evaluation.assumptions.assumption import AssumptionState
from learnloop.evaluation.assumptions.support import MAX_UNSUPPORTED, Support, check_support
from learnloop.evaluation.policies import FixedPolicy, UniformPolicy
from tests.evaluation.assumptions.logs import make_log, rows_of

NAMES = ["a", "b"]


class Where:
    """Takes b where ``test`` says so, else a."""

    def __init__(self, test: Callable[[Context], bool]) -> None:
        self.test = test

    def probabilities(self, context: Context, actions: Sequence[str], mask: object = None) -> np.ndarray:
        return np.array([0.0, 1.0]) if self.test(context) else np.array([1.0, 0.0])


def gap_by_number(size: int = 1_000, seed: int = 0, share: float = 0.5, num_others: int = 1) -> list[Sample]:
    """Returns a log in which b is never tried where x is above .92; elsewhere it has ``share``.

    Further features have nothing to do with it.
    """
    rng = np.random.default_rng(seed)
    values = rng.random((size, 1 + num_others))
    first = np.where(values[:, 0] > 0.92, 1.0, 1 - share)
    shares = np.stack([first, 1 - first], axis=1)
    names = ["x", *(f"other{i}" for i in range(num_others))]
    return make_log(shares, shares, rng, contexts=[dict(zip(names, row, strict=True)) for row in values.tolist()])


def smooth(size: int = 1_000, seed: int = 0) -> list[Sample]:
    """Returns a log of five normal features, of which the first moves the share of b from nearly 0 to nearly 1."""
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(size, 5))
    first = 1 / (1 + np.exp(-2 * values[:, 0]))
    shares = np.stack([first, 1 - first], axis=1)
    contexts: list[dict[str, object]] = [{f"f{i}": value for i, value in enumerate(row)} for row in values.tolist()]
    return make_log(shares, shares, rng, contexts=contexts)


def gap_by_category(size: int = 1_000, seed: int = 0, num_others: int = 1) -> list[Sample]:
    """Returns a log in which b is never tried in one of five countries, which 8 % of contexts are from.

    Further features are numbers that have nothing to do with it.
    """
    rng = np.random.default_rng(seed)
    country = rng.choice(5, size=size, p=[0.08, 0.23, 0.23, 0.23, 0.23])
    first = np.where(country == 0, 1.0, 0.7)
    shares = np.stack([first, 1 - first], axis=1)
    others = rng.normal(size=(size, num_others)).tolist()
    contexts: list[dict[str, object]] = [
        {"country": f"c{each}"} | {f"other{i}": value for i, value in enumerate(row)}
        for each, row in zip(country, others, strict=True)
    ]
    return make_log(shares, shares, rng, contexts=contexts)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("make", [gap_by_number, gap_by_category])
def test_an_action_that_was_never_tried_in_8_percent_of_contexts_is_found(
    make: Callable[..., list[Sample]], seed: int
) -> None:
    log = make(seed=seed)
    inside = [each.context.get("x", 0.0) > 0.92 or each.context.get("country") == "c0" for each in log]
    truth = float(np.mean(inside))
    assert 0.05 < truth < 0.11
    support = Support(log)
    always, never, half = map(support.unsupported_mass, (FixedPolicy("b"), FixedPolicy("a"), UniformPolicy()))
    assert always is not None
    assert never is not None
    assert 0.7 * truth < always < truth + 0.02  # near the border of a region what was tried is near
    assert never <= MAX_UNSUPPORTED
    assert half == pytest.approx((always + never) / 2)
    assert check_support("trained", always).finding is AssumptionState.BROKEN


@pytest.mark.parametrize(
    "log",
    [
        gap_by_number(num_others=0),
        gap_by_number(num_others=6),
        gap_by_number(2_000, share=0.1, num_others=6),
        gap_by_category(num_others=0),
        gap_by_category(num_others=8),
    ],
)
def test_features_that_have_nothing_to_do_with_it_do_not_hide_it(log: list[Sample]) -> None:
    """Among many features the nearest contexts are near in all of them, and few are in the region."""
    truth = float(np.mean([each.context.get("x", 0) > 0.92 or each.context.get("country") == "c0" for each in log]))
    mass = Support(log).unsupported_mass(FixedPolicy("b"))
    assert mass is not None
    assert 0.7 * truth < mass < truth + 0.02


def test_a_corner_that_only_two_features_together_show_is_found() -> None:
    """Nobody tried b where both are above .7, which is 9 % of contexts; either alone has it everywhere."""
    rng = np.random.default_rng(0)
    values = rng.random((1_500, 2))
    corner = (values > 0.7).all(axis=1)
    first = np.where(corner, 1.0, 0.5)
    contexts: list[dict[str, object]] = [{"x": x, "y": y} for x, y in values.tolist()]
    shares = np.stack([first, 1 - first], axis=1)
    mass = Support(make_log(shares, shares, rng, contexts=contexts)).unsupported_mass(FixedPolicy("b"))
    assert mass is not None
    assert 0.5 * corner.mean() < mass < corner.mean() + 0.005


def test_a_share_that_moves_with_a_feature_is_support() -> None:
    """Where it is small stretches without the action are long. Of 10 logs none is found unsupported."""
    for seed in range(10):
        support = Support(smooth(seed=seed))
        for name in NAMES:
            mass = support.unsupported_mass(FixedPolicy(name))
            assert mass is not None
            assert mass <= MAX_UNSUPPORTED


def test_a_stretch_is_too_long_by_the_formula() -> None:
    """One feature with the values 0 to 999, actions in turns at .5, but in a stretch of l values a alone.

    13 contexts must be near, so w = 13 / ln 500 = 2.09. A stretch without b comes 1000 / w e^(-l / w) times by chance,
    which is .01 at l = w ln(1000 / (.01 w)) = 22.5.
    """
    row = Sample("", {}, NAMES, None, "a", 0.5, 0.0)
    for number, is_found in ((22, False), (23, True)):
        stretch = range(501, 501 + number)
        edges = {stretch.start - 1, stretch.stop}
        actions = ["a" if i in stretch else "b" if i in edges else "ab"[i % 2] for i in range(1_000)]
        log = [row._replace(unit=f"u{i}", context={"x": i}, action=action) for i, action in enumerate(actions)]
        place = int(actions.count("b") < actions.count("a"))  # the rarer action comes second
        found = Support(log)._none_in_stretch(place, 13)
        assert np.flatnonzero(found).tolist() == (list(stretch) if is_found else [])


@pytest.mark.parametrize("seed", range(3))
def test_a_policy_that_avoids_it_there_is_judged(seed: int) -> None:
    number, category = Support(gap_by_number(seed=seed)), Support(gap_by_category(seed=seed))
    for support, policy in (
        (number, Where(lambda context: context["x"] <= 0.92)),
        (category, Where(lambda context: context["country"] != "c0")),
    ):
        mass = support.unsupported_mass(policy)
        assert mass is not None
        assert mass <= MAX_UNSUPPORTED
        assert check_support("trained", mass).finding is AssumptionState.HOLDS


@pytest.mark.parametrize("share", [0.5, 0.1, 0.02])
def test_what_was_tried_everywhere_is_supported(share: float) -> None:
    """However seldom: the number of contexts that must be near grows with 1 / propensity."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        shares = rows_of([1 - share, share], 1_000)
        mass = Support(make_log(shares, shares, rng)).unsupported_mass(FixedPolicy("b"))
        assert mass is not None
        assert mass <= MAX_UNSUPPORTED


@pytest.mark.parametrize("epsilon", [0.3, 0.1, 0.05])
def test_exploration_is_support_where_another_action_is_the_usual_one(epsilon: float) -> None:
    """Each action is the usual one in a third of contexts, and has epsilon / 3 in the others, as its propensities say.

    Of the rows in which it was taken few are such ones (3 % at an epsilon of .05); of contexts two thirds are.
    """
    rng = np.random.default_rng(1)
    x, other = rng.random(1_000), rng.random(1_000)
    usual = (x * 3).astype(int)
    shares = np.full((1_000, 3), epsilon / 3)
    shares[np.arange(1_000), usual] += 1 - epsilon
    contexts = [{"x": float(x[i]), "other": float(other[i])} for i in range(1_000)]
    log = make_log(shares, shares, rng, contexts=contexts)

    class Next:
        def probabilities(self, context: Context, actions: Sequence[str], mask: object = None) -> np.ndarray:
            return np.eye(3)[(int(context["x"] * 3) + 1) % 3]

    mass = Support(log).unsupported_mass(Next())
    assert mass is not None
    assert mass <= MAX_UNSUPPORTED


def test_a_user_who_repeats_an_action_tried_it_once() -> None:
    """100 users, each in a context of their own: 30 rows with the arm that was drawn for them in the first.

    The nearest rows are all of one user, and all of one arm. That says nothing of the other arm, which users with
    contexts like theirs have.
    """
    rng = np.random.default_rng(0)
    x, arm = np.repeat(rng.random(100), 30), np.repeat(rng.integers(2, size=100), 30)
    half = rows_of([0.5, 0.5], 3_000)
    contexts = [{"x": float(each)} for each in x]
    units = [f"user{row // 30}" for row in range(3_000)]
    log = make_log(half, half, rng, contexts=contexts, units=units, taken=arm)
    mass = Support(log).unsupported_mass(UniformPolicy())
    assert mass is not None
    assert mass <= MAX_UNSUPPORTED


def test_a_user_who_keeps_an_arm_is_no_slice_in_which_the_other_was_missed() -> None:
    """20 users who are named in their contexts, 30 rows each: of each of them there is one try."""
    arm = np.repeat(np.random.default_rng(0).integers(2, size=20), 30)
    half, names = rows_of([0.5, 0.5], 600), [f"user{row // 30}" for row in range(600)]
    contexts: list[dict[str, object]] = [{"user": name} for name in names]
    log = make_log(half, half, np.random.default_rng(0), contexts=contexts, units=names, taken=arm)
    assert Support(log).unsupported_mass(UniformPolicy()) == 0
    apart = [row._replace(unit=f"u{i}") for i, row in enumerate(log)]
    assert Support(apart).unsupported_mass(UniformPolicy()) == pytest.approx(0.5)  # 30 tries of each


def test_what_nobody_ever_took_or_offered_is_not_supported() -> None:
    row = Sample("", {}, ["a", "b", "never"], None, "a", 0.5, 0.0)
    log = [row._replace(unit=f"u{i}", action="ab"[i % 2]) for i in range(100)]
    support = Support(log)
    assert support.unsupported_mass(FixedPolicy("never")) == 1
    assert support.unsupported_mass(FixedPolicy("b")) == 0
    assert support.unsupported_mass(UniformPolicy()) == pytest.approx(1 / 3)


def test_an_action_that_is_masked_in_a_region_is_not_missed_there() -> None:
    """Where b is not allowed no policy takes it; 8 % of contexts, in which a has propensity 1."""
    log = [
        row._replace(mask=[True, False], propensity=1.0, action="a") if row.context["x"] > 0.92 else row
        for row in gap_by_number()
    ]

    class Allowed:
        def probabilities(self, context: Context, actions: Sequence[str], mask: object = None) -> np.ndarray:
            return np.array([0.0, 1.0]) if mask is None else np.array([1.0, 0.0])

    mass = Support(log).unsupported_mass(Allowed())
    assert mass is not None
    assert mass <= MAX_UNSUPPORTED


def test_contexts_in_which_an_action_is_masked_make_no_stretch_longer() -> None:
    """Of 100 contexts in a row b is allowed in ten, and was not taken in those: ten are no long stretch."""
    row = Sample("", {}, NAMES, None, "a", 0.5, 0.0)
    log = []
    for i in range(1_000):
        is_inside = 500 <= i < 600
        mask = [True, False] if is_inside and i % 10 else None
        action = "a" if is_inside else "ba"[i % 2]
        log.append(row._replace(unit=f"u{i}", context={"x": i}, action=action, mask=mask))
    support = Support(log)
    assert not support._none_in_stretch(1, 13).any()
    assert Support([each._replace(mask=None) for each in log])._none_in_stretch(1, 13).sum() > 90
    assert not support._none_in_stretch(0, 13).any()


def test_regions_of_vectors_are_seen() -> None:
    """The gap is where the vector's main component is high."""
    rng = np.random.default_rng(0)
    vectors = (rng.normal(size=(1_000, 6)) * [5, 1, 1, 1, 1, 1]).astype(np.float32)
    first = np.where(vectors[:, 0] > 7, 1.0, 0.5)
    shares = np.stack([first, 1 - first], axis=1)
    contexts = [Question({}, None, vector) for vector in vectors]
    log = make_log(shares, shares, rng, contexts=contexts)
    mass = Support(log).unsupported_mass(FixedPolicy("b"))
    assert mass is not None
    assert 0.05 < mass < float(np.mean(vectors[:, 0] > 7)) + 0.02


def test_contexts_that_are_asked_about_are_spread_over_the_log() -> None:
    """Of more than 2,000 contexts some are looked at: here the gap is in the newest third."""
    rng = np.random.default_rng(0)
    newest = np.arange(4_500) >= 3_000
    first = np.where(newest, 1.0, 0.5)
    shares = np.stack([first, 1 - first], axis=1)
    log = make_log(shares, shares, rng, contexts=[{"page": "new" if each else "old"} for each in newest])
    assert Support(log).unsupported_mass(FixedPolicy("b")) == pytest.approx(1 / 3, abs=0.001)


def test_without_propensities_nothing_is_known() -> None:
    log = [row._replace(propensity=None) for row in gap_by_number(100)]
    for samples in (log, []):
        mass = Support(samples).unsupported_mass(UniformPolicy())
        assert mass is None
        assert check_support("trained", mass).finding is AssumptionState.UNKNOWN


def test_one_in_a_hundred_may_be_unsupported() -> None:
    assert check_support("p", 0.01).finding is AssumptionState.HOLDS
    found = check_support("p", 0.0101)
    assert found.finding is AssumptionState.BROKEN
    assert "1.0% of what 'p' would do was never tried" in found.detail
    assert "epsilon=0.1" in found.detail
