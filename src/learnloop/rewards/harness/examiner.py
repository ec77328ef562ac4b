"""Runs the tests of a task against the code in the other sandbox; runs in a sandbox of its own.

On its standard input it gets the tests, on its standard output it says how each ended, one line of JSON a test. What
the tests print goes to standard error.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib
import io
import json
import math
import os
import sys
import types
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from peer import Peer, PeerError, Proxy

TESTS = "tests"


def may_use(kept: Any, operation: str, name: Any) -> bool:
    """What the code of an answer may do with what a test gave it: call it, go through it, and read public fields.

    Nothing that leads to the tests themselves: no attribute of a function, a generator or a module.
    """
    if operation == "get":
        own = type(kept).__module__ == TESTS and not isinstance(kept, type)
        return own and isinstance(name, str) and not name.startswith("_")
    if operation == "call":
        return callable(kept)
    return operation in ("iter", "next", "len", "bool", "contains", "getitem", "str", "eq", "hash")


def is_same(gave: Any, expected: Any, tolerance: float) -> bool:
    """Whether a value is the one that JSON says, which knows no tuples; a proxy is none."""
    if isinstance(expected, bool) or expected is None or isinstance(expected, str):
        return type(gave) is type(expected) and gave == expected
    if isinstance(expected, int | float):
        if type(gave) not in (int, float):
            return False
        return gave == expected or (tolerance > 0 and math.isclose(gave, expected, rel_tol=0, abs_tol=tolerance))
    if isinstance(expected, list):
        fits = type(gave) in (list, tuple) and len(gave) == len(expected)
        return fits and all(is_same(*pair, tolerance) for pair in zip(gave, expected, strict=True))
    fits = type(gave) is dict and gave.keys() == expected.keys()
    return fits and all(is_same(gave[key], value, tolerance) for key, value in expected.items())


def _exception_base(names: list[str]) -> type[Exception]:
    found = [vars(builtins).get(each) for each in names]
    return next(each for each in found if isinstance(each, type) and issubclass(each, Exception))


class Session:
    """The tests of one task, one after the other."""

    def __init__(self, task: dict[str, Any], report: Callable[[dict[str, Any]], None]) -> None:
        self._task = task
        self._report = report
        self._peer = Peer(3, 4, may_use)
        self._namespace = types.ModuleType(TESTS).__dict__
        self._number = 0

    def run(self) -> None:
        try:
            names = Proxy(self._peer, 0)()
        except PeerError:
            return self._report({"failed": "the code ended the process"})
        except Exception as error:
            return self._report({"failed": f"the code raised {type(error).__name__}: {error}"})
        self._offer(names)
        if self._task["setup"] and not self._run_setup():
            return None
        for source in self._task["asserts"]:
            self._one(partial(self._execute, source))
        for case in self._task["cases"]:
            self._one(partial(self._case, **case))
        if self._task["program"]:
            self._program()
        return self._report({"finished": True})

    def _offer(self, names: list[Any]) -> None:
        module = types.ModuleType("answer")
        for name, value, number, bases in names:
            if bases is not None:
                value = self._peer.mirrored[number] = type(name, (_exception_base(bases),), {})
            setattr(module, name, value)
            if name in sys.stdlib_module_names:  # the tests use the real one
                self._namespace[name] = importlib.import_module(name)
            elif name not in vars(builtins) or name == self._task["entry_point"]:
                self._namespace[name] = value
        sys.modules["answer"] = sys.modules["solution"] = module
        entry = self._task["entry_point"]
        if entry is not None and entry in self._namespace:
            self._namespace["candidate"] = self._namespace[entry]

    def _run_setup(self) -> bool:
        try:
            self._execute(self._task["setup"])
        except PeerError:
            self._report({"failed": "the code ended the process"})
            return False
        except BaseException as error:
            self._report({"broken": f"the set-up raised {type(error).__name__}: {error}"})
            return False
        return True

    def _execute(self, source: str) -> None:
        exec(compile(source, TESTS, "exec", dont_inherit=True), self._namespace)

    def _case(self, call: str, args: list[Any], kwargs: dict[str, Any], expected: Any, tolerance: float) -> None:
        gave = self._namespace[call](*args, **kwargs)
        if not is_same(gave, expected, tolerance):
            raise AssertionError(f"{call} gave {gave!r}")

    def _program(self) -> None:
        try:
            self._execute(self._task["program"])
        except PeerError:
            raise
        except BaseException as error:
            return self._report({"test": self._next(), "passed": False, "why": f"{type(error).__name__}: {error}"})
        found = list(self._functions())
        if not found:
            return self._report({"test": self._next(), "passed": True})
        for function in found:
            self._one(function)
        return None

    def _functions(self) -> Iterator[Callable[[], Any]]:
        """Yields the tests that a program defines: check(candidate), test functions, test cases of unittest."""
        check = self._namespace.get("check")
        if isinstance(check, types.FunctionType) and "candidate" in self._namespace:
            yield partial(check, self._namespace["candidate"])
        unittest = sys.modules.get("unittest")
        for name, value in list(self._namespace.items()):
            if name.startswith("test") and isinstance(value, types.FunctionType):
                yield value
            elif unittest is not None and isinstance(value, type) and issubclass(value, unittest.TestCase):
                for test in unittest.defaultTestLoader.loadTestsFromTestCase(value):
                    yield partial(_run_case, test)

    def _one(self, test: Callable[[], Any]) -> None:
        number = self._next()
        try:
            test()
        except PeerError:
            self._report({"test": number, "passed": False, "why": "the code ended the process"})
            raise
        except BaseException as error:  # a test that ends by anything at all has failed
            why = f"{type(error).__name__}: {str(error)[:300]}"
            self._report({"test": number, "passed": False, "why": why})
        else:
            self._report({"test": number, "passed": True})

    def _next(self) -> int:
        self._number += 1
        return self._number - 1


def _run_case(test: Any) -> None:
    import unittest  # which is slow to load, and few tests need it

    result = unittest.TestResult()
    test.run(result)
    problems = [text for _, text in (*result.errors, *result.failures)]
    if problems or result.unexpectedSuccesses:
        raise AssertionError(problems[0][-300:] if problems else "it succeeded where a failure was expected")


def main() -> None:
    result = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    task = json.load(sys.stdin)
    sys.stdin = io.StringIO()

    def report(line: dict[str, Any]) -> None:
        result.write(json.dumps(line) + "\n")

    with contextlib.suppress(PeerError):
        Session(task, report).run()


main()
