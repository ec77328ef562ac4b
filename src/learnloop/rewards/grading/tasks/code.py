"""Code is worth what its tests say: it runs in one sandbox, the tests in another, and neither sees into the other.

The code never shares an interpreter with the tests: it gets the arguments of calls and gives values back. It cannot
read what is expected, change how it is compared, end the tests early, or write the result; an object that claims to be
equal to everything is equal to nothing, and it is not asked how it stands to a value. Values are copied: what a test
changes in a list that the code gave, the code does not see; classes of the code cannot be derived from.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files

import msgspec

from learnloop.core.attempts import Attempt, Score
from learnloop.core.errors import FormatError, SandboxError, UsageError
from learnloop.rewards.grading.tasks.code_answer import code_of
from learnloop.rewards.grading.tasks.code_tests import CodeTests, RunCase, read_tests
from learnloop.sandbox import Command, Limits, Outcome, Sandbox

GRADING_LIMITS = Limits()
_MAX_TOLD = 3
"""How many failed tests the reason names."""


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


def _read_report(examined: Outcome, ran: Outcome, tests: CodeTests) -> list[str | None] | Score:
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


def _ending(outcome: Outcome) -> str:
    if outcome.exit_code is not None:
        return f"exit code {outcome.exit_code}"
    return f"the limit of {outcome.ended_by}" if outcome.signal is None else f"signal {outcome.signal}"


def _lines(output: bytes) -> list[bytes]:
    return [line.rstrip() for line in output.rstrip().split(b"\n")]
