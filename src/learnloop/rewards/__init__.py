"""What runs were worth: reward functions and judges, shaping, credit, the ledger, labels and learned rewards."""

from learnloop.rewards.functions.built_in import BUILT_IN
from learnloop.rewards.functions.code_execution import code_execution
from learnloop.rewards.functions.correctness import correctness
from learnloop.rewards.functions.efficiency import History, efficiency, efficiency_from
from learnloop.rewards.functions.format_compliance import format_compliance
from learnloop.rewards.functions.syntax_validation import syntax_validation
from learnloop.rewards.functions.task_completion import task_completion
from learnloop.rewards.functions.tool_success import tool_success
from learnloop.rewards.learned.files import load_learned_reward, save_learned_reward
from learnloop.rewards.learned.fitting import fit_learned_reward
from learnloop.rewards.learned.label_queue import LabelAsk, LabelPage, LabelQueue
from learnloop.rewards.learned.reward import (
    Labelled,
    LearnedReward,
    LearnedRewardConfig,
    LearnedRewardReport,
    require_another,
)
from learnloop.rewards.learned.selection import Selected, SelectionConfig, ask_for_labels, select_for_labels
from learnloop.rewards.scoring.engine import DEFAULT_WEIGHTS, RewardEngine, Scored
from learnloop.rewards.scoring.function import RewardFunction, reward_function
from learnloop.rewards.sharing.credit import METHODS, UNASSIGNED, Credit, CreditMethod, CreditShare, credit_method
from learnloop.rewards.sharing.grpo import (
    GroupAdvantages,
    RewardStatistics,
    normalize_group,
    normalize_groups,
    reward_statistics,
)
from learnloop.rewards.sharing.ledger import AgentTotal, Finding, RewardLedger, SharePage, shares_of
from learnloop.rewards.sharing.shaping import (
    POTENTIALS,
    Potential,
    PotentialShaping,
    Shaped,
    shaped_return,
    shaped_rewards,
    shaping_terms,
)
from learnloop.rewards.sharing.shapley import CoalitionValue, Game, exact_shapley, leave_one_out, sampled_shapley

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
