"""The tests of a coding task, as its ground truth gives them."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from learnloop.core.decoding import convert_record
from learnloop.core.errors import FormatError

_NotNegative = Annotated[float, msgspec.Meta(ge=0)]


class CallCase(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A call of a function of the answer, and what it is to give back (as JSON: a tuple is a list)."""

    call: str
    expected: Any
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    tolerance: _NotNegative = 0.0
    """How far a number may be from the expected one."""


class RunCase(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A run of the answer as a program, and what it is to print and leave behind."""

    stdout: str | None = None
    """Compared line by line, white space at the end of lines and of all left out; None: whatever it prints."""
    stdin: str = ""
    files: dict[str, str] = {}
    """What lies in its folder when it starts."""
    expected_files: dict[str, str] = {}
    """What is to lie there, compared as ``stdout``."""
    exit_code: int = 0


class CodeTests(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the code of an answer is tested by."""

    language: Literal["python", "shell"] = "python"
    entry_point: str | None = None
    """The function that is asked for; a ``check(candidate)`` of the program gets it."""
    setup: str = ""
    """Python that runs before the tests: all imports and helpers that they use. A name that the tests do not define is
    taken from the code of the answer."""
    asserts: list[str] = []
    """Python statements, each a test of its own (MBPP)."""
    program: str = ""
    """Python with a ``check(candidate)`` (HumanEval; it needs ``entry_point``), test functions (``async`` too), test
    classes, test cases of unittest, or plain asserts. A test that is skipped has failed; where nothing is tested, or a
    package is missing, the score is unknown."""
    cases: list[CallCase] = []
    runs: list[RunCase] = []

    @property
    def num_tests(self) -> int:
        """How many there are at the least: a program may define several."""
        return len(self.asserts) + len(self.cases) + len(self.runs) + bool(self.program)

    @property
    def called(self) -> list[str]:
        """The names that are called, the function that is asked for first."""
        first = [] if self.entry_point is None else [self.entry_point]
        nodes = [node for source in (*self.asserts, self.program) for node in ast.walk(ast.parse(source))]
        found = [node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
        return list(dict.fromkeys([*first, *(case.call for case in self.cases), *found]))


def read_tests(expected: Any) -> CodeTests:
    """Returns the tests that a ground truth states.

    Args:
        expected: fields of ``CodeTests``; a list of assert statements; or one text of Python.

    Raises:
        FormatError: it states no tests, or some that cannot run.
    """
    if isinstance(expected, str):
        expected = {"program": expected}
    elif isinstance(expected, list):
        expected = {"asserts": expected}
    if not isinstance(expected, Mapping):
        raise FormatError(f"the tests are {expected!r}; a mapping, a list of asserts or a text of Python is needed")
    tests = convert_record(dict(expected), "the tests cannot be used", CodeTests, error=FormatError)
    if not tests.num_tests:
        raise FormatError("there are no tests; give asserts, a program, cases or runs")
    if tests.language == "shell" and tests.num_tests > len(tests.runs):
        raise FormatError("shell is tested by runs alone; asserts, programs and cases call Python")
    for source in (tests.setup, *tests.asserts, tests.program):
        _check_syntax(source)
    for case in tests.cases:
        _check_json([case.args, case.kwargs, case.expected])
    return tests


def _check_json(value: Any) -> None:
    """Refuses what JSON would silently make something else of, such as a number as a key, or bytes."""
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for each in value:
            _check_json(each)
    elif not isinstance(value, str | int | float | None):
        raise FormatError(f"a case has {value!r}, which JSON cannot say; write an assert instead")


def _check_syntax(source: str) -> None:
    try:
        ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise FormatError(f"the test {source[:80]!r} is no Python: {error}") from error
