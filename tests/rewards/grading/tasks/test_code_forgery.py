"""Answers that are wrong and must earn nothing, whatever they say to the tests that call them."""

from __future__ import annotations

from typing import Any

import pytest

from learnloop.core.attempts import Attempt, Score
from learnloop.core.errors import FormatError
from learnloop.rewards.grading.tasks.code import CodeExecution, read_tests
from learnloop.sandbox import Limits, Sandbox


@pytest.fixture(scope="module")
def grade() -> Any:
    scorer = CodeExecution(sandbox=Sandbox(Limits(wall_seconds=5.0)))

    def run(code: str, expected: Any) -> Score:
        return scorer(Attempt(output=code, expected=expected))

    return run


def gives(body: str) -> str:
    """Returns the code of a function ``f`` that gives an object of a class with this body."""
    return f"class P:\n    {body}\ndef f(*a):\n    return P()\n"


def offers(names: str) -> str:
    """Returns code that tells the tests that it defines other names than it does."""
    return (
        f"import sys\ndef f(x):\n    return found[0]\nfound = [0]\nsys.modules['__main__'].names_of = lambda m: {names}"
    )


CLOSE = ["assert abs(f(1) - 4) < 1e-6"]
FORGERIES: dict[str, tuple[str, Any]] = {
    "a difference of nothing": (gives("__sub__ = lambda self, other: 0.0"), CLOSE),
    "a difference of nothing, from the right": (
        gives("__rsub__ = lambda self, other: 0.0"),
        ["assert abs(4 - f(1)) < 1e-6"],
    ),
    "a difference that is small": (
        gives("__sub__ = lambda self, other: self\n    __abs__ = lambda self: 0.0"),
        CLOSE,
    ),
    "a difference that is false": (
        gives("__sub__ = __pow__ = lambda self, other: self\n    __bool__ = lambda self: False"),
        ["assert not (f(1) - 4) ** 2"],
    ),
    "it contains everything": (gives("__contains__ = lambda self, other: True"), ["assert 3 in f(1)"]),
    "it begins with everything": (
        gives("__getattr__ = lambda self, name: lambda *a: True"),
        ["assert f(1).startswith('abc')"],
    ),
    "no set is beyond it": (
        gives("__getattr__ = lambda self, name: lambda *a: set()"),
        ["assert f(1).difference({3}) == set()"],
    ),
    "it takes back that a test failed": (
        gives("__enter__ = lambda self: 5\n    __exit__ = lambda self, *a: True"),
        ["with f(1) as value:\n    assert value == 6"],
    ),
    "a number that rounds": (gives("__round__ = lambda self, n=0: 3.14"), ["assert round(f(1), 2) == 3.14"]),
    "built-in functions of its own": (
        offers("[['f', f, None], ['__builtins__', {'sorted': lambda *a: [1, 2]}, None]]"),
        ["assert sorted(f([2, 1])) == [1, 2]"],
    ),
    "an import that is told the names of the tests": (
        offers(
            "[['f', f, None], ['__builtins__', {'__import__': lambda n, g, *a: found.__setitem__(0, g['X'])}, None]]"
        ),
        {"setup": "X = 41", "asserts": ["import math\nassert f(1) == X"]},
    ),
    "the function is missing": (
        "x = 1",
        {"program": "def check(candidate):\n    assert candidate(1) == 2", "entry_point": "f"},
    ),
    "the set-up imports what is missing": (
        "x = 1",
        {"setup": "from solution import f", "asserts": ["assert f(1) == 2"]},
    ),
    "the set-up calls what fails": (
        "def f(n):\n    raise ValueError(n)",
        {"setup": "v = f(1)", "asserts": ["assert v == 2"]},
    ),
    "it dies where an exception is expected": (
        "import os\ndef f(x):\n    os._exit(0)",
        ["try:\n    f(-1)\nexcept:\n    pass\nelse:\n    assert False"],
    ),
    "a test that is skipped": (
        "x = 1",
        "import unittest, solution\nclass T(unittest.TestCase):\n    def test_a(self):\n"
        "        if not hasattr(solution, 'f'):\n            self.skipTest('none')\n",
    ),
    "exceptions that mean something to unittest": (
        "class _ShouldStop(Exception):\n    pass\n_ShouldStop.__module__ = 'unittest.case'\n"
        "def f():\n    raise _ShouldStop",
        "import unittest\nclass T(unittest.TestCase):\n    def test_a(self):\n        self.assertEqual(f(), 1)",
    ),
    "eval of the tests": (
        "def f(run, x):\n    return run('__import__(\"sys\").modules') and 3",
        ["assert f(eval, '1') == 3"],
    ),
    "getattr of the tests": (
        "def f(read, call):\n    return read(call, '__globals__')['X']",
        {"setup": "X = 77", "asserts": ["assert f(getattr, lambda: 1) == X"]},
    ),
    "a format of the tests": (
        "def f(form, call):\n    return int(form('{0.__globals__[X]}', call))",
        {"setup": "X = 77", "asserts": ["assert f(str.format, lambda: 1) == X"]},
    ),
    "the globals of a function": (
        "def f(call):\n    return call.__globals__['X']",
        {"setup": "X = 77", "asserts": ["assert f(lambda: 1) == X"]},
    ),
    "the text of a failed assertion": (
        "def f(check):\n    try:\n        check(0)\n    except AssertionError as error:\n"
        "        check(int(str(error).split()[-1]))\n",
        "import unittest\nclass T(unittest.TestCase):\n    def test_a(self):\n"
        "        f(lambda value: self.assertEqual(value, 42))",
    ),
    "a method of a test's object": (
        "def f(spy):\n    spy.verify = lambda: True",
        {
            "setup": "class Spy:\n    n = 0\n    def verify(self):\n        return self.n == 3",
            "asserts": ["spy = Spy()\nf(spy)\nassert spy.verify()"],
        },
    ),
    "the end of the loop that compares": (
        "def f(x):\n    raise StopIteration",
        ["assert all(map(lambda each: f(each) == each + 1, [1, 2]))"],
    ),
    "what a callback holds": (
        "def f(call):\n    return int(str(call).split()[-1].rstrip(')>'))",
        {"setup": "import functools\nX = 77", "asserts": ["assert f(functools.partial(print, X)) == X"]},
    ),
    "None for infinity": ("def f():\n    return None", {"cases": [{"call": "f", "expected": float("inf")}]}),
    "a test class without a base": (
        "def f():\n    return 0",
        "class TestF:\n    def test_a(self):\n        assert f() == 1",
    ),
    "a test that is a coroutine": ("def f():\n    return 0", "async def test_a():\n    assert f() == 1"),
    "a class that another name stands for": (
        "class Thing:\n    pass\n" + gives("__sub__ = lambda self, other: 0.0") + "Other = f",
        ["assert Thing()", *CLOSE],
    ),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_earns_nothing(grade: Any, name: str) -> None:
    score = grade(*FORGERIES[name])
    assert score.value == 0.0, score.reason


UNTESTED: dict[str, tuple[Any, str]] = {
    "a check without the name of what it checks": (
        "def check(candidate):\n    assert candidate(1) == 2",
        "entry_point",
    ),
    "tests in a block that does not run": (
        "def main():\n    assert f() == 1\nif __name__ == '__main__':\n    main()",
        "no tests",
    ),
    "a package that is not there": ("import pytest\ndef test_a():\n    assert f() == 1", "pytest"),
    "a package that an assert needs": (["import numpy as np\nassert f() == 1"], "numpy"),
    "a file beyond the folder": ({"runs": [{"files": {"../x": "y"}}]}, "relative path"),
    "a key that is no text": ({"cases": [{"call": "f", "expected": {1: 2}}]}, "JSON"),
}


@pytest.mark.parametrize("name", UNTESTED)
def test_tests_that_test_nothing_are_no_verdict(grade: Any, name: str) -> None:
    """F4.7: what was not tested is neither right nor wrong."""
    expected, reason = UNTESTED[name]
    score = grade("def f():\n    return 1", expected)
    assert (score.value, score.is_applicable) == (None, True)
    assert reason in score.reason


def test_an_answer_cannot_feign_a_missing_package(grade: Any) -> None:
    code = (
        "def f():\n    error = ModuleNotFoundError('No module named numpy', name='numpy')\n"
        "    error.__dict__['name'] = 'numpy'\n    raise error"
    )
    assert grade(code, ["assert f() == 1"]).value == 0.0


def test_half_a_character_and_numbers_beyond_all_bounds(grade: Any) -> None:
    code = "def f(x):\n    return x"
    values = ["\ud800", 2**70, float("inf"), float("nan"), -0.0]
    cases = [{"call": "f", "args": [value], "expected": value} for value in values]
    assert grade(code, {"cases": cases}).value == 1.0


def test_what_json_cannot_say_is_refused() -> None:
    for value in ({1: 2}, [{"a": {3: 4}}], b"x", {1, 2}, object()):
        with pytest.raises(FormatError, match="JSON cannot say"):
            read_tests({"cases": [{"call": "f", "expected": value}]})
