"""Which registered version of a policy is served: its champion, where that fits the policy's settings."""

from __future__ import annotations

from typing import NamedTuple

from learnloop.algorithms import load_policy
from learnloop.algorithms.policies.named_actions import TAG as NAMED_ACTIONS
from learnloop.algorithms.policies.named_actions import NamedActionsPolicy
from learnloop.core.protocols import Policy
from learnloop.core.records import PolicyVersion
from learnloop.decisions.service.settings import DecisionSettings
from learnloop.registry import Registry
from learnloop.registry.references import CHAMPION


class Champion(NamedTuple):
    """What the alias points to, and the policy that is served."""

    version: PolicyVersion | None
    """None: the alias points nowhere."""
    policy: Policy | None
    """None: there is no version, or it was learned under settings that have changed since (another network or none):
    then the policy begins again, uniformly."""


def champion_of(registry: Registry, name: str, settings: DecisionSettings) -> Champion:
    """Returns the champion of the policy that the registry calls ``name``.

    Raises:
        CorruptError: its files cannot be read.
    """
    version = registry.aliases(name).get(CHAMPION)
    if version is None or (version.algorithm == NAMED_ACTIONS) is (settings.network is None):
        return Champion(version, None)
    policy = load_policy(registry.load(version))
    return Champion(version, policy if _fits(policy, settings) else None)


def _fits(policy: object, settings: DecisionSettings) -> bool:
    network = settings.network
    if network is None or not isinstance(policy, NamedActionsPolicy):
        return True
    return policy.actions == list(network.actions) and policy.input_size == network.input_dim
