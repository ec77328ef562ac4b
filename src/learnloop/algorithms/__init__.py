"""Algorithms that learn policies: contextual bandits. They know nothing of stores, agents or evaluation."""

from learnloop.algorithms.actions import allowed_actions, check_actions, check_reward, draw
from learnloop.algorithms.bandit_config import BanditConfig
from learnloop.algorithms.contextual import BanditTrainer, ContextualBandit, Prepared, build_config
from learnloop.algorithms.linear_policy import LinearPolicy, load_policy
from learnloop.algorithms.linucb import LinUCBConfig
from learnloop.algorithms.ridge import Ridge
from learnloop.algorithms.squarecb import SquareCBConfig
from learnloop.algorithms.thompson import ThompsonConfig

__all__ = [
    "BanditConfig",
    "BanditTrainer",
    "ContextualBandit",
    "LinUCBConfig",
    "LinearPolicy",
    "Prepared",
    "Ridge",
    "SquareCBConfig",
    "ThompsonConfig",
    "allowed_actions",
    "build_config",
    "check_actions",
    "check_reward",
    "draw",
    "load_policy",
]
