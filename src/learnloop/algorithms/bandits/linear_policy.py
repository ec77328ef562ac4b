"""The policy that a contextual bandit has learned: linear in the encoded context, greedy, frozen, numpy only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from learnloop.algorithms.bandits.actions import allowed_actions, check_actions, share_among_best
from learnloop.algorithms.hashed.policy import TAG as JOINT
from learnloop.algorithms.hashed.policy import HashedPolicy
from learnloop.algorithms.policies.named_actions import TAG as NAMED_ACTIONS
from learnloop.algorithms.policies.named_actions import NamedActionsPolicy
from learnloop.core.arrays import F64
from learnloop.core.decoding import convert_record
from learnloop.core.errors import CorruptError, one_of
from learnloop.core.protocols import Context, Policy, PolicyArtifact
from learnloop.nn.encoders.context_encoder import ContextEncoder
from learnloop.nn.encoders.context_schema import flat_context

TAG = "linear"


class _Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    learned_by: str
    actions: list[str]
    encoder: dict[str, Any] | None
    strict: bool = True


class LinearPolicy:
    """Chooses the action with the highest predicted reward; ties share the probability evenly.

    An action that it never learned is predicted to earn the mean reward. Without an encoder (before anything was
    learned) it is uniform.

    Attributes:
        learned_by: the tag of the algorithm that made it.
        actions: the actions that it has learned.
        encoder: from a context to a vector; None: nothing was learned.
        strict: whether a context that does not fit the encoder is refused; else what is not known of it is left out, as
            for logs that several programs write.
    """

    def __init__(
        self,
        encoder: ContextEncoder | None,
        actions: Sequence[str],
        weights: F64,
        learned_by: str,
        *,
        strict: bool = True,
    ) -> None:
        """Keeps a copy of ``weights``, shape ``(len(actions), encoder.dimension)``."""
        self.encoder = encoder
        self.strict = strict
        self.actions = list(actions)
        self.learned_by = learned_by
        self._weights = np.vstack([np.zeros((1, weights.shape[1])), weights])  # row 0: any other action
        self._weights.setflags(write=False)
        self._rows = {action: row for row, action in enumerate(self.actions, start=1)}

    def predict(self, context: Context, actions: Sequence[str]) -> F64:
        """Returns the predicted reward of each action, shape ``(len(actions),)``.

        The unit is the standard deviation of the first rewards that were learned; 0 is their mean.

        Raises:
            ContextError: the policy is strict and ``context`` does not fit the encoder.
        """
        if self.encoder is None:
            return np.zeros(len(actions))
        rows = [self._rows.get(action, 0) for action in actions]
        encode = self.encoder.encode if self.strict else self.encoder.encode_known
        predictions: F64 = (self._weights @ encode(flat_context(context)))[rows]
        return predictions

    def probabilities(self, context: Context, actions: Sequence[str], mask: Sequence[bool] | None = None) -> F64:
        """Returns the probability of each action, shape ``(len(actions),)``; 0 where ``mask`` is False.

        Raises:
            ContextError: as ``predict``.
            ActionError: ``actions`` or ``mask`` cannot be chosen from.
        """
        check_actions(actions)
        allowed = allowed_actions(actions, mask)
        return share_among_best(np.where(allowed, self.predict(context, actions), -np.inf))

    def to_artifact(self) -> PolicyArtifact:
        """Returns all that is needed to build it again."""
        config = _Config(
            learned_by=self.learned_by,
            actions=self.actions,
            encoder=None if self.encoder is None else self.encoder.to_config(),
            strict=self.strict,
        )
        return PolicyArtifact(TAG, msgspec.to_builtins(config), {"weights": self._weights[1:].copy()})

    @classmethod
    def from_artifact(cls, artifact: PolicyArtifact) -> LinearPolicy:
        """Returns the policy that ``to_artifact`` described.

        Raises:
            CorruptError: the config or the weights are not those of such a policy.
        """
        config = convert_record(artifact.config, f"a stored {TAG} policy cannot be read", _Config, error=CorruptError)
        encoder = None if config.encoder is None else ContextEncoder.from_config(config.encoder)
        weights = artifact.tensors.get("weights")
        wanted = (len(config.actions), 0 if encoder is None else encoder.dimension)
        if weights is None or weights.shape != wanted or weights.dtype != np.float64:
            found = None if weights is None else (weights.dtype.name, weights.shape)
            raise CorruptError(f"the weights of a stored {TAG} policy are {found}, not ('float64', {wanted})")
        if not np.isfinite(weights).all():
            raise CorruptError(f"the weights of a stored {TAG} policy are not all finite")
        return cls(encoder, config.actions, weights, config.learned_by, strict=config.strict)


_POLICIES: Mapping[str, type[LinearPolicy] | type[HashedPolicy] | type[NamedActionsPolicy]] = {
    TAG: LinearPolicy,
    JOINT: HashedPolicy,
    NAMED_ACTIONS: NamedActionsPolicy,
}


def load_policy(artifact: PolicyArtifact) -> Policy:
    """Returns the policy that ``artifact`` describes.

    Raises:
        CorruptError: its tag is unknown, or its shapes do not fit each other.
    """
    reader = _POLICIES.get(artifact.algorithm)
    if reader is None:
        raise CorruptError(f"no policy is called {artifact.algorithm!r}; known are {one_of(sorted(_POLICIES))}")
    return reader.from_artifact(artifact)
