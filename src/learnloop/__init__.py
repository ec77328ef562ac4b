"""learnloop: a self-hosted learning loop for AI agents.

>>> import learnloop as ll
>>> loop = ll.Loop("packer")  # doctest: +SKIP

Names are imported when they are first used, so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from learnloop.core.version import __version__

if TYPE_CHECKING:
    from learnloop.core.attempts import Attempt, Score
    from learnloop.core.errors import LearnloopError
    from learnloop.decisions import Choice, Slot
    from learnloop.evaluation import OutcomeTable, VerificationOptions, verify_learning
    from learnloop.loop import Loop, OpenEpisode, ProofResult, Workspace
    from learnloop.loop.training.policies import load_policy
    from learnloop.loop.training.training import Run, open_run, resume, train
    from learnloop.loop.workspace.extensions import extensions, register
    from learnloop.rewards.scoring.engine import RewardEngine
    from learnloop.rewards.scoring.function import reward_function

_HOMES = {
    "Attempt": "learnloop.core.attempts",
    "Choice": "learnloop.decisions",
    "LearnloopError": "learnloop.core.errors",
    "Loop": "learnloop.loop",
    "OpenEpisode": "learnloop.loop",
    "OutcomeTable": "learnloop.evaluation",
    "ProofResult": "learnloop.loop",
    "VerificationOptions": "learnloop.evaluation",
    "RewardEngine": "learnloop.rewards.scoring.engine",
    "Score": "learnloop.core.attempts",
    "Slot": "learnloop.decisions",
    "Workspace": "learnloop.loop",
    "Run": "learnloop.loop.training.training",
    "extensions": "learnloop.loop.workspace.extensions",
    "load_policy": "learnloop.loop.training.policies",
    "open_run": "learnloop.loop.training.training",
    "register": "learnloop.loop.workspace.extensions",
    "resume": "learnloop.loop.training.training",
    "reward_function": "learnloop.rewards.scoring.function",
    "train": "learnloop.loop.training.training",
    "verify_learning": "learnloop.evaluation",
}

__all__ = [
    "Attempt",
    "Choice",
    "LearnloopError",
    "Loop",
    "OpenEpisode",
    "OutcomeTable",
    "ProofResult",
    "RewardEngine",
    "Run",
    "Score",
    "Slot",
    "VerificationOptions",
    "Workspace",
    "__version__",
    "extensions",
    "load_policy",
    "open_run",
    "register",
    "resume",
    "reward_function",
    "train",
    "verify_learning",
]


def __getattr__(name: str) -> Any:
    """Imports the public ``name`` at its first use (PEP 562)."""
    if name not in _HOMES:
        raise AttributeError(f"module 'learnloop' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
