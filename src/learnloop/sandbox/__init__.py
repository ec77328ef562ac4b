"""Runs code that nobody trusts: apart from files, network, secrets and other processes, with limits on all it uses."""

from learnloop.sandbox.records import Command, CommandOutcome, Ending, Limits, Protection, SandboxReport
from learnloop.sandbox.sandbox import Sandbox, fits

__all__ = ["Command", "CommandOutcome", "Ending", "Limits", "Protection", "Sandbox", "SandboxReport", "fits"]
