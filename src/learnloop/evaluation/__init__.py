"""Is a policy better, and did it learn: held-out rewards, permutation tests, the verdict.

Everything here works on the protocols of core; nothing is stored.
"""

from learnloop.evaluation.compare import Comparison, compare
from learnloop.evaluation.held_out import FixedChoice, LoggedDecisions, LoggedHeldOut, OutcomeTable
from learnloop.evaluation.off_policy import Estimate, EstimateOptions, LogOverlap, estimate_value
from learnloop.evaluation.overlap import Overlap, effective_sample_size
from learnloop.evaluation.permutation import Interval, holm, paired_interval, sign_flip_p_value
from learnloop.evaluation.policies import FixedPolicy, UniformPolicy
from learnloop.evaluation.rates import wilson_interval
from learnloop.evaluation.returns import BatchPolicy, Returns, evaluate_returns
from learnloop.evaluation.seeds import (
    Improvement,
    SeedStatistics,
    TaskSeeds,
    interquartile_mean,
    probability_of_improvement,
    summarise_seeds,
)
from learnloop.evaluation.splitting import Split, split_by_unit
from learnloop.evaluation.twins import RewardShuffle
from learnloop.evaluation.verification import Arm, ArmTest, Verification, VerificationOptions, verify_learning

__all__ = [
    "Arm",
    "ArmTest",
    "BatchPolicy",
    "Comparison",
    "Estimate",
    "EstimateOptions",
    "FixedChoice",
    "FixedPolicy",
    "Improvement",
    "Interval",
    "LogOverlap",
    "LoggedDecisions",
    "LoggedHeldOut",
    "OutcomeTable",
    "Overlap",
    "Returns",
    "RewardShuffle",
    "SeedStatistics",
    "Split",
    "TaskSeeds",
    "UniformPolicy",
    "Verification",
    "VerificationOptions",
    "compare",
    "effective_sample_size",
    "estimate_value",
    "evaluate_returns",
    "holm",
    "interquartile_mean",
    "paired_interval",
    "probability_of_improvement",
    "sign_flip_p_value",
    "split_by_unit",
    "summarise_seeds",
    "verify_learning",
    "wilson_interval",
]
