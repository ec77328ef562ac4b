"""From contexts and actions as JSON to hashed features, and to the weights that each pair of features has."""

from __future__ import annotations

import hashlib
import math
import numbers
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from learnloop.core.arrays import F32, U64, Indices
from learnloop.core.errors import ContextError
from learnloop.core.protocols import Question

MAX_NAME_LENGTH = 4_096
"""Characters of a feature's name, the value of a text included."""
MAX_FEATURES = 1_000
"""Features of a context, and of an action."""
MAX_PAIRS = 2**14
"""Features of a context times features of an action, where they interact."""
MAX_DEPTH = 32
"""How deep objects and lists may lie in each other."""
MAX_VECTOR = 65_536
"""Numbers of a vector."""
MAX_NUMBER = 1e100
"""A number of a feature; larger ones, such as a language's largest that stands for "unknown", cannot be scaled."""
MAX_SIZE = 10.0
"""A number that lies further from the mean, in standard deviations, counts as this far."""

CONTEXT, ACTION, NAME = "c:", "a:", "n:"
"""What the names of features begin with: whose they are. ``NAME`` is an action's own."""
_MAX_CACHED = 100_000
_MAX_CACHED_LENGTH = 256
_MULTIPLIERS = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)

_hashes: dict[str, int] = {}


class Features(NamedTuple):
    """The features of a context or of an action."""

    numbers: dict[str, float]
    """By name; one that comes more than once counts as the sum."""
    indicators: dict[str, None]
    """Names that are there: ``path=value`` of texts and booleans."""


def feature_hash(name: str) -> int:
    """Returns a 64-bit number that depends on ``name`` alone: the same in each process and version."""
    found = _hashes.get(name)
    if found is None:
        digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        found = int.from_bytes(digest, "little")
        if len(name) <= _MAX_CACHED_LENGTH:
            if len(_hashes) >= _MAX_CACHED:
                _hashes.clear()
            _hashes[name] = found
    return found


CONSTANT = feature_hash("constant")
"""The feature that each context and each action has."""


def flatten(features: Mapping[str, Any], owner: str, ignored: frozenset[str] = frozenset()) -> Features:
    """Returns the features of a JSON object.

    Names are dotted paths. A number is its value, a text or a boolean an indicator of ``path=value``; None is absent.
    A list of numbers has a feature for each place (``path[0]``); the elements of any other list are a set under its
    path.

    Args:
        features: objects, lists, numbers, booleans, texts and None.
        owner: what names begin with, ``CONTEXT`` or ``ACTION``.
        ignored: paths that are left out, with all that is below them.

    Raises:
        ContextError: a number that is not finite or too large, an unknown type, or a name, a depth or a number of
            features above its limit.
    """
    found = Features({}, {})
    try:
        _add_object(found, features, "", owner, ignored, 0)
    except RecursionError as error:
        raise ContextError(f"features lie more than {MAX_DEPTH} levels deep; give flatter ones") from error
    size = len(found.numbers) + len(found.indicators)
    if size > MAX_FEATURES:
        kind = "a context" if owner == CONTEXT else "an action"
        raise ContextError(f"{kind} has {size} features; allowed are {MAX_FEATURES}. Give fewer, or a vector")
    return found


def _add_object(
    found: Features, features: Mapping[str, Any], prefix: str, owner: str, ignored: frozenset[str], depth: int
) -> None:
    if depth > MAX_DEPTH:
        raise ContextError(f"{prefix[:100]!r} lies more than {MAX_DEPTH} levels deep; give flatter features")
    for key, value in features.items():
        if not isinstance(key, str):
            raise ContextError(f"{key!r} cannot name a feature; give text")
        path = f"{prefix}.{key}" if prefix else key
        if path in ignored:
            continue
        if type(value) is float and -MAX_NUMBER <= value <= MAX_NUMBER and len(path) < MAX_NAME_LENGTH - 1:  # most are
            name = owner + path
            found.numbers[name] = found.numbers.get(name, 0.0) + value
        else:
            _add(found, value, path, owner, ignored, depth)


def _add(found: Features, value: Any, path: str, owner: str, ignored: frozenset[str], depth: int) -> None:
    if isinstance(value, str):
        found.indicators[_checked(f"{owner}{path}={value}")] = None
    elif isinstance(value, bool | np.bool_):
        found.indicators[_checked(f"{owner}{path}={'true' if value else 'false'}")] = None
    elif isinstance(value, float | int | numbers.Real):
        name = _checked(owner + path)
        found.numbers[name] = found.numbers.get(name, 0.0) + _finite(path, value)
    elif isinstance(value, Mapping):
        _add_object(found, value, path, owner, ignored, depth + 1)
    elif isinstance(value, list | tuple):
        _add_list(found, value, path, owner, ignored, depth + 1)
    elif value is not None:
        raise ContextError(
            f"the feature {path[:100]!r} is a {type(value).__name__}; allowed are numbers, booleans, text, None, and "
            "lists and objects of these"
        )


def _add_list(
    found: Features, values: Sequence[Any], path: str, owner: str, ignored: frozenset[str], depth: int
) -> None:
    if depth > MAX_DEPTH:
        raise ContextError(f"{path[:100]!r} lies more than {MAX_DEPTH} levels deep; give flatter features")
    if len(values) > MAX_FEATURES:
        raise ContextError(
            f"the feature {path[:100]!r} is a list of {len(values)}; allowed are {MAX_FEATURES}. Give a vector"
        )
    if all(isinstance(value, float | int | numbers.Real) and not isinstance(value, bool) for value in values):
        for index, value in enumerate(values):
            _add(found, value, f"{path}[{index}]", owner, ignored, depth)
    else:
        for value in values:
            _add(found, value, path, owner, ignored, depth)


def _finite(path: str, value: float | numbers.Real) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not -MAX_NUMBER <= number <= MAX_NUMBER:
        raise ContextError(
            f"the feature {path[:100]!r} is {number}; give a number of at most {MAX_NUMBER:g}, or None where it is not "
            "known"
        )
    return number


def _checked(name: str) -> str:
    if len(name) > MAX_NAME_LENGTH:
        raise ContextError(
            f"the name of the feature {name[:100]!r}... has {len(name)} characters; allowed are {MAX_NAME_LENGTH}. "
            "Shorten its text, or ignore it"
        )
    return name


def features_of_action(context: Mapping[str, Any], index: int, num_actions: int) -> Mapping[str, Any]:
    """Returns what ``context`` knows of the action at ``index``; empty where it knows nothing.

    Raises:
        ContextError: it knows of another number of actions.
    """
    known = context.action_features if isinstance(context, Question) else None
    if known is None:
        return {}
    if len(known) != num_actions:
        raise ContextError(f"there are {len(known)} action_features for {num_actions} actions; give one for each")
    features = known[index]
    if not isinstance(features, Mapping):
        raise ContextError(f"action_features[{index}] is a {type(features).__name__}; give an object")
    return features


def check_pairs(num_context: int, num_action: int) -> None:
    """Returns if a context with so many features may meet an action with so many.

    Raises:
        ContextError: they make more than ``MAX_PAIRS`` pairs.
    """
    if num_context * num_action > MAX_PAIRS:
        raise ContextError(
            f"{num_context} features of the context times {num_action} of an action are more than {MAX_PAIRS} pairs; "
            "give fewer, or turn interactions off"
        )


def vector_of(context: Mapping[str, Any]) -> F32 | None:
    """Returns the vector of ``context``, shape ``(n,)``; None where it has none.

    Raises:
        ContextError: it is empty, too long, not of one dimension, or holds a number that is not finite.
    """
    vector = context.vector if isinstance(context, Question) else None
    if vector is None:
        return None
    vector = np.asarray(vector, dtype=np.float32)
    if vector.ndim != 1 or not 0 < vector.size <= MAX_VECTOR:
        raise ContextError(
            f"the vector has shape {vector.shape}; allowed are 1 to {MAX_VECTOR} numbers in one dimension"
        )
    if not np.isfinite(vector).all():
        raise ContextError(f"the vector has {int(np.sum(~np.isfinite(vector)))} numbers that are not finite")
    return vector


def pair_indices(context: U64, action: U64, num_bits: int) -> Indices:
    """Returns which weight each pair of features has; ``context`` and ``action`` are broadcast against each other.

    Multiplicative hashing: the upper bits of a product with an odd constant.

    Source: Knuth 1998, The Art of Computer Programming 3, section 6.4; hashed features as Weinberger et al. 2009,
    Feature Hashing for Large Scale Multitask Learning, section 2.
    """
    mixed: U64 = (context * _MULTIPLIERS[0] + action) * _MULTIPLIERS[1]
    return (mixed >> np.uint64(64 - num_bits)).astype(np.intp)
