"""Learns a reward from labels: split by task, cross-validation, calibration, and the figures on held-out tasks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from learnloop.core.arrays import F64, Bools, Indices
from learnloop.core.errors import CheckFailedError, UsageError
from learnloop.core.protocols import Embedder
from learnloop.core.seeding import generator
from learnloop.rewards.learned.features import LENGTH, NAMES, AttemptFeatures, Design, features_of, task_of
from learnloop.rewards.learned.files import content_hash_of
from learnloop.rewards.learned.logistic import Fit, choose_penalty, covariance, fit_logistic, rotated
from learnloop.rewards.learned.reward import (
    Labelled,
    LearnedModel,
    LearnedReward,
    LearnedRewardConfig,
    LearnedRewardReport,
)
from learnloop.rewards.learned.score_quality import (
    auc,
    auc_interval,
    brier,
    calibration_error,
    optimisation_curve,
    platt,
    rank_correlation,
)

MIN_TASKS = 8
_MIN_HELD_OUT = 5
"""Labels of each kind among the held-out tasks."""
_TRIES = 200
_LENGTH = NAMES.index(LENGTH)


def fit_learned_reward(
    labelled: Sequence[Labelled], embedder: Embedder, config: LearnedRewardConfig | None = None
) -> LearnedReward:
    """Returns a reward learned from labels; its report says whether it may be used (``check_usable``).

    The model is made from three quarters of the tasks and judged on the others; attempts at one task are never on both
    sides. The same labels and seed give the same model.

    Args:
        labelled: attempts with their labels. Those without an output are left out.
        embedder: what texts are seen through; the stored model names it.
        config: None: as ``LearnedRewardConfig`` says.

    Raises:
        CheckFailedError: too few labels of a kind or too few tasks; the message says how many are needed.
        UsageError: a label is not from 0 to 1.
    """
    chosen = config or LearnedRewardConfig()
    usable = [each for each in labelled if each.attempt.output is not None]
    labels = np.array([each.value for each in usable], dtype=np.float64)
    if not ((labels >= 0.0) & (labels <= 1.0)).all():
        raise UsageError("a label is not from 0 (bad) to 1 (good)")
    tasks = [task_of(each.attempt) for each in usable]
    _, groups = np.unique(tasks, return_inverse=True)
    check_enough(labels, len(set(tasks)), chosen.min_labels)
    held_out = _held_out(labels, groups, chosen)
    features = features_of([each.attempt for each in usable], embedder)
    model, penalty = _model(features.rows(~held_out), labels[~held_out], groups[~held_out], chosen)
    report = _report(model, features, labels, groups, held_out, chosen, penalty)
    return LearnedReward(model, report, embedder, content_hash_of(model, report, embedder))


def check_enough(labels: F64, num_tasks: int, min_labels: int) -> None:
    """Returns if there are labels enough to learn from.

    Raises:
        CheckFailedError: there are not; the message says how many are needed.
    """
    num_good, num_bad = int((labels > 0.5).sum()), int((labels < 0.5).sum())
    if min(num_good, num_bad) < min_labels or num_tasks < MIN_TASKS:
        raise CheckFailedError(
            f"there are {num_good} good and {num_bad} bad labels of attempts at {num_tasks} tasks; to learn a reward, "
            f"{min_labels} of each kind and {MIN_TASKS} tasks are needed"
        )


def _held_out(labels: F64, groups: Indices, config: LearnedRewardConfig) -> Bools:
    """Returns which rows are of held-out tasks, which are drawn so that both kinds of label are on both sides."""
    num_tasks = int(groups.max()) + 1
    size = min(max(2, round(config.held_out_share * num_tasks)), num_tasks - 2)
    kinds = (labels > 0.5, labels < 0.5)
    for number in range(_TRIES):
        chosen = generator(config.seed, "held_out", number).permutation(num_tasks)[:size]
        found = np.isin(groups, chosen)
        if all((kind & found).sum() >= _MIN_HELD_OUT and (kind & ~found).sum() >= _MIN_HELD_OUT for kind in kinds):
            return found
    raise CheckFailedError(
        f"good and bad labels are of too few tasks: {size} of {num_tasks} are held out, and {_MIN_HELD_OUT} labels of "
        "each kind are needed among these and among the others; label attempts at more tasks"
    )


def _model(
    features: AttemptFeatures, labels: F64, groups: Indices, config: LearnedRewardConfig
) -> tuple[LearnedModel, float]:
    design = Design.of(features)
    columns = design.columns(features)
    turned, rotation = rotated(columns)
    penalty, left_out = choose_penalty(turned, labels, _folds(groups, config), config.penalties)
    fit = fit_logistic(turned, labels, penalty)
    # In directions that no labelled attempt has, the coefficients are as uncertain as before: 1 / penalty.
    inside = covariance(turned, fit, penalty) - np.eye(turned.shape[1]) / penalty
    spread = rotation @ inside @ rotation.T + np.eye(columns.shape[1]) / penalty
    calibration = np.array(platt(left_out, labels))
    return LearnedModel(design, Fit(rotation @ fit.coefficients, fit.intercept), spread, calibration), penalty


def _folds(groups: Indices, config: LearnedRewardConfig) -> list[Indices]:
    """Returns the rows of each fold; a task is in one."""
    present = np.unique(groups)
    shuffled = generator(config.seed, "folds").permutation(present)
    parts = np.array_split(shuffled, min(config.num_folds, len(shuffled)))
    return [np.flatnonzero(np.isin(groups, part)) for part in parts]


def _report(
    model: LearnedModel,
    features: AttemptFeatures,
    labels: F64,
    groups: Indices,
    held_out: Bools,
    config: LearnedRewardConfig,
    penalty: float,
) -> LearnedRewardReport:
    chances, _ = model.chances(features.rows(held_out))
    true, seen = labels[held_out], labels[~held_out]
    lengths = features.figures[:, _LENGTH]
    direction = 1.0 if (rank_correlation(lengths[~held_out], seen) or 0.0) >= 0.0 else -1.0
    _, held_out_groups = np.unique(groups[held_out], return_inverse=True)
    return LearnedRewardReport(
        num_labels=len(labels),
        num_good=int((labels > 0.5).sum()),
        num_bad=int((labels < 0.5).sum()),
        num_tasks=int(groups.max()) + 1,
        num_held_out_tasks=int(held_out_groups.max()) + 1,
        num_held_out=int(held_out.sum()),
        penalty=penalty,
        auc=auc_interval(chances, true, held_out_groups, config.seed, config.confidence),
        confidence=config.confidence,
        calibration_error=calibration_error(chances, true),
        brier=brier(chances, true),
        brier_of_mean=brier(np.full(len(true), seen.mean()), true),
        length_auc=auc(direction * lengths[held_out], true),
        length_correlation=rank_correlation(chances, lengths[held_out]),
        label_length_correlation=rank_correlation(true, lengths[held_out]),
        curve=optimisation_curve(chances, true, [str(group) for group in held_out_groups]),
    )
