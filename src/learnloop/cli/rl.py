"""Seed 0's words: ``rl train`` and ``rl policy`` are ``train`` and ``policies``, with the same options."""

from __future__ import annotations

import click

from learnloop.cli.policies import policies
from learnloop.cli.train import train


@click.group()
def rl() -> None:
    """Train and list policies in the words of sentientctl rl.

    \b
    Examples:
      learnloop rl train --agent ppo --env goal-task --episodes 1000
      learnloop rl policy list
    """


rl.add_command(train)
rl.add_command(policies, "policy")
