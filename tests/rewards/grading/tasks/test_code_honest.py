"""What right answers are made of, and the tests of others: all of it keeps the full reward."""

from __future__ import annotations

from typing import Any

import pytest

from learnloop.core.attempts import Attempt, Score
from learnloop.rewards.grading.tasks.code import CodeExecution
from learnloop.rewards.grading.tasks.code_answer import fenced_blocks
from learnloop.sandbox import Sandbox


@pytest.fixture(scope="module")
def grade() -> Any:
    scorer = CodeExecution(sandbox=Sandbox())

    def run(code: str, expected: Any) -> Score:
        return scorer(Attempt(output=code, expected=expected))

    return run


NODE = "class Node:\n    def __init__(self, value, next=None):\n        self.value = value\n        self.next = next\n"
HONEST: dict[str, tuple[str, Any]] = {
    "a name of the library": ("def bisect(a, x):\n    return 2", ["assert bisect([1, 2], 3) == 2"]),
    "a named tuple": (
        "from collections import namedtuple\nP = namedtuple('P', 'x y')\ndef f(p=None):\n    return P(1, 2)",
        ["assert f().x == 1", "assert f() == (1, 2) == P(1, 2)"],
    ),
    "a named tuple as argument": (
        "def f(p):\n    return p.x",
        ["from collections import namedtuple\nassert f(namedtuple('P', 'x y')(1, 2)) == 1"],
    ),
    "members of an enumeration": (
        "import enum\nclass C(enum.Enum):\n    R = 1\n    G = 2\ndef f():\n    return C.R",
        ["assert f() is C.R", "assert f() != C.G", "assert [c.name for c in C] == ['R', 'G']"],
    ),
    "a data class": (
        "from dataclasses import dataclass\n@dataclass(frozen=True, order=True)\nclass P:\n    x: int\n"
        "    y: int = 0\n",
        ["assert {P(1), P(1)} == {P(1)}", "assert P(1) < P(2)", "assert repr(P(1)) == 'P(x=1, y=0)'"],
    ),
    "fields of an exception": (
        "class Bad(Exception):\n    def __init__(self, code):\n        super().__init__(f'bad {code}')\n"
        "        self.code = code\ndef f():\n    raise Bad(5)",
        [
            "try:\n    f()\nexcept Bad as error:\n    assert (error.code, str(error)) == (5, 'bad 5')\n"
            "else:\n    assert 0"
        ],
    ),
    "arguments of an exception": (
        "def f():\n    raise KeyError('a')",
        [
            "try:\n    f()\nexcept KeyError as e:\n    assert e.args == ('a',) and str(e) == \"'a'\"\n"
            "else:\n    assert 0"
        ],
    ),
    "a family of exceptions": (
        "class A(Exception):\n    pass\nclass B(A, ValueError):\n    pass\ndef f():\n    raise B('x')",
        [f"try:\n    f()\nexcept {kind}:\n    pass\nelse:\n    assert 0" for kind in ("A", "B", "ValueError")],
    ),
    "an exception of the library": (
        "import json\ndef f(text):\n    return json.loads(text)",
        ["import json\ntry:\n    f('{')\nexcept json.JSONDecodeError:\n    pass\nelse:\n    assert 0"],
    ),
    "an exception of the system": (
        "def f():\n    open('none')",
        ["try:\n    f()\nexcept FileNotFoundError as error:\n    assert error.errno == 2\nelse:\n    assert 0"],
    ),
    "an exception that is given": ("def f():\n    return ValueError(3)", ["assert isinstance(f(), ValueError)"]),
    "an exception of the tests that passes through": (
        "def f(call):\n    for _ in range(3):\n        try:\n            return call()\n"
        "        except Exception as error:\n            last = error\n    raise last",
        {
            "setup": "class Mine(Exception):\n    pass\nnum = []\ndef fail():\n    num.append(1)\n    raise Mine('x')",
            "asserts": ["try:\n    f(fail)\nexcept Mine:\n    assert len(num) == 3\nelse:\n    assert 0"],
        },
    ),
    "the end of a program": (
        "import sys\ndef f():\n    sys.exit(3)",
        ["try:\n    f()\nexcept SystemExit as error:\n    assert error.code == 3\nelse:\n    assert 0"],
    ),
    "coroutines": (
        "import asyncio\nasync def f(x):\n    await asyncio.sleep(0)\n    return x + 1",
        [
            "import asyncio\nassert asyncio.run(f(1)) == 2",
            "async def both():\n    return await asyncio.gather(f(1), f(2))\nassert asyncio.run(both()) == [2, 3]",
        ],
    ),
    "a decorator": (
        "import functools\ndef twice(call):\n    @functools.wraps(call)\n    def both(*a):\n"
        "        return call(*a) * 2\n    return both",
        ["@twice\ndef g(x):\n    'Doc.'\n    return x\nassert (g(2), g.__name__, g.__doc__) == (4, 'g', 'Doc.')"],
    ),
    "a context manager that catches": (
        "class Quiet:\n    def __enter__(self):\n        return self\n"
        "    def __exit__(self, kind, error, trace):\n        return kind is ValueError and str(error) == 'x'",
        ["with Quiet():\n    raise ValueError('x')"],
    ),
    "the argument itself": ("def f(x):\n    x.append(1)\n    return x", ["x = []\nassert f(x) is x and x == [1]"]),
    "counts": (
        "from collections import Counter\ndef f(s):\n    return Counter(s)",
        ["assert f('aab').most_common(1) == [('a', 2)]", "assert f('a') == {'a': 1}", "assert f('a')['z'] == 0"],
    ),
    "counts in a case": (
        "from collections import Counter\ndef f(s):\n    return Counter(s)",
        {"cases": [{"call": "f", "args": ["a"], "expected": {"a": 1}}]},
    ),
    "defaults": (
        "from collections import defaultdict\ndef f(d):\n    d['y'] += 1\n    return defaultdict(list, a=[1])",
        [
            "from collections import defaultdict\nd = defaultdict(int)\nassert f(d)['b'] == []\nassert d == {'y': 1}",
        ],
    ),
    "bytes that change": (
        "def f(b):\n    b.reverse()\n    return bytes(b)",
        ["b = bytearray(b'ab')\nassert f(b) == b'ba' and b == bytearray(b'ba')"],
    ),
    "nodes of the tests are linked anew": (
        "def f(head):\n    last = None\n    while head:\n        head.next, last, head = last, head, head.next\n"
        "    return last",
        {
            "setup": NODE,
            "asserts": ["h = f(Node(1, Node(2)))\nassert (h.value, h.next.value, h.next.next) == (2, 1, None)"],
        },
    ),
    "operators of a test's class": (
        "def f(items):\n    return sorted(items)[0] + items[0]",
        {
            "setup": NODE + "    def __lt__(self, other):\n        return self.value < other.value\n"
            "    def __add__(self, other):\n        return Node(self.value + other.value)\n",
            "asserts": ["assert f([Node(2), Node(1)]).value == 3"],
        },
    ),
    "objects of the library as arguments": (
        "def f(pattern, file, random):\n    return pattern.findall(file.read()), random.random() < 1",
        [
            "import io, random, re\n"
            "assert f(re.compile('a'), io.StringIO('aba'), random.Random(0)) == (['a', 'a'], True)"
        ],
    ),
    "depth": (
        "def f(x):\n    return 1 + f(x[0]) if isinstance(x, list) and x else 0",
        ["x = []\nfor _ in range(150):\n    x = [x]\nassert f(x) == 150"],
    ),
    "size": ("def f(n):\n    return list(range(n))", ["assert f(1_000_000)[-1] == 999_999"]),
    "arithmetic of a class": (
        "class V:\n    def __init__(self, x):\n        self.x = x\n    def __mul__(self, k):\n"
        "        return V(self.x * k)\n"
        "    __rmul__ = __mul__\n    def __abs__(self):\n        return abs(self.x)\n"
        "    def __eq__(self, other):\n        return self.x == other.x\n    def __float__(self):\n        return 0.5\n"
        "    def __format__(self, how):\n        return how\n",
        [
            "assert 3 * V(2) * 2 == V(12)",
            "assert abs(V(-3)) == 3",
            "assert float(V(1)) == 0.5",
            "assert f'{V(1):x}' == 'x'",
        ],
    ),
    "a container of its own": (
        "class Words:\n    def __init__(self):\n        self.all = set()\n    def add(self, word):\n"
        "        self.all.add(word)\n    def __contains__(self, word):\n        return word in self.all\n"
        "    def startswith(self, start):\n        return any(word.startswith(start) for word in self.all)\n",
        ["w = Words()\nw.add('ab')\nassert 'ab' in w and 'b' not in w and w.startswith('a')"],
    ),
    "what can be gone through contains what it gives": (
        "def f(d):\n    return d.keys()",
        ["assert 'a' in f({'a': 1}) and 'b' not in f({'a': 1})"],
    ),
    "kinds of its own": (
        "class A:\n    pass\nclass B(A):\n    pass",
        ["assert isinstance(B(), A) and issubclass(B, A) and not isinstance(3, A)"],
    ),
    "functions of its own to compare by": (
        "def f(items, key):\n    return sorted(items, key=key)",
        ["assert f(['aa', 'b'], len) == f(['aa', 'b'], lambda each: len(each)) == ['b', 'aa']"],
    ),
    "a test case with a set-up of its class": (
        "def f():\n    return 3",
        "import unittest\nclass T(unittest.TestCase):\n    @classmethod\n    def setUpClass(cls):\n        cls.v = 3\n"
        "    def test_a(self):\n        self.assertEqual(f(), self.v)\n    def test_b(self):\n"
        "        for each in (1, 2):\n            with self.subTest(each):\n                self.assertEqual(f(), 3)",
    ),
    "a test case of coroutines": (
        "async def f():\n    return 3",
        "import unittest\nclass T(unittest.IsolatedAsyncioTestCase):\n    async def test_a(self):\n"
        "        self.assertEqual(await f(), 3)",
    ),
    "a test class with a set-up": (
        "def f():\n    return 1",
        "class TestF:\n    def setup_method(self):\n        self.v = 1\n"
        "    def test_a(self):\n        assert f() == self.v",
    ),
    "a block within a list": (
        "1. So:\n   ```python\n   def f():\n       return 3\n   ```\n",
        ["assert f() == 3"],
    ),
    "an example after the code": (
        "```python\ndef f():\n    return 3\n```\nUse it:\n```python\nassert f() == 3\n```",
        ["assert f() == 3"],
    ),
}


@pytest.mark.parametrize("name", HONEST)
def test_what_is_right_is_paid(grade: Any, name: str) -> None:
    score = grade(*HONEST[name])
    assert (score.value, score.reason) == (1.0, None)


def test_the_indent_of_a_fence_is_not_the_code_s() -> None:
    text = "- x\n  ```python\n  if a:\n      b\n  ```\n- y\n\t~~~sh\n\tls\n\t~~~"
    assert fenced_blocks(text) == [("python", "if a:\n    b\n"), ("sh", "ls\n")]
