"""How one feature becomes columns: numbers, categories and texts, each fitted once and then frozen.

``put`` writes the columns of a value into a vector and returns the value's codes for interactions: which of the
feature's indicator columns are on, and how much. A category has one, a number the two bins around it, a text none.
"""

from __future__ import annotations

import math
import re
import zlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from learnloop.nn.encoders.context_schema import read_category, read_number, read_text

if TYPE_CHECKING:
    from learnloop.core.protocols import Floats

NUM_KNOTS = 8
"""Knots of a number: the middles of so many quantile bins."""
CLIP = 3.0
"""Standardised numbers are clipped to plus and minus this."""
SKEWED = 1.0
"""A number that is never negative and whose sample skewness exceeds this is seen on a log scale."""
MAX_CATEGORIES = 32
"""How many categories get a column of their own, the most frequent first."""
NUM_OVERFLOW = 4
"""Hashed columns for the other categories."""
NUM_TEXT_BUCKETS = 128
"""Hashed columns of a text."""

Codes = Sequence[tuple[int, float]]
"""Pairs of a code and its share; the shares add up to 1."""

_WORD = re.compile(r"\w+")


class NumberCodec(msgspec.Struct, frozen=True, kw_only=True, tag="number", tag_field="kind"):
    """One column with the standardised number, and one column for each knot.

    A number counts for the two knots around it by its nearness, so that a linear model of the columns is piecewise
    linear in the number; outside the knots it counts for the nearest.
    """

    name: str
    logarithmic: bool
    """Whether the number v is seen as sign(v) log(1 + abs(v))."""
    mean: float
    scale: float
    """Standard deviation over the fitted contexts; 1 where they all agree."""
    knots: list[float]
    """Ascending, at least one, on the scale that ``logarithmic`` says."""
    first: int
    """The first of its columns."""

    @classmethod
    def fit(cls, name: str, values: Sequence[Any], first: int, room: int) -> NumberCodec:
        """Returns the codec for ``values``, with at most ``room`` columns from column ``first`` on."""
        numbers = np.array([read_number(name, value) for value in values])
        # Divided first: the squares, cubes and differences of very large numbers must not overflow.
        peak = float(np.abs(numbers).max()) or 1.0
        logarithmic = bool(numbers.min() >= 0 and _skewness(numbers / peak) > SKEWED)
        if logarithmic:
            numbers = np.log1p(numbers)
            peak = float(numbers.max())
        scaled = numbers / peak
        spread = float(scaled.std())
        return cls(
            name=name,
            logarithmic=logarithmic,
            mean=float(scaled.mean()) * peak,
            scale=spread * peak if spread > 1e-9 else 1.0,
            knots=[float(knot) * peak for knot in _knots(scaled, min(NUM_KNOTS, room - 1))],
            first=first,
        )

    @property
    def num_codes(self) -> int:
        """How many knots there are."""
        return len(self.knots)

    @property
    def num_columns(self) -> int:
        """How many columns it writes to."""
        return 1 + len(self.knots)

    def put(self, value: Any, x: Floats) -> Codes:
        """Writes ``value`` into ``x``; returns its knots. Raises ContextError if it is not a finite number."""
        number = value if type(value) is float and math.isfinite(value) else read_number(self.name, value)
        if self.logarithmic:
            number = math.log1p(number) if number >= 0 else -math.log1p(-number)
        first, knots = self.first, self.knots
        standardised = (number - self.mean) / self.scale
        x[first] = CLIP if standardised > CLIP else -CLIP if standardised < -CLIP else standardised
        above = bisect_right(knots, number)
        if 0 < above < len(knots):
            low = knots[above - 1]
            share = (0.5 * number - 0.5 * low) / (0.5 * knots[above] - 0.5 * low)  # halves do not overflow
            x[first + above] = 1.0 - share
            x[first + above + 1] = share
            return (above - 1, 1.0 - share), (above, share)
        nearest = above - 1 if above else 0
        x[first + 1 + nearest] = 1.0
        return ((nearest, 1.0),)


class CategoryCodec(msgspec.Struct, frozen=True, kw_only=True, tag="category", tag_field="kind"):
    """One-hot columns of the categories seen at fitting and hashed overflow columns for all others."""

    name: str
    codes: dict[str, int]
    """Category -> its code, counted from 0."""
    num_overflow: int
    first: int
    """The first of its columns."""

    @classmethod
    def fit(cls, name: str, values: Sequence[Any], first: int, room: int) -> CategoryCodec:
        """Returns the codec for ``values``, with at most ``room`` columns from column ``first`` on."""
        counts = Counter(read_category(name, value) for value in values)
        if any(isinstance(value, bool) for value in values):
            counts.update({"false": 0, "true": 0})  # both are known, also when one was not seen yet
        known = [key for key, _ in counts.most_common(max(1, min(MAX_CATEGORIES, room - NUM_OVERFLOW)))]
        return cls(
            name=name, codes={key: code for code, key in enumerate(known)}, num_overflow=NUM_OVERFLOW, first=first
        )

    @property
    def num_codes(self) -> int:
        """How many codes there are: the known categories and one for all others together."""
        return len(self.codes) + 1

    @property
    def num_columns(self) -> int:
        """How many columns it writes to."""
        return len(self.codes) + self.num_overflow

    def put(self, value: Any, x: Floats) -> Codes:
        """Writes ``value`` into ``x``; returns its code. Raises ContextError if it cannot be a category."""
        key = value if type(value) is str else read_category(self.name, value)
        code = self.codes.get(key)
        if code is None:
            code = len(self.codes)
            x[self.first + code + _hash(key) % self.num_overflow] = 1.0
        else:
            x[self.first + code] = 1.0
        return ((code, 1.0),)


class TextCodec(msgspec.Struct, frozen=True, kw_only=True, tag="text", tag_field="kind"):
    """Signed hashing of the lower-cased words of a text, of length 1 (or 0 for a text without words).

    Source: Weinberger et al. 2009, Feature Hashing for Large Scale Multitask Learning, section 2, definition 1.
    """

    name: str
    num_buckets: int
    first: int
    """The first of its columns."""

    @classmethod
    def fit(cls, name: str, values: Sequence[Any], first: int, room: int) -> TextCodec:
        """Returns the codec, with at most ``room`` columns from column ``first`` on."""
        for value in values:
            read_text(name, value)
        return cls(name=name, num_buckets=min(NUM_TEXT_BUCKETS, room), first=first)

    @property
    def num_codes(self) -> int:
        """A text takes part in no interaction."""
        return 0

    @property
    def num_columns(self) -> int:
        """How many columns it writes to."""
        return self.num_buckets

    def put(self, value: Any, x: Floats) -> Codes:
        """Writes ``value`` into ``x``; returns no codes. Raises ContextError if it is not text."""
        text = value if type(value) is str else read_text(self.name, value)
        write_hashed(_WORD.findall(text.lower()), x, self.first, self.num_buckets)
        return ()


Codec = NumberCodec | CategoryCodec | TextCodec


def write_hashed(words: Iterable[str], x: NDArray[Any], first: int, num_buckets: int) -> None:
    """Writes signed counts of hashed ``words`` into the zeros of ``x`` from column ``first`` on, of length 1.

    Source: Weinberger et al. 2009, Feature Hashing for Large Scale Multitask Learning, section 2, definition 1.
    """
    sums: dict[int, int] = {}
    for word in words:
        digest = _hash(word)
        bucket = (digest >> 1) % num_buckets  # the lowest bit is the sign
        sums[bucket] = sums.get(bucket, 0) + (1 if digest & 1 else -1)
    norm = math.sqrt(sum(count * count for count in sums.values()))
    if norm > 0:
        for bucket, count in sums.items():
            x[first + bucket] = count / norm


def _hash(text: str) -> int:
    """Returns 32 bits that are the same in every process and on every machine."""
    return zlib.crc32(text.encode("utf-8", "surrogatepass"))


def _skewness(values: Floats) -> float:
    """Returns the third standardised moment; 0 where the values agree."""
    centred = values - values.mean()
    deviation = float(np.sqrt(np.mean(centred**2)))
    return float(np.mean(centred**3)) / deviation**3 if deviation > 1e-9 else 0.0


def _knots(values: Floats, num_knots: int) -> Floats:
    """Returns at most ``num_knots`` ascending knots: the values themselves where few differ, else quantiles."""
    distinct = np.unique(values)
    if len(distinct) <= num_knots:
        return distinct
    return np.unique(np.quantile(values, (np.arange(num_knots) + 0.5) / num_knots))
