"""Is a policy better, and did it learn: held-out rewards, permutation tests, the verdict.

Everything here works on the protocols of core; nothing is stored.
"""

from learnloop.evaluation.compare import Comparison, compare
from learnloop.evaluation.held_out import OutcomeTable
from learnloop.evaluation.intervals import Interval, paired_interval
from learnloop.evaluation.logged import LoggedDecisions
from learnloop.evaluation.permutation import sign_flip_p_value
from learnloop.evaluation.policies import FixedPolicy, UniformPolicy
from learnloop.evaluation.proof import Verification, VerificationOptions
from learnloop.evaluation.verification import verify_learning

__all__ = [
    "Comparison",
    "FixedPolicy",
    "Interval",
    "LoggedDecisions",
    "OutcomeTable",
    "UniformPolicy",
    "Verification",
    "VerificationOptions",
    "compare",
    "paired_interval",
    "sign_flip_p_value",
    "verify_learning",
]
