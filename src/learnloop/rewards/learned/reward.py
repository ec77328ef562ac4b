"""A reward that is learned from people's labels: a ridge-logistic model on embeddings and figures of the run.

It says how likely a person is to call an attempt good. It is not used where it is no better than chance on tasks that
it has not seen, nor for attempts unlike those that were labelled. Whoever optimises it finds its faults: it reports its
over-optimisation curve, and is never the only component of a reward (``require_another``).

Source: Christiano et al. 2017, "Deep Reinforcement Learning from Human Preferences"; Stiennon et al. 2020, "Learning to
Summarize from Human Feedback", section 3.4 (a model of labels as reward).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple

import msgspec
import numpy as np

from learnloop.core.arrays import F64
from learnloop.core.attempts import Attempt, Score
from learnloop.core.checks import check_range
from learnloop.core.errors import CheckFailedError, UsageError
from learnloop.core.protocols import Embedder
from learnloop.core.records import Record
from learnloop.rewards.learned.features import AttemptFeatures, Design, features_of
from learnloop.rewards.learned.logistic import Fit, sigmoid
from learnloop.rewards.learned.score_quality import AucInterval, OptimisationCurve


class Labelled(NamedTuple):
    """An attempt and what a person said of it."""

    attempt: Attempt
    value: float
    """From 0 (bad) to 1 (good)."""


class LearnedRewardConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a reward is learned."""

    seed: int = 0
    held_out_share: float = 0.25
    """Of the tasks, on which the model is judged and which it never sees."""
    num_folds: int = 5
    """Of the other tasks, to choose the penalty and to calibrate."""
    penalties: tuple[float, ...] = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
    """To choose from by cross-validation."""
    min_labels: int = 20
    """Of each kind, above and below 0.5, that are needed to learn."""
    confidence: float = 0.95
    """Of the interval of the AUC."""

    def __post_init__(self) -> None:
        """Refuses values without a meaning."""
        check_range("held_out_share", self.held_out_share, above=0, below=1)
        check_range("num_folds", self.num_folds, 2)
        check_range("min_labels", self.min_labels, 2)
        check_range("confidence", self.confidence, 0.5, below=1)
        if not self.penalties:
            raise UsageError("penalties is empty; give at least one number above 0")
        for penalty in self.penalties:
            check_range("penalties", penalty, above=0, below=float("inf"))


class LearnedRewardReport(Record, frozen=True, kw_only=True):
    """What is known of a learned reward; figures without another word are of held-out tasks."""

    num_labels: int
    num_good: int
    """Labels above 0.5."""
    num_bad: int
    """Labels below 0.5."""
    num_tasks: int
    num_held_out_tasks: int
    num_held_out: int
    """Attempts of these."""
    penalty: float
    auc: AucInterval
    """How often the better of two attempts has the higher score, with its interval over tasks."""
    confidence: float
    calibration_error: float
    """ECE: how far chances are from labels."""
    brier: float
    brier_of_mean: float
    """Of always saying the mean label of the attempts that were learned from."""
    length_auc: float | None
    """The AUC of the output's length alone, in the direction that it has among the attempts learned from; a model that
    is no better has learned length."""
    length_correlation: float | None
    """Spearman's, of score and length of the output."""
    label_length_correlation: float | None
    """The same of label and length: what of it is not the model's own doing."""
    curve: OptimisationCurve
    """Over-optimisation: proxy and labels of the best of n."""

    @property
    def reason_against(self) -> str | None:
        """Why the model may not be used; None: it may."""
        if self.auc.low is not None and self.auc.low > 0.5:
            return None
        return (
            f"its held-out AUC is {_shown(self.auc.value)}, from {_shown(self.auc.low)} to {_shown(self.auc.high)}, "
            f"which is not surely better than chance (0.5) on {self.num_held_out} attempts at "
            f"{self.num_held_out_tasks} tasks; label more attempts"
        )


class LearnedModel(NamedTuple):
    """The numbers of a learned reward."""

    design: Design
    fit: Fit
    covariance: F64
    """Of the coefficients, shape ``(num_columns, num_columns)``."""
    calibration: F64
    """Slope and shift, shape ``(2,)``."""

    def chances(self, features: AttemptFeatures) -> tuple[F64, F64]:
        """Returns how likely each attempt is good, and how far one standard deviation of the log odds moves that."""
        columns = self.design.columns(features)
        logits = self.calibration[0] * self.fit.logits(columns) + self.calibration[1]
        variances = np.maximum(np.einsum("ij,ij->i", columns @ self.covariance, columns), 0.0)
        spreads = self.calibration[0] * np.sqrt(variances)
        return sigmoid(logits), (sigmoid(logits + spreads) - sigmoid(logits - spreads)) / 2


class LearnedReward:
    """Scores attempts as people labelled others; a ``Scorer``. For any number of threads.

    Attributes:
        is_learned: True, by which others know that it must not be the only component.
        content_hash: of the stored model.
        report: how good it is.
    """

    is_learned: ClassVar[bool] = True

    def __init__(self, model: LearnedModel, report: LearnedRewardReport, embedder: Embedder, content_hash: str) -> None:
        """For ``fit_learned_reward`` and ``load_learned_reward``."""
        self.model = model
        self.report = report
        self.embedder = embedder
        self.content_hash = content_hash

    def check_usable(self) -> None:
        """Returns if the model may be used as a reward.

        Raises:
            CheckFailedError: it is not surely better than chance.
        """
        if self.report.reason_against is not None:
            raise CheckFailedError(f"this learned reward may not be used: {self.report.reason_against}")

    def __call__(self, attempt: Attempt) -> Score:
        """Returns the score of one attempt; see ``score_all``."""
        return self.score_all([attempt])[0]

    def score_all(self, attempts: Sequence[Attempt]) -> list[Score]:
        """Returns how likely each attempt is good, with its ``uncertainty`` in the details.

        A score is None where the model may not be used, where no output is recorded, and where a figure of the run lies
        outside of all that was labelled, so that the model could only guess.
        """
        if self.report.reason_against is not None:
            return [Score.unknown(f"the learned reward is not used: {self.report.reason_against}") for _ in attempts]
        features = features_of(attempts, self.embedder)
        chances, uncertainties = self.model.chances(features)
        strange = self.model.design.strangeness(features)
        scores = []
        for row, is_readable in enumerate(features.is_readable):
            if not is_readable:
                score = Score.unknown("no output is recorded, which the learned reward reads")
            elif strange[row] is not None:
                score = Score.unknown(
                    f"its {strange[row]} lies outside of all that was labelled; label attempts like it"
                )
            else:
                score = Score.of(chances[row], uncertainty=float(uncertainties[row]), model=self.content_hash)
            scores.append(score)
        return scores


def require_another(components: Mapping[str, tuple[object, float]]) -> None:
    """Returns if a learned reward among ``components`` is not alone.

    Args:
        components: scorer and weight by name; a scorer with a true ``is_learned``, or one that wraps such a
            one (``__wrapped__``), is learned.

    Raises:
        UsageError: all that has a weight is learned. What is optimised finds the faults of a learned reward; something
            that is checked has to stand beside it.
    """
    weighted = {name: scorer for name, (scorer, weight) in components.items() if weight != 0.0}
    learned = sorted(name for name, scorer in weighted.items() if _is_learned(scorer))
    if learned and len(learned) == len(weighted):
        raise UsageError(
            f"the only components with a weight are learned ({', '.join(learned)}); add one that is checked, such as "
            "tests, a format or a comparison with the ground truth, or allow it with rewards.learned_alone = true"
        )


def _is_learned(scorer: object) -> bool:
    inner = getattr(scorer, "__wrapped__", None)
    return bool(getattr(scorer, "is_learned", False)) or (inner is not None and _is_learned(inner))


def _shown(number: float | None) -> str:
    return "not known" if number is None else f"{number:.3f}"
