"""Code is worth what its tests say: it runs in one sandbox, the tests in another, and neither sees into the other.

The code never shares an interpreter with the tests: it gets the arguments of calls and gives values back. It cannot
read what is expected, change how it is compared, end the tests early, or write the result; an object that claims to be
equal to everything is equal to nothing, and it is not asked how it stands to a value. Values are copied: what a test
changes in a list that the code gave, the code does not see; classes of the code cannot be derived from.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Literal

import msgspec

from learnloop.core.attempts import Attempt, Score
from learnloop.core.decoding import convert_record
from learnloop.core.errors import FormatError, SandboxError, UsageError
from learnloop.rewards.grading.tasks.code_answer import code_of, python_fault
from learnloop.sandbox import Command, CommandOutcome, Limits, Sandbox

GRADING_LIMITS = Limits()
_MAX_TOLD = 3
"""How many failed tests the reason names."""
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
        fault = python_fault(source)
        if fault is not None:
            raise FormatError(f"the test {source[:80]!r} is no Python: {fault}") from fault
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


class _Line(msgspec.Struct):
    """What the examiner reports: how a test ended, that all are through, or why none can be."""

    test: int | None = None
    passed: bool = False
    why: str | None = None
    finished: bool = False
    failed: str | None = None
    broken: str | None = None


class CodeExecution:
    """Scores the code of an answer by running the tests of its task. A ``Scorer``.

    The score is 1 where all tests pass and else 0; with ``partial`` it is the share of tests that pass, which pays for
    code that is wrong. An answer without code, code that crashes, ends the process or takes longer than the limits has
    failed. No tests, tests that cannot run, or no sandbox: the score is unknown.

    Args:
        partial: pay for a part of the tests.
        sandbox: where code and tests run; one with ``limits`` is made where None.
        limits: of each of the two.
    """

    name = "code_execution"

    def __init__(
        self, *, partial: bool = False, sandbox: Sandbox | None = None, limits: Limits = GRADING_LIMITS
    ) -> None:
        self._partial = partial
        self._sandbox = sandbox or Sandbox(limits)

    def __call__(self, attempt: Attempt) -> Score:
        """Returns the score of an attempt whose ``expected`` states tests (see ``read_tests``)."""
        if attempt.expected is None:
            return Score.unknown("no ground truth: code is scored by tests, and the task has none")
        if attempt.output is None:
            return Score.unknown("the answer is not recorded")
        try:
            tests = read_tests(attempt.expected)
        except FormatError as error:
            return Score.unknown(str(error))
        code = code_of(attempt.output, tests.language, tests.called)
        if code is None:
            return Score.of(0.0, "the answer has no code", num_tests=tests.num_tests, num_passed=0)
        try:
            return self._graded(code, tests)
        except (SandboxError, UsageError) as error:  # the latter: files that no sandbox can have
            return Score.unknown(str(error))

    def _graded(self, code: str, tests: CodeTests) -> Score:
        results: list[str | None] = []
        """Of each test why it failed; None: it passed."""
        if tests.num_tests > len(tests.runs):
            examined = self._examine(code, tests)
            if isinstance(examined, Score):
                return examined
            results.extend(examined)
        results.extend(self._run(code, tests, case) for case in tests.runs)
        num_passed = results.count(None)
        share = num_passed / len(results)
        reasons = [f"test {number}: {why}" for number, why in enumerate(results) if why is not None]
        return Score.of(
            share if self._partial else float(share == 1.0),
            "; ".join(reasons[:_MAX_TOLD]) or None,
            num_tests=len(results),
            num_passed=num_passed,
        )

    def _examine(self, code: str, tests: CodeTests) -> list[str | None] | Score:
        """Returns how the tests that call the code ended."""
        task = {
            "setup": tests.setup,
            "asserts": tests.asserts,
            "program": tests.program,
            "entry_point": tests.entry_point,
            "cases": [msgspec.structs.asdict(case) for case in tests.cases],
        }
        shared = {name: _harness(name.removesuffix(".py")) for name in ("peer.py", "values.py")}
        examiner = Command(
            argv=[self._sandbox.python, "-I", "-S", "-c", _START, "examiner.py"],
            files={**shared, "examiner.py": _harness("examiner")},
            stdin=json.dumps(task).encode(),
        )
        candidate = Command(
            argv=[self._sandbox.python, "-I", "-S", "-c", _START, "candidate.py"],
            files={**shared, "candidate.py": _harness("candidate"), "answer.py": code.encode(errors="replace")},
        )
        examined, ran = self._sandbox.run_pair(examiner, candidate)
        return _read_report(examined, ran, tests)

    def _run(self, code: str, tests: CodeTests, case: RunCase) -> str | None:
        """Runs the code as a program; returns why it failed, None where it passed."""
        name, program = (
            ("answer.py", [self._sandbox.python, "-I", "-S"])
            if tests.language == "python"
            else ("answer.sh", ["/bin/sh"])
        )
        given = {path: content.encode() for path, content in case.files.items()}
        command = Command(
            argv=[*program, name],
            files={**given, name: code.encode(errors="replace")},
            stdin=case.stdin.encode(),
            returns=list(case.expected_files),
        )
        outcome = self._sandbox.run(command)
        if outcome.exit_code != case.exit_code:
            return f"it ended with {_ending(outcome)}, not with exit code {case.exit_code}"
        if case.stdout is not None and _lines(outcome.stdout) != _lines(case.stdout.encode()):
            return "it printed something else"
        for path, content in case.expected_files.items():
            if path not in outcome.files or _lines(outcome.files[path]) != _lines(content.encode()):
                return f"{path} is not what it should be"
        return None


_START = (
    "import sys; sys.path.insert(0, '.'); sys.argv.pop(0); exec(compile(open(sys.argv[0]).read(), sys.argv[0], 'exec'))"
)
"""Runs a program of the harness, which imports its neighbour: an isolated interpreter looks at no folder by itself."""


@cache
def _harness(name: str) -> bytes:
    return (files("learnloop.rewards.grading.harness") / f"{name}.py").read_bytes()


def _read_report(examined: CommandOutcome, ran: CommandOutcome, tests: CodeTests) -> list[str | None] | Score:
    """Returns how each test ended; tests that were not come to have failed."""
    results: list[str | None] = []
    finished = False
    for text in examined.stdout.splitlines():
        try:
            line = msgspec.json.decode(text, type=_Line)
        except msgspec.DecodeError:  # the last line of an examiner that was killed
            break
        if line.broken is not None:
            return Score.unknown(f"the tests cannot run: {line.broken}")
        if line.failed is not None:
            results.append(line.failed)
        if line.test is not None:
            results.append(None if line.passed else (line.why or "it failed"))
        finished = finished or line.finished
    why = f"the code ended with {_ending(ran)}"
    results.extend([why] * (tests.num_tests - len(tests.runs) - len(results)))
    if not finished and all(each is None for each in results):
        results.append(why)
    return results


def _ending(outcome: CommandOutcome) -> str:
    if outcome.exit_code is not None:
        return f"exit code {outcome.exit_code}"
    return f"the limit of {outcome.ended_by}" if outcome.signal is None else f"signal {outcome.signal}"


def _lines(output: bytes) -> list[bytes]:
    return [line.rstrip() for line in output.rstrip().split(b"\n")]
