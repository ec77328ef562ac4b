"""Decisions: choose among actions, take rewards whenever they come, learn as it goes."""

from learnloop.decisions.choice import Choice
from learnloop.decisions.log import logged_samples
from learnloop.decisions.service.policies import Policies
from learnloop.decisions.service.request import DecisionRequest, Slot
from learnloop.decisions.service.settings import DecisionSettings

__all__ = [
    "Choice",
    "DecisionRequest",
    "DecisionSettings",
    "Policies",
    "Slot",
    "logged_samples",
]
