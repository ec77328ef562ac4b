"""Algorithms that learn policies: contextual bandits, and PPO, A2C, DQN and SAC for episodes.

They know nothing of stores, agents, environments or evaluation.
"""

from learnloop.algorithms.bandits.actions import allowed_actions, check_actions, draw
from learnloop.algorithms.bandits.config import BanditConfig, ExplorationConfig, OnlineConfig, build_config
from learnloop.algorithms.bandits.contextual import BanditTrainer, ContextualBandit, Prepared
from learnloop.algorithms.bandits.exploration import explore, explore_distribution
from learnloop.algorithms.bandits.linear_policy import LinearPolicy, load_policy
from learnloop.algorithms.bandits.ridge import Ridge
from learnloop.algorithms.base.algorithm import Algorithm
from learnloop.algorithms.base.config import AlgorithmConfig, Linear
from learnloop.algorithms.building import build_algorithm, configure
from learnloop.algorithms.hashed.config import HashedConfig
from learnloop.algorithms.hashed.policy import HashedPolicy
from learnloop.algorithms.hashed.trainer import HashedTrainer
from learnloop.algorithms.off_policy.dqn import DQN, DQNConfig
from learnloop.algorithms.off_policy.sac import SAC, SACConfig
from learnloop.algorithms.on_policy.a2c import A2C, A2CConfig
from learnloop.algorithms.on_policy.a3c import A3C, A3CConfig
from learnloop.algorithms.on_policy.learner import OnPolicyAlgorithm, OnPolicyConfig
from learnloop.algorithms.on_policy.ppo import PPO, PPOConfig
from learnloop.algorithms.on_policy.rollout import Batch
from learnloop.algorithms.policies.network_policy import NetworkPolicy
from learnloop.algorithms.replay.prioritised import PrioritisedReplay

__all__ = [
    "A2C",
    "A3C",
    "DQN",
    "PPO",
    "SAC",
    "A2CConfig",
    "A3CConfig",
    "Algorithm",
    "AlgorithmConfig",
    "BanditConfig",
    "BanditTrainer",
    "Batch",
    "ContextualBandit",
    "DQNConfig",
    "ExplorationConfig",
    "HashedConfig",
    "HashedPolicy",
    "HashedTrainer",
    "Linear",
    "LinearPolicy",
    "NetworkPolicy",
    "OnPolicyAlgorithm",
    "OnPolicyConfig",
    "OnlineConfig",
    "PPOConfig",
    "Prepared",
    "PrioritisedReplay",
    "Ridge",
    "SACConfig",
    "allowed_actions",
    "build_algorithm",
    "build_config",
    "check_actions",
    "configure",
    "draw",
    "explore",
    "explore_distribution",
    "load_policy",
]
