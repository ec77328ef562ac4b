"""Syntax, tools, completion, efficiency, format: from what is recorded and parsed, never from what is claimed."""

from __future__ import annotations

import hashlib
import math
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop.core.attempts import Attempt, AttemptStep, ToolCall
from learnloop.rewards import History, efficiency_from
from learnloop.rewards.functions.built_in import (
    efficiency,
    format_compliance,
    syntax_validation,
    task_completion,
    tool_success,
)
from learnloop.rewards.functions.format_compliance import has_xml_elements
from learnloop.rewards.functions.json_shapes import json_key, same_json
from learnloop.rewards.functions.syntax_validation import LANGUAGES, find_fault
from tests.waiting import costs_at_most


def fenced(language: str, code: str) -> Attempt:
    return Attempt(output=f"Here:\n```{language}\n{code}\n```\n")


def calling(*calls: ToolCall) -> Attempt:
    return Attempt(steps=[AttemptStep(tool_calls=list(calls))], output="success! all tools succeeded")


# Syntax --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("language", "good", "bad"),
    [
        ("python", 'async def f():\n    return "\\d"', "def f(:"),
        ("json", '{"a": [1, null]}', '{"a": NaN}'),
        ("yaml", "a: 1\nb: [x, y]", "a: [x"),
        ("yml", "- a", "only words"),
        ("sql", "SELECT a FROM t WHERE b = 1; DELETE FROM t", "SELEC * FROM t"),
        ("sql", "CREATE TABLE t (a int)", "hello world"),
        ("bash", 'for f in *; do echo "$f"; done', "if then fi done"),
        ("js", "const f = async (x) => `${x}`;", "const = 3"),
    ],
)
def test_blocks_are_parsed(language: str, good: str, bad: str) -> None:
    """F3.7: each language has its parser."""
    assert syntax_validation(fenced(language, good)).value == 1.0
    found = syntax_validation(fenced(language, bad))
    assert found.value == 0.0
    assert found.reason
    for nothing in ("", "  \n"):
        assert syntax_validation(fenced(language, nothing)).value == 0.0


def test_a_fence_without_a_language_is_not_valid() -> None:
    """F3.7: it is not checked, so it earns nothing; the same for a language that has no parser here."""
    for language in ("", "rust", "text"):
        assert not syntax_validation(fenced(language, "x = 1")).is_applicable
    both = Attempt(output="```\nx\n```\n```python\nx = (\n```\n```python\nx = 1\n```")
    found = syntax_validation(both)
    assert (found.value, found.details) == (0.5, {"num_checked": 2, "num_not_checked": 1})
    assert not syntax_validation(Attempt(output="no code")).is_applicable


def test_nothing_is_run(tmp_path: Any) -> None:
    target = tmp_path / "made"
    for language, code in [
        ("python", f"open({str(target)!r}, 'w')"),
        ("yaml", f"a: !!python/object/apply:builtins.open [{str(target)!r}, w]"),
        ("bash", f"touch {target}"),
    ]:
        assert syntax_validation(fenced(language, code)).value == 1.0
    assert not target.exists()


NESTS = [
    "(",
    "[",
    "{",
    "- ",
    "? ",
    "a?",
    "<a>",
    "`${",
    "$(",
    "not ",
    "lambda:",
    "1+",
    "f(",
    "((a,",
    "'",
    "&a *a ",
    "{a: ",
]


@pytest.mark.parametrize("language", sorted(set(LANGUAGES.values())))
def test_hostile_blocks_take_no_time(language: str) -> None:
    for piece in NESTS:
        with costs_at_most(8):
            find_fault(piece * (100_000 // len(piece)), language)
            find_fault(piece * (20_000 // len(piece)), language)


def test_many_hostile_blocks_take_no_time() -> None:
    with costs_at_most(10):
        found = syntax_validation(Attempt(output=("```sh\n" + "a?" * 3_000 + "\n```\n") * 30))
    assert found.value is not None


@given(st.text(max_size=200), st.sampled_from(sorted(set(LANGUAGES.values()))))
def test_any_text_is_valid_or_not(text: str, language: str) -> None:
    fault = find_fault(text, language)
    assert fault is None or isinstance(fault, str)


# Tools and tasks -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "value"),
    [
        (ToolCall(name="a", result="error: nothing works"), 1.0),  # text is not read, either way
        (ToolCall(name="a", result="success", error="timeout"), 0.0),
        (ToolCall(name="a", result={"success": False}), 0.0),
        (ToolCall(name="a", result={"isError": True}), 0.0),
        (ToolCall(name="a", result='{"error": "no such file"}'), 0.0),
        (ToolCall(name="a", result={"exit_code": 2}), 0.0),
        (ToolCall(name="a", result={"exit_code": 0, "error": None}), 1.0),
        (ToolCall(name="a", result={"status": "failed"}), 0.0),
        (ToolCall(name="a", result={"status_code": 503}), 0.0),
        (ToolCall(name="a", result={"status": 200}), 1.0),
        (ToolCall(name="a", span_id="s"), 1.0),
        (ToolCall(name="a"), None),
        (ToolCall(name="a", result="{" * 100_000), 1.0),
    ],
)
def test_tool_success(call: ToolCall, value: float | None) -> None:
    assert tool_success(calling(call)).value == value


def test_forged_success_earns_nothing() -> None:
    """H2: forged "tool success" text."""
    assert not tool_success(Attempt(output='<tool>ls</tool> {"success": true} tool success')).is_applicable
    bad = ToolCall(name="deploy", arguments={}, error="denied")
    assert tool_success(calling(bad)).value == 0.0
    spam = [ToolCall(name="echo", arguments={"text": "success"}, result="success")] * 100
    assert tool_success(calling(bad, *spam)).value == 0.5  # the same call a hundred times is one


def test_a_retry_that_works_is_a_success() -> None:
    calls = [ToolCall(name="a", arguments={"x": 1}, error="busy"), ToolCall(name="a", arguments={"x": 1}, result=3)]
    assert tool_success(calling(*calls)).value == 1.0
    assert tool_success(calling(*calls[::-1])).value == 0.0


def test_task_completion() -> None:
    """F3.3: states come from the attempt's own tasks, and claims from nowhere."""
    assert task_completion(Attempt(completed=True)).value == 1.0
    assert task_completion(Attempt(completed=False, error="crash", output="I completed everything")).value == 0.0
    assert not task_completion(Attempt(output="done!")).is_applicable
    tasks: Any = [{"status": "completed"}, {"status": "failed"}, {"status": "running"}, {"status": "skipped"}]
    assert task_completion(Attempt(completed=True, metadata={"tasks": tasks})).value == pytest.approx(1 / 3)
    assert task_completion(Attempt(metadata={"tasks": {"a": "done", "b": {"status": "DONE"}}})).value == 1.0
    assert task_completion(Attempt(completed=True, metadata={"tasks": "all done"})).value is None


# Efficiency ----------------------------------------------------------------------------------------------------------

HISTORY = {"num_tokens": [4_000, 5_000, 60_000], "num_model_calls": [4, 4, 4]}


def cost(tokens: int, calls: int = 4, **more: Any) -> Attempt:
    settings: dict[str, Any] = {"completed": True, "metadata": {"history": HISTORY}} | more
    return Attempt(num_input_tokens=tokens - 10, num_output_tokens=10, num_model_calls=calls, **settings)


def test_efficiency_is_relative_to_the_tasks_own_history() -> None:
    """F3.8: no number of tokens is too many for all tasks."""
    assert efficiency(cost(5_000)).value == 1.0
    assert efficiency(cost(10_000)).value == 0.75  # twice the median of tokens, as many calls
    assert efficiency(cost(10_000, 8)).value == 0.5
    assert efficiency(cost(100, 1)).value == 1.0  # nothing to gain from being shorter than usual
    assert efficiency(cost(100, completed=False)).value == 0.0
    assert not efficiency(cost(100, metadata={})).is_applicable
    assert not efficiency(cost(100, metadata={"history": {"num_tokens": [1, 2]}})).is_applicable
    assert efficiency(cost(100, metadata={"history": {"tokens": [1]}})).value is None
    assert efficiency(Attempt(completed=True, metadata={"history": HISTORY})).value is None


@given(st.integers(11, 10**6), st.integers(11, 10**6))
def test_longer_is_never_better(first: int, second: int) -> None:
    shorter, longer = sorted((first, second))
    assert (efficiency(cost(shorter)).value or 0) >= (efficiency(cost(longer)).value or 0)


def test_histories_by_task() -> None:
    function = efficiency_from({"t": History.of([cost(1_000), cost(2_000), cost(3_000)])})
    assert function(Attempt(task_id="t", num_input_tokens=4_000, num_output_tokens=0)).value == 0.5
    assert not function(Attempt(task_id="u", num_input_tokens=1, num_output_tokens=0)).is_applicable
    assert function.name == "efficiency"


# Format --------------------------------------------------------------------------------------------------------------


def formed(output: str, **wanted: Any) -> Any:
    return format_compliance(Attempt(output=output, metadata={"format": wanted})).value


def test_generics_and_comparisons_are_no_tags() -> None:
    """F3.8."""
    for fine in (
        "List<int>",
        "a<b and c>d",
        "if a < b > c",
        "Map<String, List<int>>",
        "x <y",
        "vector<T>::iterator",
        "1 < 2",
    ):
        assert formed(fine, no_xml_tags=True) == 1.0, fine
    for tags in ("<a>x</a>", "<br/>", 'see <a href="x">', "<think>\nlong\n</think> 4"):
        assert formed(tags, no_xml_tags=True) == 0.0, tags


def test_requirements() -> None:
    schema = {"type": "object", "required": ["a"], "properties": {"a": {"type": "integer", "minimum": 0}}}
    assert formed('{"a": 1}', json=schema) == 1.0
    assert formed('```json\n{"a": 1}\n```', json=schema) == 1.0
    for wrong in ('{"a": -1}', '{"a": true}', "{}", "[1]", '{"a": 1} and more', "{" * 10_000):
        assert formed(wrong, json=schema) == 0.0, wrong
    assert formed("abc", max_chars=3, min_chars=3, max_words=1, must_contain=["b"]) == 1.0
    assert formed("abcd", max_chars=3, must_contain=["b"]) == 0.5
    assert formed("", max_chars=3, no_xml_tags=True) == 0.0  # abstaining complies with nothing
    assert formed("A-12", pattern=r"[A-Z]-\d+") == 1.0
    assert not format_compliance(Attempt(output="x")).is_applicable


@pytest.mark.parametrize(
    "wanted",
    [
        {"jason": True},
        {"max_chars": "3"},
        {"pattern": "("},
        {"json": {"oneOf": []}},
        {"json": {"type": "int"}},
        ["json"],
    ],
)
def test_requirements_without_a_meaning(wanted: Any) -> None:
    found = format_compliance(Attempt(output="x", metadata={"format": wanted}))
    assert found.value is None
    assert found.is_applicable
    assert "metadata['format']" in str(found.reason)


@pytest.mark.parametrize("piece", ["<a ", "<a", "<", "a<b ", "</a>", "<a b='"])
def test_hostile_formats_take_no_time(piece: str) -> None:
    with costs_at_most(8):
        has_xml_elements(piece * (1_000_000 // len(piece)))
        formed("a" * 50_000 + "!", pattern=r"(a+)+(b|a+)+$")


@pytest.fixture
def busy_threads() -> Iterator[None]:
    """Eight threads of this process work as long as the test runs, without Python's lock."""
    ended = threading.Event()

    def work() -> None:
        while not ended.is_set():
            hashlib.pbkdf2_hmac("sha256", b"password", b"salt", 20_000)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    yield
    ended.set()
    for thread in threads:
        thread.join()


def test_a_busy_process_does_not_change_the_score_of_a_pattern(busy_threads: None) -> None:
    """The limit of the regex package counts the processor time of the whole process."""
    pattern, num_chars, cost = "(?:(?!.*[xy]).)+", 200, 0.0  # its time is quadratic in the length
    while cost < 0.05:  # a quarter of what is allowed
        num_chars = int(num_chars * 1.3)
        start = time.thread_time()
        assert formed("a" * num_chars, pattern=pattern) == 1.0
        cost = time.thread_time() - start


def test_what_runs_away_does_so_on_a_busy_machine_too(busy_threads: None) -> None:
    start = time.thread_time()
    found = format_compliance(
        Attempt(output="a" * 50_000 + "!", metadata={"format": {"pattern": "(a+)+(b|a+)+$", "max_chars": 100_000}})
    )
    assert found.value == 0.5
    assert "processor time" in str(found.reason)
    assert time.thread_time() - start > 0.2


def test_a_try_with_more_patience_pays_for_no_more_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A match that takes more processor time than is allowed is none, however late the process notices."""
    limit = "learnloop.rewards.functions.format_compliance._REGEX_SECONDS"
    patience = "learnloop.rewards.functions.format_compliance._PATIENCE"
    monkeypatch.setattr(limit, 0.001)
    monkeypatch.setattr(patience, 100_000)
    assert formed("a" * 3_000, pattern="(?:(?!.*[xy]).)+") == 0.0


def test_an_object_that_equals_everything_equals_nothing() -> None:
    """H2: AlwaysEqual."""

    class AlwaysEqual(dict[str, Any]):
        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]

    assert not same_json(AlwaysEqual(), {})
    assert not same_json({}, AlwaysEqual())
    assert same_json({"a": [1, None]}, {"a": [1.0, None]})
    assert not same_json(1, True)


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": None}, {"properties": {"a": True}}, {"required": "a"}, {"required": 5}, {"enum": 5},
        {"minimum": "x"}, {"type": []}, {"type": ["integer", 5]}, {"items": [{"type": "string"}]}, {"items": False},
        {"additionalProperties": {"type": "string"}},
    ],
)  # fmt: skip
def test_a_schema_that_is_not_checked_is_told(schema: Any) -> None:
    """Once it raised, or was passed over and paid."""
    for output in ('{"a": 1}', "[1]", "5"):
        found = format_compliance(Attempt(output=output, metadata={"format": {"json": schema}}))
        assert found.value is None
        assert "which is not checked" in str(found.reason)


def test_a_pattern_that_would_take_all_memory_is_refused() -> None:
    for pattern in ("((((a{100}){100}){100}){100})", "a" * 20_000, "(a{,2000}){1,2000}"):
        found = format_compliance(Attempt(output="a", metadata={"format": {"pattern": pattern}}))
        assert found.value is None
        assert "make it shorter" in str(found.reason)
    assert formed("2024-01-02", pattern=r"\d{4}-\d{2}-\d{2}") == 1.0


@pytest.mark.parametrize("sql", ["x." * 9_900 + "x", "a" + "::int" * 3_000, "SELECT"])
def test_sql_that_cannot_be_written_down_is_wrong(sql: str) -> None:
    """H2: an answer that makes the grader fail would have no reward in the place of 0."""
    assert syntax_validation(fenced("sql", sql)).value == 0.0


leaves = st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.floats(-3, 3), st.text(max_size=2))
json_values = st.recursive(
    leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=1), inner, max_size=3)
)


def same_by_parts(first: Any, second: Any) -> bool:
    """Compares part by part, which shares nothing with the keys."""
    if type(first) in (int, float) and type(second) in (int, float):
        return bool(first == second)
    if type(first) is not type(second):
        return False
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(same_by_parts(each, second[key]) for key, each in first.items())
    if isinstance(first, list):
        return len(first) == len(second) and all(map(same_by_parts, first, second))
    return bool(first == second)


@given(json_values, st.data())
def test_keys_are_equal_where_values_are_the_same(first: Any, data: Any) -> None:
    second = data.draw(st.one_of(st.just(first), st.sampled_from([0, 0.0, False, "", None, [], {}, [0], [False]])))
    assert (json_key(first) == json_key(second)) == same_json(first, second) == same_by_parts(first, second)


def test_what_is_no_json_is_the_same_as_nothing() -> None:
    deep: Any = 1
    for _ in range(60):
        deep = [deep]
    for value in (math.nan, [math.nan], (1,), deep, object()):
        assert not same_json(value, value)
