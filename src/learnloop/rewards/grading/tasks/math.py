"""Mathematics: the final answer must equal the ground truth, however it is written."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from learnloop.core.attempts import Attempt, Score
from learnloop.rewards.grading.tasks.answers import (
    MAX_ANSWERS,
    answer_part,
    final_answers,
    read_expected,
    spoken_answer,
)
from learnloop.rewards.grading.tasks.math_equality import TooLargeError, are_close, are_equal
from learnloop.rewards.grading.tasks.math_parsing import MathSyntaxError, Node, plain, read_expression

_UNITS = re.compile(
    r"(?P<before>(?<=[\d)}\s])\s*(?:\\(?:text|mbox|mathrm)\s*\{?\s*)?)(?:square\s+|cubic\s+)?(?P<unit>mm|cm|km/h|km|m/s|mph|"
    r"m|mg|kg|g|ms|s|min|h|seconds?|minutes?|hours?|days?|weeks?|months?|years?|dollars?|cents?|euros?|degrees?|"
    r"radians?|units?|inches|inch|feet|foot|miles?|meters?|metres?|kilometers?|centimeters?|grams?|kilograms?|liters?|"
    r"litres?|people|apples|points?)\s*\}?\s*(?:\^?\{?(?P<power>[23])\}?)?\s*\}?\s*$"
)
_UNIT_NAMES = {
    "second": "s", "minute": "min", "hour": "h", "inches": "inch", "feet": "foot", "meter": "m", "metre": "m",
    "kilometer": "km", "centimeter": "cm", "gram": "g", "kilogram": "kg", "litre": "liter",
}  # fmt: skip
_MIXED = re.compile(r"^\s*(-?)\s*(\d+)\s+(\d+)\s*/\s*(\d+)\s*$")
_SEPARATOR = re.compile(r"(?i),(?!\d{3}(?!\d))|;|\bor\b|\band\b")
_UNION = re.compile(r"\\cup\b|∪")
_MEMBER = re.compile(r"^\s*[A-Za-z]\s*(?:\\in\b|∈)")
_MATRIX = re.compile(r"(?s)\s*\\begin\{([bp]?matrix)\}(.*)\\end\{\1\}\s*")
_PLUS_MINUS = re.compile(r"\\pm\b|±")
_RELATION = re.compile(r"(<=|>=|≤|≥|\\[lg]eqslant\b|\\[lg]eq?\b|\\[lg]t\b|<|>)")
_CHOICE = re.compile(r"(?is)(?:option\s|choice\s)?\s*\(?([A-H])(?:\)|[.:]\s|$)(.*)")
_ANOTHER_CHOICE = re.compile(r"\b[A-H]\b(?:[).:]|$)|(?i:\bor\b|\band\b)")
_LONE_NUMBER = re.compile(
    r"(?<![^\s$(*])[-−]?[$€£]?\d[\d,]*(?:\.\d+)?(?:\s*/\s*\d+)?\s?%?(?=[\s$.,;:!?)*\\]|$)(?:[ ]+([A-Za-z/]+))?"
)
_UNSURE = re.compile(
    r"(?i)\b(?:or|either|maybe|perhaps|possibly|not|never|no|cannot|less|fewer|more\s+than|greater|least|most|over|under|above|"
    r"below|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)\b|n['’]t\b|\?"
)
_PROSE = re.compile(r"(?i)\s(?:a|an|the|of|in|to|for|per)\s")
_MAX_SENTENCE_CHARS = 400
_NAME = re.compile(r"^\s*[A-Za-z](?:_\{?\w{1,3}\}?)?(?:\([A-Za-z]\))?\s*$")
_NAME_BEFORE = re.compile(r"^\s*[A-Za-z]\s*(?==)")
_MAX_ELEMENTS = 20
T = TypeVar("T")


def score_math(attempt: Attempt) -> Score:
    r"""Returns 1 where the final answer equals the ground truth, else 0.

    The final answer is in ``\boxed{}``, or after "answer is", "Answer:" or "####"; without such a mark it is the whole
    text, or what its last line says; in a sentence that is its only number. Fractions, percent, LaTeX and units are
    read. Several different final answers are a wrong one, and so is a list where one value is asked for. A ground truth
    with several values (``2, 3`` or ``x = 2 or x = 3``) is a set; one in brackets (``(1, 2)``) has an order.

    Raises:
        FormatError: the ground truth is not one.
    """
    truths = read_expected(attempt.expected, ()).answers
    output = attempt.output or ""
    if output.strip() in truths:
        return Score.of(1.0, answer=output.strip()[:200])
    answers = _candidates(output)
    if not answers:
        return Score.of(0.0, "it has no final answer")
    if len(answers) > MAX_ANSWERS:
        return Score.of(0.0, "it has more final answers than anybody means")
    wrong = [answer for answer in answers if not any(_is_answer(answer, truth) for truth in truths)]
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
        members, others = ([_parts(each) for each in _UNION.split(text)] for text in (answer, truth))
        return _are_same_sets(members, others, _are_same_parts)
    except (MathSyntaxError, TooLargeError, RecursionError):  # the last: called from deep within
        return False


def _is_answer(answer: str, truth: str) -> bool:
    """Returns whether an answer is the truth, or a sentence that says it, or begins with its letter."""
    if is_same(answer, truth) or _is_choice(answer, truth):
        return True
    is_said = _PROSE.search(answer) is not None or not _is_math(answer)
    number = _lone_number(answer) if is_said else None
    return number is not None and is_same(number, truth)


def _is_choice(answer: str, truth: str) -> bool:
    letter = re.fullmatch(r"\(?([A-H])\)?", truth)
    found = _CHOICE.fullmatch(_plain_text(answer).strip("*_ .")) if letter is not None else None
    if found is None or letter is None or _ANOTHER_CHOICE.search(found.group(2)):
        return False
    return found.group(1).upper() == letter.group(1)


def _lone_number(text: str) -> str | None:
    """Returns the only number of the last sentence of a text, with its unit; None: it has none, several or doubts."""
    sentence = re.split(r"(?<=[.!?])\s+", text[-_MAX_SENTENCE_CHARS:].strip())[-1]
    found = None if len(text) > 4_000 or _UNSURE.search(sentence) else _LONE_NUMBER.search(sentence)
    if found is None or re.search(r"\d", sentence[: found.start()] + sentence[found.end() :]):
        return None
    word = found.group(1)
    number = found.group() if word is None else found.group()[: -len(word)].strip()
    return found.group() if word is not None and _UNITS.search(found.group()) else number


def _candidates(output: str) -> list[str]:
    output = answer_part(output)
    marked = final_answers(output)
    if marked:
        return marked
    lines = [line for line in output[-4_000:].splitlines() if line.strip()]
    if not lines:
        return []
    last = lines[-1].strip().rstrip(".").strip("*_` ")
    return [last if _is_math(last) else spoken_answer(last) or last]


def _is_math(text: str) -> bool:
    try:
        _parts(text)
    except (MathSyntaxError, RecursionError):
        return False
    return True


class _Parts(tuple[str, tuple[Node, ...], str | None]):
    """How values are held together ("" for a set), the values, and the unit."""


def _parts(text: str) -> _Parts:
    matrix = _MATRIX.fullmatch(text)
    if matrix is not None:
        return _matrix(matrix.group(2))
    text, unit = _without_unit(_MEMBER.sub("", plain(text)))
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
    return _Parts((kind, tuple(elements), unit))


def _matrix(text: str) -> _Parts:
    """Returns the cells of a matrix; how they are held together tells the number of columns."""
    rows = [row.split("&") for row in text.split("\\\\") if row.strip()]
    if not rows or len({len(row) for row in rows}) > 1 or len(rows) * len(rows[0]) > _MAX_ELEMENTS:
        raise MathSyntaxError("it is no matrix, or a large one")
    cells = tuple(read_expression(cell) for row in rows for cell in row)
    return _Parts((f"{len(rows[0])} columns", cells, None))


def _without_unit(text: str) -> tuple[str, str | None]:
    """Returns a text without its unit, and the unit; a letter that touches a number is no unit, but a factor."""
    found = _UNITS.search(text)
    if found is None or (len(found.group("unit")) == 1 and not found.group("before")):
        return text, None
    name = found.group("unit")
    name = name if len(name) <= 2 or name in _UNIT_NAMES else name.removesuffix("s")
    return text[: found.start()], _UNIT_NAMES.get(name, name) + (found.group("power") or "")


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
    found = [_PLUS_MINUS.sub(sign, each) for each in found for sign in _signs_of(each)]
    if len(found) > _MAX_ELEMENTS:
        raise MathSyntaxError(f"it has more than {_MAX_ELEMENTS} values")
    return [each for each in found if each.strip()] or [""]


def _signs_of(text: str) -> str:
    return "+-" if len(_PLUS_MINUS.findall(text)) == 1 else "+"


def _read(text: str, *, is_named: bool) -> Node:
    """Returns the tree of a value: of ``x = 3`` that of 3, unless the name counts; of another equation both sides."""
    mixed = _MIXED.match(text)
    if mixed is not None:
        sign, whole, above, below = mixed.groups()
        text = f"{sign}({whole}+{above}/{below})"
    pieces = _RELATION.split(text)
    if len(pieces) > 1:
        return _chain(pieces)
    sides = text.split("=")
    if len(sides) == 1:
        return read_expression(text)
    if len(sides) == 2 and (is_named or not _NAME.match(sides[0])) and any(letter.isalpha() for letter in sides[0]):
        return Node("equation", (read_expression(sides[0]), read_expression(sides[1])))
    return read_expression(sides[-1])


def _chain(pieces: list[str]) -> Node:
    """Returns the relations of a < b <= c: for each whether it is strict, and the difference that is not negative."""
    sides = [read_expression(each) for each in pieces[::2]]
    relations = []
    for sign, below, above in zip(pieces[1::2], sides, sides[1:], strict=False):
        is_strict = sign in ("<", ">", "\\lt", "\\gt")
        is_turned = sign[0] in (">", "≥") or sign.startswith("\\g")
        difference = (below, above) if is_turned else (above, below)
        relations.append(Node("<" if is_strict else "<=", (Node("-", difference),)))
    return Node("chain", tuple(relations))


def _are_same_parts(first: _Parts, second: _Parts) -> bool:
    (kind, values, unit), (other_kind, other_values, other_unit) = first, second
    if kind != other_kind or len(values) != len(other_values):
        return False
    if unit is not None and other_unit is not None and unit != other_unit:
        return False
    if kind:
        return all(map(_is_same_value, values, other_values))
    return _are_same_sets(values, list(other_values), _is_same_value)


def _are_same_sets(values: Sequence[T], others: list[T], are_same: Callable[[T, T], bool]) -> bool:
    for value in values:
        match = next((place for place, other in enumerate(others) if are_same(value, other)), None)
        if match is None:
            return False
        del others[match]
    return not others


def _is_same_value(value: Node, truth: Node) -> bool:
    kinds = [each.operation if each.operation in ("equation", "chain") else "" for each in (value, truth)]
    if kinds[0] != kinds[1]:
        return False
    if kinds[0] == "chain":
        return _are_same_sets(value.arguments, list(truth.arguments), _is_same_relation)
    if kinds[0] == "equation":
        value, truth = (Node("-", each.arguments) for each in (value, truth))
        return are_equal(value, truth) or are_equal(value, Node("-", truth.arguments[::-1]))
    return are_equal(value, truth) or are_close(value, truth)


def _is_same_relation(value: Node, truth: Node) -> bool:
    return value.operation == truth.operation and are_equal(value.arguments[0], truth.arguments[0])


def _plain_text(text: str) -> str:
    return re.sub(r"\\(?:text|mathrm|mbox|textbf|mathbf)\s*\{([^{}]*)\}", r"\1", text[:4_000])


def _squeezed(text: str) -> str:
    text = re.sub(r"(?<=\d)\s+(?=\d)", "\x00", _plain_text(text))  # 1 1/2 is not 11/2
    text = re.sub(r"\s+|\$|\\left|\\right|\\[()\[\]]", "", text).strip("*.")
    text = re.sub(r"([_^])\{(\w)\}", r"\1\2", text.replace("\\emptyset", "∅"))
    return re.sub(r"^\(([A-Za-z])\)$", r"\1", text).casefold()
