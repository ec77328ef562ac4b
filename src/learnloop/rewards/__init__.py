"""What runs were worth: reward functions and judges, shaping, credit, the ledger, labels and learned rewards."""

from learnloop.rewards.functions.correctness import code_execution, correctness
from learnloop.rewards.functions.efficiency import History, efficiency, efficiency_from
from learnloop.rewards.functions.format_compliance import format_compliance
from learnloop.rewards.functions.syntax_validation import syntax_validation
from learnloop.rewards.functions.task_completion import task_completion
from learnloop.rewards.functions.tool_success import tool_success
from learnloop.rewards.learned.files import load_learned_reward, save_learned_reward
from learnloop.rewards.learned.fitting import fit_learned_reward
from learnloop.rewards.learned.label_queue import LabelAsk, LabelQueue
from learnloop.rewards.learned.reward import Labelled, LearnedReward, LearnedRewardConfig
from learnloop.rewards.learned.selection import ask_for_labels, select_for_labels
from learnloop.rewards.scoring.engine import RewardEngine, Scored
from learnloop.rewards.scoring.function import RewardFunction, reward_function
from learnloop.rewards.sharing.credit import credit_method
from learnloop.rewards.sharing.grpo import normalize_group, normalize_groups, reward_statistics
from learnloop.rewards.sharing.shaping import PotentialShaping

__all__ = [
    "History",
    "LabelAsk",
    "LabelQueue",
    "Labelled",
    "LearnedReward",
    "LearnedRewardConfig",
    "PotentialShaping",
    "RewardEngine",
    "RewardFunction",
    "Scored",
    "ask_for_labels",
    "code_execution",
    "correctness",
    "credit_method",
    "efficiency",
    "efficiency_from",
    "fit_learned_reward",
    "format_compliance",
    "load_learned_reward",
    "normalize_group",
    "normalize_groups",
    "reward_function",
    "reward_statistics",
    "save_learned_reward",
    "select_for_labels",
    "syntax_validation",
    "task_completion",
    "tool_success",
]
