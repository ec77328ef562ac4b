"""Is a policy better, and did it learn: held-out rewards, permutation tests, the verdict.

Everything here works on the protocols of core; nothing is stored.
"""

from learnloop.evaluation.compare import Comparison, compare
from learnloop.evaluation.held_out import FixedChoice, LoggedDecisions, LoggedHeldOut, OutcomeTable, Overlap
from learnloop.evaluation.permutation import Interval, holm, paired_interval, sign_flip_p_value
from learnloop.evaluation.policies import FixedPolicy, UniformPolicy
from learnloop.evaluation.twins import RewardShuffle
from learnloop.evaluation.verification import Arm, ArmTest, Verification, VerificationOptions, verify_learning

__all__ = [
    "Arm",
    "ArmTest",
    "Comparison",
    "FixedChoice",
    "FixedPolicy",
    "Interval",
    "LoggedDecisions",
    "LoggedHeldOut",
    "OutcomeTable",
    "Overlap",
    "RewardShuffle",
    "UniformPolicy",
    "Verification",
    "VerificationOptions",
    "compare",
    "holm",
    "paired_interval",
    "sign_flip_p_value",
    "verify_learning",
]
