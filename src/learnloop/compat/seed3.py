"""Seed 3's lines for the recording of an agent: ``collector = TraceCollector(); hook_into_agent(agent, collector)``."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from learnloop.loop.agent.session import Loop

T = TypeVar("T")


class TraceCollector(Loop):
    """A ``Loop`` whose agent need not be named: what it records is in the store, and ``learnloop traces`` shows it."""

    def __init__(self, agent_name: str = "agent", *, home: str | Path | None = None) -> None:
        super().__init__(agent_name, home=home)


def hook_into_agent(agent: T, collector: Loop) -> T:
    """Records the runs and the tool calls of an agent that is an object, and returns it; see ``Loop.hook``."""
    return collector.hook(agent)
