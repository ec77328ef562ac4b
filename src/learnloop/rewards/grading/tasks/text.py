"""Texts and answers to questions: compared as a whole, or by the words that they share with the ground truth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from learnloop.core.answers import is_number, numeric
from learnloop.core.attempts import Attempt, Score
from learnloop.rewards.grading.tasks.answers import Expected, is_list_of_choices, is_right, normalized, read_expected

MATCHES = ("exact", "normalized", "contains", "numeric", "f1", "rouge_l")
_FREE_WORDS = 20
"""So many words an answer may have around a short ground truth that it is to contain."""


def score_text(attempt: Attempt) -> Score:
    """Returns how an answer compares with a text: ``exact`` unless the ground truth names another ``match``.

    ``exact``: the answer, or what it marks as its final answer, or what its one sentence says, is the text, but for
    white space and a full stop. ``normalized``: also but for case, punctuation and articles. ``contains``: the text
    stands in it; the score falls with each word beyond some twenty. ``numeric``: its last number is the number. ``f1``,
    ``rouge_l``: the share of common words, which also pays for answers that are partly right; with either, and with
    ``contains``, a list of alternatives is worth 0.
    """
    return _score(attempt, "exact")


def score_qa(attempt: Attempt) -> Score:
    """Returns 1 for an answer that is one of the accepted ones but for case, punctuation and articles, else 0.

    With ``"match": "f1"`` the share of common words. ``details`` has both. The answer is what ``score_text`` says.
    "In Paris" answers where Paris is accepted.
    Source: Rajpurkar et al. 2016, SQuAD, section 6.1 (exact match, F1; the best of the accepted answers).
    """
    return _score(attempt, "normalized")


def f1(answer: str, truth: str) -> float:
    """Returns the harmonic mean of precision and recall of the words, normalised.

    Source: Rajpurkar et al. 2016, SQuAD, section 6.1.
    """
    words, wanted = normalized(answer).split(), normalized(truth).split()
    if not words or not wanted:
        return float(words == wanted)
    common = sum((Counter(words) & Counter(wanted)).values())
    return 2.0 * common / (len(words) + len(wanted))


def rouge_l(answer: str, truth: str) -> float:
    """Returns the F-measure (beta 1) of the longest common subsequence of the words, normalised.

    Source: Lin 2004, ROUGE, section 3.1, equations 2 to 4. The subsequence is found as in Hyyrö 2004, Bit-parallel
    LCS-length computation revisited, figure 4.
    """
    words, wanted = normalized(answer).split(), normalized(truth).split()
    if not words or not wanted:
        return float(words == wanted)
    places: dict[str, int] = {}
    for place, word in enumerate(wanted):
        places[word] = places.get(word, 0) | 1 << place
    whole = (1 << len(wanted)) - 1
    row = whole
    for word in words:
        matched = row & places.get(word, 0)
        row = ((row + matched) | (row - matched)) & whole
    common = len(wanted) - row.bit_count()
    return 2.0 * common / (len(words) + len(wanted))


def _score(attempt: Attempt, default: str) -> Score:
    expected = read_expected(attempt.expected, MATCHES)
    match = expected.match or default
    if match == "numeric" and not all(map(is_number, expected.answers)):
        return Score.unknown(f"the ground truth {expected.answers[0][:80]!r} is no number")
    output = attempt.output or ""
    if not output.strip():
        return Score.of(0.0, "the answer is empty")
    if match in _WHOLE:
        return Score.of(_is_one_right(attempt, expected, match), match=match)
    if is_list_of_choices(output) and not _is_one_right(attempt, expected, "normalized"):
        return Score.of(0.0, "it is a list of alternatives")
    return Score.of(max(_GRADED[match](output, truth) for truth in expected.answers), match=match)


def _is_one_right(attempt: Attempt, expected: Expected, match: str) -> bool:
    compare = _WHOLE[match]
    return is_right(
        attempt.output or "",
        attempt.prompt,
        lambda place: any(compare(place, truth) for truth in expected.answers),
    )


def _is_exact(answer: str, truth: str) -> bool:
    answer, truth = " ".join(answer.split()), " ".join(truth.split())
    return answer == truth or answer.rstrip(".") == truth


def _is_normalized(answer: str, truth: str) -> bool:
    found, wanted = normalized(answer), normalized(truth)
    if not wanted:  # nothing but marks
        return answer.strip() == truth
    first, _, rest = found.partition(" ")
    return found == wanted or (first in _PLACING and rest == wanted)


_PLACING = frozenset({"in", "on", "at"})
"""Words that answer "where" and "when" together with what follows."""


def _contained(answer: str, truth: str) -> float:
    """Returns 1 for an answer with the text in it as whole words, less for one with many other words."""
    wanted = normalized(truth)
    if not wanted or f" {wanted} " not in f" {normalized(answer)} ":
        return 0.0
    num_words = len(answer.split())
    return min(1.0, (_FREE_WORDS + 3 * len(truth.split())) / num_words)


_WHOLE: Mapping[str, Callable[[str, str], bool]] = {
    "exact": _is_exact,
    "normalized": _is_normalized,
    "numeric": numeric,
}
_GRADED: Mapping[str, Callable[[str, str], float]] = {"contains": _contained, "f1": f1, "rouge_l": rouge_l}
