"""Logs of other decision services: Azure Personalizer and Vowpal Wabbit, read line by line in bounded memory."""

from learnloop.decisions.importing.choices import Activated, Choices, LoggedChoice, Observation
from learnloop.decisions.importing.reading import FORMATS, LogFile, format_of

__all__ = [
    "FORMATS",
    "Activated",
    "Choices",
    "LogFile",
    "LoggedChoice",
    "Observation",
    "format_of",
]
