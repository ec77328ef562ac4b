"""Decisions: choose among actions, take rewards whenever they come, learn as it goes."""

from learnloop.decisions.choice import Choice
from learnloop.decisions.log import RewardParts, logged_samples, reward_total
from learnloop.decisions.point import DecisionPoint

__all__ = ["Choice", "DecisionPoint", "RewardParts", "logged_samples", "reward_total"]
