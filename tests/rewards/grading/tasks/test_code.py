"""Code is scored by its tests, in two sandboxes."""

from __future__ import annotations

from typing import Any

import pytest

from learnloop.core.attempts import Attempt, Score
from learnloop.core.errors import FormatError
from learnloop.rewards.grading.tasks.code import CodeExecution, read_tests
from learnloop.rewards.grading.tasks.code_answer import MAX_CODE, code_of, fenced_blocks
from learnloop.sandbox import Limits, Sandbox

ADD = ["assert add(1, 2) == 3", "assert add(2, 2) == 4"]


@pytest.fixture(scope="module")
def grade() -> Any:
    scorer = CodeExecution(sandbox=Sandbox(Limits(wall_seconds=5.0)))

    def run(code: str, expected: Any) -> Score:
        return scorer(Attempt(output=code, expected=expected))

    return run


HONEST: dict[str, tuple[str, Any]] = {
    "asserts": ("def add(a, b):\n    return a + b", ADD),
    "in place": ("def order(x):\n    x.sort()", ["x = [3, 1, 2]\norder(x)\nassert x == [1, 2, 3]"]),
    "in place, nested": ("def add(x):\n    x['a'].append(2)", ["x = {'a': [1]}\nadd(x)\nassert x == {'a': [1, 2]}"]),
    "keyword": (
        "def power(base, *, to=2):\n    return base**to",
        ["assert power(3) == 9", "assert power(2, to=3) == 8"],
    ),
    "callback": ("def twice(f, x):\n    return f(f(x))", ["assert twice(lambda v: v + 1, 2) == 4"]),
    "built-in as argument": (
        "def use(f, x):\n    return f(x)",
        ["assert use(len, [1, 2]) == 2", "assert use(int, '4') == 4"],
    ),
    "type as argument": (
        "def only(kind, xs):\n    return [x for x in xs if isinstance(x, kind)]",
        ["assert only(int, [1, 'a']) == [1]"],
    ),
    "generator": ("def count(n):\n    for i in range(n):\n        yield i", ["assert list(count(3)) == [0, 1, 2]"]),
    "iterator as argument": ("def total(xs):\n    return sum(xs)", ["assert total(x for x in [1, 2]) == 3"]),
    "own exception": (
        "class Bad(ValueError):\n    pass\ndef fail():\n    raise Bad('no')",
        ["try:\n    fail()\nexcept Bad as error:\n    assert str(error) == 'no'\nelse:\n    assert False"],
    ),
    "class": (
        "class Point:\n    def __init__(self, x):\n        self.x = x\n"
        "    def __add__(self, other):\n        return Point(self.x + other.x)\n"
        "    def __eq__(self, other):\n        return self.x == other.x\n"
        "    def __lt__(self, other):\n        return self.x < other.x\n",
        ["assert (Point(1) + Point(2)).x == 3", "assert Point(1) == Point(1)", "assert Point(1) < Point(2)"],
    ),
    "stateful object": (
        "class Stack:\n    def __init__(self):\n        self.items = []\n"
        "    def push(self, x):\n        self.items.append(x)\n"
        "    def pop(self):\n        return self.items.pop()\n    def __len__(self):\n        return len(self.items)\n",
        ["s = Stack()\ns.push(1)\ns.push(2)\nassert s.pop() == 2\nassert len(s) == 1"],
    ),
    "standard values": (
        "import datetime, collections\nfrom fractions import Fraction\n"
        "def day():\n    return datetime.date(2020, 1, 2)\n"
        "def half():\n    return Fraction(1, 2)\ndef counts(text):\n    return collections.Counter(text)\n"
        "def big():\n    return 2**200\ndef raw():\n    return b'\\x00\\xff'\n",
        [
            "import datetime\nassert day() == datetime.date(2020, 1, 2)",
            "from fractions import Fraction\nassert half() == Fraction(1, 2)",
            "assert counts('aab') == {'a': 2, 'b': 1}",
            "assert big() == 2**200",
            "assert raw() == bytes([0, 255])",
        ],
    ),
    "HumanEval": (
        "def double(a):\n    return a * 2",
        {"program": "def check(candidate):\n    assert candidate('a') == 'aa'\n", "entry_point": "double"},
    ),
    "HumanEval that calls itself": (
        "def double(a):\n    return a * 2",
        "def check(candidate):\n    assert candidate(2) == 4\ncheck(double)",
    ),
    "unittest": (
        "def double(a):\n    return a * 2",
        "import unittest\nfrom solution import double\nclass T(unittest.TestCase):\n"
        "    def test_a(self):\n        self.assertEqual(double(1), 2)\n"
        "    def test_b(self):\n        with self.assertRaises(TypeError):\n            double(None)\n",
    ),
    "cases": (
        "def thirds(a):\n    return (a, a / 3)",
        {"cases": [{"call": "thirds", "args": [1], "expected": [1, 0.333], "tolerance": 0.001}]},
    ),
    "stdin": (
        "print(int(input()) * 2)",
        {"runs": [{"stdin": "4\n", "stdout": "8\n"}, {"stdin": "5\n", "stdout": "10"}]},
    ),
    "set-up": (
        "def area(r):\n    return 3.14159265 * r * r",
        {"setup": "import math", "asserts": ["assert math.isclose(area(1), math.pi, rel_tol=1e-6)"]},
    ),
    "shell": (
        "```bash\nwc -l < in.txt | tr -d ' ' > out.txt\n```",
        {"language": "shell", "runs": [{"files": {"in.txt": "a\nb\n"}, "expected_files": {"out.txt": "2\n"}}]},
    ),
}


@pytest.mark.parametrize("name", HONEST)
def test_twenty_honest_solutions_keep_the_full_reward(grade: Any, name: str) -> None:
    assert len(HONEST) == 20
    score = grade(*HONEST[name])
    assert (score.value, score.reason) == (1.0, None)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("def add(a, b):\n    return 3", "test 1"),
        ("def add(a):\n    return 3", "TypeError"),
        ("def subtract(a, b):\n    return a - b", "NameError"),
        ("```python\ndef add(a, b):\n    return a +\n```", "SyntaxError"),
        ("def add(a, b):\n    return a +", "no code"),
        ("raise ValueError('never mind')", "never mind"),
        ("I cannot help with that.", "no code"),
        ("", "no code"),
        ("```javascript\nfunction add(a, b) { return a + b }\n```", "no code"),
        ("def add(a, b):\n    return str(a + b)", "test 0"),
        ("pass", "NameError"),
    ],
)
def test_a_failure_is_nothing_and_says_why(grade: Any, code: str, reason: str) -> None:
    """F3.7: the described original gives ``pass`` a full reward."""
    score = grade(code, ADD)
    assert score.value == 0.0
    assert reason in score.reason


@pytest.mark.parametrize(
    ("expected", "reason"),
    [
        (None, "no ground truth"),
        ([], "no tests"),
        (7, "mapping"),
        ({"asserts": ["assert add(1"]}, "no Python"),
        ({"asserts": ADD, "setup": "import no_such_module"}, "no_such_module"),
        ({"language": "cobol", "asserts": ADD}, "cobol"),
        ({"language": "shell", "asserts": ADD}, "shell is tested by runs"),
        ({"assert": ADD}, "assert"),
        ({"cases": [{"call": "add"}]}, "expected"),
    ],
)
def test_without_tests_that_can_run_the_score_is_unknown(grade: Any, expected: Any, reason: str) -> None:
    """F4.7: the described original scores tests that it never ran."""
    score = grade("def add(a, b):\n    return a + b", expected)
    assert score.value is None
    assert score.is_applicable
    assert reason in score.reason


def test_an_answer_that_was_not_recorded_is_unknown() -> None:
    score = CodeExecution()(Attempt(output=None, expected=ADD))
    assert (score.value, score.is_applicable) == (None, True)


def test_a_part_of_the_tests_pays_only_where_that_is_asked_for() -> None:
    attempt = Attempt(output="def add(a, b):\n    return 3", expected=ADD)
    whole, part = CodeExecution()(attempt), CodeExecution(partial=True)(attempt)
    assert (whole.value, part.value) == (0.0, 0.5)
    assert whole.details == part.details == {"num_tests": 2, "num_passed": 1}


def test_code_is_found_in_markdown() -> None:
    text = "Try\n```python\ndef a(): pass\n```\nor\n~~~py\ndef b(): pass\n~~~\nthen\n```\nplain\n```\n```sql\nselect 1"
    assert [name for name, _ in fenced_blocks(text)] == ["python", "py", "", "sql"]
    assert code_of(text, "python") == "def b(): pass\n"
    assert code_of(text, "python", ["a"]) == "def a(): pass\n"
    assert code_of("```\nx = 1\n```", "python") == "x = 1\n"
    assert code_of("````python\n```\n````", "python") == "```\n"
    assert code_of("```sql\nselect 1\n```", "python") is None
    assert code_of("x = 1\n" * MAX_CODE, "python") is None


def test_tests_that_cannot_be_read_are_named() -> None:
    with pytest.raises(FormatError, match="shell"):
        read_tests({"language": "shell", "program": "x"})
    assert read_tests("assert f(1)").program == "assert f(1)"
    assert read_tests(["assert f(1)"]).num_tests == 1
