"""What a policy would have earned on decisions that another one made: inverse propensities, and how far to trust them.

Everything rests on w_i = pi(a_i | x_i) / p_i, where p_i is the logged probability of the logged action. The mean of
w_i r_i is what pi would have earned if the propensities are right and the log tried all that pi chooses. Neither is
taken on trust: the overlap says how much the log knows of pi, and whether the mean of w_i is 1, as it must be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np

from learnloop.core.arrays import F64, Indices
from learnloop.core.checks import check_choice, check_range
from learnloop.core.errors import RewardError, UsageError
from learnloop.core.protocols import Context, Policy, Sample
from learnloop.core.seeding import generator
from learnloop.evaluation.assumptions.support import Support
from learnloop.evaluation.intervals import Interval, bernstein_bounds, percentile_interval
from learnloop.evaluation.logged import check_offered, checked_propensities, products_of, shared_rows, unit_rows
from learnloop.evaluation.overlap import MAX_WEIGHT_Z, Overlap, overlap_of
from learnloop.evaluation.policies import DecisionPoint, distributions
from learnloop.evaluation.tables import ends_of, html_table
from learnloop.evaluation.tails import HEAVY, robust_interval, tail_shape

Estimator = Literal["ips", "snips", "dr"]
RewardModel = Callable[[Context, Sequence[str]], F64]
"""Predicts the reward of each action, shape ``(len(actions),)``; made of other decisions than it is used on."""

ESTIMATORS: tuple[Estimator, ...] = ("ips", "snips", "dr")
MAX_MISSING = 0.01
"""A larger share of decisions without a reward is refused: who is missing is rarely a matter of chance."""
MIN_EFFECTIVE_SIZE = 200.0
"""Below it no bootstrap interval is given: it would be far narrower than its level says."""
MAX_UNSUPPORTED = 0.01
BOOTSTRAP = 1_000
MAX_GROUPS = 2_000
"""More units than these are put together at random into so many groups, which are resampled in their place."""


class LogOverlap(Overlap, frozen=True, kw_only=True):
    """How much a log says about a policy, with what it says nothing about."""

    num_units: int
    unsupported_mass: float | None
    """The share of its decisions in which the policy takes an action that the log never took in contexts like theirs;
    None: not known."""


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """What a policy would have earned a decision."""

    estimator: Estimator
    value: float | None
    """None: there is no decision to tell it from."""
    interval: Interval | None
    """Bootstrap over units: approximate; the wider ``robust_interval`` where the tail is heavy. None where the
    effective sample size is below ``MIN_EFFECTIVE_SIZE``."""
    bounds: Interval | None
    """Holds at its level whatever the sample size, if rewards lie in ``reward_range``; of the mean over units. None
    where no range was given."""
    overlap: LogOverlap
    tail_shape: float | None = None
    """Of what units add to it; see ``tail_shape``. None: they are too few."""
    num_missing: int
    """Decisions left out because their reward is not known."""
    warnings: list[str]
    """Why not to trust it."""

    def row(self) -> dict[str, Any]:
        """Returns it as a row of a table."""
        size = self.overlap.effective_sample_size
        figures = {"value": self.value, **ends_of(self.interval), "effective_sample_size": size}
        return {"estimator": self.estimator, **figures, "num_missing": self.num_missing, "warnings": self.warnings}

    def _repr_html_(self) -> str:
        """Returns it as a table, which notebooks show."""
        return html_table([self.row()])


class LoggedArrays(NamedTuple):
    """Logged decisions as numbers, one a row."""

    rewards: F64
    """NaN where not known."""
    weights: F64
    """pi(a_i | x_i) / p_i."""
    units: Indices | None = None
    """Numbers of the units, from 0; None: each decision is one."""
    expected: F64 | None = None
    """sum_a pi(a | x_i) q(x_i, a) for a reward model q; for ``dr``."""
    predicted: F64 | None = None
    """q(x_i, a_i); for ``dr``."""
    unsupported_mass: float | None = None
    importance: F64 | None = None
    """How many decisions each stands for; None: one."""
    shared: Indices | None = None
    """Numbers of the rewards; decisions that share one have the same. None: each has its own."""


class EstimateOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to estimate."""

    estimator: Estimator = "dr"
    level: float = 0.95
    """Of the interval and of the bounds."""
    reward_range: tuple[float, float] | None = None
    """The lowest and the highest reward that can be; needed for bounds. A reward outside is refused."""
    max_missing: float = MAX_MISSING
    seed: int = 0
    """Of the bootstrap."""

    def __post_init__(self) -> None:
        """Refuses values without a meaning."""
        check_choice("estimator", self.estimator, ESTIMATORS)
        check_range("level", self.level, above=0, below=1)
        check_range("max_missing", self.max_missing, 0, 1)
        low, high = self.reward_range or (0.0, 1.0)
        if not -np.inf < low < high < np.inf:
            raise UsageError(
                f"reward_range is {self.reward_range}; give the lowest and the highest reward there can be"
            )


def estimate_value(
    policy: Policy,
    samples: Sequence[Sample],
    *,
    reward_model: RewardModel | float = 0.0,
    options: EstimateOptions | None = None,
) -> Estimate:
    """Returns what ``policy`` would have earned a decision on the logged ``samples``.

    Decisions that share a reward have the product of their weights: what the policy would earn that made all of them.

    Args:
        policy: asked for the probability of the logged action, never for an action of its own.
        samples: decisions with their propensities, none of which the policy was made of.
        reward_model: for ``dr``: predicts rewards, or a constant such as the mean reward of other decisions.
        options: the estimator, the level and the range of rewards.

    Raises:
        UsageError: a propensity is missing or outside (0, 1], an action was not offered, or the policy gives no
            distribution.
        RewardError: too many rewards are missing, or one is outside of the range; the message has the count.
    """
    options = options or EstimateOptions()
    propensities = checked_propensities([sample.propensity for sample in samples])
    check_offered(samples)
    rows = distributions(policy, [DecisionPoint(each.unit, each.context, each.actions, each.mask) for each in samples])
    return estimate_rows(rows, samples, propensities, reward_model=reward_model, options=options)


def estimate_rows(
    rows: Sequence[F64],
    samples: Sequence[Sample],
    propensities: F64,
    *,
    reward_model: RewardModel | float | F64 = 0.0,
    options: EstimateOptions,
    support: Support | None = None,
) -> Estimate:
    """Returns the estimate for a policy of which the distribution at each sample is known already.

    Args:
        rows: the probability of each action, one row a sample.
        samples: the decisions.
        propensities: those of ``samples``, checked.
        reward_model: as for ``estimate_value``; an array holds a constant a sample.
        options: as for ``estimate_value``.
        support: of ``samples``, made once for all policies; None: it is made.
    """
    support = Support(samples) if support is None else support
    importance = np.array([each.importance for each in samples], dtype=np.float64)
    positions = [each.actions.index(each.action) for each in samples]
    chosen = np.array([row[at] for row, at in zip(rows, positions, strict=True)], dtype=np.float64)
    shared = shared_rows(samples)
    if callable(reward_model):
        if np.unique(shared).size < shared.size:
            raise UsageError(
                "decisions that share a reward are estimated together, and a reward model that knows actions is one of "
                "single decisions; give a constant, or choose ips or snips"
            )
        q_rows = [np.asarray(reward_model(each.context, each.actions), dtype=np.float64) for each in samples]
        predicted = np.array([q[at] for q, at in zip(q_rows, positions, strict=True)], dtype=np.float64)
        expected = np.array([float(row @ q) for row, q in zip(rows, q_rows, strict=True)], dtype=np.float64)
    else:
        predicted = expected = np.full(len(samples), reward_model, dtype=np.float64)
    logged = LoggedArrays(
        rewards=np.array([each.reward for each in samples], dtype=np.float64),  # None becomes NaN
        weights=products_of(chosen / propensities, shared),
        units=unit_rows(samples)[1],
        expected=expected,
        predicted=predicted,
        unsupported_mass=support.mass_of(rows),
        importance=importance if bool(np.any(importance != 1.0)) else None,
        shared=shared,
    )
    found = estimate_arrays(logged, options)
    if len(samples) and bool(np.all(propensities == 1.0)):
        note = "every propensity is 1: the log tried nothing else, and is no evidence of what another policy would earn"
        found = msgspec.structs.replace(found, warnings=[*found.warnings, note])
    return found


def estimate_arrays(logged: LoggedArrays, options: EstimateOptions) -> Estimate:
    """Returns the estimate from numbers alone.

    ips: mean w_i r_i. snips: sum w_i r_i / sum w_i. dr: mean (sum_a pi(a | x_i) q(x_i, a) + w_i (r_i - q(x_i, a_i))).

    Source: Horvitz & Thompson 1952 (ips); Swaminathan & Joachims 2015, The self-normalized estimator for
    counterfactual learning, equation 8 (snips); Dudik, Langford & Li 2011, Doubly robust policy evaluation and
    learning, equation 2 (dr); Efron & Tibshirani 1993, section 8.3 (bootstrap over whole units).

    Raises:
        RewardError: too many rewards are missing, or one is outside of the range; the message has the count.
        UsageError: arrays of different lengths, or a weight below 0 or not finite.
    """
    logged, num_missing = _keep_rewarded(logged, options)
    numerator, denominator = (_scaled(each, logged.importance) for each in _parts(logged, options.estimator))
    overlap = _overlap(logged)
    with np.errstate(invalid="ignore"):  # 0 / 0: there is no decision, or the log knows none of the policy's
        value = float(numerator.sum() / denominator.sum())
    is_known = bool(np.isfinite(value))
    by_unit = _unit_sums(numerator, logged.units), _unit_sums(denominator, logged.units)
    added = value + (by_unit[0] - value * by_unit[1]) / by_unit[1].mean() if is_known else np.zeros(0)
    shape = tail_shape(added)
    interval = None
    if is_known and overlap.effective_sample_size >= MIN_EFFECTIVE_SIZE:
        is_heavy = shape is not None and shape > HEAVY
        interval = robust_interval(added, options.level, options.seed) if is_heavy else _bootstrap(*by_unit, options)
    has_bounds = options.reward_range is not None and logged.rewards.size > 0 and logged.importance is None
    return Estimate(
        estimator=options.estimator,
        value=value if is_known else None,
        interval=interval,
        bounds=_bounds(logged, options) if has_bounds else None,
        overlap=overlap,
        tail_shape=shape,
        num_missing=num_missing,
        warnings=_warnings(overlap, shape, logged, options),
    )


def _keep_rewarded(logged: LoggedArrays, options: EstimateOptions) -> tuple[LoggedArrays, int]:
    """Returns the rows of which the reward is known, and how many others there are."""
    rewards = np.asarray(logged.rewards, dtype=np.float64)
    weights = np.asarray(logged.weights, dtype=np.float64)
    optional = (logged.units, logged.expected, logged.predicted, logged.importance, logged.shared)
    others = [each for each in optional if each is not None]
    if rewards.ndim != 1 or any(each.shape != rewards.shape for each in (weights, *others)):
        raise UsageError(f"rewards have shape {rewards.shape}; all arrays of a log need one number a decision")
    if not np.all((weights >= 0) & (weights < np.inf)):
        raise UsageError("a weight is below 0 or not finite; weights are probabilities divided by propensities")
    missing = np.isnan(rewards)
    num_missing = int(missing.sum())
    if num_missing > options.max_missing * rewards.size:
        raise RewardError(
            f"{num_missing} of {rewards.size} rewards are missing, more than {options.max_missing:.3g} of them: what "
            "is missing may differ from what is known. Wait for them, give a default reward, or choose other decisions"
        )
    low, high = options.reward_range or (-np.finfo(np.float64).max, np.finfo(np.float64).max)
    num_outside = int(np.sum((rewards < low) | (rewards > high)))  # NaN is neither
    if num_outside:
        raise RewardError(f"{num_outside} of {rewards.size} rewards are not between {low:g} and {high:g}")
    if not num_missing:
        return logged._replace(rewards=rewards, weights=weights), 0
    kept = ~missing
    units = None if logged.units is None else np.unique(logged.units[kept], return_inverse=True)[1]
    expected, predicted, importance = (
        None if each is None else each[kept] for each in (logged.expected, logged.predicted, logged.importance)
    )
    shared = None if logged.shared is None else logged.shared[kept]
    mass = logged.unsupported_mass
    return LoggedArrays(rewards[kept], weights[kept], units, expected, predicted, mass, importance, shared), num_missing


def _parts(logged: LoggedArrays, estimator: Estimator) -> tuple[F64, F64]:
    """Returns the numerator and the denominator that each decision adds."""
    weights, rewards = logged.weights, logged.rewards
    if estimator == "snips":
        return weights * rewards, weights
    if estimator == "ips":
        return weights * rewards, np.ones_like(rewards)
    if logged.expected is None or logged.predicted is None:
        raise UsageError("dr needs a reward model: give expected and predicted, or choose ips or snips")
    return logged.expected + weights * (rewards - logged.predicted), np.ones_like(rewards)


def _scaled(values: F64, importance: F64 | None) -> F64:
    return values if importance is None else values * importance


def _unit_sums(values: F64, units: Indices | None) -> F64:
    """Returns the sum of the values of each unit."""
    return values if units is None else np.bincount(units, values).astype(np.float64, copy=False)


def _overlap(logged: LoggedArrays) -> LogOverlap:
    importance = None if logged.importance is None else logged.importance / logged.importance.mean()
    excess = _unit_sums(_scaled(logged.weights - 1.0, importance), logged.units)  # of each unit; 0 on average
    weights = _scaled(logged.weights, importance)
    if logged.shared is not None:  # one weight a reward: what is shared by ten decisions is known once
        weights = weights[np.unique(logged.shared, return_index=True)[1]]
    overlap = overlap_of(weights, excess)
    return LogOverlap(
        **msgspec.structs.asdict(overlap), num_units=excess.size, unsupported_mass=logged.unsupported_mass
    )


def _bootstrap(numerator: F64, denominator: F64, options: EstimateOptions) -> Interval:
    """Returns the percentile interval over resampled units, or groups of units where there are very many."""
    num_units = numerator.size
    rng = generator(options.seed, "off-policy-bootstrap", num_units)
    if num_units > MAX_GROUPS:
        groups = rng.permutation(num_units) % MAX_GROUPS
        numerator, denominator = _unit_sums(numerator, groups), _unit_sums(denominator, groups)
    size = numerator.size
    drawn = rng.multinomial(size, np.full(size, 1 / size), size=BOOTSTRAP).astype(np.float64)  # how often each
    values = (drawn @ numerator) / (drawn @ denominator)
    return percentile_interval(values, options.level, num_units, "bootstrap (approximate)")


def _bounds(logged: LoggedArrays, options: EstimateOptions) -> Interval:
    low, high = options.reward_range or (0.0, 1.0)
    counts = _unit_sums(np.ones(logged.rewards.size), logged.units)
    gaps = (logged.rewards - low, high - logged.rewards)
    gains, losses = (_unit_sums(logged.weights * gap, logged.units) / counts for gap in gaps)
    return bernstein_bounds(gains, losses, (low, high), options.level, options.seed)


def _warnings(overlap: LogOverlap, shape: float | None, logged: LoggedArrays, options: EstimateOptions) -> list[str]:
    if overlap.num_samples == 0:
        return ["there is no decision with a known reward"]
    found = []
    if overlap.effective_sample_size < MIN_EFFECTIVE_SIZE:
        found.append(
            f"the log is worth {overlap.effective_sample_size:.0f} decisions of the policy's own; below "
            f"{MIN_EFFECTIVE_SIZE:g} no approximate interval is given"
        )
    if overlap.unsupported_mass is not None and overlap.unsupported_mass > MAX_UNSUPPORTED:
        found.append(
            f"{overlap.unsupported_mass:.1%} of what the policy would do was never tried in contexts like these, and "
            "nothing is known of it"
        )
    if overlap.mean_weight_z is not None and abs(overlap.mean_weight_z) > MAX_WEIGHT_Z:
        found.append(
            f"the mean weight is {overlap.mean_weight:.4g}, {overlap.mean_weight_z:.1f} standard errors from 1: "
            "propensities are wrong, or the log did not try all that the policy would do"
        )
    if shape is not None and shape > HEAVY:
        found.append(
            f"few decisions carry most of it: its tail has the shape {shape:.2f}, and above {HEAVY:g} the spread of a "
            "log says too little; the interval allows for what was not seen, and is approximate"
        )
    if options.reward_range is not None and logged.importance is not None:
        found.append("bounds are not known where decisions were left out of the log at random (pdrop)")
    return found
