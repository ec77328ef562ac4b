"""The answer that a text commits itself to, and the forms that a ground truth may have.

Who answers "A or B or C" has not answered: what counts is one place in the text, and what stands there must be right.
All of it takes time that is linear in the text.
"""

from __future__ import annotations

import math
import re
import string
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from learnloop.core.errors import FormatError, one_of

MAX_ANSWERS = 50
"""A text with more final answers has none."""
_MAX_ANSWER_CHARS = 2_000
_MAX_SENTENCE_CHARS = 400
_MARK = re.compile(
    r"(?i)(?:\b(?:the|my)[ \t]{1,9})?(?:\b(?:final|correct)[ \t]{1,9})?\banswer[*_ \t]{0,9}"
    r"(?:is\b[*_ \t]{0,9}:?|:|=|[-–—](?=\s))[*_ \t]{0,9}|^####",
    re.MULTILINE,
)
_MARK_ABOVE = re.compile(r"(?i)\banswer[*_ \t]{0,9}:[*_ \t]{0,9}\n\s{0,9}([^\n]{1,2000})")
_TAG = ("<answer>", "</answer>")
_BOX = re.compile(r"\\(?:boxed|fbox)[ ]?(\{|\d[\d.,]{0,40})")
_THOUGHT_END = "</think>"
_END = re.compile(r"(?i)[.;!?](?:\s|$)|[,\s](?:because|since|so|which|as)\b")
_OTHER_CHOICE = re.compile(r"(?i)\W{0,9}(?:or|maybe|perhaps|possibly|alternatively)\b")
_COPULA = re.compile(
    r"(?i)(?:\b(?:is|are|was|were|equals|be)\b(?:[ ]called\b|:(?=\s))?|\b(?:it|that)['’]s\b|=|:(?=\s))"
)
_NEGATION = re.compile(r"(?i)\b(?:not|never|false|wrong|neither|nor|cannot|opposite)\b|n['’]t\b")
_OPENING = re.compile(r"(?i)(?:sure|certainly|of course|okay|ok|well)[,!.][ ]")
_CLOSING = re.compile(r"(?i),[ ](?:of course|i think|i believe|indeed|certainly|obviously)$")
_POLAR = re.compile(r"(?i)(yes|no|true|false)[,.!;:]\s")
_POLAR_OTHERS = {"yes": "no|false", "true": "no|false", "no": "yes|true", "false": "yes|true"}
_SAYS_ANSWER = frozenset({"answer", "correct", "right", "final"})
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_MINUS = str.maketrans("−‐‑", "---")
_PUNCTUATION = re.compile(
    r"(?<=\d)\.(?=\d)|(?<![^\s(])-(?=\.?\d)|(?<=[a-z])[+#]+|(["
    + re.escape(string.punctuation)
    + "“”‘’„‚«»‹›–—…¿¡、。「」『』·])"
)
"""What the group has is left out: neither the point and the sign of a number nor what tells C++ and C# from C."""
_CHOICES = re.compile(r"(?i)[,;/|\n]|\bor\b")
_OR = re.compile(r"(?i)\bor\b")
_MAX_CHOICE_WORDS = 4
_MAX_FORMS_CHARS = 100_000
"""Of a longer text the typographic forms stay: one letter may stand for eighteen."""


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
    fine = all(_is_truth(each) for each in answers)
    if not answers or not fine:
        raise FormatError(f"the ground truth is {str(expected)[:80]!r}; a text, a number or a list of such is needed")
    return Expected(tuple(_written(each) for each in answers), match)


def answer_part(text: str) -> str:
    """Returns a text without the thoughts of a model that marks their end, for they are no part of its answer."""
    return text.rpartition(_THOUGHT_END)[2]


def final_answers(text: str) -> list[str]:
    r"""Returns what a text marks as its final answers, each once, at most ``MAX_ANSWERS + 1`` of them.

    Marks are ``\boxed{}``, ``<answer></answer>``, "the answer is", "Answer:" and "####".
    """
    text = answer_part(text)
    found = dict.fromkeys(_boxed(text))
    for tagged in _tagged(text):
        if not _BOX.search(tagged) and not _MARK.search(tagged):
            found.setdefault(tagged)
    for marked in _marked(text):
        found.setdefault(marked)
        if len(found) > MAX_ANSWERS:
            break
    answers = [each for each in found if each]
    above = _MARK_ABOVE.search(text) if not answers else None
    return answers if above is None else [_cut(above.group(1).strip())]


def spoken_answer(text: str) -> str | None:
    """Returns what a text of one sentence says after its first "is", or after its only "=" or ":"; None: nothing."""
    sentence = _sentence(text)
    places = [] if sentence is None else list(_COPULA.finditer(sentence))
    if sentence is None or not places or (len(places) > 1 and places[0].group() in ("=", ":")):
        return None
    is_denied = _NEGATION.search(sentence, 0, places[0].start()) is not None
    return None if is_denied else sentence[places[0].end() :].strip() or None


def spoken_subject(text: str, prompt: str | None) -> str | None:
    """Returns what a sentence says before its only "is", where all that follows repeats the question.

    "Paris is the capital of France." answers "What is the capital of France?"; so does "Paris is the answer.". Words
    of the question are an answer where it offers a choice: "Is Rome or Paris larger?".
    """
    sentence = _sentence(text)
    places = [] if sentence is None else list(_COPULA.finditer(sentence))
    if sentence is None or len(places) != 1:
        return None
    subject = sentence[: places[0].start()].strip()
    asked = set(normalized(prompt or "").split())
    said = normalized(sentence[places[0].end() :]).split()
    is_echo = set(normalized(subject).split()) <= asked and "or" not in asked
    return subject if said and not is_echo and all(word in asked | _SAYS_ANSWER for word in said) else None


def spoken_polarity(text: str) -> str | None:
    """Returns the yes, no, true or false that a short text begins with, unless it takes that back; else None."""
    text = text.strip()
    found = _POLAR.match(text) if len(text) <= _MAX_SENTENCE_CHARS else None
    if found is None:
        return None
    others = rf"(?i)\b(?:{_POLAR_OTHERS[found.group(1).lower()]}|or|but|however|maybe|perhaps)\b"
    return None if re.search(others, text[found.end() :]) else found.group(1)


def is_right(text: str, prompt: str | None, compare: Any) -> bool:
    """Returns whether the answer that a text commits itself to passes ``compare``.

    Several different marked answers must all pass.
    """
    text = answer_part(text)
    marked = final_answers(text)
    if marked:
        return len(marked) <= MAX_ANSWERS and all(compare(each) for each in marked)
    places = (
        text.strip() if len(text) <= _MAX_ANSWER_CHARS else None,
        spoken_answer(text),
        spoken_subject(text, prompt),
        spoken_polarity(text),
    )
    return any(place is not None and compare(place) for place in places)


def normalized(text: str) -> str:
    """Returns a text in lower case without punctuation, articles and white space beyond one.

    Unlike there, numbers keep their sign and their point, and typographic forms of a letter or mark are the same.
    Source: Rajpurkar et al. 2016, SQuAD, section 6.1 and its evaluation script.
    """
    if len(text) <= _MAX_FORMS_CHARS:
        text = unicodedata.normalize("NFKC", text)
    text = text.casefold().translate(_MINUS)
    plain = _PUNCTUATION.sub(lambda found: "" if found.group(1) else found.group(), text)
    return " ".join(_ARTICLES.sub(" ", plain).split() or plain.split())  # "A" is an answer, too


def is_list_of_choices(text: str) -> bool:
    """Returns whether a text is nothing but short alternatives, or two with an "or" between: no answer, but several."""
    items = [item.split() for item in _CHOICES.split(text.strip(" \n.;,"))]
    if len(items) < 2 or any(len(item) > _MAX_CHOICE_WORDS for item in items[1:-1]):
        return False
    are_short = all(len(item) <= _MAX_CHOICE_WORDS for item in items[1:])
    return are_short and (len(items) > 2 or _OR.search(text) is not None)


def _is_truth(value: Any) -> bool:
    if isinstance(value, float) and not math.isfinite(value):
        return False
    return isinstance(value, str | int | float) and bool(str(value).strip())


def _written(value: str | float) -> str:
    return (
        str(int(value)) if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else str(value).strip()
    )


def _boxed(text: str) -> list[str]:
    found: list[str] = []
    for box in _BOX.finditer(text):
        if box.group(1) != "{":
            found.append(box.group(1).rstrip(".,"))
        else:
            end = _closing(text, box.end())
            found.append(text[box.end() : box.end() + _MAX_ANSWER_CHARS if end is None else end].strip())
        if len(found) > MAX_ANSWERS:
            break
    return found


def _tagged(text: str) -> list[str]:
    found: list[str] = []
    end = 0
    while len(found) <= MAX_ANSWERS and (begin := text.find(_TAG[0], end)) >= 0:
        begin += len(_TAG[0])
        end = text.find(_TAG[1], begin)
        if end < 0:
            break
        if end - begin <= _MAX_ANSWER_CHARS:
            found.append(text[begin:end].strip())
    return found


def _marked(text: str) -> Iterator[str]:
    """Gives what follows each mark, up to the next one or the end of the line; what stands in a box is no other."""
    places = [(mark.start(), mark.end()) for mark in _MARK.finditer(text)]
    ends = [*(start for start, _ in places[1:]), len(text)]
    for (_, begin), end in zip(places, ends, strict=False):
        line = text[begin : min(end, begin + _MAX_ANSWER_CHARS)].partition("\n")[0].partition(_TAG[1])[0]
        line = line.removeprefix(_TAG[0]).strip()
        if line and not _BOX.search(line):
            yield _cut(line)


def _closing(text: str, begin: int) -> int | None:
    depth = 1
    for place in range(begin, min(len(text), begin + _MAX_ANSWER_CHARS)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if depth == 0:
            return place
    return None


def _cut(marked: str) -> str:
    """Returns the part of a line that is the answer: without the sentence that explains it, if it offers no other."""
    end = _END.search(marked)
    is_whole = end is None or _OTHER_CHOICE.match(marked, end.end())
    return (marked if end is None or is_whole else marked[: end.start()]).strip(" *_`\t")


def _sentence(text: str) -> str | None:
    text = text.strip()
    if not text or len(text) > _MAX_SENTENCE_CHARS or "\n" in text:
        return None
    sentence = _CLOSING.sub("", _OPENING.sub("", text.rstrip(".! "), count=1))
    return None if re.search(r"[.!?]\s", sentence) else sentence
