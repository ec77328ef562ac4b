"""Mathematics: equal however it is written, never run as code, one final answer, bounded on any text."""

from __future__ import annotations

import contextlib
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learnloop.core.attempts import Attempt, Score, TaskType
from learnloop.rewards.functions.built_in import correctness
from learnloop.rewards.grading.tasks.math_equality import are_equal, exact_value
from learnloop.rewards.grading.tasks.math_parsing import MathSyntaxError, read_expression
from tests.waiting import costs_at_most


def score(output: str, expected: Any) -> Score:
    return correctness(Attempt(output=output, expected=expected, task_type=TaskType.MATH))


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("42", 42),
        ("We get \\boxed{42}.", "42"),
        ("The answer is 42 because 6*7 = 42.", 42),
        ("**Final answer:** $\\frac{3}{4}$", "0.75"),
        ("First 3, then 4.\n#### 18", 18),
        ("x = 5", "5"),
        ("2 + 3 = 5", "5"),
        ("\\boxed{4} so \\boxed{4.0}", "4"),
        ("1 1/2", "1.5"),
        ("1\\frac{1}{2}", "3/2"),
        ("\\frac12", "1/2"),
        ("50%", "1/2"),
        ("1,234", "1234"),
        ("\\$5.00", "5"),
        ("12 hours", "12"),
        ("5 \\text{ meters}", "5"),
        ("(x+1)^2", "x^2 + 2x + 1"),
        ("sin(x)^2 + cos^2 x", "1"),
        ("(x^2-1)/(x-1)", "x+1"),
        ("2\\sqrt{2}", "\\sqrt{8}"),
        ("\\sqrt[3]{27}", "3"),
        ("e^{i\\pi}", "-1"),
        ("\\log_2 8", "3"),
        ("5!", "120"),
        ("0.333333", "1/3"),
        ("3.14159265", "\\pi"),
        ("3, 2", "x = 2 or x = 3"),
        ("\\{1, 2\\}", "{2, 1}"),
        ("(1, 2)", "(1,2)"),
        ("[0, 1)", "[0,1)"),
        ("y - 2x = 3", "2x - y = -3"),
        ("y=2, x=1", "x=1, y=2"),
        ("\\text{even}", "even"),
        ("7", ["seven", "7"]),
        ("xy + 2", "2 + yx"),
        ("x^2y", "yx^2"),
        ("The probability is \\(\\frac{1}{6}\\).", "1/6"),
        ("\\[ x = \\frac{-b}{2a} \\]", "-b/(2a)"),
        ("10:30", "10:30"),
        ("\\boxed{(-\\infty, 3]}", "(-\\infty,3]"),
        # words around it
        ("**42**", "42"),
        ("Therefore, she has 42 apples left.", "42"),
        ("The total is $25$ square meters.", "25"),
        ("The answer is 2/3 of a cup", "2/3"),
        ("Final Answer: The final answer is $12$. I hope it is correct.", "12"),
        ("<think>5? Answer: 5</think>The answer is 4.", "4"),
        ("<answer>The answer is 4.</answer>", "4"),
        ("Answer:\n7", "7"),
        ("The answer is (B) 5", "B"),
        ("\\text{(A)}", "A"),
        # ways of writing
        ("1{,}234", "1234"),
        ("1\\,234\\,567", "1234567"),
        ("1.5 x 10^3", "1500"),
        ("10⁻³", "0.001"),
        ("2½", "2.5"),
        ("-2\\frac{1}{2}", "-2.5"),
        ("75 percent", "75%"),
        ("45^{\\circ}", "45"),
        ("3 meters", "3 m"),
        ("2α", "2\\alpha"),
        ("a_n = 2n", "2n"),
        # functions
        ("\\cos 2x", "1 - 2\\sin^2 x"),
        ("\\sin^2 2x", "(\\sin(2x))^2"),
        ("2\\sin x\\cos x", "\\sin 2x"),
        ("\\tan^{-1}(1)", "\\pi/4"),
        ("sinx", "sin(x)"),
        ("\\binom{5}{2}", "10"),
        ("\\sqrt{2}\\sqrt{3} - \\sqrt{6}", "0"),
        ("\\sin(\\pi)", "0"),
        # sets, intervals, relations, matrices
        ("x = 3 or x = -3", "x = \\pm 3"),
        ("(-\\infty,2)\\cup(3,\\infty)", "(3, ∞) ∪ (-∞, 2)"),
        ("x \\le 3", "3 >= x"),
        ("1 < x < 3", "3 > x > 1"),
        ("\\begin{bmatrix} 1/2 & 2 \\\\ 3 & 4 \\end{bmatrix}", "\\begin{pmatrix}0.5&2\\\\3&4\\end{pmatrix}"),
    ],
)
def test_right(output: str, expected: Any) -> None:
    assert score(output, expected).value == 1.0


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("4 or 5 or 6", 4),  # H2: "A or B or C"
        ("\\boxed{4 or 5 or 6}", 4),
        ("\\boxed{4, 5, 6}", 4),
        ("\\boxed{4} or \\boxed{5}", 4),
        ("\\boxed{5} or \\boxed{4}", 4),
        ("Answer: 4\nAnswer: 5", 4),
        ("Answer: 5\n\\boxed{4}", 4),
        ("", 4),
        ("   ", 4),
        ("I do not know.", 4),
        ("100000.5", "100000"),
        ("x + 10^{-40}", "x"),
        ("0.33", "1/3"),
        ("(2, 1)", "(1, 2)"),
        ("[0, 1]", "[0, 1)"),
        ("x=2, y=1", "x=1, y=2"),
        ("5 m", "5 cm"),
        ("50", "50%"),
        ("-x^2", "x^2"),
        ("4 5 6", 4),
        ("9**9**9**9", 4),
        ("e^(e^(e^(e^10)))", 4),
        ("(10^9)!", 4),
        ("0/0", "1"),
        ("nan", "4"),
        ("oo", "4"),
        ("1 1/2", "11/2"),  # white space between digits is more than white space
        ("4 4", "44"),
        ("The answer is 4. The answer is 5.", "4"),
        ("The answer is 4; or 5", "4"),
        ("She has 4 or 5 apples.", "4"),
        ("She does not have 4.", "4"),
        ("It is 4, maybe five.", "4"),
        ("A) or B)", "A"),
        ("<answer>4</answer><answer>5</answer>", "4"),
        ("<think>4</think>5", "4"),
        ("10:30", "30"),
        ("5 ms", "5 m"),
        ("5 cm^3", "5 cm^2"),
        ("2", "2m"),
        ("-2\\frac12", "-3/2"),
        ("\\cos 2x", "x \\cos 2"),
        ("x < 3", "x <= 3"),
        ("x < 3", "x > 3"),
        ("3", "\\pm 3"),
        ("(1,2)", "(1,2)\\cup(3,4)"),
        ("\\begin{pmatrix}1\\\\2\\end{pmatrix}", "\\begin{pmatrix}1&2\\end{pmatrix}"),
        ("1e-34/pi", "5e-34/pi"),  # small numbers differ, too
        ("0", "6.6e-34/pi"),
    ],
)
def test_wrong(output: str, expected: Any) -> None:
    with costs_at_most(5):
        assert score(output, expected).value == 0.0


def test_no_code_is_run(tmp_path: Path) -> None:
    """H2: eval injection (verl CVE-2026-6878): the answer is read by a grammar, and nothing of it is called."""
    target = tmp_path / "made"
    for attack in (
        f"__import__('os').system('touch {target}')",
        f"open('{target}', 'w')",
        "exit()",
        "().__class__.__bases__[0].__subclasses__()",
        "type('A', (int,), {'__eq__': lambda s, o: True})()",
    ):
        for output in (attack, f"\\boxed{{{attack}}}", f"Answer: {attack}"):
            assert score(output, 4).value == 0.0
    assert not target.exists()
    assert score("4", 4).value == 1.0  # the next sample's score is as it was
    assert score("5", 4).value == 0.0


def test_no_ground_truth_is_no_zero() -> None:
    for expected in (None, "", [], {"x": 1}, float("nan")):
        found = score("4", expected)
        assert found.value is None
        assert found.is_applicable


expressions = st.recursive(
    st.one_of(st.integers(0, 20).map(str), st.just("x")),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*"), inner).map(lambda each: f"({each[0]}{each[1]}{each[2]})"),
        inner.map(lambda each: f"({each})^2"),
    ),
    max_leaves=6,
)


@settings(max_examples=60, deadline=None)
@given(expressions, st.integers(-5, 5))
def test_it_agrees_with_python(text: str, place: int) -> None:
    """Python's own arithmetic of the same text at a whole number is another way to the same value."""
    ours = exact_value(read_expression(text.replace("x", f"({place})")))
    theirs = Fraction(_python_value(text.replace("x", f"({place})")))
    assert ours == theirs
    assert are_equal(read_expression(text), read_expression(f"{text} + 0"))
    assert not are_equal(read_expression(text), read_expression(f"{text} + 1"))


def _python_value(text: str) -> int:
    import ast

    def value(node: ast.AST) -> int:
        if isinstance(node, ast.BinOp):
            left, right = value(node.left), value(node.right)
            kinds = {ast.Add: left + right, ast.Sub: left - right, ast.Mult: left * right}
            return left**2 if isinstance(node.op, ast.Pow) else kinds[type(node.op)]
        if isinstance(node, ast.UnaryOp):
            return -value(node.operand)
        assert isinstance(node, ast.Constant)
        return int(node.value)

    return value(ast.parse(text.replace("^", "**"), mode="eval").body)


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="0123456789xyei+-*/^(){}[]|!%,. \\=fracsqtlognpi", max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(MathSyntaxError):
        read_expression(text)
    assert score(text, "7").value in (0.0, 1.0)


PIECES = [
    "(",
    "\\boxed{",
    "answer is ",
    "Answer: 1\n",
    "9",
    "1+",
    "x^",
    "-",
    "\\frac",
    "!",
    "1,",
    "=",
    "sqrt ",
    "5 or ",
    "{",
    "\n",
    "<answer>",
    "sin",
    "±",
    "<",
    "²",
    "\\cup ",
    "\\begin{pmatrix}",
    "1 ",
    "</think>",
]


@pytest.mark.parametrize("piece", ["the ", "It is ", "x ", "sin", "a b ", "x+", "x^", "-x"])
def test_words_that_are_read_as_products_make_no_grader_fail(piece: str) -> None:
    """H2: an answer that makes the grader fail would have no reward in the place of 0."""
    for text in (piece * (900 // len(piece)), "\\boxed{" + piece * (900 // len(piece)) + "y}"):
        assert score(text, "x+7").value == 0.0


@pytest.mark.parametrize("piece", PIECES)
def test_a_megabyte_takes_no_time(piece: str) -> None:
    with costs_at_most(8):
        score(piece * (1_000_000 // len(piece)), "7")
        score("\\boxed{" + piece * (900 // len(piece)) + "}", "x+7")


@pytest.mark.parametrize(
    "text",
    [
        "2^" * 30 + "2",
        "sin " * 30 + "x",
        "(x+y+z)^60*(x+y+z)^60",
        "((x+1)^60)^60",
        "exp(" * 30 + "x" + ")" * 30,
        "x^500",
    ],
)
def test_what_would_grow_is_not_computed(text: str) -> None:
    with costs_at_most(8):
        score(text, "(x+y+z)^120")
