"""Seed 0's words: ``rl train`` and ``rl policy`` are ``train`` and ``policy``, with the same options."""

from __future__ import annotations

import click

from learnloop.cli.policy import policy
from learnloop.cli.train import train


@click.group()
def rl() -> None:
    """The commands of a document that this system came from, on our own."""


rl.add_command(train)
rl.add_command(policy, "policy")
