"""Answers from documents: right, and held up by what was retrieved."""

from __future__ import annotations

import re
from collections.abc import Iterable

from learnloop.core.attempts import Attempt, Score
from learnloop.core.errors import FormatError
from learnloop.rewards.tasks.answers import is_list_of_choices, normalized, read_expected
from learnloop.rewards.tasks.text import score_qa

_WORD = re.compile(r"[^\W_]+(?:[.,]\d+)*")
_CITATION = re.compile(r"\[(\d{1,4})\]")
_MAX_ANSWER_WORDS = 60
_MAX_DOCUMENT_CHARS = 5_000_000
_FUNCTION_WORDS = frozenset(
    {
        "a", "about", "according", "also", "an", "and", "answer", "are", "as", "at", "based", "be", "because",
        "been", "being", "between", "but", "by", "can", "context", "could", "did", "do", "document", "documents",
        "does", "for", "from", "had", "has", "have", "he", "her", "here", "his", "how", "i", "if", "in", "into",
        "is", "it", "its", "may", "might", "must", "no", "not", "of", "on", "or", "our", "over", "shall", "she",
        "should", "so", "source", "sources", "than", "that", "the", "their", "then", "there", "these", "they",
        "this", "those", "to", "under", "was", "we", "were", "what", "when", "where", "which", "who", "whom",
        "whose", "why", "will", "with", "would", "yes", "you", "your",
    }
)  # fmt: skip
_NEGATIONS = frozenset({"not", "no", "never", "neither", "nor", "cannot"})


def score_rag(attempt: Attempt) -> Score:
    """Returns correctness x groundedness.

    Correctness is 1 where the answer is an accepted one (as in ``qa``), or has it in at most some sixty words without
    alternatives or a denial; else 0. Groundedness is the share of the answer's content words and numbers that stand in
    the documents or the question, times the share of its citations ``[1]`` that name a document.
    """
    if not attempt.documents:
        return Score.unknown("the documents that were retrieved are not known")
    if sum(map(len, attempt.documents)) > _MAX_DOCUMENT_CHARS:
        return Score.unknown(f"the documents have more than {_MAX_DOCUMENT_CHARS} characters")
    try:
        accepted = read_expected(attempt.expected, ()).answers
    except FormatError as error:
        return Score.unknown(str(error))
    answer = attempt.output or ""
    if not answer.strip():
        return Score.of(0.0, "the answer is empty")
    uncited = _CITATION.sub("", answer)
    is_right = score_qa(_with_output(attempt, uncited)).value == 1.0 or _says(uncited, accepted)
    supported = _supported(uncited, [*attempt.documents, attempt.prompt or ""])
    cited = _cited(answer, len(attempt.documents))
    return Score.of(
        is_right * supported * cited,
        None if is_right else "it is not the answer",
        correctness=float(is_right),
        supported=supported,
        citations=cited,
    )


def _with_output(attempt: Attempt, output: str) -> Attempt:
    return Attempt(prompt=attempt.prompt, output=output, expected=attempt.expected)


def _says(answer: str, accepted: Iterable[str]) -> bool:
    words = normalized(answer).split()
    if len(words) > _MAX_ANSWER_WORDS or is_list_of_choices(answer) or "or" in words:
        return False
    text = f" {' '.join(words)} "
    return any(
        f" {wanted} " in text and _NEGATIONS.isdisjoint(set(words) - set(wanted.split()))
        for wanted in map(normalized, accepted)
        if wanted
    )


def _supported(answer: str, sources: Iterable[str]) -> float:
    known: set[str] = set()
    for source in sources:
        known.update(_content_words(source))
    words = _content_words(answer)
    return len(words & known) / len(words) if words else 1.0


def _content_words(text: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(text)} - _FUNCTION_WORDS


def _cited(answer: str, num_documents: int) -> float:
    numbers = [int(number) for number in _CITATION.findall(answer)]
    return sum(1 <= number <= num_documents for number in numbers) / len(numbers) if numbers else 1.0
