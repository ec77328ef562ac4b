"""What the processes of a training have in common: how they are started, and how their errors are told."""

from __future__ import annotations

import os
import sys

import msgspec

from learnloop.core import errors
from learnloop.core.errors import LearnloopError, MissingExtraError, NotFoundError, UsageError


class Failure(msgspec.Struct, frozen=True):
    """What a process raised."""

    kind: str
    """The name of its class."""
    message: str


def child_environment() -> dict[str, str]:
    """Returns the environment variables of a process that computes on one thread and imports what this one can."""
    return {
        **os.environ,
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": os.pathsep.join(each or os.getcwd() for each in sys.path),  # "module:Id" is found as here
    }


def error_of(failure: Failure, hint: str) -> LearnloopError:
    """Returns what a process raised, as an error of this one.

    Args:
        failure: what it told.
        hint: what to do where it did not find something: the environment, which this process has found.
    """
    kind = getattr(errors, failure.kind, LearnloopError)
    if kind is NotFoundError:
        return UsageError(f"{failure.message}. {hint}")
    if not issubclass(kind, LearnloopError):
        return LearnloopError(failure.message)
    return UsageError(failure.message) if kind is MissingExtraError else kind(failure.message)
