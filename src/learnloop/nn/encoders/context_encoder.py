"""From a context to a vector: fitted once on the first contexts, then immutable, saved with its policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from learnloop.core.decoding import convert_record
from learnloop.core.errors import CorruptError, UsageError
from learnloop.core.protocols import Context
from learnloop.nn.encoders.context_schema import ContextSchema, FeatureKind, check_mapping
from learnloop.nn.encoders.feature_codecs import CategoryCodec, Codec, Codes, NumberCodec, TextCodec

if TYPE_CHECKING:
    from learnloop.core.arrays import F64

MAX_COLUMNS = 512
"""The columns that all features share; many features get fewer bins, categories and buckets each."""
MAX_INTERACTION_DIMENSION = 256
"""Interactions are added as long as the dimension does not exceed this."""
LONG_TEXT = 64
"""An inferred category with a longer value than this, or with white space in one, is a text."""

_CODECS: Mapping[FeatureKind, type[NumberCodec] | type[CategoryCodec] | type[TextCodec]] = {
    "number": NumberCodec,
    "category": CategoryCodec,
    "text": TextCodec,
}


class Interaction(msgspec.Struct, frozen=True, kw_only=True):
    """One column for each pair of codes of two features."""

    left: int
    """Which codec, counted from 0."""
    right: int
    first: int
    """The first of its columns."""
    stride: int
    """How many codes the right feature has."""


class _State(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    schema: ContextSchema
    codecs: list[Codec]
    interactions: list[Interaction]
    dimension: int


class ContextEncoder:
    """Encodes contexts as float64 vectors: a bias of 1, the columns of each feature, their interactions.

    Numbers are standardised (those that are never negative and skewed, on a log scale), clipped, and also counted
    for the nearest of some quantiles; categories are one-hot; texts are hashed. Interactions are columns for each
    pair of codes of two features, so that a linear model can see "text files of high entropy".

    Attributes:
        schema: the features; kinds that were inferred are settled.
        dimension: the length of an encoded context.
    """

    def __init__(self, state: _State) -> None:
        self.schema = state.schema
        self.dimension = state.dimension
        self._state = state
        self._features = [(codec.name, codec.put) for codec in state.codecs]
        self._interactions = [(pair.left, pair.right, pair.first, pair.stride) for pair in state.interactions]

    @classmethod
    def fit(
        cls, schema: ContextSchema, contexts: Sequence[Context], *, interactions: bool = True, strict: bool = True
    ) -> ContextEncoder:
        """Returns the encoder whose scales, bins and categories are those of ``contexts``.

        Args:
            schema: the features.
            contexts: of which it is fitted.
            interactions: whether pairs of features have columns.
            strict: False: what does not fit ``schema`` is left out, and a feature that no context has is dropped.

        Raises:
            UsageError: there are no contexts.
            ContextError: one does not fit ``schema``.
        """
        if not contexts:
            raise UsageError("an encoder is fitted on 0 contexts; give at least 1")
        if strict:
            for context in contexts:
                schema.validate(context)
        else:
            contexts = [schema.known_part(context) for context in contexts]
        values = {
            # Sorted: the order in which a caller happened to write a context is no part of what is learned.
            name: [context[name] for context in contexts if name in context]
            for name in sorted(schema.features)
        }
        features = {name: _settle(schema, name, found) for name, found in values.items() if found}
        settled = ContextSchema(features=features)
        room = max(8, MAX_COLUMNS // max(1, len(features)))
        codecs: list[Codec] = []
        dimension = 1
        for name, kind in features.items():
            codec = _CODECS[kind].fit(name, values[name], dimension, room)
            codecs.append(codec)
            dimension += codec.num_columns
        pairs, dimension = _interactions(codecs, dimension) if interactions else ([], dimension)
        return cls(_State(schema=settled, codecs=codecs, interactions=pairs, dimension=dimension))

    @property
    def columns(self) -> dict[str, range]:
        """The columns of each feature; the bias is column 0 and interactions come last."""
        return {codec.name: range(codec.first, codec.first + codec.num_columns) for codec in self._state.codecs}

    def encode(self, context: Context) -> F64:
        """Returns the vector of ``context``, shape ``(dimension,)``.

        Raises:
            ContextError: a feature is missing or unknown, or a value is not of its kind.
        """
        if type(context) is not dict:
            check_mapping(context)
        x = np.zeros(self.dimension)
        x[0] = 1.0  # the bias
        try:
            codes = [put(context[name], x) for name, put in self._features]
        except KeyError:
            self.schema.refuse(context)
        if len(context) != len(codes):
            self.schema.refuse(context)
        self._interact(codes, x)
        return x

    def encode_known(self, context: Context) -> F64:
        """Returns the vector of what the encoder knows of ``context``, shape ``(dimension,)``.

        An unknown feature is left out. One that is missing, or whose value is not of its kind, has none of its columns:
        for a linear model of standardised numbers and one-hot categories that is the mean, and no category.
        """
        x = np.zeros(self.dimension)
        x[0] = 1.0  # the bias
        known = self.schema.known_part(context)
        self._interact([put(known[name], x) if name in known else () for name, put in self._features], x)
        return x

    def _interact(self, codes: Sequence[Codes], x: F64) -> None:
        """Writes the columns of the pairs of codes."""
        for left, right, first, stride in self._interactions:
            for left_code, left_share in codes[left]:
                column = first + left_code * stride
                for right_code, right_share in codes[right]:
                    x[column + right_code] = left_share * right_share

    def to_config(self) -> dict[str, Any]:
        """Returns the encoder as JSON."""
        config: dict[str, Any] = msgspec.to_builtins(self._state)
        return config

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> ContextEncoder:
        """Returns the encoder that ``to_config`` described.

        Raises:
            CorruptError: ``config`` does not describe one.
        """
        state = convert_record(config, "a stored context encoder cannot be read", _State, error=CorruptError)
        _check_state(state)
        return cls(state)


def _settle(schema: ContextSchema, name: str, values: Sequence[object]) -> FeatureKind:
    kind = schema.features[name]
    if not schema.inferred or kind != "category":
        return kind
    if not all(isinstance(value, str) for value in values):
        return kind
    texts = [str(value) for value in values]
    return "text" if any(len(text) > LONG_TEXT or len(text.split()) > 1 for text in texts) else kind


def _interactions(codecs: Sequence[Codec], dimension: int) -> tuple[list[Interaction], int]:
    """Returns the interactions that fit and the dimension with them; those with more categories come first."""
    hot = [index for index, codec in enumerate(codecs) if codec.num_codes > 1]
    pairs = [(left, right) for left in hot for right in hot if left < right]
    pairs.sort(key=lambda pair: sum(isinstance(codecs[index], NumberCodec) for index in pair))
    interactions = []
    for left, right in pairs:
        stride = codecs[right].num_codes
        size = codecs[left].num_codes * stride
        if dimension + size <= MAX_INTERACTION_DIMENSION:
            interactions.append(Interaction(left=left, right=right, first=dimension, stride=stride))
            dimension += size
    return interactions, dimension


def _check_state(state: _State) -> None:
    """Raises CorruptError unless the columns follow each other without a gap."""
    column = 1
    for codec in state.codecs:
        if codec.first != column:
            raise CorruptError(f"a stored context encoder puts {codec.name!r} at column {codec.first}, not {column}")
        column += codec.num_columns
    for pair in state.interactions:
        if pair.first != column or not 0 <= pair.left < pair.right < len(state.codecs):
            raise CorruptError(f"a stored context encoder has an interaction that does not fit: {pair}")
        column += state.codecs[pair.left].num_codes * state.codecs[pair.right].num_codes
    if column != state.dimension:
        raise CorruptError(f"a stored context encoder has {column} columns and says {state.dimension}")
    names = [codec.name for codec in state.codecs]
    if sorted(names) != sorted(state.schema.features):
        raise CorruptError(f"a stored context encoder encodes {names} and its schema has {list(state.schema.features)}")
