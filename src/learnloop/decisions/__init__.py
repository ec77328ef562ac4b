"""Decisions: choose among actions, take rewards whenever they come, learn as it goes."""

from learnloop.decisions.log import RewardParts, logged_samples, reward_total
from learnloop.decisions.online.choice import Choice
from learnloop.decisions.online.point import DecisionPoint, declared_schema

__all__ = ["Choice", "DecisionPoint", "RewardParts", "declared_schema", "logged_samples", "reward_total"]
