"""What each of several policies would have earned on the decisions of the log, without letting any of them choose."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec
import numpy as np

from learnloop.algorithms import load_policy
from learnloop.core.arrays import F64, Bools
from learnloop.core.checks import check_range
from learnloop.core.errors import LearnloopError, NotFoundError, RewardError, UsageError, one_of
from learnloop.core.protocols import Policy, Sample
from learnloop.core.records import Decision, Record
from learnloop.decisions.proof_log import ProofLog, read_log
from learnloop.decisions.service.settings import EPISODE
from learnloop.evaluation import FixedPolicy, Interval, UniformPolicy, paired_interval
from learnloop.evaluation.assumptions.checks import broken, check_log
from learnloop.evaluation.assumptions.independence import NAME as INDEPENDENCE
from learnloop.evaluation.assumptions.propensities import NAME as PROPENSITIES
from learnloop.evaluation.assumptions.support import Support
from learnloop.evaluation.compare import CHOICE_SALT
from learnloop.evaluation.context_model import ContextModel
from learnloop.evaluation.logged import checked_propensities, shared_rows, unit_rows
from learnloop.evaluation.off_policy import (
    MAX_MISSING,
    Estimate,
    EstimateOptions,
    Estimator,
    estimate_rows,
)
from learnloop.evaluation.policies import DecisionPoint, distributions
from learnloop.evaluation.splitting import is_held_out
from learnloop.evaluation.tables import ends_of, html_table
from learnloop.loop.workspace.core import WorkspaceCore
from learnloop.registry.references import CHAMPION

NAMED_TARGETS = ("champion", "uniform", "baseline", "best-fixed")
DEFAULT_TARGETS = ("champion", "uniform", "baseline", "best-fixed")
MAX_DECISIONS = 200_000
"""So many decisions are looked at, the newest, unless others are asked for."""
_FOLD_SALT = "learnloop.reward-model/v1"


class TargetValue(Record, frozen=True, kw_only=True):
    """What one policy would have earned."""

    target: str
    """As it was asked for."""
    label: str
    """Which policy that is: ``NAME@3``, ``best-fixed (ACTION)`` ..."""
    estimate: Estimate | None
    """None: it cannot be told, and ``reason`` says why."""
    reason: str | None = None
    """Why there is none, or what else is to be known of it."""


class Counterfactual(Record, frozen=True, kw_only=True):
    """What was earned on logged decisions, and what others would have earned on the same."""

    agent_id: str
    policy: str
    since: datetime | None
    until: datetime | None
    num_decisions: int
    """Decisions that count: of learning and frozen mode and of outside of the service; deferred ones if activated."""
    num_rewarded: int
    """Those with a known reward, on which all is estimated."""
    num_pending: int
    """Those without one whose reward may still come, as the settings say; the others are missing."""
    logged_mean: float | None
    """What was earned a decision, as it was chosen then; None: no reward is known."""
    logged_interval: Interval | None
    """Of the mean over units; None below 20 units."""
    targets: list[TargetValue]

    def rows(self) -> list[dict[str, Any]]:
        """Returns what was earned as logged, and what each other policy would have earned, as rows of a table."""
        logged = {"policy": "as logged", "value": self.logged_mean, **ends_of(self.logged_interval)}
        rows: list[dict[str, Any]] = [{**logged, "effective_sample_size": None, "notes": []}]
        for each in self.targets:
            found = {} if each.estimate is None else each.estimate.row()
            notes = [*([each.reason] if each.reason else []), *found.get("warnings", [])]
            row = {name: found.get(name) for name in rows[0]}
            rows.append({**row, "policy": each.label, "notes": notes})
        return rows

    def _repr_html_(self) -> str:
        """Returns its rows as a table, which notebooks show."""
        return html_table(self.rows(), f"{self.num_rewarded:,} of {self.num_decisions:,} decisions have a reward")


class CounterfactualOptions(Record, frozen=True, kw_only=True):
    """Which decisions, and how to estimate."""

    since: datetime | None = None
    """Made at this time or later."""
    until: datetime | None = None
    """Made before this time."""
    estimator: Estimator = "dr"
    level: float = 0.95
    reward_range: tuple[float, float] | None = None
    """The lowest and the highest reward possible; needed for bounds that hold at any sample size."""
    max_missing: float = MAX_MISSING
    """A larger share of decisions without a reward is refused."""
    unit: str = EPISODE
    """What is independent of each other, as ``read_log`` takes it; intervals are over units."""
    held_out_share: float | None = None
    """Only decisions of units that are held out at this share, such as the ``learning.held_out_share`` of the settings:
    versions made from this log were not trained on them. None: all, on which such versions look better than they
    are."""
    newest: int = MAX_DECISIONS
    """Of so many decisions, the newest."""

    def __post_init__(self) -> None:
        """Refuses values without a meaning."""
        check_range("newest", self.newest, 1)
        if self.held_out_share is not None:
            check_range("held_out_share", self.held_out_share, above=0, below=1)
        self.estimating()

    def estimating(self) -> EstimateOptions:
        """Returns how to estimate; checked."""
        return EstimateOptions(
            estimator=self.estimator, level=self.level, reward_range=self.reward_range, max_missing=self.max_missing
        )


class _Log(NamedTuple):
    decisions: list[Decision]
    samples: list[Sample]
    points: list[DecisionPoint]
    propensities: F64
    reward_models: F64
    support: Support
    warnings: list[str]
    """What speaks against any estimate from it."""

    def part(self, chosen: Bools) -> _Log:
        """Returns the decisions that are ``chosen``."""
        rows = np.flatnonzero(chosen).tolist()
        samples = [self.samples[row] for row in rows]
        return self._replace(
            decisions=[self.decisions[row] for row in rows],
            samples=samples,
            points=[self.points[row] for row in rows],
            propensities=self.propensities[chosen],
            reward_models=self.reward_models[chosen],
            support=Support(samples),
        )


class _Target(NamedTuple):
    label: str
    rows: list[F64]
    """The probability of each action at each decision."""


def evaluate_decisions(
    workspace: WorkspaceCore,
    agent_id: str,
    policy: str,
    targets: Sequence[str] = DEFAULT_TARGETS,
    options: CounterfactualOptions | None = None,
) -> Counterfactual:
    """Returns what each target would have earned on the logged decisions of a policy.

    Targets: ``champion`` (what is served now, greedily), ``uniform``, ``baseline`` (the caller's own choice, where it
    was logged with each decision), ``best-fixed`` (the one action that is best on one half of these decisions, judged
    on the other) and any registered version, such as ``NAME@3``. A target that cannot be evaluated has a reason in the
    place of an estimate. A policy that was trained on these very decisions looks better here than it is:
    ``held_out_share`` leaves them out.

    Args:
        workspace: with the log and the registry.
        agent_id: whose decisions.
        policy: of which policy.
        targets: which policies to ask about.
        options: which decisions, the estimator, the level.

    Raises:
        NotFoundError: that policy has made no such decision.
        RewardError: too many of the decisions have no reward; the message has the counts.
        UsageError: no target or an unknown one, a decision without a propensity, or options without a meaning.
    """
    options = options or CounterfactualOptions()
    wanted = list(dict.fromkeys(targets))
    for target in wanted:
        if target not in NAMED_TARGETS and "@" not in target:
            raise UsageError(f"{target!r} is no target; allowed are {one_of(NAMED_TARGETS)} or a version, as NAME@3")
    if not wanted:
        raise UsageError(f"no target is given; name at least one of {one_of(NAMED_TARGETS)}, or a version, as NAME@3")
    found = _read(workspace, agent_id, policy, options)
    num_due = len(found.samples) + len(found.missing)
    if len(found.missing) > options.max_missing * num_due:
        raise RewardError(
            f"{len(found.missing)} of {num_due} decisions have no reward, more than {options.max_missing:.3g} of them: "
            "what is missing may differ from what is known. Leave out the newest, whose rewards may still come "
            "(until), set a default reward, or allow more (max_missing)"
        )
    if not num_due:
        raise RewardError(
            f"all rewards of the {found.num_pending} decisions may still come; ask again when some have"
            if not found.num_recent
            else f"all {found.num_decisions} decisions are so new that rewards of their time may still come; ask later"
        )
    log = _log(found)
    rewards = np.array([each.reward for each in log.samples], dtype=np.float64)
    importance = np.array([each.importance for each in log.samples], dtype=np.float64)
    return Counterfactual(
        agent_id=agent_id,
        policy=policy,
        since=options.since,
        until=options.until,
        num_decisions=found.num_decisions,
        num_rewarded=len(found.samples),
        num_pending=found.num_pending,
        logged_mean=float(np.average(rewards, weights=importance)) if rewards.size else None,
        logged_interval=_interval(log.samples, rewards, importance, options.level),
        targets=[_value(workspace, f"{agent_id}.{policy}", target, log, options.estimating()) for target in wanted],
    )


def _read(workspace: WorkspaceCore, agent_id: str, policy: str, options: CounterfactualOptions) -> ProofLog:
    found = read_log(
        workspace.store,
        agent_id,
        policy,
        unit=options.unit,
        newest=options.newest,
        since=options.since,
        until=options.until,
    )
    share = options.held_out_share
    if share is not None:
        kept = [row for row, each in enumerate(found.samples) if is_held_out(each.unit, share)]
        found = found._replace(
            samples=[found.samples[row] for row in kept],
            decisions=[found.decisions[row] for row in kept],
            missing=[each for each in found.missing if is_held_out(each.unit, share)],
        )
    if not found.num_decisions:
        raise NotFoundError(f"the policy {policy!r} of {agent_id!r} has made no decision in that time")
    return found


def _log(found: ProofLog) -> _Log:
    samples = found.samples
    propensities = checked_propensities([each.propensity for each in samples])
    faults = broken(check_log(samples, found.missing), PROPENSITIES, INDEPENDENCE)
    return _Log(
        found.decisions,
        samples,
        [DecisionPoint(each.unit, each.context, each.actions, each.mask) for each in samples],
        propensities,
        _reward_models(samples),
        Support(samples),
        [*(each.detail for each in faults), *found.notes],
    )


def _reward_models(samples: Sequence[Sample]) -> F64:
    """Returns for each sample what the half of the units that it is not in says of it, so that dr is not biased.

    Source: Chernozhukov et al. 2018, Double/debiased machine learning, definition 3.1 (cross-fitting), two folds.
    """
    first = np.array([is_held_out(each.unit, 0.5, _FOLD_SALT) for each in samples], dtype=bool)
    models = np.zeros(len(samples))
    for fold in (first, ~first):
        others = [each for each, inside in zip(samples, fold.tolist(), strict=True) if not inside]
        own = [each for each, inside in zip(samples, fold.tolist(), strict=True) if inside]
        models[fold] = ContextModel(others).predict(own)
    shared = shared_rows(samples)
    if not shared.size:
        return models
    found: F64 = models[np.unique(shared, return_index=True)[1]][shared]  # what is known before the first was chosen
    return found


def _interval(samples: Sequence[Sample], rewards: F64, importance: F64, level: float) -> Interval | None:
    """Returns the interval of the mean over units of what each earned a decision, or a decision that it stands for."""
    if not rewards.size:
        return None
    _, units = unit_rows(samples)
    mean = float(np.average(rewards, weights=importance))
    if bool(np.all(importance == 1.0)):
        return paired_interval(np.bincount(units, rewards) / np.bincount(units), level)
    excess = np.bincount(units, importance * (rewards - mean))  # linear in the ratio of two sums
    return paired_interval(mean + excess * excess.size / importance.sum(), level)


def _value(workspace: WorkspaceCore, name: str, target: str, log: _Log, options: EstimateOptions) -> TargetValue:
    try:
        if target == "best-fixed":
            return _best_fixed(log, options)
        found = _target(workspace, name, target, log)
        return TargetValue(target=target, label=found.label, estimate=_estimate(found.rows, log, options))
    except LearnloopError as error:  # the other targets can be told all the same
        return TargetValue(target=target, label=target, estimate=None, reason=str(error))


def _estimate(rows: list[F64], log: _Log, options: EstimateOptions) -> Estimate:
    found = estimate_rows(
        rows,
        log.samples,
        log.propensities,
        reward_model=log.reward_models,
        options=options,
        support=log.support,
    )
    return msgspec.structs.replace(found, warnings=[*found.warnings, *log.warnings])


def _target(workspace: WorkspaceCore, name: str, target: str, log: _Log) -> _Target:
    if target == "uniform":
        return _Target("uniform", distributions(UniformPolicy(), log.points))
    if target == "baseline":
        return _Target("baseline", _baseline_rows(log))
    if target == "champion":
        champion = workspace.registry.aliases(name).get(CHAMPION)
        if champion is None:
            raise NotFoundError(f"{name} has no champion: it has not learned yet, and chooses uniformly")
        version = champion
    else:
        version = workspace.registry.resolve(target)
    loaded: Policy = load_policy(workspace.registry.load(version))
    return _Target(f"{version.policy}@{version.version}", distributions(loaded, log.points))


def _baseline_rows(log: _Log) -> list[F64]:
    num_unknown = sum(each.baseline_action not in each.actions for each in log.decisions)
    if num_unknown:
        raise UsageError(
            f"{num_unknown} of {len(log.decisions)} decisions do not say what the caller's own logic would have "
            "chosen; send it as the baseline of each decision"
        )
    return [
        np.array([action == each.baseline_action for action in each.actions], dtype=np.float64)
        for each in log.decisions
    ]


def _best_fixed(log: _Log, options: EstimateOptions) -> TargetValue:
    """Returns what the action would have earned, taken always, that was best on one half of the units, on the other.

    The best of many estimates is too high on what it was chosen on.
    """
    halves = np.array([is_held_out(each.unit, 0.5, CHOICE_SALT) for each in log.samples], dtype=bool)
    chosen_on, judged_on = log.part(halves), log.part(~halves)
    allowed = [
        set(each.actions) if each.mask is None else {a for a, ok in zip(each.actions, each.mask, strict=True) if ok}
        for each in log.samples
    ]
    everywhere = sorted(set.intersection(*allowed)) if allowed else []
    known = _fixed_values(everywhere, chosen_on, options.estimator)
    if not known or not judged_on.samples:
        reason = "no action was allowed at every decision, so none could have been taken always"
        if everywhere:
            reason = f"{len(log.samples)} decisions are too few to choose an action on some and judge it on others"
        return TargetValue(target="best-fixed", label="best-fixed", estimate=None, reason=reason)
    best = max(known, key=lambda action: known[action])
    found = _estimate(distributions(FixedPolicy(best), judged_on.points), judged_on, options)
    how = f"the action was chosen on {len(chosen_on.samples)} decisions and is judged on the others"
    return TargetValue(target="best-fixed", label=f"best-fixed ({best})", estimate=found, reason=how)


def _fixed_values(actions: Sequence[str], log: _Log, estimator: Estimator) -> dict[str, float]:
    """Returns what each action would have earned, taken always, as ``estimate_arrays`` does; all in one pass."""
    places = {action: place for place, action in enumerate(actions)}
    rows = np.array([places.get(each.action, len(actions)) for each in log.samples], dtype=np.intp)
    rewards = np.array([each.reward for each in log.samples], dtype=np.float64)
    models = log.reward_models if estimator == "dr" else np.zeros(rewards.size)
    weighted = np.bincount(rows, (rewards - models) / log.propensities, minlength=len(actions) + 1)
    weights = np.bincount(rows, 1 / log.propensities, minlength=len(actions) + 1)
    totals = weights if estimator == "snips" else np.full(weights.size, float(max(rewards.size, 1)))
    values = {}
    for action, place in places.items():
        if totals[place] > 0:
            values[action] = (float(models.sum()) + float(weighted[place])) / float(totals[place])
    return values
