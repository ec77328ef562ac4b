"""The policy of the decision service for one-step problems: one linear model over hashed features, numpy only."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from learnloop.algorithms.bandits.actions import allowed_actions, check_actions, share_among_best
from learnloop.algorithms.hashed.config import HashedConfig
from learnloop.algorithms.hashed.features import (
    ACTION,
    CONSTANT,
    CONTEXT,
    MAX_SIZE,
    MAX_VECTOR,
    NAME,
    Features,
    check_pairs,
    feature_hash,
    features_of_action,
    flatten,
    pair_indices,
    vector_of,
)
from learnloop.core.arrays import F32, F64, U64, Indices
from learnloop.core.decoding import convert_record
from learnloop.core.errors import ContextError, CorruptError
from learnloop.core.protocols import PolicyArtifact, Question

TAG = "joint"


_MAX_CACHED = 2**17  # features of actions that are remembered encoded


class HashedRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What of a policy is not an array."""

    joint: HashedConfig
    """How it was trained."""
    num_updates: int
    reward_offset: float
    reward_scale: float
    numbers: list[str]
    """Names of the features that are numbers."""


_NOTHING = np.zeros(0)


class HashedArrays(NamedTuple):
    """The arrays of a policy."""

    weights: F64
    """Shape ``(2**num_bits,)``."""
    number_means: F64 = _NOTHING
    """Shape ``(len(numbers),)``."""
    number_scales: F64 = _NOTHING
    vector_means: F64 = _NOTHING
    """Shape ``(n,)``; n is 0 where there were no vectors."""
    vector_scales: F64 = _NOTHING
    vector_weights: F64 = _NOTHING
    """Shape ``(2**num_bits + n,)``: an action's begin at its hash. Empty where there were no vectors."""


class _Actions(NamedTuple):
    """Encoded actions."""

    hashes: U64
    """Those of all actions behind each other."""
    values: F64
    starts: Indices
    """Where each action begins."""
    blocks: list[int]
    """Where each action's weights of the vector begin."""
    longest: int
    """How many features an action has at the most, its name and those that were never learned from included."""
    alone: F64
    """What each action is predicted to earn whatever the context, shape ``(num_actions,)``."""


class HashedPolicy:
    """Chooses the action with the highest predicted reward; ties share the probability evenly.

    The prediction is linear in the features of the action, in those of the context, in each pair of the two, and in
    the vector with weights of each action's name. Safe to use from many threads.

    Attributes:
        config: how it was trained.
        num_updates: how many samples it was trained on; 0: it predicts the same for each action.
        reward_offset: what a score of 0 stands for.
        reward_scale: what a score of 1 adds to it, the standard deviation of the training rewards.
    """

    def __init__(self, record: HashedRecord, arrays: HashedArrays) -> None:
        """Keeps ``arrays``, which nobody may change any more."""
        self._record = record
        self._arrays = arrays
        self.config = record.joint
        self.num_updates = record.num_updates
        self.reward_offset = record.reward_offset
        self.reward_scale = record.reward_scale
        self._ignored = frozenset(self.config.ignored)
        self._vector_inverse = 1.0 / arrays.vector_scales
        self._numbers = {
            name: (feature_hash(name), mean, 1.0 / scale)
            for name, mean, scale in zip(
                record.numbers, arrays.number_means.tolist(), arrays.number_scales.tolist(), strict=True
            )
        }
        self._known: dict[bytes, _Actions] = {}
        self._num_known = 0

    def scores(self, context: Mapping[str, Any], actions: Sequence[str]) -> F64:
        """Returns the predicted reward of each action, shape ``(len(actions),)``.

        The unit is ``reward_scale``; 0 is ``reward_offset``.

        Raises:
            ContextError: the features cannot be read, or the vector has another length than those learned from.
        """
        encoded = self._actions(context, actions)
        scores = encoded.alone.copy()
        if context:
            self._add_context(scores, context, encoded)
        vector = vector_of(context)
        if vector is not None and self.num_updates:
            self._add_vector(scores, vector, encoded.blocks)
        return scores

    def probabilities(
        self, context: Mapping[str, Any], actions: Sequence[str], mask: Sequence[bool] | None = None
    ) -> F64:
        """Returns the probability of each action, shape ``(len(actions),)``; 0 where ``mask`` is False.

        Raises:
            ContextError: as ``scores``.
            ActionError: ``actions`` or ``mask`` cannot be chosen from.
        """
        check_actions(actions)
        scores = self.scores(context, actions)
        if mask is not None:
            scores = np.where(allowed_actions(actions, mask), scores, -np.inf)
        return share_among_best(scores)

    def _add_context(self, scores: F64, context: Mapping[str, Any], encoded: _Actions) -> None:
        features = flatten(context, CONTEXT, self._ignored)
        if self.config.interactions:  # all of them: the next version is learned from those that this one does not know
            check_pairs(len(features.numbers) + len(features.indicators), encoded.longest)
        hashes, values = self._encoded(features, [], [])
        if not hashes:
            return
        contexts, sizes = np.array(hashes, dtype=np.uint64), np.array(values)
        bits, weights = self.config.num_bits, self._arrays.weights
        if self.config.interactions:
            pairs = weights[pair_indices(contexts[:, None], encoded.hashes, bits)]
            scores += np.add.reduceat((sizes @ pairs) * encoded.values, encoded.starts)
        else:
            scores += sizes @ weights[pair_indices(contexts, encoded.hashes[:1], bits)]

    def _add_vector(self, scores: F64, vector: F32, blocks: list[int]) -> None:
        size = self._arrays.vector_means.size
        if vector.size != size:
            learned = f"vectors of {size} numbers" if size else "contexts without a vector"
            raise ContextError(f"the vector has {vector.size} numbers; this policy was learned from {learned}")
        scaled = vector - self._arrays.vector_means
        scaled *= self._vector_inverse
        np.minimum(scaled, MAX_SIZE, out=scaled)
        np.maximum(scaled, -MAX_SIZE, out=scaled)
        weights = self._arrays.vector_weights
        for row, first in enumerate(blocks):
            scores[row] += scaled.dot(weights[first : first + size])

    def _actions(self, context: Mapping[str, Any], actions: Sequence[str]) -> _Actions:
        """Returns the encoded actions; equal actions with equal features are encoded once."""
        features = context.action_features if isinstance(context, Question) else None
        try:
            key = msgspec.msgpack.encode((actions, features))
        except (TypeError, ValueError, OverflowError, RecursionError):
            return self._encode_actions(context, actions)  # numbers of numpy, say, which are well; or it refuses
        found = self._known.get(key)
        if found is None:
            found = self._encode_actions(context, actions)
            self._num_known += found.hashes.size
            if self._num_known > _MAX_CACHED:
                self._known.clear()
                self._num_known = found.hashes.size
            self._known[key] = found
        return found

    def _encode_actions(self, context: Mapping[str, Any], actions: Sequence[str]) -> _Actions:
        hashes: list[int] = []
        values: list[float] = []
        starts, blocks = [], []
        longest = 0
        for index, action in enumerate(actions):
            own = feature_hash(NAME + action)
            starts.append(len(hashes))
            blocks.append(block_start(own, self.config.num_bits))
            hashes += [CONSTANT, own]
            values += [1.0, 1.0]
            features = flatten(features_of_action(context, index, len(actions)), ACTION, self._ignored)
            longest = max(longest, len(features.numbers) + len(features.indicators) + 2)
            self._encoded(features, hashes, values)
        known, sizes = np.array(hashes, dtype=np.uint64), np.array(values)
        constant = np.full(1, CONSTANT, dtype=np.uint64)
        alone = self._arrays.weights[pair_indices(constant, known, self.config.num_bits)] * sizes
        firsts = np.array(starts, dtype=np.intp)
        return _Actions(known, sizes, firsts, blocks, longest, np.add.reduceat(alone, firsts))

    def _encoded(self, features: Features, hashes: list[int], values: list[float]) -> tuple[list[int], list[float]]:
        """Appends ``features`` to ``hashes`` and ``values``; numbers that it never learned from are left out."""
        known = self._numbers
        for name, value in features.numbers.items():
            number = known.get(name)
            if number is not None:
                hashes.append(number[0])
                scaled = (value - number[1]) * number[2]
                values.append(scaled if -MAX_SIZE < scaled < MAX_SIZE else math.copysign(MAX_SIZE, scaled))
        for name in features.indicators:
            hashes.append(feature_hash(name))
            values.append(1.0)
        return hashes, values

    def to_artifact(self) -> PolicyArtifact:
        """Returns all that is needed to build it again."""
        # no file holds an empty tensor
        tensors = {name: array.copy() for name, array in self._arrays._asdict().items() if array.size}
        return PolicyArtifact(TAG, msgspec.to_builtins(self._record), tensors)

    @classmethod
    def from_artifact(cls, artifact: PolicyArtifact) -> HashedPolicy:
        """Returns the policy that ``to_artifact`` described.

        Raises:
            CorruptError: the config or the tensors are not those of such a policy.
        """
        what = f"a stored {TAG} policy"
        record = convert_record(artifact.config, f"{what} cannot be read", HashedRecord, error=CorruptError)
        if not _is_sound(record):
            raise CorruptError(f"the config of {what} has figures without a meaning")
        if not artifact.tensors.keys() <= set(HashedArrays._fields):
            raise CorruptError(f"{what} has {sorted(artifact.tensors)}, not {sorted(HashedArrays._fields)}")
        arrays = HashedArrays._make(np.array(artifact.tensors.get(name, _NOTHING)) for name in HashedArrays._fields)
        size, vector = 2**record.joint.num_bits, arrays.vector_means.size
        lengths = (size, len(record.numbers), len(record.numbers), vector, vector, size + vector if vector else 0)
        for name, array, length in zip(HashedArrays._fields, arrays, lengths, strict=True):
            _check_tensor(name, array, length)
        if vector > MAX_VECTOR:
            raise CorruptError(f"{what} reads vectors of {vector} numbers; allowed are {MAX_VECTOR}")
        return cls(record, arrays)


def block_start(name_hash: int, num_bits: int) -> int:
    """Returns where an action's weights of the vector begin."""
    return name_hash >> (64 - num_bits)


def untrained(config: HashedConfig) -> HashedPolicy:
    """Returns the policy that predicts the same for each action."""
    record = HashedRecord(joint=config, num_updates=0, reward_offset=0.0, reward_scale=1.0, numbers=[])
    return HashedPolicy(record, HashedArrays(np.zeros(2**config.num_bits)))


def _is_sound(record: HashedRecord) -> bool:
    figures = np.isfinite([record.reward_offset, record.reward_scale]).all()
    distinct = len(set(record.numbers)) == len(record.numbers)
    return bool(figures and record.reward_scale > 0 and record.num_updates >= 0 and distinct)


def _check_tensor(name: str, values: NDArray[Any], length: int) -> None:
    if values.shape != (length,) or values.dtype != np.float64:
        raise CorruptError(
            f"{name} of a stored {TAG} policy is {values.dtype.name} of shape {values.shape}; "
            f"it should be float64 of ({length},)"
        )
    if not np.isfinite(values).all() or (name.endswith("_scales") and not (values > 0).all()):
        raise CorruptError(f"{name} of a stored {TAG} policy has numbers that are not finite, or not above 0")
