"""Mathematics: the final answer must equal the ground truth, however it is written."""

from __future__ import annotations

import re
from collections.abc import Sequence

from learnloop.core.attempts import Attempt, Score
from learnloop.core.errors import FormatError
from learnloop.rewards.tasks.answers import MAX_ANSWERS, final_answers, read_expected, spoken_answer
from learnloop.rewards.tasks.math_equality import TooLargeError, are_close, are_equal
from learnloop.rewards.tasks.math_parsing import MathSyntaxError, Node, plain, read_expression

_UNITS = re.compile(
    r"(?<=[\d)}\s])\s*(?:\\text\s*\{?\s*|\\mbox\s*\{?\s*)?(?P<unit>mm|cm|km|m|mg|kg|g|ms|s|min|h|seconds?|minutes?|hours?|days?|weeks?"
    r"|months?|years?|dollars?|cents?|euros?|degrees?|radians?|units?|inches|inch|feet|foot|miles?|meters?|metres?|"
    r"kilometers?|grams?|kilograms?|liters?|litres?|people|apples|points?)\s*(?:\^?[23])?\s*\}?\s*$"
)
_MIXED = re.compile(r"^\s*(-?)\s*(\d+)\s+(\d+)\s*/\s*(\d+)\s*$")
_SEPARATOR = re.compile(r"(?i),(?!\d{3}(?!\d))|;|\bor\b|\band\b")
_NAME = re.compile(r"^\s*[A-Za-z](?:\([A-Za-z]\))?\s*$")
_NAME_BEFORE = re.compile(r"^\s*[A-Za-z]\s*(?==)")
_BRACKETS = {"(": ")", "[": "]"}
_MAX_ELEMENTS = 20


def score_math(attempt: Attempt) -> Score:
    r"""Returns 1 where the final answer equals the ground truth, else 0.

    The final answer is in ``\boxed{}``, or after "answer is", "Answer:" or "####"; without such a mark it is the whole
    text, or what its last line says. Fractions, percent, LaTeX and units are read. Several different final answers are
    a wrong one, and so is a list where one value is asked for. A ground truth with several values (``2, 3`` or ``x = 2
    or x = 3``) is a set; one in brackets (``(1, 2)``) has an order.
    """
    try:
        truths = read_expected(attempt.expected, ()).answers
    except FormatError as error:
        return Score.unknown(str(error))
    output = attempt.output or ""
    if output.strip() in truths:
        return Score.of(1.0, answer=output.strip()[:200])
    answers = _candidates(output)
    if not answers:
        return Score.of(0.0, "it has no final answer")
    if len(answers) > MAX_ANSWERS:
        return Score.of(0.0, "it has more final answers than anybody means")
    wrong = [answer for answer in answers if not any(is_same(answer, truth) for truth in truths)]
    if not wrong:
        return Score.of(1.0, answer=answers[-1][:200])
    several = "it has several different final answers; " if len(answers) > 1 else ""
    return Score.of(0.0, f"{several}{wrong[-1][:80]!r} is not the answer")


def is_same(answer: str, truth: str) -> bool:
    """Returns whether two texts are the same mathematics.

    Raises:
        MissingExtraError: sympy is needed and not installed.
    """
    if _squeezed(answer) == _squeezed(truth):
        return True
    try:
        return _are_same_parts(_parts(answer), _parts(truth))
    except (MathSyntaxError, TooLargeError):
        return False


def _candidates(output: str) -> list[str]:
    marked = final_answers(output)
    if marked:
        return marked
    lines = [line for line in output[-4_000:].splitlines() if line.strip()]
    if not lines:
        return []
    last = lines[-1].strip().rstrip(".")
    return [last if _is_math(last) else spoken_answer(last) or last]


def _is_math(text: str) -> bool:
    try:
        _parts(text)
    except MathSyntaxError:
        return False
    return True


class _Parts(tuple[str, tuple[Node, ...], str | None]):
    """How values are held together ("" for a set), the values, and the unit."""


def _parts(text: str) -> _Parts:
    text = plain(text)
    unit = _UNITS.search(text)
    name = None
    if unit is not None:
        name, text = unit.group("unit").rstrip("s"), text[: unit.start()]
    text = text.replace("\\{", "{").replace("\\}", "}").strip()
    kind = ""
    if len(text) > 1 and "," in text:
        if text[0] == "{" and text[-1] == "}":
            text = text[1:-1]
        elif text[0] in "([" and text[-1] in ")]" and _is_one_group(text):
            kind, text = text[0] + text[-1], text[1:-1]
    values = _split(text)
    names = {match.group().strip() for each in values if (match := _NAME_BEFORE.match(each))}
    elements = [_read(each, is_named=len(names) > 1) for each in values]  # of x = 1, y = 2 the names count
    return _Parts((kind, tuple(elements), name))


def _is_one_group(text: str) -> bool:
    """Returns whether the first bracket closes at the end of a text."""
    depth = 0
    for place, letter in enumerate(text):
        depth += (letter in "([") - (letter in ")]")
        if depth == 0:
            return place == len(text) - 1
    return False


def _split(text: str) -> list[str]:
    """Returns the values of a list; separators in brackets do not count."""
    found, begin, depth = [], 0, 0
    places = {match.start(): match.end() for match in _SEPARATOR.finditer(text)}
    for place, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if depth == 0 and place in places:
            found.append(text[begin:place])
            begin = places[place]
    found.append(text[begin:])
    if len(found) > _MAX_ELEMENTS:
        raise MathSyntaxError(f"it has more than {_MAX_ELEMENTS} values")
    return [each for each in found if each.strip()] or [""]


def _read(text: str, *, is_named: bool) -> Node:
    """Returns the tree of a value: of ``x = 3`` that of 3, unless the name counts; of another equation both sides."""
    mixed = _MIXED.match(text)
    if mixed is not None:
        sign, whole, above, below = mixed.groups()
        text = f"{sign}({whole}+{above}/{below})"
    sides = text.split("=")
    if len(sides) == 1:
        return read_expression(text)
    if len(sides) == 2 and (is_named or not _NAME.match(sides[0])) and any(letter.isalpha() for letter in sides[0]):
        return Node("equation", (read_expression(sides[0]), read_expression(sides[1])))
    return read_expression(sides[-1])


def _are_same_parts(first: _Parts, second: _Parts) -> bool:
    (kind, values, unit), (other_kind, other_values, other_unit) = first, second
    if kind != other_kind or len(values) != len(other_values):
        return False
    if unit is not None and other_unit is not None and unit != other_unit:
        return False
    if kind:
        return all(map(_is_same_value, values, other_values))
    return _are_same_sets(list(values), list(other_values))


def _are_same_sets(values: Sequence[Node], others: list[Node]) -> bool:
    for value in values:
        match = next((other for other in others if _is_same_value(value, other)), None)
        if match is None:
            return False
        others.remove(match)
    return True


def _is_same_value(value: Node, truth: Node) -> bool:
    if (value.operation == "equation") != (truth.operation == "equation"):
        return False
    if value.operation == "equation":
        value, truth = (Node("-", each.arguments) for each in (value, truth))
        return are_equal(value, truth) or are_equal(value, Node("-", truth.arguments[::-1]))
    return are_equal(value, truth) or are_close(value, truth)


def _squeezed(text: str) -> str:
    text = re.sub(r"\\(?:text|mathrm|mbox|textbf)\s*\{([^{}]*)\}", r"\1", text[:4_000])
    return re.sub(r"\s+|\$|\\left|\\right|\\[()\[\]]", "", text).strip(".").casefold()
