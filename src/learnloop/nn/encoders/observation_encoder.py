"""From observations to vectors: what each space's values look like to a network. Knows nothing of environments."""

from __future__ import annotations

import operator
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from learnloop.core.arrays import F32
from learnloop.core.errors import ContextError, ExtensionError, one_of
from learnloop.core.spaces import (
    Box,
    Dict,
    Discrete,
    MultiBinary,
    MultiDiscrete,
    ObservationSpace,
    Text,
    Tuple,
)
from learnloop.nn.encoders.feature_codecs import write_hashed
from learnloop.nn.encoders.text_encoders import encode_texts, find_encoder

_FLOAT32 = np.dtype(np.float32)
_SHOWN = 120
"""So many characters of a wrong value are shown."""


class ObservationEncoder:
    """Encodes observations of one space as float32 vectors.

    A Box is laid out flat and kept as it is; a Discrete or MultiDiscrete becomes one indicator for each of its values;
    a MultiBinary its zeros and ones; a Text hashed counts of its words and three-letter parts, of length 1. A Dict is
    its entries in the order of their names, a Tuple in the order of their positions.

    Attributes:
        space: the observation space.
        size: how many numbers a vector has.
        encode_into: ``encode_into(observation, row)`` writes one observation into ``row``, float32 of shape
            ``(size,)``. It does not look for NaN and infinities: ``check_finite`` does, for a whole batch at once.
            Raises ContextError where the observation does not fit the space.
    """

    encode_into: Callable[[Any, F32], None]

    def __init__(self, space: ObservationSpace) -> None:
        self.space = space
        self._root = _node(space, "observation", 0)
        self.size = self._root.stop
        self._takes_batches = any(isinstance(leaf, _EncodedTextLeaf) for leaf in self._root.leaves())
        self._zeros = np.zeros(0, dtype=np.float32)
        self.encode_into = self._box_into if isinstance(self._root, _BoxLeaf) else self._root.put

    def encode(self, observation: Any) -> F32:
        """Returns the vector of one observation, shape ``(size,)``.

        Raises:
            ContextError: it does not fit the space, or holds a number that is not finite.
        """
        vector = np.empty(self.size, dtype=np.float32)
        self.encode_into(observation, vector)
        self.check_finite(vector[None])
        return vector

    def encode_batch(self, observations: Any, num: int, out: F32 | None = None) -> F32:
        """Returns the vectors of ``num`` observations, batched as gymnasium's vector environments batch them.

        Args:
            observations: an array whose first axis counts observations, a mapping or a tuple of such, a sequence of
                texts: as the space says.
            num: how many observations.
            out: where to write, shape ``(num, size)``; None: a new array.

        Raises:
            ContextError: they do not fit the space, or hold a number that is not finite.
        """
        encoded = np.empty((num, self.size), dtype=np.float32) if out is None else out
        self._root.put_batch(observations, encoded)
        self.check_finite(encoded)
        return encoded

    def encode_list(self, observations: Sequence[Any], out: F32) -> None:
        """Writes single observations into the rows of ``out``; like ``encode_into`` it does not look for NaN.

        Raises:
            ContextError: one does not fit the space.
        """
        leaf, kind = self._root, np.ndarray
        if leaf.is_flat and False not in [
            type(each) is kind and each.dtype is _FLOAT32 and each.shape == leaf.shape for each in observations
        ]:
            np.concatenate(observations, out=out.reshape(-1))
            return
        if self._takes_batches:
            leaf.put_list(observations, out)
            return
        for observation, row in zip(observations, out, strict=True):
            self.encode_into(observation, row)

    def check_finite(self, encoded: F32) -> None:
        """Returns if every number of a batch, shape ``(num, size)``, is finite.

        Raises:
            ContextError: one is not; the message names where it stands.
        """
        flat = encoded.reshape(-1)
        if len(self._zeros) < len(flat):
            self._zeros = np.zeros(len(flat), dtype=np.float32)
        zeros = self._zeros if len(self._zeros) == len(flat) else self._zeros[: len(flat)]
        # NaN and infinities times 0 are NaN, and no finite number overflows: five times as fast as isfinite().all().
        try:
            total = flat.dot(zeros)
        except RuntimeWarning:  # an infinity, where the caller made warnings errors
            total = np.float32(np.nan)
        if total != 0.0:
            self._refuse_infinite(encoded)

    def _refuse_infinite(self, encoded: F32) -> NoReturn:
        row, column = (int(each) for each in np.argwhere(~np.isfinite(encoded))[0])
        leaf = next(each for each in self._root.leaves() if each.first <= column < each.stop)
        where = "" if len(encoded) == 1 else f" (row {row})"
        raise ContextError(
            f"{leaf.name}{where} holds {encoded[row, column]} at index {column - leaf.first}; every number must be "
            "finite in 32 bits"
        )

    def _box_into(self, observation: Any, row: F32) -> None:
        leaf = self._root
        if type(observation) is np.ndarray and observation.dtype is _FLOAT32 and observation.shape == leaf.shape:
            row[:] = observation if leaf.is_flat else observation.reshape(-1)
        else:
            leaf.put(observation, row)


class _Node(ABC):
    """A space and the columns ``first`` to ``stop`` that it writes to."""

    name: str
    first: int
    stop: int
    shape: tuple[int, ...] = ()
    is_flat = False

    @abstractmethod
    def put(self, value: Any, row: F32) -> None:
        """Writes one value into a vector."""

    @abstractmethod
    def put_batch(self, values: Any, rows: F32) -> None:
        """Writes a batch of values into vectors."""

    def put_list(self, values: Sequence[Any], rows: F32) -> None:
        """Writes single values into vectors."""
        for value, row in zip(values, rows, strict=True):
            self.put(value, row)

    def leaves(self) -> Iterator[_Node]:
        """Yields the spaces without parts."""
        yield self

    def refuse(self, value: object, wanted: str) -> NoReturn:
        """Raises the error for a value that does not fit."""
        text = " ".join(repr(value).split())
        shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "..."
        raise ContextError(f"{self.name} is {shown}; {wanted} is needed")

    def array(self, value: Any, wanted: str, kinds: str) -> NDArray[Any]:
        """Returns ``value`` as an array of one of the ``kinds`` of numpy's types."""
        try:
            array = np.asarray(value)
        except ValueError:  # rows of different lengths
            self.refuse(value, wanted)
        if array.dtype.kind not in kinds:
            self.refuse(value, wanted)
        return array


class _BoxLeaf(_Node):
    def __init__(self, space: Box, name: str, first: int) -> None:
        self.name, self.first, self.stop = name, first, first + space.size
        self.shape = tuple(space.shape)
        self.is_flat = len(self.shape) == 1
        self._wanted = f"an array of numbers of shape {self.shape}"

    def put(self, value: Any, row: F32) -> None:
        array = self.array(value, self._wanted, "fiub")
        if array.shape != self.shape:
            self.refuse(value, f"{self._wanted}, not {array.shape},")
        self._write(array.reshape(-1), row[self.first : self.stop], value)

    def put_batch(self, values: Any, rows: F32) -> None:
        array = self.array(values, self._wanted, "fiub")
        if array.shape != (len(rows), *self.shape):
            self.refuse(values, f"{len(rows)} times {self._wanted}, not {array.shape},")
        self._write(array.reshape(len(rows), -1), rows[:, self.first : self.stop], values)

    def _write(self, array: NDArray[Any], target: F32, value: object) -> None:
        try:
            target[...] = array
        except RuntimeWarning:  # too large for 32 bits, where the caller made warnings errors
            self.refuse(value, f"{self._wanted}, each finite in 32 bits,")


class _ChoiceLeaf(_Node):
    """Discrete and MultiDiscrete: one indicator for each value of each choice."""

    def __init__(self, nvec: Sequence[int], start: int, is_single: bool, name: str, first: int) -> None:
        self.name, self.first, self.stop = name, first, first + sum(nvec)
        self._nvec = np.array(nvec)
        self._start = start
        self._is_single = is_single
        self._columns = first + np.concatenate([[0], np.cumsum(nvec)[:-1]]).astype(np.int64)
        self._wanted = (
            f"a whole number from {start} to {start + nvec[0] - 1}"
            if is_single
            else f"{len(nvec)} whole numbers, each from 0 to below {list(nvec)},"
        )

    def put(self, value: Any, row: F32) -> None:
        row[self.first : self.stop] = 0.0
        if self._is_single:
            try:
                number = operator.index(value) - self._start
            except TypeError:
                self.refuse(value, self._wanted)
            if not 0 <= number < self.stop - self.first:
                self.refuse(value, self._wanted)
            row[self.first + number] = 1.0
            return
        numbers = self.array(value, self._wanted, "iub").reshape(-1).astype(np.int64)
        if numbers.shape != self._nvec.shape or (numbers < 0).any() or (numbers >= self._nvec).any():
            self.refuse(value, self._wanted)
        row[self._columns + numbers] = 1.0

    def put_batch(self, values: Any, rows: F32) -> None:
        num = len(rows)
        numbers = self.array(values, self._wanted, "iub").astype(np.int64)
        if numbers.size != num * len(self._nvec) or len(numbers) != num:
            self.refuse(values, f"for each of {num} rows {self._wanted}")
        numbers = numbers.reshape(num, -1) - self._start
        bad = (numbers < 0) | (numbers >= self._nvec)
        if bad.any():
            self.refuse(np.asarray(values)[int(np.argmax(bad.any(axis=1)))].tolist(), self._wanted)
        rows[:, self.first : self.stop] = 0.0
        rows[np.arange(num)[:, None], self._columns + numbers] = 1.0


class _SwitchLeaf(_Node):
    def __init__(self, space: MultiBinary, name: str, first: int) -> None:
        self.name, self.first, self.stop = name, first, first + space.n
        self._wanted = f"{space.n} zeros and ones"

    def put(self, value: Any, row: F32) -> None:
        self._write(self.array(value, self._wanted, "iub").reshape(1, -1), row[None], value)

    def put_batch(self, values: Any, rows: F32) -> None:
        array = self.array(values, self._wanted, "iub")
        if array.ndim == 0 or len(array) != len(rows):
            self.refuse(values, f"for each of {len(rows)} rows {self._wanted}")
        self._write(array.reshape(len(rows), -1), rows, values)

    def _write(self, array: NDArray[Any], rows: F32, value: object) -> None:
        if array.shape[1] != self.stop - self.first or not ((array == 0) | (array == 1)).all():
            self.refuse(value, self._wanted)
        rows[:, self.first : self.stop] = array


class _TextLeaf(_Node):
    """Signed hashing of lower-cased words and of each three neighbouring characters.

    Source: Weinberger et al. 2009, Feature Hashing for Large Scale Multitask Learning, section 2, definition 1;
    Bojanowski et al. 2017, Enriching Word Vectors with Subword Information, section 3.2 (parts of words).
    """

    def __init__(self, space: Text, name: str, first: int) -> None:
        self.name, self.first, self.stop = name, first, first + space.num_buckets
        self._num_buckets = space.num_buckets

    def put(self, value: Any, row: F32) -> None:
        if not isinstance(value, str):
            self.refuse(value, "text")
        row[self.first : self.stop] = 0.0
        write_hashed(_parts(value.lower()), row, self.first, self._num_buckets)

    def put_batch(self, values: Any, rows: F32) -> None:
        if isinstance(values, str) or not isinstance(values, Sequence | np.ndarray) or len(values) != len(rows):
            self.refuse(values, f"a sequence of {len(rows)} texts")
        self.put_list(list(values), rows)


class _EncodedTextLeaf(_TextLeaf):
    """A text as an encoder that was added sees it: many at once where many are there, as one call may take long."""

    def __init__(self, space: Text, name: str, first: int) -> None:
        super().__init__(space, name, first)
        self._label = space.encoder or ""
        self._encoder = find_encoder(self._label)
        if self._encoder.size != space.num_buckets:
            raise ExtensionError(
                f"the encoder {space.encoder!r} gives {self._encoder.size} numbers and {name} has room for "
                f"{space.num_buckets}; another version of it was used"
            )

    def put(self, value: Any, row: F32) -> None:
        self.put_list([value], row[None])

    def put_list(self, values: Sequence[Any], rows: F32) -> None:
        for value in values:
            if not isinstance(value, str):
                self.refuse(value, "text")
        rows[:, self.first : self.stop] = encode_texts(self._label, self._encoder, [str(value) for value in values])


def _parts(text: str) -> list[str]:
    """Returns the words, and the three-letter parts of the text with single spaces around and between its words."""
    spaced = f" {' '.join(text.split())} "
    return re.findall(r"\w+", text) + [spaced[at : at + 3] for at in range(len(spaced) - 2)]


class _Branch(_Node):
    """A Dict or a Tuple: its entries one after the other."""

    def __init__(self, entries: Sequence[tuple[Any, ObservationSpace]], is_named: bool, name: str, first: int) -> None:
        self.name, self.first, self.stop = name, first, first
        self._is_named = is_named
        self._entries: list[tuple[Any, _Node]] = []
        for key, space in entries:
            node = _node(space, f"{name}[{key!r}]", self.stop)
            self._entries.append((key, node))
            self.stop = node.stop

    def put(self, value: Any, row: F32) -> None:
        self._check(value)
        for key, node in self._entries:
            node.put(value[key], row)

    def put_list(self, values: Sequence[Any], rows: F32) -> None:
        for value in values:
            self._check(value)
        for key, node in self._entries:
            node.put_list([value[key] for value in values], rows)

    def put_batch(self, values: Any, rows: F32) -> None:
        self._check(values)
        for key, node in self._entries:
            node.put_batch(values[key], rows)

    def leaves(self) -> Iterator[_Node]:
        for _, node in self._entries:
            yield from node.leaves()

    def _check(self, value: Any) -> None:
        keys = [key for key, _ in self._entries]
        if not self._is_named:
            if not isinstance(value, tuple | list) or len(value) != len(keys):
                self.refuse(value, f"a tuple of {len(keys)}")
            return
        if not isinstance(value, Mapping):
            self.refuse(value, f"a mapping with {one_of(keys)}")
        missing = [key for key in keys if key not in value]
        if missing:
            raise ContextError(f"{self.name} lacks {one_of(missing)}; it has {one_of(value)} and needs {one_of(keys)}")
        if len(value) != len(keys):
            unknown = [key for key in value if key not in keys]
            raise ContextError(f"{self.name} has unknown entries {one_of(unknown)}; allowed are {one_of(keys)}")


def _node(space: ObservationSpace, name: str, first: int) -> _Node:
    match space:
        case Box():
            return _BoxLeaf(space, name, first)
        case Discrete():
            return _ChoiceLeaf((space.n,), space.start, True, name, first)
        case MultiDiscrete():
            return _ChoiceLeaf(space.nvec, 0, False, name, first)
        case MultiBinary():
            return _SwitchLeaf(space, name, first)
        case Text():
            return (_TextLeaf if space.encoder is None else _EncodedTextLeaf)(space, name, first)
        case Dict():
            return _Branch(sorted(space.spaces.items()), True, name, first)
        case Tuple():
            return _Branch(list(enumerate(space.spaces)), False, name, first)
