"""Algorithms that learn policies: contextual bandits, and PPO, A2C, DQN and SAC for episodes.

They know nothing of stores, agents, environments or evaluation.
"""

from learnloop.algorithms.a2c import A2C, A2CConfig
from learnloop.algorithms.a3c import A3C, A3CConfig
from learnloop.algorithms.actions import allowed_actions, check_actions, check_reward, draw
from learnloop.algorithms.algorithm import Algorithm
from learnloop.algorithms.algorithm_config import AlgorithmConfig
from learnloop.algorithms.bandit_config import BanditConfig
from learnloop.algorithms.building import ALGORITHMS, build_algorithm, configure
from learnloop.algorithms.contextual import BanditTrainer, ContextualBandit, Prepared, build_config
from learnloop.algorithms.dqn import DQN, DQNConfig
from learnloop.algorithms.exploration import ExplorationConfig, explore, explore_distribution
from learnloop.algorithms.joint_config import JointConfig
from learnloop.algorithms.joint_policy import JointPolicy
from learnloop.algorithms.joint_trainer import JointTrainer
from learnloop.algorithms.linear_policy import LinearPolicy, load_policy
from learnloop.algorithms.linucb import LinUCBConfig
from learnloop.algorithms.network_policy import NetworkPolicy
from learnloop.algorithms.on_policy import OnPolicyAlgorithm, OnPolicyConfig
from learnloop.algorithms.ppo import PPO, PPOConfig
from learnloop.algorithms.replay import PrioritisedReplay, ReplayBuffer
from learnloop.algorithms.ridge import Ridge
from learnloop.algorithms.rollout import Batch, Segment
from learnloop.algorithms.sac import SAC, SACConfig
from learnloop.algorithms.schedules import Linear
from learnloop.algorithms.squarecb import SquareCBConfig
from learnloop.algorithms.states import AlgorithmState
from learnloop.algorithms.thompson import ThompsonConfig
from learnloop.algorithms.uniform import Random, RandomConfig

__all__ = [
    "A2C",
    "A3C",
    "ALGORITHMS",
    "DQN",
    "PPO",
    "SAC",
    "A2CConfig",
    "A3CConfig",
    "Algorithm",
    "AlgorithmConfig",
    "AlgorithmState",
    "BanditConfig",
    "BanditTrainer",
    "Batch",
    "ContextualBandit",
    "DQNConfig",
    "ExplorationConfig",
    "JointConfig",
    "JointPolicy",
    "JointTrainer",
    "LinUCBConfig",
    "Linear",
    "LinearPolicy",
    "NetworkPolicy",
    "OnPolicyAlgorithm",
    "OnPolicyConfig",
    "PPOConfig",
    "Prepared",
    "PrioritisedReplay",
    "Random",
    "RandomConfig",
    "ReplayBuffer",
    "Ridge",
    "SACConfig",
    "Segment",
    "SquareCBConfig",
    "ThompsonConfig",
    "allowed_actions",
    "build_algorithm",
    "build_config",
    "check_actions",
    "check_reward",
    "configure",
    "draw",
    "explore",
    "explore_distribution",
    "load_policy",
]
