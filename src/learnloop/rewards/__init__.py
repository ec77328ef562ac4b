"""What runs were worth: reward functions and judges, shaping, credit, the ledger, labels and learned rewards."""

from learnloop.rewards.code_execution import code_execution
from learnloop.rewards.correctness import correctness
from learnloop.rewards.credit import METHODS, UNASSIGNED, Credit, CreditMethod, CreditShare, credit_method
from learnloop.rewards.efficiency import History, efficiency, efficiency_from
from learnloop.rewards.engine import DEFAULT_WEIGHTS, RewardEngine, Scored
from learnloop.rewards.format_compliance import format_compliance
from learnloop.rewards.function import RewardFunction, reward_function
from learnloop.rewards.functions import BUILT_IN
from learnloop.rewards.grpo import (
    GroupAdvantages,
    RewardStatistics,
    normalize_group,
    normalize_groups,
    reward_statistics,
)
from learnloop.rewards.label_queue import LabelAsk, LabelPage, LabelQueue
from learnloop.rewards.learned import (
    Labelled,
    LearnedReward,
    LearnedRewardConfig,
    LearnedRewardReport,
    require_another,
)
from learnloop.rewards.learned_files import load_learned_reward, save_learned_reward
from learnloop.rewards.learning import fit_learned_reward
from learnloop.rewards.ledger import AgentTotal, Finding, RewardLedger, SharePage, shares_of
from learnloop.rewards.selection import Selected, SelectionConfig, ask_for_labels, select_for_labels
from learnloop.rewards.shaping import (
    POTENTIALS,
    Potential,
    PotentialShaping,
    Shaped,
    shaped_return,
    shaped_rewards,
    shaping_terms,
)
from learnloop.rewards.shapley import CoalitionValue, Game, exact_shapley, leave_one_out, sampled_shapley
from learnloop.rewards.syntax_validation import syntax_validation
from learnloop.rewards.task_completion import task_completion
from learnloop.rewards.tool_success import tool_success

__all__ = [
    "BUILT_IN",
    "DEFAULT_WEIGHTS",
    "METHODS",
    "POTENTIALS",
    "UNASSIGNED",
    "AgentTotal",
    "CoalitionValue",
    "Credit",
    "CreditMethod",
    "CreditShare",
    "Finding",
    "Game",
    "GroupAdvantages",
    "History",
    "LabelAsk",
    "LabelPage",
    "LabelQueue",
    "Labelled",
    "LearnedReward",
    "LearnedRewardConfig",
    "LearnedRewardReport",
    "Potential",
    "PotentialShaping",
    "RewardEngine",
    "RewardFunction",
    "RewardLedger",
    "RewardStatistics",
    "Scored",
    "Selected",
    "SelectionConfig",
    "Shaped",
    "SharePage",
    "ask_for_labels",
    "code_execution",
    "correctness",
    "credit_method",
    "efficiency",
    "efficiency_from",
    "exact_shapley",
    "fit_learned_reward",
    "format_compliance",
    "leave_one_out",
    "load_learned_reward",
    "normalize_group",
    "normalize_groups",
    "require_another",
    "reward_function",
    "reward_statistics",
    "sampled_shapley",
    "save_learned_reward",
    "select_for_labels",
    "shaped_return",
    "shaped_rewards",
    "shaping_terms",
    "shares_of",
    "syntax_validation",
    "task_completion",
    "tool_success",
]
