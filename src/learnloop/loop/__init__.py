"""The facade: what a user imports, and what the server and the command line call."""

from learnloop.loop.episode import OpenEpisode
from learnloop.loop.proving import ProofResult, evaluate, register_proven
from learnloop.loop.session import Loop, LoopCounters
from learnloop.loop.workspace import Settings, Workspace, find_settings

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
