"""The facade: what a user imports, and what the server and the command line call.

Names are imported when they are first used: a command that reads traces does not wait for what learns.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from learnloop.loop.agent.episode import OpenEpisode
    from learnloop.loop.agent.proving import ProofResult, evaluate, register_proven
    from learnloop.loop.agent.session import Loop, LoopCounters
    from learnloop.loop.nouns.workspace import Workspace
    from learnloop.loop.workspace.settings import Settings, find_settings

_HOMES = {
    "Loop": "agent.session",
    "LoopCounters": "agent.session",
    "OpenEpisode": "agent.episode",
    "ProofResult": "agent.proving",
    "Settings": "workspace.settings",
    "Workspace": "nouns.workspace",
    "evaluate": "agent.proving",
    "find_settings": "workspace.settings",
    "register_proven": "agent.proving",
}

__all__ = [
    "Loop",
    "LoopCounters",
    "OpenEpisode",
    "ProofResult",
    "Settings",
    "Workspace",
    "evaluate",
    "find_settings",
    "register_proven",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"learnloop.loop.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
