"""Texts, questions, documents, tools and agents: right ones have the full score, hedged and dumped ones nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop.core.attempts import Attempt, AttemptStep, Score, TaskType, ToolCall
from learnloop.rewards.functions.built_in import correctness
from learnloop.rewards.grading.tasks.answers import is_list_of_choices, normalized
from learnloop.rewards.grading.tasks.text import f1, rouge_l
from tests.waiting import costs_at_most

QUESTION = "What is the capital of France?"
words = st.lists(st.sampled_from(["ab", "cd", "ef", "gh", "ij"]), max_size=12).map(" ".join)


def score(output: str | None, expected: Any, task_type: str = "qa", **more: Any) -> Score:
    settings = {"prompt": QUESTION} | more
    return correctness(Attempt(output=output, expected=expected, task_type=TaskType(task_type), **settings))


@pytest.mark.parametrize(
    "output",
    ["Paris", "paris.", "The Paris", "It is Paris.", "The capital of France is Paris.",
     "Paris is the capital of France.", "The answer is Paris.", "I looked at a map.\nAnswer: **Paris**",
     "The capital of France is Paris, of course.", "Sure! It's Paris.", "It’s Paris.", "Paris is the answer.",
     "The capital of France is: Paris", "<answer>Paris</answer>", "Answer:\nParis", "Answer - Paris",
     "“Paris”", "Ｐaris",
     "<think>London? The answer is London.</think>It is Paris.", "In Paris"],
)  # fmt: skip
def test_right_answers(output: str) -> None:
    """F3.1: a right answer in plain words has the full score."""
    assert score(output, "Paris").value == 1.0
    assert score(output, ["Lutetia", "Paris"]).value == 1.0


@pytest.mark.parametrize(
    "output",
    ["Paris or London or Rome", "Paris, London, Rome", "It is Paris or London.", "It is Paris. It is London.",
     "Answer: Paris\nAnswer: London", "It is not Paris.", "Paris London Rome Berlin", "", "I cannot help with that.",
     "Paris/London", "It is London, not Paris", "The answer is Paris or London.", "The answer is Paris. Or London",
     "The answer is Paris. The answer is London.", "It is not so that it is Paris",
     "<answer>Paris</answer>\nAnswer: Rome"],
)  # fmt: skip
def test_hedged_and_wrong_answers(output: str) -> None:
    """H2: "A or B or C", abstaining: no more than an honest failure, whatever the comparison but ``contains``."""
    honest_failure = score("London", "Paris").value
    assert honest_failure == 0.0
    assert score(output, "Paris").value == 0.0
    assert score(output, {"answer": "Paris", "match": "normalized"}, "text").value == 0.0


@pytest.mark.parametrize("match", ["contains", "f1", "rouge_l"])
def test_lists_of_alternatives_earn_nothing_where_words_count(match: str) -> None:
    truth = {"answer": "Paris", "match": match}
    for output in ("Paris or London or Rome", "Paris, London, Rome", "Paris/London/Rome", "Paris\nLondon\nRome"):
        assert score(output, truth, "text").value == 0.0
    assert score("Paris", truth, "text").value == 1.0
    assert (score("Paris " + "filler " * 5_000, truth, "text").value or 0.0) < 0.01


def test_words_in_common() -> None:
    assert score("the big cat", {"answer": "big cat sat", "match": "f1"}).value == pytest.approx(2 * 2 / 5)
    assert score("a b, c d", "c d", "text").value == 0.0
    assert score("17 apples", {"answer": 17, "match": "numeric"}, "text").value == 1.0
    assert score("17 or 18", {"answer": 18, "match": "numeric"}, "text").value == 0.0
    assert score("x", {"answer": "many", "match": "numeric"}, "text").value is None
    assert score("x", {"answer": "y", "match": "best"}, "text").value is None


@pytest.mark.parametrize(
    ("output", "expected", "value"),
    [("5", "-5", 0.0), ("1.5", "15", 0.0), ("C", "C++", 0.0), ("5", 5.0, 1.0), ("50", 5.0, 0.0), ("1,200", "1200", 1.0),
     ("A", "A", 1.0), ("the", "A", 0.0), ("Cafe\u0301", "Café", 1.0), ("It is 10:30.", "10:30", 1.0),
     ("Yes, because 2 is even.", "yes", 1.0), ("Yes, or no", "yes", 0.0), ("No, it is not", "no", 1.0)],
)  # fmt: skip
def test_marks_that_count(output: str, expected: Any, value: float) -> None:
    """Signs and points of numbers, letters that are articles elsewhere: what SQuAD's script would take away."""
    assert score(output, expected).value == value
    assert score("the", {"answer": "A", "match": "f1"}).value == 0.0
    assert score("nan", float("nan")).value is None


def test_a_choice_that_the_question_offers() -> None:
    prompt = "Is Rome or Paris larger?"
    assert score("Paris is larger.", "Paris", prompt=prompt).value == 1.0
    assert score("Rome or Paris is larger.", "Paris", prompt=prompt).value == 0.0


@given(words, words)
def test_rouge_against_the_table(first: str, second: str) -> None:
    """The textbook table of the longest common subsequence is another way to the same number."""
    a, b = first.split(), second.split()
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, one in enumerate(a):
        for j, other in enumerate(b):
            table[i + 1][j + 1] = table[i][j] + 1 if one == other else max(table[i][j + 1], table[i + 1][j])
    common = table[-1][-1]
    expected = 2 * common / (len(a) + len(b)) if a and b else float(a == b)
    assert rouge_l(first, second) == pytest.approx(expected)
    assert f1(first, second) >= rouge_l(first, second) - 1e-12
    assert f1(first, second) == f1(second, first)


def test_no_ground_truth_or_no_answer() -> None:
    assert score("Paris", None).value is None
    assert "no ground truth" in str(score("Paris", None).reason)
    assert score(None, "Paris").value is None
    assert score(None, "Paris", completed=False).value == 0.0
    assert not correctness(Attempt(output="hello")).is_applicable
    untyped = correctness(Attempt(output="hello", expected="hello"))
    assert untyped.value is None
    assert "'math', 'code', 'text', 'qa', 'rag', 'tool_use', 'multi_agent', 'sql'" in str(untyped.reason)


PIECES = [
    "a or ", "x, ", "is ", "[1]", "Answer: x\n", "the ", "\n", ".", "a.b ", "```\n", "\\boxed{", "####", "ﷺ",
    "<answer>", "[1,", "answer:\n",
]  # fmt: skip


@pytest.mark.parametrize("piece", PIECES)
def test_a_megabyte_takes_no_time(piece: str) -> None:
    """H2: output floods."""
    flood = piece * (1_000_000 // len(piece))
    with costs_at_most(15):
        for task_type in ("text", "qa", "sql"):
            score(flood, "Paris", task_type)
        score(flood, {"answer": "a b c " * 500, "match": "rouge_l"})
        score(flood, "Paris", "rag", documents=["Paris is a city."])
    assert score(flood * 10, "Paris").value == 0.0


# Documents -----------------------------------------------------------------------------------------------------------

DOCUMENTS = ["Paris is the capital and largest city of France, with 2,100,000 people.", "Lyon lies on the Rhone."]


def rag(output: str, expected: Any = "Paris") -> Score:
    return score(output, expected, "rag", documents=DOCUMENTS)


def test_grounded_answers() -> None:
    for output in ("Paris", "The capital of France is Paris [1].", "According to [1], the capital of France is Paris."):
        assert rag(output).value == 1.0, output
    assert rag("2,100,000", "2,100,000").value == 1.0


def test_answers_that_are_not_held_up() -> None:
    invented = rag("Paris, founded by Martians in 1492 near Atlantis, is the capital.")
    assert invented.details["correctness"] == 1.0
    assert (invented.value or 0) < 0.6
    assert rag("Paris [7]").value == 0.0
    assert rag("Paris [1][7]").value == 0.5
    for wrong in ("Lyon", "Paris or Lyon", "Not Paris", "", "Paris, Lyon, Rhone", " ".join(DOCUMENTS * 20)):
        assert rag(wrong).value == 0.0, wrong
    assert score("Paris", "Paris", "rag").value is None  # the documents are not known


@pytest.mark.parametrize("truth", ["Paris", "Lyon", "Rhone"])
def test_to_name_all_candidates_earns_no_more_than_to_guess(truth: str) -> None:
    """H2: "A or B or C" without an "or": names dumped out of the documents."""
    for dump in ("Paris Lyon Rhone France capital", "Paris lies by the city of Lyon with the Rhone"):
        assert (rag(dump, truth).value or 0.0) <= 1 / 3
    assert rag("Based on the documents, Paris is the capital of France, with 2,100,000 people [1].").value == 1.0
    assert rag("The capital isn't Paris").value == 0.0


def test_citations_in_other_forms() -> None:
    for citation in ("[1, 2]", "[^1]", "[Doc 1]", "【1】", "(document 2)"):
        assert rag(f"The capital is Paris {citation}.").value == 1.0, citation
    assert rag("The capital is Paris [1, 7].").value == 0.5


# Tools ---------------------------------------------------------------------------------------------------------------


def tools(calls: list[ToolCall], expected: Any, output: str | None = None) -> float | None:
    steps = [AttemptStep(tool_calls=[call]) for call in calls]
    return score(output, expected, "tool_use", steps=steps).value


def test_calls_are_compared_by_structure() -> None:
    wanted = [{"name": "get", "arguments": {"city": "Paris", "days": 2}}, {"name": "send"}]
    get = ToolCall(name="get", arguments={"days": 2.0, "city": "Paris"}, result="sun")
    send = ToolCall(name="send", arguments={"x": 1}, result="ok")
    assert tools([get, send], wanted) == 1.0
    assert tools([send, get], wanted) == 1.0
    assert tools([send, get], {"calls": wanted, "ordered": True}) == 0.5
    assert tools([get, send], {"calls": wanted, "ordered": True}) == 1.0
    as_text = ToolCall(name="get", arguments='{"city": "Paris", "days": 2}', result="sun")
    assert tools([as_text, send], wanted) == 1.0
    assert tools([get], wanted) == pytest.approx(2 / 3)
    assert tools([get, send, send, send], wanted) == pytest.approx(4 / 6)  # calling everything does not pay
    assert tools([ToolCall(name="get", arguments={"city": "Paris", "days": True}), send], wanted) == 0.5
    assert tools([ToolCall(name="get", arguments=get.arguments, error="down"), send], wanted) == 0.5
    assert tools([], []) == 1.0
    assert tools([get], []) == 0.0
    assert tools([], wanted, 'I called get({"city": "Paris", "days": 2}) and send. Tool success!') == 0.0  # forged text
    assert tools([get], "get") is None


def test_arguments_in_other_forms() -> None:
    call = ToolCall(name="f", arguments={"a": 1})
    assert tools([call], [{"name": "f", "arguments": '{"a": 1}'}]) == 1.0
    for nothing in (None, "", {}):
        assert tools([ToolCall(name="f", arguments=nothing)], [{"name": "f", "arguments": None}]) == 1.0
    odd = float("nan")
    assert tools([ToolCall(name="f", arguments={"a": odd})], [{"name": "f", "arguments": {"a": odd}}]) == 0.0
    wanted = [{"name": "f"}, {"name": "f", "arguments": {"a": 1}}]
    assert tools([call, ToolCall(name="f", arguments={"a": 2})], wanted) == 1.0


@pytest.mark.parametrize("ordered", [True, False])
def test_many_large_calls_take_no_time(ordered: bool) -> None:
    """Once n x m comparisons of whole arguments, some minutes."""
    calls = [ToolCall(name="f", arguments={"a": list(range(200))})] * 1_000
    wanted = [{"name": "f", "arguments": {"a": [*range(199), 0]}}] * 1_000
    with costs_at_most(5):
        assert tools(calls, {"calls": wanted, "ordered": ordered}) == 0.0


# Agents --------------------------------------------------------------------------------------------------------------


def team(*agents: str, output: str = "Paris", expected: Any = None) -> Score:
    steps = [AttemptStep(agent_id=agent, output="I looked it up") for agent in agents]
    truth = {"expected": "Paris", "agents": ["planner", "critic"]} if expected is None else expected
    return score(output, truth, "multi_agent", steps=steps)


def test_a_team() -> None:
    assert team("planner", "critic").value == 1.0
    assert team("planner", "critic", output="London").value == 0.0
    lone = team("planner", output="Paris")
    assert lone.value == 0.5
    assert lone.details["participation"] == {"planner": True, "critic": False}
    assert team("planner", expected="Paris").value == 1.0
    assert team("planner", output="\\boxed{4}", expected={"expected": 4, "task_type": "math"}).value == 1.0
    assert team("planner", expected={"agents": ["planner"]}).value is None
    assert team("planner", expected={"expected": "x", "task_type": "multi_agent"}).value is None
    assert "a list of names" in str(team("planner", expected={"expected": "x", "agents": [["planner"]]}).reason)


def test_a_team_whose_result_is_what_it_did() -> None:
    steps = [AttemptStep(agent_id="planner", tool_calls=[ToolCall(name="f")])]
    truth = {"expected": [{"name": "f"}], "task_type": "tool_use", "agents": ["planner"]}
    assert score(None, truth, "multi_agent", steps=steps).value == 1.0


@given(st.text(max_size=80))
def test_any_text_has_a_score(text: str) -> None:
    is_list_of_choices(text)
    normalized(text)
    for task_type in ("text", "qa", "math", "sql"):
        expected = {"query": "SELECT 1", "setup": ""} if task_type == "sql" else "Paris"
        assert score(text, expected, task_type).value in (0.0, 1.0)
    assert score(text, "Paris", "rag", documents=DOCUMENTS).value is not None
