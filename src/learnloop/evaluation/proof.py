"""A verdict and all that it rests on: the options it was reached with, what each arm earned, each test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from learnloop.core.protocols import Policy
from learnloop.core.records import Verdict
from learnloop.evaluation.assumptions.assumption import Assumption
from learnloop.evaluation.controls import TRAINED
from learnloop.evaluation.intervals import Interval
from learnloop.evaluation.overlap import Overlap
from learnloop.evaluation.tables import ends_of, html_table


class VerificationOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to verify."""

    seed: int = 0
    """Of the training (the controls train with the same), the permutations and the sign flips."""
    alpha: float = 0.05
    """The highest p-value that counts."""
    num_controls: int = 40
    """How many shuffled controls are trained; p against them is at least 2 / (num_controls + 1)."""
    max_controls: int = 200
    """So many are trained in all where nothing but the rank among the first ones stands against ``learned``, and that
    by little. At most ``num_controls``: no more are."""
    num_replicas: int = 9
    """How many times it is trained again on resampled units with their true rewards."""
    num_permutations: int = 10_000
    """Draws of each permutation test."""
    min_units: int = 20
    """Fewer held-out units, or training units that can trade rewards, end ``inconclusive``."""
    baselines: Mapping[str, Policy] = {}
    """Further policies that must be beaten, by name, such as the champion or an untrained copy."""
    hindsight: Mapping[str, Policy] = {}
    """Policies that were picked on the held-out tasks themselves, such as the best fixed action: they must be beaten
    too, but being worse than one is no step back, since nobody could have taken it."""
    least_reward: float | None = None
    """What a unit earns at the least, such as 0: what a failure that no unit showed is taken to earn. None: 0, or the
    lowest training reward where that is lower."""
    reward_range: tuple[float, float] | None = None
    """The lowest and the highest reward that a decision can have: what rewards that are missing may have been. None:
    the lowest, or 0 where that is lower, and the highest of those that are known."""
    min_effective_sample_size: float = 100.0
    """Where held-out tasks are a log: a trained policy that the log says less about ends ``inconclusive``. Of random
    and the baselines it need only say ``min_units``: an agent that learns well rarely does what they would do."""


class Arm(msgspec.Struct, frozen=True, kw_only=True):
    """What one policy earned on the held-out units."""

    mean: float
    interval: Interval | None
    """None below 20 units."""
    num_units: int


class ArmTest(msgspec.Struct, frozen=True, kw_only=True):
    """One of the tests that ``learned`` needs."""

    name: str
    """``paired_sign_flip`` over units, ``control_rank`` or ``replica_two_sample`` over trainings."""
    against: str
    difference: float
    """Mean reward of the trained policy less that of the other."""
    interval: Interval | None
    """Of the difference, over units; None below 20 units."""
    p_value: float
    """One-sided: small when the trained policy is better."""
    p_value_worse: float
    """One-sided: small when the trained policy is worse."""
    p_adjusted: float
    """Holm's, over all tests of this verification; the verdict does not need it."""
    p_value_missing: float | None = None
    """As ``p_value``, but with each missing reward as bad for the trained policy as it can be; None: none was missing,
    or no more than may be."""
    p_value_rare_loss: float | None = None
    """As ``p_value``, but with losses that were too rare to be seen; None for tests over trainings."""
    worst_loss: float | None = None
    """What an unseen unit was taken to lose against the other policy, for ``p_value_rare_loss``."""
    units_needed: int | None = None
    """About how many held-out units like these it takes; None where they are enough, or no number would do."""


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict and all that it rests on."""

    verdict: Verdict
    reasons: list[str]
    policy: Policy | None
    """What was trained on the true rewards; None where it ended before training."""
    arms: dict[str, Arm] = {}
    tests: list[ArmTest] = []
    control_means: list[float] = []
    """The mean reward of each shuffled control."""
    replica_means: list[float] = []
    """Each replica's mean reward."""
    overlap: dict[str, Overlap] = {}
    """By arm, where the held-out tasks are a log."""
    assumptions: list[Assumption] = []
    """What the verdict takes for granted of the log, and what was found; empty where the held-out tasks are none."""
    num_samples: int
    num_training_units: int
    num_units: int
    """Held-out."""
    seed: int
    alpha: float

    def to_metrics(self) -> dict[str, Any]:
        """Returns what each arm earned on held-out tasks, as metrics of a registered version."""
        metrics = {"reward": self.arms[TRAINED].mean, "num_units": self.num_units}
        return metrics | {arm: each.mean for arm, each in self.arms.items() if arm != TRAINED}

    def to_statistics(self) -> dict[str, Any]:
        """Returns all figures as JSON for a certificate: everything but the policy, the verdict and the reasons."""
        figures: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(self, policy=None))
        return {name: value for name, value in figures.items() if name not in {"verdict", "reasons", "policy"}}

    def _repr_html_(self) -> str:
        """Returns the verdict with its reasons above what each arm earned, which notebooks show."""
        rows = [{"arm": name, "mean": arm.mean, **ends_of(arm.interval)} for name, arm in self.arms.items()]
        return html_table(rows, f"{self.verdict}: {'; '.join(self.reasons)}")
