"""The answer that a text commits itself to, and the forms that a ground truth may have.

Who answers "A or B or C" has not answered: what counts is one place in the text, and what stands there must be right.
All of it takes time that is linear in the text.
"""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from typing import Any, NamedTuple

from learnloop.core.errors import FormatError, one_of

MAX_ANSWERS = 50
"""A text with more final answers has none."""
_MAX_ANSWER_CHARS = 2_000
_MAX_SENTENCE_CHARS = 400
_MARKED = re.compile(
    r"(?i)\banswer[*_ \t]{0,9}(?:is[*_ \t]{0,9}:?|:|=)[*_ \t]{0,9}([^\n]{1,2000})|^#### ?([^\n]{1,2000})", re.MULTILINE
)
_END = re.compile(r"(?i)[.;!?](?:\s|$)|[,\s](?:because|since|so|which|as)\b")
_COPULA = re.compile(r"(?i)(?:\b(?:is|are|was|were|equals|be)\b|[=:])")
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_CHOICES = re.compile(r"(?i)[,;/|\n]|\bor\b")
_OR = re.compile(r"(?i)\bor\b")
_MAX_CHOICE_WORDS = 4


class Expected(NamedTuple):
    """A ground truth in text."""

    answers: tuple[str, ...]
    """Each of them is right."""
    match: str | None
    """How to compare; None: as the task type does."""


def read_expected(expected: Any, matches: tuple[str, ...]) -> Expected:
    """Returns a ground truth: a text, a number, a list of such, or a mapping with ``answers`` and ``match``.

    Raises:
        FormatError: it is none of these, or empty, or asks for a comparison that is not among ``matches``.
    """
    match = None
    if isinstance(expected, Mapping):
        match = expected.get("match")
        if match is not None and match not in matches:
            raise FormatError(f"the ground truth asks for the match {match!r}; allowed are {one_of(matches)}")
        expected = expected.get("answers", expected.get("answer"))
    answers = expected if isinstance(expected, list | tuple) else [expected]
    fine = all(isinstance(each, str | int | float) and str(each).strip() for each in answers)
    if not answers or not fine:
        raise FormatError(f"the ground truth is {str(expected)[:80]!r}; a text, a number or a list of such is needed")
    return Expected(tuple(str(each).strip() for each in answers), match)


def final_answers(text: str) -> list[str]:
    r"""Returns what a text marks as its final answers: ``\boxed{}``, "the answer is", "Answer:", "####"; each once.

    At most ``MAX_ANSWERS + 1`` of them.
    """
    found = dict.fromkeys(_boxed(text))
    for match in _MARKED.finditer(text):
        marked = (match.group(1) or match.group(2)).strip()
        if "\\boxed" not in marked:
            found.setdefault(_cut(marked))
        if len(found) > MAX_ANSWERS:
            break
    return [each for each in found if each]


def spoken_answer(text: str) -> str | None:
    """Returns what a text of one sentence says after its only "is", "=" or ":"; None: it is no such sentence."""
    sentence = _sentence(text)
    places = [] if sentence is None else list(_COPULA.finditer(sentence))
    if sentence is None or len(places) != 1:
        return None
    return sentence[places[0].end() :].strip() or None


def spoken_subject(text: str, prompt: str | None) -> str | None:
    """Returns what a sentence says before its only "is", where all that follows repeats the question.

    "Paris is the capital of France." answers "What is the capital of France?".
    """
    sentence = _sentence(text)
    places = [] if sentence is None else list(_COPULA.finditer(sentence))
    if sentence is None or prompt is None or len(places) != 1:
        return None
    subject = sentence[: places[0].start()].strip()
    asked = set(normalized(prompt).split())
    said = normalized(sentence[places[0].end() :]).split()
    is_offered = set(normalized(subject).split()) <= asked
    return subject if said and not is_offered and all(word in asked for word in said) else None


def is_right(text: str, prompt: str | None, compare: Any) -> bool:
    """Returns whether the answer that a text commits itself to passes ``compare``.

    Several different marked answers must all pass.
    """
    marked = final_answers(text)
    if marked:
        return len(marked) <= MAX_ANSWERS and all(compare(each) for each in marked)
    places = (
        text.strip() if len(text) <= _MAX_ANSWER_CHARS else None,
        spoken_answer(text),
        spoken_subject(text, prompt),
    )
    return any(place is not None and compare(place) for place in places)


def normalized(text: str) -> str:
    """Returns a text in lower case without punctuation, articles and white space beyond one.

    Source: Rajpurkar et al. 2016, SQuAD, section 6.1 and its evaluation script.
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def is_list_of_choices(text: str) -> bool:
    """Returns whether a text is nothing but short alternatives, or two with an "or" between: no answer, but several."""
    items = [item.split() for item in _CHOICES.split(text.strip(" \n.;,"))]
    if len(items) < 2 or any(len(item) > _MAX_CHOICE_WORDS for item in items[1:-1]):
        return False
    are_short = all(len(item) <= _MAX_CHOICE_WORDS for item in items[1:])
    return are_short and (len(items) > 2 or _OR.search(text) is not None)


def _boxed(text: str) -> list[str]:
    found: list[str] = []
    place = 0
    while len(found) <= MAX_ANSWERS:
        start = text.find("\\boxed{", place)
        if start < 0:
            break
        place = start + len("\\boxed{")
        end = _closing(text, place)
        found.append(text[place : place + _MAX_ANSWER_CHARS if end is None else end].strip())
    return found


def _closing(text: str, begin: int) -> int | None:
    depth = 1
    for place in range(begin, min(len(text), begin + _MAX_ANSWER_CHARS)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return place
    return None


def _cut(marked: str) -> str:
    """Returns the part of a line that is the answer: without the sentence that explains it."""
    end = _END.search(marked)
    return (marked if end is None else marked[: end.start()]).strip(" *_`\t")


def _sentence(text: str) -> str | None:
    text = text.strip()
    if not text or len(text) > _MAX_SENTENCE_CHARS or "\n" in text:
        return None
    sentence = text.rstrip(".! ")
    return None if re.search(r"[.!?]\s", sentence) else sentence
