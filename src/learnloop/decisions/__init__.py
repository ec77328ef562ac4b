"""Decisions: choose among actions, take rewards whenever they come, learn as it goes."""

from learnloop.decisions.log import logged_samples
from learnloop.decisions.online.choice import Choice
from learnloop.decisions.online.point import DecisionPoint, declared_schema

__all__ = ["Choice", "DecisionPoint", "declared_schema", "logged_samples"]
