"""Reward functions: plain typed functions of an attempt, made into scorers that never break a run.

Functions that others wrote are called under a deadline, each call in a thread of its own. What that covers: a function
that raises anything, that does not come back in time, or that forks. A function that hangs is left behind as a daemon
thread. What it does not cover: a function that holds Python's lock in C code (a regular expression without an end) or
changes this process; code that is not trusted belongs into ``learnloop.sandbox``.
"""

from __future__ import annotations

import functools
import inspect
import numbers
import os
import threading
import traceback
from collections.abc import Callable, Sequence
from typing import Generic, TypedDict, TypeVar, Unpack

import msgspec

from learnloop.core.attempts import Attempt, Score, Scorer, TaskType
from learnloop.core.checks import check_name, check_number
from learnloop.core.errors import MissingExtraError, UsageError, one_of

Function = Callable[[Attempt], "float | bool | Score | None"]
Result = TypeVar("Result")

MAX_OUTPUT_CHARS = 1_000_000
"""A longer answer earns 0 from functions that look at the answer: nobody reads it, and it costs time to."""
MAX_HANGS = 3
"""A function that did not come back so often is not called any more: each such call leaves a thread behind."""
_FIELDS = frozenset({*Attempt.__struct_fields__, "tool_calls"})


_STATE = threading.local()


def _note_fork() -> None:
    _STATE.num_forks = getattr(_STATE, "num_forks", 0) + 1


os.register_at_fork(after_in_parent=_note_fork)


class TimedCall(Generic[Result]):
    """One call of a function in a thread of its own.

    Attributes:
        problem: why there is no result; None: there is one, or it still runs.
        is_late: whether it did not come back in time.
    """

    def __init__(self, function: Callable[[], Result]) -> None:
        self._function = function
        self._ended = threading.Event()
        self._result: Result | None = None
        self.problem: str | None = None
        self.is_late = False

    def run(self, timeout_seconds: float) -> Result | None:
        """Returns what the function returned; None also where ``problem`` says that there is nothing.

        An interrupt of the user's reaches the caller; what the function raises, ``SystemExit`` included, does not.
        """
        try:
            threading.Thread(target=self._work, args=(os.getpid(),), name="learnloop-reward", daemon=True).start()
        except RuntimeError as error:  # the system has no more threads
            self.problem = f"could not be called: {error}"
            return None
        if not self._ended.wait(timeout_seconds):
            self.is_late = True
            self.problem = f"did not come back within {timeout_seconds:g} seconds"
            return None
        return self._result

    def _work(self, process: int) -> None:
        try:
            self._result = self._function()
        except BaseException as error:  # noqa: BLE001 - whatever another's function raises ends neither us nor the run
            self.problem = f"raised {''.join(traceback.format_exception_only(error)).strip()[:300]}"
        finally:
            if os.getpid() != process:
                os._exit(0)  # a child that the function forked must not go on in our code
            if getattr(_STATE, "num_forks", 0):
                self.problem = "forked this process; a reward function must not"
            self._ended.set()


class RewardFunction:
    """A named scorer: checks what it needs, calls a function and checks what that returns.

    Functions that are not learnloop's own run under a deadline. Whatever they do, the result is a ``Score``.

    Attributes:
        name: what weights and stored rewards call it.
        description: the first paragraph of the function's docstring.
        needs: the fields of ``Attempt`` that must be known; a missing one gives a score of None.
        task_types: of which tasks it can say something; empty: of all.
        is_outcome: whether it says that the result is right, not only how it was come by. See ``RewardEngine``.
        needs_success: whether it is 0 for an attempt whose outcome is known to be wrong. See ``RewardEngine``.
    """

    def __init__(
        self,
        function: Function | Scorer,
        name: str,
        *,
        needs: Sequence[str] = (),
        task_types: Sequence[TaskType] = (),
        is_outcome: bool = True,
        needs_success: bool = False,
        timeout_seconds: float = 10.0,
    ) -> None:
        """Raises UsageError where the name, a need or the deadline has no meaning."""
        check_name("a reward function", name)
        unknown = [need for need in needs if need not in _FIELDS]
        if unknown:
            raise UsageError(
                f"the reward function {name} needs {unknown[0]!r}; an attempt has {one_of(sorted(_FIELDS), 30)}"
            )
        functools.update_wrapper(self, function, updated=())
        self.name = name
        self.description = _paragraph(function)
        self.needs = tuple(needs)
        self.task_types = frozenset(map(TaskType, task_types))
        self.is_outcome = is_outcome
        self.needs_success = needs_success
        self.timeout_seconds = check_number("timeout_seconds", timeout_seconds, above=0)
        self._function = function
        self._is_own = str(getattr(function, "__module__", "")).partition(".")[0] == "learnloop"
        self._num_hangs = 0
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"<reward function {self.name}>"

    def __call__(self, attempt: Attempt) -> Score:
        """Returns the score of an attempt; it raises nothing because of the attempt or the function."""
        return self.score(attempt)

    def score(self, attempt: Attempt, timeout_seconds: float | None = None) -> Score:
        """Returns the score of an attempt.

        Args:
            attempt: complete.
            timeout_seconds: how long a function that is not learnloop's own may take; None: as it was made.
        """
        missing = self._not_scored(attempt)
        if missing is not None:
            return missing
        if self._is_own:
            return self._call_own(attempt)
        return self._call_other(attempt, timeout_seconds or self.timeout_seconds)

    def _not_scored(self, attempt: Attempt) -> Score | None:
        if self.task_types and attempt.task_type not in self.task_types:
            return Score.not_applicable(f"{self.name} is for tasks of type {one_of(sorted(self.task_types))} only")
        for need in self.needs:
            value = getattr(attempt, need)
            if value is None or (need != "output" and isinstance(value, list | dict | tuple) and not value):
                return _missing(self.name, need, attempt)
        if "output" in self.needs and len(attempt.output or "") > MAX_OUTPUT_CHARS:
            return Score.of(0.0, f"the answer has {len(attempt.output or '')} characters, more than {MAX_OUTPUT_CHARS}")
        return None

    def _call_own(self, attempt: Attempt) -> Score:
        try:
            return self._checked(self._function(attempt))
        except MissingExtraError:  # for whoever set this up
            raise
        except Exception as error:  # noqa: BLE001 - a fault of the grader is no fault of the attempt, and ends no run
            return self._failed(f"raised {type(error).__name__}: {str(error)[:300]}")

    def _call_other(self, attempt: Attempt, timeout_seconds: float) -> Score:
        if self._num_hangs >= MAX_HANGS:
            return self._failed(f"did not come back {self._num_hangs} times and is not called any more")
        call = TimedCall(lambda: self._checked(self._function(attempt)))
        found = call.run(timeout_seconds)
        if call.is_late:
            with self._lock:
                self._num_hangs += 1
        return self._failed(call.problem or "gave nothing") if found is None or call.problem else found

    def _checked(self, found: object) -> Score:
        if isinstance(found, Score):
            if not found.is_applicable:
                return Score.not_applicable(found.reason or f"{self.name} has nothing to say")
            if found.value is None:
                return found if found.reason else self._failed("gave no reason why there is no score")
            problem = _problem(found.value)
            if problem is not None:
                return self._failed(problem)
            return found if type(found.value) is float else msgspec.structs.replace(found, value=float(found.value))
        if found is None:
            return self._failed("returned None; return Score.not_applicable(reason) where there is nothing to score")
        problem = _problem(found)
        return Score.of(float(found)) if problem is None else self._failed(problem)  # type: ignore[arg-type]

    def _failed(self, what: str) -> Score:
        return Score.unknown(f"the reward function {self.name} {what}")


class RewardRules(TypedDict, total=False):
    """What ``reward_function`` is told; it says what each means."""

    needs: Sequence[str]
    task_types: Sequence[TaskType]
    is_outcome: bool
    needs_success: bool
    timeout_seconds: float


def reward_function(name: str, **rules: Unpack[RewardRules]) -> Callable[[Function], RewardFunction]:
    """Makes a function of an ``Attempt`` a reward function, as a decorator.

    The function returns a number from 0 to 1, a truth value, or a ``Score``. ``Score.not_applicable(reason)`` says that
    there is nothing to score, ``Score.unknown(reason)`` that there is and it could not be.

    Args:
        name: what weights and stored rewards call it.
        needs: the fields of ``Attempt`` that it looks at and that must be known, such as ``("output", "expected")``.
        task_types: of which tasks it can say something; empty: of all.
        is_outcome: False: it says how a result was come by (format, cost), not whether it is right.
        needs_success: it is 0 for an attempt whose outcome is known to be wrong.
        timeout_seconds: when a call is given up, 10 where it is not said; learnloop's own functions bound their work
            themselves.

    Raises:
        UsageError: there is no such option, or a value has no meaning.
    """
    unknown = rules.keys() - RewardRules.__annotations__.keys()
    if unknown:
        allowed = one_of(sorted(RewardRules.__annotations__))
        raise UsageError(f"reward_function has no options {one_of(sorted(unknown))}; allowed are {allowed}")
    return lambda function: RewardFunction(function, name, **rules)


def as_reward_function(name: str, value: object) -> RewardFunction:
    """Returns ``value`` as a reward function: itself, or made of a callable that is given an ``Attempt``.

    Raises:
        UsageError: it cannot be called.
    """
    if isinstance(value, RewardFunction):
        return value
    if not callable(value) or isinstance(value, type):
        raise UsageError(f"the reward {name!r} is {value!r}; a function of an Attempt is needed")
    return RewardFunction(value, name)


def without_output(name: str, attempt: Attempt) -> Score:
    """Returns the score of an attempt that has no answer: 0 where its run failed, else None, for it is not recorded."""
    if attempt.completed is False or attempt.error is not None:
        return Score.of(0.0, "the run failed before it gave an answer")
    return Score.unknown(f"{name} needs the answer, which is not recorded")


def _missing(name: str, need: str, attempt: Attempt) -> Score:
    if need == "expected":
        return Score.unknown(f"no ground truth: {name} needs the attempt's expected result, which is None")
    if need == "output":
        return without_output(name, attempt)
    return Score.unknown(f"{name} needs the attempt's {need}, which is not known")


def _problem(value: object) -> str | None:
    if not isinstance(value, numbers.Real):
        return f"returned {repr(value)[:80]}, which is no number from 0 to 1"
    number = float(value)
    if not 0.0 <= number <= 1.0:  # NaN is not between either
        return f"returned {number!r}, which is not from 0 to 1"
    return None


def _paragraph(function: object) -> str:
    return (inspect.getdoc(function) or "").partition("\n\n")[0].replace("\n", " ")
