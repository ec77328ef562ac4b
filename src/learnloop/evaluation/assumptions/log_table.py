"""A log as arrays: which action was taken where, with which weight, in which slice of context and block of time."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import msgspec
import numpy as np

from learnloop.core.arrays import F64, Bools, Indices
from learnloop.core.protocols import Question, Sample
from learnloop.nn.encoders.context_schema import flat_context

_LARGEST = sys.float_info.max
MAX_ACTIONS = 20
"""So many actions are looked at one by one: those that were taken most often."""
MAX_FEATURES = 24
"""So many features of contexts are looked at, in the order of their first appearance."""
MAX_VALUES = 32
"""A feature with more different values that are no numbers is too fine to be sliced by."""
NUM_BINS = 8
MAX_DIRECTIONS = 1_000
"""Main components are found from so many vectors, spread over the log."""
NUM_COMPONENTS = 3
"""Of vectors, so many principal components are features."""


class Slicing(NamedTuple):
    """A way to divide a log: each row lies in one of its parts, or in none (-1)."""

    name: str
    """Of the feature, or ``time``."""
    labels: Sequence[str]
    parts: Indices
    """Shape ``(num_samples,)``."""


class LogTable:
    """Logged samples with known propensities, as arrays, in the order of time where it is known.

    Args:
        samples: any; those without a valid propensity are left out.
    """

    def __init__(self, samples: Sequence[Sample]) -> None:
        usable = [row for row, each in enumerate(samples) if each.propensity is not None and 0 < each.propensity <= 1]
        self.has_times = bool(usable) and all(samples[row].made_at is not None for row in usable)
        if self.has_times:
            usable.sort(key=lambda row: samples[row].made_at or 0.0)
        self.places: Indices = np.array(usable, dtype=np.intp)
        """Where each of ``samples`` is among those given."""
        self.samples = [samples[row] for row in usable]
        self.weights: F64 = 1 / np.array([each.propensity for each in self.samples], dtype=np.float64)
        """1 / propensity, shape ``(num_samples,)``."""
        self.importance: F64 = np.array([each.importance for each in self.samples], dtype=np.float64)
        """How many decisions each sample stands for, shape ``(num_samples,)``."""
        numbers: dict[str, int] = {}
        self.units: Indices = np.array(
            [numbers.setdefault(each.unit, len(numbers)) for each in self.samples], dtype=np.intp
        )
        self.num_units = len(numbers)

    def __len__(self) -> int:
        return len(self.samples)

    @cached_property
    def actions(self) -> list[str]:
        """The actions that were taken most often."""
        counts = Counter(each.action for each in self.samples)
        return [action for action, _ in counts.most_common(MAX_ACTIONS)]

    @cached_property
    def taken(self) -> Indices:
        """The place of each sample's action in ``actions``; -1: it is a rarer one. Shape ``(num_samples,)``."""
        places = {action: place for place, action in enumerate(self.actions)}
        return np.array([places.get(each.action, -1) for each in self.samples], dtype=np.intp)

    @cached_property
    def offered(self) -> Bools:
        """Which of ``actions`` could be taken, shape ``(num_samples, num_actions)``."""
        kinds: dict[tuple[tuple[str, ...], tuple[bool, ...] | None], int] = {}
        rows = []
        for each in self.samples:
            mask = None if each.mask is None else tuple(each.mask)
            rows.append(kinds.setdefault((tuple(each.actions), mask), len(kinds)))
        allowed = np.zeros((len(kinds), len(self.actions)), dtype=bool)
        for row, (names, mask) in enumerate(kinds):
            open_to = set(names) if mask is None else {name for name, ok in zip(names, mask, strict=True) if ok}
            allowed[row] = [action in open_to for action in self.actions]
        found: Bools = allowed[np.array(rows, dtype=np.intp)] if rows else allowed.astype(bool)
        return found

    @cached_property
    def excess(self) -> F64:
        """1{a_i = a} / p_i - 1 where a was offered, else 0: what right propensities make 0 on average, for each action.

        Times the importance of each sample, in means of it. Shape ``(num_samples, num_actions)``.
        """
        found = np.where(self.offered, -1.0, 0.0)
        known = np.flatnonzero(self.taken >= 0)
        found[known, self.taken[known]] += self.weights[known]
        if bool(np.all(self.importance == 1.0)):
            return found
        scaled: F64 = found * (self.importance / self.importance.mean())[:, None]
        return scaled

    @cached_property
    def slicings(self) -> list[Slicing]:
        """The ways to divide this log: by blocks of time, and by each feature of contexts."""
        by_time = [self._time_blocks(number) for number in (2, 4, 8, 32)] if self.has_times else []
        return [*by_time, *(_slicing(name, values) for name, values in self.features.items())]

    @cached_property
    def features(self) -> Mapping[str, list[object]]:
        """The values of each feature of contexts, None where a context lacks it, and of vectors' main components."""
        return flat_features(self.samples) | _components(self.samples)

    def _time_blocks(self, number: int) -> Slicing:
        parts = np.arange(len(self)) * number // max(len(self), 1)
        return Slicing("time", [f"part {part + 1} of {number}" for part in range(number)], parts.astype(np.intp))


def content_of(sample: Sample) -> bytes:
    """Returns what a policy is asked in a sample, as bytes: the same for the same question."""
    context = sample.context
    vector = context.vector if isinstance(context, Question) else None
    features = context.action_features if isinstance(context, Question) else None
    asked = (context, features, None if vector is None else vector.tobytes(), sample.actions)
    try:
        return msgspec.json.encode(asked)
    except UnicodeEncodeError:  # half of a character of UTF-16, as JSON may have it
        return repr(asked).encode(errors="backslashreplace")


def flat_features(samples: Sequence[Sample]) -> dict[str, list[object]]:
    """Returns the values of each feature of contexts, nested ones by dotted names; None where a context lacks it."""
    flat = [flat_context(each.context) for each in samples]
    names = list(dict.fromkeys(name for context in flat[:2_000] for name in context))[:MAX_FEATURES]
    return {name: [context.get(name) for context in flat] for name in names}


def _components(samples: Sequence[Sample]) -> dict[str, list[object]]:
    """Returns the main components of the vectors that samples bring; none where they differ in length."""
    vectors = [each.context.vector if isinstance(each.context, Question) else None for each in samples]
    sizes = {None if each is None else each.size for each in vectors}
    if len(sizes) != 1 or None in sizes or 0 in sizes:
        return {}
    matrix = np.array(vectors, dtype=np.float32)  # as they are stored: long logs of long vectors are large
    if not np.isfinite(matrix).all():
        return {}
    mean = matrix.mean(axis=0)
    step = -(-len(matrix) // MAX_DIRECTIONS)
    _, _, directions = np.linalg.svd(matrix[::step] - mean, full_matrices=False)
    main = directions[:NUM_COMPONENTS].T
    scores = matrix @ main - mean @ main
    return {f"vector component {place + 1}": column.tolist() for place, column in enumerate(scores.T)}


def _slicing(name: str, values: Sequence[object]) -> Slicing:
    """Returns slices by a feature: its values, or bins of as many rows each where they are many numbers."""
    keys = [_key(value) for value in values]
    counts = Counter(keys)
    if len(counts) > MAX_VALUES or (len(counts) > NUM_BINS and all(is_number(value) for value in values)):
        numbers = np.array([float(value) if is_number(value) else np.nan for value in values])  # type: ignore[arg-type]
        if np.isnan(numbers).all():
            return Slicing(name, [], np.full(len(values), -1, dtype=np.intp))
        cuts = np.unique(np.nanquantile(numbers, np.arange(1, NUM_BINS) / NUM_BINS))
        parts = np.where(np.isnan(numbers), -1, np.searchsorted(cuts, numbers, side="right"))
        ends = ["", *(f"{cut:.3g}" for cut in cuts), ""]
        labels = [_range(low, high) for low, high in pairwise(ends)]
        return Slicing(name, labels, parts.astype(np.intp))
    places = {key: place for place, key in enumerate(counts)}
    return Slicing(name, list(places), np.array([places[key] for key in keys], dtype=np.intp))


def is_number(value: object) -> bool:
    """Returns whether a feature's value is a finite number; a boolean is none."""
    if not isinstance(value, int | float | np.floating) or isinstance(value, bool):
        return False
    number = float(value) if isinstance(value, np.floating) else value
    return abs(number) <= _LARGEST  # JSON has integers of any size


def _key(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _range(low: str, high: str) -> str:
    if not low:
        return f"below {high}" if high else "any"
    return f"from {low} on" if not high else f"{low} to {high}"
