"""Answers from documents: right, and held up by what was retrieved."""

from __future__ import annotations

import re
from collections.abc import Iterable

from learnloop.core.attempts import Attempt, Score
from learnloop.rewards.grading.tasks.answers import is_list_of_choices, normalized, read_expected
from learnloop.rewards.grading.tasks.text import score_qa

_WORD = re.compile(r"[^\W_]+(?:[.,]\d+)*")
_SOURCE = r"(?:docs?|documents?|sources?|passages?|refs?)\.?[ ]?"
_CITATION = re.compile(
    rf"(?i)[\[【]\^?(?:{_SOURCE})?(\d{{1,4}}(?:[ ]?[,;][ ]?\d{{1,4}}){{0,50}})[\]】]|\({_SOURCE}(\d{{1,4}})\)"
)
_NUMBER = re.compile(r"\d+")
_DENIAL = re.compile(r"(?i)n['’]t\b")
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

    Correctness is 1 where the answer is an accepted one (as in ``qa``). Where it has an accepted one in at most some
    sixty words, without alternatives or a denial, it is n / (n + others): of n words of the accepted answer, and of
    others that could have been the answer (names, numbers or other words, whichever the accepted one is) and are no
    words of the question. So to name three candidates earns no more than to name one of three. Groundedness is the
    share of the answer's content words and numbers that stand in the documents or the question, times the share of its
    citations ``[1]`` that name a document.
    """
    if not attempt.documents:
        return Score.unknown("the documents that were retrieved are not known")
    if sum(map(len, attempt.documents)) > _MAX_DOCUMENT_CHARS:
        return Score.unknown(f"the documents have more than {_MAX_DOCUMENT_CHARS} characters")
    accepted = read_expected(attempt.expected, ()).answers
    answer = attempt.output or ""
    if not answer.strip():
        return Score.of(0.0, "the answer is empty")
    uncited = _CITATION.sub("", answer)
    if score_qa(_with_output(attempt, uncited)).value == 1.0:
        right = 1.0
    else:
        right = max(_says(uncited, wanted, attempt) for wanted in accepted)
    supported = _supported(uncited, [*attempt.documents, attempt.prompt or ""])
    cited = _cited(answer, len(attempt.documents))
    return Score.of(
        right * supported * cited,
        None if right else "it is not the answer",
        correctness=right,
        supported=supported,
        citations=cited,
    )


def _with_output(attempt: Attempt, output: str) -> Attempt:
    return Attempt(prompt=attempt.prompt, output=output, expected=attempt.expected)


def _says(answer: str, accepted: str, attempt: Attempt) -> float:
    """Returns how far an answer names what is accepted, and nothing else that could have been meant."""
    words, wanted = normalized(answer).split(), normalized(accepted)
    if len(words) > _MAX_ANSWER_WORDS or is_list_of_choices(answer) or "or" in words or _DENIAL.search(answer):
        return 0.0
    is_named = bool(wanted) and f" {wanted} " in f" {' '.join(words)} "
    if not is_named or not _NEGATIONS.isdisjoint(set(words) - set(wanted.split())):
        return 0.0
    names = {word.lower() for text in attempt.documents for word in _WORD.findall(text) if word[0].isupper()}
    meant = _content_words(accepted) or set(wanted.split())
    kinds = {_kind(word, names) for word in meant}
    others = _content_words(answer) - meant - _content_words(attempt.prompt or "")
    return len(meant) / (len(meant) + sum(_kind(word, names) in kinds for word in others))


def _kind(word: str, names: set[str]) -> str:
    if any(letter.isdigit() for letter in word):
        return "number"
    return "name" if word in names else "word"


def _supported(answer: str, sources: Iterable[str]) -> float:
    known: set[str] = set()
    for source in sources:
        known.update(_content_words(source))
    words = _content_words(answer)
    return len(words & known) / len(words) if words else 1.0


def _content_words(text: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(text)} - _FUNCTION_WORDS


def _cited(answer: str, num_documents: int) -> float:
    found = [one or other for one, other in _CITATION.findall(answer)]
    numbers = [int(number) for each in found for number in _NUMBER.findall(each)]
    return sum(1 <= number <= num_documents for number in numbers) / len(numbers) if numbers else 1.0
