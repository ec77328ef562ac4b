"""Contracts of encoders, apart from the rest: another process reads this file, and should not have to read much."""

from __future__ import annotations

from typing import Any

import numpy as np

from learnloop.core.errors import ContextError
from learnloop.core.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Text, Tuple
from learnloop.nn.encoders.context_encoder import ContextEncoder
from learnloop.nn.encoders.context_schema import ContextSchema
from learnloop.nn.encoders.observation_encoder import ObservationEncoder
from learnloop.testing.contracts.encoder import EncoderContract


class TestObservationEncoder(EncoderContract):
    def make(self) -> Any:
        parts = {
            "box": Box(shape=(2,), low=(None,) * 2, high=(None,) * 2),
            "kind": Discrete(n=3),
            "pair": Tuple(spaces=(MultiDiscrete(nvec=(2, 2)), MultiBinary(n=2))),
            "text": Text(num_buckets=16),
        }
        return ObservationEncoder(Dict(spaces=parts))

    def fitting(self) -> list[Any]:
        first = {"box": [0.5, 1.5], "kind": 1, "pair": ([0, 1], [1, 0]), "text": "pack the file"}
        return [first, {**first, "kind": 2}, {**first, "pair": ([0, 1], [1, 1])}, {**first, "text": "send it"}]

    def unfitting(self) -> list[Any]:
        good = self.fitting()[0]
        wrong = [{"box": [0.5, float("nan")]}, {"box": [0.5]}, {"kind": 3}, {"text": 5}, {"more": 1}]
        return [*({**good, **each} for each in wrong), {"box": [0.5, 1.5]}, None]


CONTEXTS = [{"kind": ("x", "y", "z")[i % 3], "size": float(i * i), "note": f"word{i} and"} for i in range(20)]


class TestContextEncoder(EncoderContract):
    dtype = np.float64

    def make(self) -> Any:
        return ContextEncoder.fit(ContextSchema.infer(CONTEXTS[0]), CONTEXTS)

    def fitting(self) -> list[Any]:
        return CONTEXTS[:6]

    def unfitting(self) -> list[Any]:
        return [{}, {"kind": "x"}, {**CONTEXTS[0], "size": float("nan")}, {**CONTEXTS[0], "more": 1.0}]

    def size_of(self, encoder: Any) -> int:
        return int(encoder.dimension)

    def again(self, encoder: Any) -> Any:
        return ContextEncoder.from_config(encoder.to_config())


class WordEncoder:
    """Two numbers of a dict with one word; with a fault where one is named."""

    size = 2

    def __init__(self, fault: str = "") -> None:
        self.fault = fault
        self.count = 0
        self.buffer = np.zeros(2, dtype=np.float32)

    def encode(self, value: Any) -> Any:
        word = value.get("word")
        if word is None and self.fault != "missing is empty":
            raise ContextError("word is missing")
        self.count += 1
        found = self.buffer if self.fault == "one buffer" else np.zeros(2, dtype=np.float32)
        found[:] = len(word or ""), sum(map(ord, word or ""))
        if self.fault == "another size":
            return np.append(found, found[:1]).astype(np.float32)
        if self.fault == "counts":
            found[0] = self.count
        if self.fault == "constant":
            found[:] = 1
        if self.fault == "takes the word":
            value["word"] = ""
        if self.fault == "hashes":
            found[0] = hash(word) % 1000
        return found


class WordContract(EncoderContract):
    fault = ""

    def make(self) -> Any:
        return WordEncoder(self.fault)

    def fitting(self) -> list[Any]:
        return [{"word": word} for word in ("one", "three", "seventeen")]

    def unfitting(self) -> list[Any]:
        return [{}]

    def again(self, encoder: Any) -> Any:
        return WordEncoder("constant" if self.fault == "stored otherwise" else self.fault)


class AnotherSize(WordContract):
    fault = "another size"


class Counts(WordContract):
    fault = "counts"


class OneBuffer(WordContract):
    fault = "one buffer"


class Constant(WordContract):
    fault = "constant"


class TakesTheWord(WordContract):
    fault = "takes the word"


class MissingIsEmpty(WordContract):
    fault = "missing is empty"


class Hashes(WordContract):
    fault = "hashes"


class StoredOtherwise(WordContract):
    fault = "stored otherwise"
