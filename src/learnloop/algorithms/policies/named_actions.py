"""A network's policy over actions that have names, asked with a vector: what the decision service serves of PPO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from learnloop.algorithms.bandits.actions import allowed_actions, check_actions
from learnloop.algorithms.base.states import part_of, prefixed
from learnloop.algorithms.policies.network_policy import TAG as NETWORK
from learnloop.algorithms.policies.network_policy import NetworkPolicy
from learnloop.core.arrays import F64
from learnloop.core.errors import ActionError, ContextError, CorruptError, one_of
from learnloop.core.protocols import Context, PolicyArtifact, Question
from learnloop.core.spaces import Box, Discrete

TAG = "named_actions"

Tensors = Mapping[str, NDArray[Any]]


class _Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    actions: list[str]
    policy: dict[str, Any]


class NamedActionsPolicy:
    """Draws from a network's distribution over the named actions that are offered and allowed; never learns.

    Attributes:
        actions: their names, in the order of the network's outputs.
        training: what a training goes on from, such as the value network and the optimiser; no part of the policy.
    """

    def __init__(self, policy: NetworkPolicy, actions: Sequence[str], training: Tensors | None = None) -> None:
        space = policy.spaces.action
        if not isinstance(space, Discrete) or space.n != len(actions):
            raise ActionError(f"{len(actions)} names do not fit the actions {space} of the policy; give one for each")
        self.actions = list(actions)
        self.training = dict(training or {})
        self._policy = policy
        self._rows = {name: row for row, name in enumerate(self.actions)}

    @property
    def input_size(self) -> int:
        """The length of the vector that it decides by."""
        space = self._policy.spaces.observation
        return space.size if isinstance(space, Box) else 0

    def probabilities(self, context: Context, actions: Sequence[str], mask: Sequence[bool] | None = None) -> F64:
        """Returns the probability of each action, shape ``(len(actions),)``; 0 where ``mask`` is False.

        Args:
            context: a ``Question`` with a vector.
            actions: some of its actions, in any order.
            mask: which of them are allowed; None: all.

        Raises:
            ContextError: there is no vector, or the network reads another one.
            ActionError: ``actions`` or ``mask`` cannot be chosen from, or an action is unknown.
        """
        if not isinstance(context, Question) or context.vector is None:
            raise ContextError("this policy decides by a vector, such as an embedding; the context has none")
        if mask is None and actions == self.actions:  # all of them as they lie: nothing to look up or to leave out
            return self._policy.probabilities(context.vector)
        check_actions(actions)
        allowed = allowed_actions(actions, mask)
        rows = action_rows(actions, self._rows)
        offered = np.zeros(len(self.actions), dtype=np.bool_)
        offered[rows] = allowed
        found = self._policy.probabilities(context.vector, offered)[rows]
        probabilities: F64 = found / found.sum()
        return probabilities

    def to_artifact(self) -> PolicyArtifact:
        """Returns all that is needed to build it again, and to train it further."""
        inner = self._policy.to_artifact()
        config = _Config(actions=self.actions, policy=dict(inner.config))
        tensors = prefixed("policy.", inner.tensors) | prefixed("training.", self.training)
        return PolicyArtifact(TAG, msgspec.to_builtins(config), tensors)

    @classmethod
    def from_artifact(cls, artifact: PolicyArtifact) -> NamedActionsPolicy:
        """Returns the policy that ``to_artifact`` described.

        Raises:
            CorruptError: the config or the parameters are not those of such a policy.
        """
        try:
            config = msgspec.convert(artifact.config, _Config)
            inner = PolicyArtifact(NETWORK, config.policy, part_of(artifact.tensors, "policy."))
            policy = NetworkPolicy.from_artifact(inner)
            return cls(policy, config.actions, part_of(artifact.tensors, "training."))
        except (msgspec.ValidationError, ActionError) as error:
            raise CorruptError(f"a stored {TAG} policy cannot be read: {error}") from error


def action_rows(actions: Sequence[str], rows: Mapping[str, int]) -> list[int]:
    """Returns the network's output of each action.

    Raises:
        ActionError: one is unknown.
    """
    unknown = [action for action in actions if action not in rows]
    if unknown:
        raise ActionError(f"{one_of(unknown)} is no action of this policy; it has {one_of(rows)}")
    return [rows[action] for action in actions]
