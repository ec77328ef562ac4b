"""What runs were worth: reward functions and judges, shaping, credit, the ledger, labels and learned rewards."""

from learnloop.rewards.functions.efficiency import History, efficiency_from
from learnloop.rewards.learned.files import load_learned_reward, save_learned_reward
from learnloop.rewards.learned.fitting import fit_learned_reward
from learnloop.rewards.learned.label_queue import LabelAsk, LabelQueue
from learnloop.rewards.learned.reward import Labelled, LearnedRewardConfig
from learnloop.rewards.learned.selection import ask_for_labels, select_for_labels
from learnloop.rewards.scoring.engine import RewardEngine, Scored
from learnloop.rewards.scoring.function import RewardFunction, reward_function
from learnloop.rewards.sharing.grpo import normalize_group, normalize_groups, reward_statistics

__all__ = [
    "History",
    "LabelAsk",
    "LabelQueue",
    "Labelled",
    "LearnedRewardConfig",
    "RewardEngine",
    "RewardFunction",
    "Scored",
    "ask_for_labels",
    "efficiency_from",
    "fit_learned_reward",
    "load_learned_reward",
    "normalize_group",
    "normalize_groups",
    "reward_function",
    "reward_statistics",
    "save_learned_reward",
    "select_for_labels",
]
