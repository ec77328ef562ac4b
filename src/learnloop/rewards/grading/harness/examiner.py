"""Runs the tests of a task against the code in the other sandbox; runs in a sandbox of its own.

On its standard input it gets the tests, on its standard output it says how each ended, one line of JSON a test. What
the tests print goes to standard error.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import importlib
import io
import json
import math
import operator
import os
import sys
import types
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from peer import REMOTE_OPERATORS, Peer, Proxy
from values import PeerError

TESTS = "tests"


def may_use(kept: Any, operation: str, name: str) -> bool:
    """What the code of an answer may do with what a test gave it: call it, go through it, read and set public fields.

    Nothing that leads to the tests themselves: of a function or a class its name alone, of a generator or a module
    nothing.
    """
    kind = type(kept)
    is_own = kind.__module__ == TESTS and not isinstance(kept, type)
    if operation == "get":
        if isinstance(kept, type | types.FunctionType):
            return name in ("__name__", "__qualname__", "__doc__")
        return not name.startswith("_") and (is_own or (kind.__module__, kind.__name__) in _SHARED)
    if operation == "set":
        return is_own and not name.startswith("_") and _is_field(kept, name)
    if operation == "call":
        return callable(kept) and not any(kept is each for each in _REACHING)
    if operation == "await":
        return kind is types.CoroutineType
    if operation in ("isinstance", "issubclass"):
        return isinstance(kept, type)
    if operation in ("str", "repr", "format"):  # that of others, such as functools.partial, shows what they hold
        return is_own or isinstance(kept, type | types.FunctionType | types.BuiltinFunctionType)
    return operation in _ASKED or (is_own and operation.removeprefix("r_") in REMOTE_OPERATORS)


_ASKED = ("iter", "next", "len", "bool", "contains", "getitem", "eq", "hash")
_SHARED = {("_io", "StringIO"), ("_io", "BytesIO"), ("re", "Pattern"), ("re", "Match"), ("random", "Random")}
"""Types of the library of which all that is public may be used."""
_REACHING = (
    eval, exec, compile, open, input, getattr, setattr, delattr, vars, dir, globals, locals, breakpoint, __import__,
    str.format, str.format_map, operator.attrgetter, operator.methodcaller,
)  # fmt: skip
"""What would read more than it is given, or run it."""


def _is_field(kept: Any, name: str) -> bool:
    """Whether this is data of an object, not what it does."""
    is_slot = isinstance(vars(type(kept)).get(name), types.MemberDescriptorType)
    return (is_slot or name in getattr(kept, "__dict__", {})) and not callable(getattr(kept, name, None))


def is_same(gave: Any, expected: Any, tolerance: float) -> bool:
    """Whether a value is the one that JSON says, which knows no tuples; a proxy is none."""
    if isinstance(expected, bool) or expected is None or isinstance(expected, str):
        return type(gave) is type(expected) and gave == expected
    if isinstance(expected, int | float):
        if type(gave) not in (int, float):
            return False
        if gave != gave or gave == expected:  # NaN is what it is
            return expected != expected or gave == expected
        return tolerance > 0 and math.isclose(gave, expected, rel_tol=0, abs_tol=tolerance)
    if isinstance(expected, list):
        fits = isinstance(gave, list | tuple) and len(gave) == len(expected)
        return fits and all(is_same(*pair, tolerance) for pair in zip(gave, expected, strict=True))
    fits = isinstance(gave, dict) and gave.keys() == expected.keys()
    return fits and all(is_same(gave[key], value, tolerance) for key, value in expected.items())


class Session:
    """The tests of one task, one after the other."""

    def __init__(self, task: dict[str, Any], report: Callable[[dict[str, Any]], None]) -> None:
        self._task = task
        self._report = report
        self._peer = Peer(3, 4, may_use, is_strict=True)
        self._module = sys.modules[TESTS] = types.ModuleType(TESTS)
        self._namespace = self._module.__dict__
        self._number = 0

    def run(self) -> None:
        try:
            names = Proxy(self._peer, 0)()
        except PeerError:
            return self._report({"failed": "the code ended the process"})
        except BaseException as error:
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
        """Gives the tests what the code defines, but no name that means something to the interpreter."""
        module = types.ModuleType("answer")
        used, called = _names_in([self._task["setup"], *self._task["asserts"], self._task["program"]])
        classes: set[int | None] = set()
        others: set[int | None] = set()
        for name, value, exception in names:
            if type(name) is not str or not name.isidentifier() or name.startswith("__"):
                continue
            if exception is not None:
                value = self._peer.decoder.kind(exception)
            is_class = name in used and name.lstrip("_")[:1].isupper()
            (classes if is_class else others).add(Proxy.number_of(value))
            setattr(module, name, value)
            if name in sys.stdlib_module_names and name not in called:  # the tests use the real one
                self._namespace[name] = importlib.import_module(name)
            elif name not in vars(builtins) or name == self._task["entry_point"]:
                self._namespace[name] = value
        self._peer.classes, self._peer.functions = classes - others, others
        sys.modules["answer"] = sys.modules["solution"] = module
        entry = self._task["entry_point"]
        if entry is not None and entry in self._namespace:
            self._namespace["candidate"] = self._namespace[entry]

    def _run_setup(self) -> bool:
        """Runs the set-up; where it fails by itself, no code can be tested, and else the code has failed."""
        num_asked = self._peer.num_asked
        try:
            self._execute(self._task["setup"])
        except PeerError:
            self._report({"failed": "the code ended the process"})
            return False
        except BaseException as error:
            about_code = isinstance(error, NameError) or getattr(error, "name", None) in ("answer", "solution")
            by_itself = _lacks_module(error) or (self._peer.num_asked == num_asked and not about_code)
            self._report({"broken" if by_itself else "failed": f"the set-up raised {type(error).__name__}: {error}"})
            return False
        return True

    def _execute(self, source: str) -> None:
        exec(compile(source, TESTS, "exec", dont_inherit=True), self._namespace)

    def _case(self, call: str, args: list[Any], kwargs: dict[str, Any], expected: Any, tolerance: float) -> None:
        gave = self._namespace[call](*args, **kwargs)
        if not is_same(gave, expected, tolerance):
            raise AssertionError(f"{call} gave {gave!r}")

    def _program(self) -> None:
        source = self._task["program"]
        try:
            self._execute(source)
        except PeerError:
            raise
        except BaseException as error:
            return self._failed(self._next(), error)
        found = list(self._functions())
        if not found and not _acts(source):
            return self._report({"broken": "the program defines no tests and runs none (or has a check without "
                                           "entry_point)"})  # fmt: skip
        if not found:
            self._one(lambda: None)
        for function in found:
            self._one(function)
        return None

    def _functions(self) -> Iterator[Callable[[], Any]]:
        """Yields the tests that a program defines: check(candidate), test functions, test cases of unittest."""
        check, entry = self._namespace.get("check"), self._task["entry_point"]
        if isinstance(check, types.FunctionType) and entry is not None:
            yield lambda: check(self._namespace[entry])
        unittest = sys.modules.get("unittest")
        for name, value in list(self._namespace.items()):
            if name.startswith("test") and isinstance(value, types.FunctionType):
                yield value
            elif not isinstance(value, type) or value.__module__ != TESTS:
                continue
            elif unittest is not None and issubclass(value, unittest.TestCase):
                for test in unittest.defaultTestLoader.loadTestsFromTestCase(value):
                    yield partial(_run_case, test)
            elif name.startswith("Test"):
                for method in (each for each in dir(value) if each.startswith("test")):
                    yield partial(_run_method, value, method)

    def _one(self, test: Callable[[], Any]) -> None:
        number = self._next()
        try:
            _finish(test())
            if self._peer.is_over:
                raise PeerError
        except PeerError:
            self._report({"test": number, "passed": False, "why": "the code ended the process"})
            raise
        except BaseException as error:  # a test that ends by anything at all has failed
            self._failed(number, error)
        else:
            self._report({"test": number, "passed": True})

    def _failed(self, number: int, error: BaseException) -> None:
        if _lacks_module(error):
            return self._report({"broken": str(error)})
        why = f"{type(error).__name__}: {str(error)[:300]}"
        return self._report({"test": number, "passed": False, "why": why})

    def _next(self) -> int:
        self._number += 1
        return self._number - 1


def _names_in(sources: list[str]) -> tuple[set[str], set[str]]:
    """Returns the names that tests use, and those that they call."""
    nodes = [node for source in sources for node in ast.walk(ast.parse(source))]
    used = {node.id for node in nodes if isinstance(node, ast.Name)}
    used |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    used |= {node.name for node in nodes if isinstance(node, ast.alias)}
    called = {node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
    return used, called


def _acts(source: str) -> bool:
    """Whether a program does something when it is run, beside defining things."""
    quiet = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Pass, ast.Assign,
             ast.AnnAssign)  # fmt: skip
    for node in ast.parse(source).body:
        is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        is_main = isinstance(node, ast.If) and "__name__" in ast.dump(node.test)
        if not (isinstance(node, quiet) or is_text or is_main):
            return True
    return False


def _lacks_module(error: BaseException) -> bool:
    """Whether the tests import what is not there. The name is set by the import itself, and by no code of an answer."""
    if not isinstance(error, ModuleNotFoundError) or error.name is None:
        return False
    return error.name.partition(".")[0] not in ("answer", "solution")


def _finish(gave: Any) -> None:
    """Waits for a test that is a coroutine."""
    if isinstance(gave, types.CoroutineType):
        import asyncio  # which is slow to load, and few tests need it

        asyncio.run(gave)
    elif isinstance(gave, types.GeneratorType):
        raise TypeError("a test that yields is not run")


def _run_method(kind: type[Any], name: str) -> None:
    instance = kind()
    if isinstance(vars(kind).get("setup_method"), types.FunctionType):
        instance.setup_method()
    _finish(getattr(instance, name)())


def _run_case(test: Any) -> None:
    import unittest  # which is slow to load, and few tests need it

    class Result(unittest.TestResult):
        problem: BaseException | None = None

        def addError(self, test: Any, err: Any) -> None:
            self.problem = self.problem or err[1]

        addFailure = addError

        def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
            if err is not None:
                self.addError(test, err)

        def addSkip(self, test: Any, reason: str) -> None:
            self.problem = self.problem or AssertionError(f"it was skipped: {reason}")

        def addUnexpectedSuccess(self, test: Any) -> None:
            self.problem = AssertionError("it succeeded where a failure was expected")

    result = Result()
    unittest.TestSuite([test]).run(result)
    if result.problem is not None:
        raise result.problem
    if result.testsRun != 1:
        raise AssertionError("it was not run")


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
