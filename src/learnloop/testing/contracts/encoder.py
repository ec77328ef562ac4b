"""What an encoder promises: the same context is always the same numbers, whoever asks."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import subprocess
import sys
from abc import abstractmethod
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from learnloop.core.errors import ContextError
from learnloop.testing.contracts.contract import Contract, expect, fail, needs, refuses, same, skip

_CHILD_SECONDS = 60
_CHILD = """
import importlib.util, json, sys
told = json.loads(sys.argv[1])
sys.path[:0] = told["path"]
spec = importlib.util.spec_from_file_location(told["module"], told["file"])
module = importlib.util.module_from_spec(spec)
sys.modules[told["module"]] = module
spec.loader.exec_module(module)
contract = module
for name in told["name"].split("."):
    contract = getattr(contract, name)
sys.stdout.write("digest " + contract().digest())
"""


class EncoderContract(Contract):
    """Rules of encoders of contexts or observations.

    ::

        class TestMine(EncoderContract):
            def make(self):
                return MyEncoder()

            def fitting(self):
                return [{"kind": "text", "size": 3}, {"kind": "image", "size": 8}]

            def unfitting(self):
                return [{"kind": "text"}, {"kind": "text", "size": float("nan")}]

    Attributes:
        dtype: of its vectors.
    """

    dtype: ClassVar[Any] = np.float32

    @abstractmethod
    def make(self) -> Any:
        """Returns an encoder: ``encode(value)`` returns a vector."""

    @abstractmethod
    def fitting(self) -> list[Any]:
        """Returns values that fit, at least two, each of which means something else."""

    @abstractmethod
    def unfitting(self) -> list[Any]:
        """Returns values that do not fit, at least one."""

    def size_of(self, encoder: Any) -> int:
        """Returns how many numbers a vector of ``encoder`` has by its own account; its ``size``."""
        return int(encoder.size)

    def again(self, encoder: Any) -> Any:
        """Returns the encoder that a stored policy would have: by ``to_config`` and ``from_config`` in a subclass."""
        return None

    def digest(self) -> str:
        """Returns a hash over the vectors of all fitting values."""
        encoder = self.make()
        found = hashlib.sha256()
        for value in self.fitting():
            found.update(np.ascontiguousarray(encoder.encode(value)).tobytes())
        return found.hexdigest()

    def test_vectors_have_one_size(self) -> None:
        """Each value becomes a finite vector of the same size and type."""
        encoder = self.make()
        wanted = (self.size_of(encoder),)
        why = "networks and regressions are built for it"
        for value in self.fitting():
            found = encoder.encode(value)
            is_fine = isinstance(found, np.ndarray) and found.shape == wanted and found.dtype == self.dtype
            shown = f"{found.dtype} {found.shape}" if isinstance(found, np.ndarray) else type(found)
            expect(is_fine, f"a vector is {np.dtype(self.dtype)} of shape {wanted}", f"{shown} for {value!r}", why)
            expect(np.isfinite(found).all(), "a vector is finite", found, why)

    def test_the_same_value_is_the_same_vector(self) -> None:
        """A value is encoded the same each time, by each encoder, whatever was encoded before."""
        first, second = self.make(), self.make()
        values = self.fitting()
        wanted = [np.array(first.encode(value)) for value in values]
        why = "a policy would see another context than it learned"
        for number in reversed(range(len(values))):
            for encoder in (first, second):
                same(np.array(encoder.encode(values[number])), wanted[number], "a value has one vector", why)

    def test_vectors_are_apart(self) -> None:
        """A vector that was returned does not change with the next one."""
        encoder = self.make()
        values = self.fitting()
        first = encoder.encode(values[0])
        kept = np.array(first)
        for value in values[1:]:
            encoder.encode(value)
        why = "a decision waits for its reward with its vector"
        same(first, kept, "a vector that was returned stays as it is", why)

    def test_other_values_are_other_vectors(self) -> None:
        """What differs in meaning differs in numbers."""
        encoder = self.make()
        vectors = {encoder.encode(value).tobytes() for value in self.fitting()}
        count = len(self.fitting())
        expect(count >= 2, "fitting gives at least two values", count, "this rule would check nothing")
        why = "what looks the same cannot be told apart"
        same(len(vectors), count, "values that differ have vectors that differ", why)

    def test_it_leaves_values_alone(self) -> None:
        """What is encoded stays as it is."""
        encoder = self.make()
        for value in self.fitting():
            before = copy.deepcopy(value)
            encoder.encode(value)
            same(repr(value), repr(before), "values stay as they are", "a context is stored with its decision")

    def test_what_does_not_fit_is_refused(self) -> None:
        """A value that does not fit is refused with a ContextError, and what comes after it is encoded as before."""
        encoder = self.make()
        value = self.fitting()[0]
        wanted = np.array(encoder.encode(value))
        wrong = self.unfitting()
        expect(wrong, "unfitting gives at least one value", "none", "this rule would check nothing")
        why = "what is missing or no number would be taken for 0"
        for each in wrong:
            refuses(ContextError, f"{each!r} is refused", why, encoder.encode, each)
            same(np.array(encoder.encode(value)), wanted, "a refusal changes nothing", why)

    def test_another_process_says_the_same(self) -> None:
        """In a process of its own, with other hashes of texts, the vectors are the same."""
        kind = type(self)
        module = sys.modules.get(kind.__module__)
        path = getattr(module, "__file__", None)
        if path is None or "<locals>" in kind.__qualname__:
            skip("the contract is not in a file, so that another process cannot read it")
        here = self.digest()
        told = {"path": sys.path, "module": kind.__module__, "file": str(Path(path)), "name": kind.__qualname__}
        child = subprocess.run(
            [sys.executable, "-c", _CHILD, json.dumps(told)],
            capture_output=True,
            text=True,
            check=False,
            timeout=_CHILD_SECONDS,
            env={**os.environ, "PYTHONHASHSEED": "1"},
        )
        promise, why = "another process encodes the same", "a policy is learned in one process and served in another"
        if child.returncode:
            fail(promise, f"the process failed: {child.stderr[-500:]}", why)
        same(child.stdout.rpartition("digest ")[2], here, promise, why)

    def test_a_stored_encoder_says_the_same(self) -> None:
        """Stored as JSON and read again, it encodes the same."""
        encoder = self.make()
        read = self.again(encoder)
        needs(read is not None, "again returns None: it is not stored by itself")
        why = "a policy is served with the encoder that was stored"
        for value in self.fitting():
            same(np.array(read.encode(value)), np.array(encoder.encode(value)), "stored, it encodes the same", why)
