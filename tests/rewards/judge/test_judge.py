"""The rubric judge against a scripted server: votes, what is kept, budgets, deadlines and every way to answer badly."""

from __future__ import annotations

import json
import statistics
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from learnloop.core.attempts import Attempt, AttemptStep, Score, Scorer, ToolCall
from learnloop.core.errors import UsageError
from learnloop.rewards.judge.client import JudgeClient
from learnloop.rewards.judge.config import Rubric
from learnloop.rewards.judge.judge import RubricJudge
from tests.loopback import Answer, Fault, LoopbackServer
from tests.loopback import ToolCall as LoopbackCall
from tests.rewards.judging import attempt, config, scores
from tests.waiting import PATIENCE_SECONDS, eventually

FOUR = attempt("It is 4.")
GOOD = scores(10, 5)


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer(lambda prompt: scores(8, 4)) as opened:
        yield opened


def judge(server: LoopbackServer, of_endpoint: dict[str, Any] | None = None, **fields: Any) -> RubricJudge:
    made = RubricJudge(config(server, of_endpoint, **fields))
    server.clients.append(made.client)
    return made


# Scores --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("combine", ["median", "mean"])
def test_votes_are_combined(server: LoopbackServer, combine: str) -> None:
    """By hand: a vote is (3 x correct/10 + 1 x (clear-1)/4) / 4."""
    scorer: Scorer = judge(server, combine=combine)
    server.script = [scores(10, 5), scores(0, 1), scores(8, 3)]
    score = scorer(FOUR)
    votes = [1.0, 0.0, (3 * 0.8 + 0.5) / 4]
    assert score.value == pytest.approx(getattr(statistics, combine)(votes))
    assert score.details["votes"] == pytest.approx(votes)
    assert score.details["spread"] == 1.0
    assert score.details["criteria"] == pytest.approx(
        {"correct": getattr(statistics, combine)([1, 0, 0.8]), "clear": getattr(statistics, combine)([1, 0, 0.5])}
    )
    assert (score.details["num_votes"], score.details["num_valid"], score.details["failures"]) == (3, 3, {})
    assert score.details["num_characters"] == len("It is 4.")


def test_what_is_sent(server: LoopbackServer) -> None:
    shown = Rubric(
        criteria=config(server).read_rubric().criteria,
        instructions="These are pupils' answers.",
        shows=["prompt", "expected", "documents", "tools", "output"],
    )
    asked = judge(server, {"max_tokens": 77}, rubric=shown, votes=2, temperature=0.9, seed=5)
    call = ToolCall(name="add", arguments={"a": 2, "b": 2}, result=4)
    asked(attempt("4", expected={"sum": 4}, documents=["D1", "D2"], steps=[AttemptStep(tool_calls=[call])]))
    first, second = server.requests
    assert (first["seed"], second["seed"]) == (5, 6)
    assert (first["temperature"], first["max_tokens"]) == (0.9, 77)
    schema = first["response_format"]["json_schema"]["schema"]
    assert schema["properties"]["scores"]["properties"]["correct"]["enum"] == list(range(11))
    system, user = first["messages"]
    assert system["role"] == "system"
    for piece in (
        "pupils'",
        "correct (0 to 10): Is the answer right?",
        "What is 2 + 2?",
        '{"sum": 4}',
        "D1\n\nD2",
        'add({"a": 2, "b": 2}) -> 4',
    ):
        assert piece in user["content"]


def test_parts_that_are_not_shown_are_not_sent(server: LoopbackServer) -> None:
    judge(server, votes=1)(
        attempt("4", documents=["SECRET"], steps=[AttemptStep(tool_calls=[ToolCall(name="SECRET")])])
    )
    assert "SECRET" not in json.dumps(server.requests)


@pytest.mark.parametrize(("wanted", "sent"), [("json_object", {"type": "json_object"}), ("text", None)])
def test_forms_of_answers(server: LoopbackServer, wanted: str, sent: object) -> None:
    score = judge(server, votes=1, answer_format=wanted)(FOUR)
    assert score.value is not None
    assert server.requests[0].get("response_format") == sent


def test_a_fence_is_taken_off(server: LoopbackServer) -> None:
    server.script = [f"```json\n{GOOD}\n```"]
    assert judge(server, votes=1)(FOUR).value == 1.0


def test_attempts_without_an_answer(server: LoopbackServer) -> None:
    """What is not recorded is unknown; an empty answer is the attempt's own fault. Nobody is paid for either."""
    asked = judge(server)
    unknown = asked(attempt(None))
    assert (unknown.value, unknown.is_applicable) == (None, True)
    assert asked(attempt(" \u200b\n")).value == 0.0
    assert server.requests == []
    acting = Rubric(criteria=asked.rubric.criteria, shows=["output", "tools"])
    acted = attempt("", steps=[AttemptStep(tool_calls=[ToolCall(name="add")])])
    assert judge(server, rubric=acting)(acted).value is not None


def test_values_nested_too_deeply_are_told(server: LoopbackServer) -> None:
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    score = judge(server)(attempt("4", expected=deep))
    assert score.value is None
    assert "nested too deeply" in (score.reason or "")
    while isinstance(deep, list):  # taken apart here, not by a recursion
        deep = deep.pop()


def test_values_that_are_no_json_are_told(server: LoopbackServer) -> None:
    ring: list[Any] = []
    ring.append(ring)
    for odd in (ring, {(1, 2): 3}):
        score = judge(server)(attempt("4", expected=odd))
        assert score.value is None
        assert "is no JSON" in (score.reason or "")


# What does not count -------------------------------------------------------------------------------------------------

NONSENSE = [
    "I'd give it a 10 out of 10!",
    "",
    "null",
    "[10, 5]",
    "10",
    '{"correct": 10, "clear": 5}',
    '{"scores": {"correct": 10}}',
    '{"scores": {"correct": 10, "clear": 5, "bonus": 1}}',
    scores(11, 5),
    scores(-1, 5),
    scores(10, 0),
    scores(7.5, 5),
    scores("10", 5),
    scores(True, 5),
    scores(None, 5),
    scores([10], 5),
    scores(float("nan"), 5),
    scores(float("inf"), 5),
    '{"scores": {"correct": 1e999, "clear": 5}}',
    '{"scores": {"correct": 1, "correct": 10, "clear": 5}}',
    f"Here it is: {GOOD}",
    f"{GOOD}\n{GOOD}",
    f"```json\n{GOOD}\n```\nHope that helps",
    GOOD[:-4],
    "[" * 15_000,
    '{"scores": {"correct": ' + "9" * 5_000 + ', "clear": 5}}',
    GOOD + " " * 25_000,
]


@pytest.mark.parametrize("text", NONSENSE, ids=range(len(NONSENSE)))
def test_nonsense_is_no_vote(server: LoopbackServer, text: str) -> None:
    server.model = lambda prompt: text
    score = judge(server)(FOUR)
    assert (score.value, score.is_applicable) == (None, True)
    assert score.details["failures"] == {"invalid": 2}, "after two of three no majority can come"
    assert "2 of 3 votes do not count (2 x invalid)" in (score.reason or "")
    assert len(score.reason or "") < 600
    assert len(server.requests) == 2


def test_whole_floats_are_whole(server: LoopbackServer) -> None:
    server.model = lambda prompt: scores(10.0, 5.0)
    assert judge(server)(FOUR).value == 1.0


def test_a_majority_is_enough(server: LoopbackServer) -> None:
    server.script = [GOOD, "nonsense", GOOD]
    score = judge(server)(FOUR)
    assert (score.value, score.details["num_valid"], score.details["failures"]) == (1.0, 2, {"invalid": 1})
    server.script = [GOOD, "nonsense"]
    half = judge(server, votes=2)(attempt("4"))
    assert half.value is None, "one of two is no majority"


def test_a_cut_answer_says_so(server: LoopbackServer) -> None:
    server.model = lambda prompt: Answer(GOOD[:20], finish_reason="length")
    assert "raise max_tokens" in (judge(server, votes=1)(FOUR).reason or "")


def test_a_called_tool_is_no_vote(server: LoopbackServer) -> None:
    server.model = lambda prompt: Answer(tool_calls=[LoopbackCall("score", {"correct": 10})])
    assert judge(server)(FOUR).details["failures"] == {"invalid": 2}


FAULTS: list[tuple[Fault, str]] = [
    (Fault(500), "no answer"),
    (Fault(503), "no answer"),
    (Fault(429, headers=(("Retry-After", "900"),)), "no answer"),
    (Fault(hang_up=True), "no answer"),
    (Fault(200, b"<html>garbage"), "no answer"),
    (Fault(200, b'{"choices": [{"mess'), "no answer"),
    (Fault(200, b"\xff\xfe" * 100), "no answer"),
    (Fault(200, b"data: {}\n\ndata: [DONE]\n\n", (("Content-Type", "text/event-stream"),)), "no answer"),
    (Fault(delay_seconds=4.0), "no answer"),
    (Fault(body=b" " * 50, drip_seconds=0.1), "no answer"),
    (Fault(200, b'{"choices": []}'), "unusable answer"),
    (Fault(200, b'{"choices": [{"message": {"content": null}}]}'), "unusable answer"),
    (Fault(400), "unusable answer"),
    (Fault(302, headers=(("Location", "http://127.0.0.1:9/"),)), "unusable answer"),
    (Fault(401), "refused"),
    (Fault(404), "refused"),
    (Fault(200, b'{"choices": [{"message": {"content": "' + b"x" * 10_000_000 + b'"}}]}'), "invalid"),
    (Fault(200, b"x" * 17_000_000), "unusable answer"),
]


@pytest.mark.parametrize(("fault", "kind"), FAULTS, ids=range(len(FAULTS)))
def test_a_judge_that_fails_gives_none(server: LoopbackServer, fault: Fault, kind: str) -> None:
    """Never 0, never an exception; the next attempt is judged as if nothing had been."""
    asked = judge(server, {"timeout_seconds": 1.0 if fault.delay_seconds or fault.drip_seconds else 60.0}, votes=1)
    server.script = [fault]
    failed = asked(FOUR)
    assert (failed.value, failed.is_applicable) == (None, True)
    assert failed.details["failures"] == {kind: 1}
    assert len(failed.reason or "") < 600
    server.script = []
    assert asked(attempt("Four.")).value is not None


def test_nobody_listens(server: LoopbackServer) -> None:
    asked = judge(server)
    server.close()
    server.clients.clear()
    assert asked(FOUR).details["failures"] == {"no answer": 2}
    server.close = lambda: None  # type: ignore[method-assign]  # it is closed


def test_repetitions_are_the_clients(server: LoopbackServer) -> None:
    server.script = [Fault(500), Fault(503), GOOD]
    assert judge(server, {"max_retries": 2}, votes=1)(FOUR).value == 1.0


# Kept votes ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("in_folder", [False, True])
def test_scoring_again_costs_nothing(server: LoopbackServer, tmp_path: Path, in_folder: bool) -> None:
    server.script = [scores(1, 1), scores(9, 5), "nonsense"]
    cache = {"cache": str(tmp_path / "votes")} if in_folder else {}
    asked = judge(server, cache)
    first = asked(FOUR)
    assert asked(FOUR) == first
    assert asked(attempt("It is 4.", episode_id="another run")) == first, "the same text is the same question"
    assert len(server.requests) == 3
    other = judge(server, cache)
    assert (other(FOUR) == first) is in_folder
    assert len(server.requests) == (3 if in_folder else 6)


def test_what_is_another_question(server: LoopbackServer, tmp_path: Path) -> None:
    cache = {"cache": str(tmp_path)}
    shown = Rubric(criteria=config(server).read_rubric().criteria[:1])
    server.model = lambda prompt: scores(8, 4) if "clear" in prompt else '{"scores": {"correct": 8}}'
    for asked, given in [
        (judge(server, cache, votes=1), FOUR),
        (judge(server, cache, votes=1), attempt("It is 5.")),
        (judge(server, cache, votes=1), attempt("It is 4.", prompt="2 + 2 = ?")),
        (judge(server, cache, votes=1), attempt("It is 4.", expected="4")),
        (judge(server, cache, votes=1, seed=9), FOUR),
        (judge(server, cache, votes=1, temperature=0.1), FOUR),
        (judge(server, cache, votes=1, answer_format="text"), FOUR),
        (judge(server, cache, votes=1, rubric=shown), FOUR),
        (judge(server, {**cache, "max_tokens": 99}, votes=1), FOUR),
        (judge(server, {**cache, "extra_body": {"top_k": 3}}, votes=1), FOUR),
    ]:
        before = len(server.requests)
        assert asked(given).value is not None
        assert len(server.requests) == before + 1
    more = judge(server, cache, votes=3)
    more(FOUR)
    assert len(server.requests) == 12, "of three votes the first is known"


def test_a_failure_is_not_kept(server: LoopbackServer) -> None:
    asked = judge(server, votes=1)
    server.script = [Fault(500)]
    assert asked(FOUR).value is None
    assert asked(FOUR).value is not None


def test_a_damaged_vote_is_told(server: LoopbackServer, tmp_path: Path) -> None:
    judge(server, {"cache": str(tmp_path)}, votes=1)(FOUR)
    (path,) = tmp_path.iterdir()
    for damage in (b"{", b"\xff", b'{"text": 5}', b"[" * 10_000):
        path.write_bytes(damage)
        score = judge(server, {"cache": str(tmp_path)}, votes=1)(FOUR)
        assert score.value is None
        assert "damaged" in (score.reason or "")


def test_a_folder_that_cannot_be_written_loses_no_vote(server: LoopbackServer, tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    asked = judge(server, {"cache": str(blocked / "x")})
    score = asked(FOUR)
    assert score.value is not None
    assert "cannot be written" in score.details["cache_error"]
    assert asked(FOUR) == score
    assert len(server.requests) == 3


# Budgets -------------------------------------------------------------------------------------------------------------

PRICES = {"input_usd_per_million": 1000.0, "output_usd_per_million": 2000.0}
"""Of a request, 5 x 0.001 + 2 x 0.002 = 0.009 USD; it may cost 256 x 0.002 = 0.512 and the bytes of its body."""


def test_money_is_counted(server: LoopbackServer) -> None:
    asked = judge(server, **PRICES)
    asked(FOUR)
    assert asked.client.budget.spent_usd == pytest.approx(3 * 0.009)
    asked(FOUR)
    assert asked.client.budget.spent_usd == pytest.approx(3 * 0.009)
    assert judge(server).client.budget.spent_usd is None


def test_money_is_not_overspent(server: LoopbackServer) -> None:
    """What may pass the limit is not sent, and what was paid is kept for when there is more."""
    server.model = lambda prompt: Answer(GOOD, num_input_tokens=100, num_output_tokens=200)  # 0.5 USD
    client = JudgeClient(config(server, {"max_tokens": 300}, votes=3, max_usd=4.0, **PRICES))
    asked = RubricJudge(config(server), client)
    server.clients.append(client)
    results = [asked(attempt(f"It is {number}.")) for number in range(4)]
    body = max(len(json.dumps(request)) for request in server.requests) * 0.001 + 0.6
    assert client.budget.spent_usd is not None
    assert client.budget.spent_usd <= 4.0
    assert client.budget.spent_usd == pytest.approx(len(server.requests) * 0.5)
    assert client.budget.spent_usd > 4.0 - body - 0.5
    assert results[0].value == 1.0
    assert results[-1].value is None
    assert results[-1].details["failures"].keys() == {"budget"}
    assert "max_usd" in (results[-1].reason or "")


def test_refused_requests_cost_nothing_and_unanswered_ones_what_they_may(server: LoopbackServer) -> None:
    asked = judge(server, {"timeout_seconds": 1.0}, votes=1, **PRICES)
    server.script = [Fault(500)]
    asked(FOUR)
    assert asked.client.budget.spent_usd == pytest.approx(0.0)
    server.script = [Fault(delay_seconds=4.0)]
    asked(FOUR)
    spent = asked.client.budget.spent_usd
    assert spent is not None
    assert spent > 0.512


def test_tokens_that_are_not_told_cost_what_they_may(server: LoopbackServer) -> None:
    body = json.dumps({"choices": [{"message": {"content": GOOD}}]}).encode()
    server.script = [Fault(body=body)]
    asked = judge(server, votes=1, **PRICES)
    assert asked(FOUR).value == 1.0
    assert (asked.client.budget.spent_usd or 0.0) > 0.512
    lie = {"prompt_tokens": -9_000, "completion_tokens": -9_000, "total_tokens": -18_000}
    server.script = [Fault(body=json.dumps({"choices": [{"message": {"content": GOOD}}], "usage": lie}).encode())]
    lied = judge(server, votes=1, **PRICES)
    lied(FOUR)
    assert lied.client.budget.spent_usd == pytest.approx(0.0), "nobody earns by a wrong count"


def test_calls_are_counted_over_votes(server: LoopbackServer) -> None:
    asked = judge(server, {"max_requests": 7})
    results = asked.score_many([attempt(str(number)) for number in range(5)])
    assert len(server.requests) == 7
    assert sum(score.value is None for score in results) >= 2
    assert all("max_requests" in (score.reason or "") for score in results if score.value is None)
    assert asked(attempt("0")).value == results[0].value


def test_a_budget_holds_among_threads(server: LoopbackServer) -> None:
    server.model = lambda prompt: Answer(GOOD, delay_seconds=0.005, num_input_tokens=100, num_output_tokens=200)
    asked = judge(server, {"max_tokens": 300, "max_in_flight": 8}, max_usd=9.0, **PRICES)
    asked.score_many([attempt(str(number)) for number in range(30)])
    assert asked.client.budget.spent_usd == pytest.approx(0.5 * len(server.requests))
    assert 0 < 0.5 * len(server.requests) <= 9.0


# Time and threads ----------------------------------------------------------------------------------------------------


def test_deadlines(server: LoopbackServer) -> None:
    """The last vote ends within the deadline of all, though its own is longer."""
    server.model = lambda prompt: Answer(GOOD, delay_seconds=0.0 if len(server.requests) <= 2 else 40.0)
    began = time.monotonic()
    score = judge(server, votes=9, deadline_seconds=0.6)(FOUR)
    assert score.value is None
    assert score.details["failures"] == {"deadline": 5}
    slow = judge(server, {"deadline_seconds": 0.2}, votes=1)(FOUR)
    assert slow.details["failures"] == {"no answer": 1}
    assert time.monotonic() - began < 30, "no late answer was waited for"


def test_many_at_once(server: LoopbackServer) -> None:
    """Each attempt gets its own votes, and no more requests than allowed are on their way."""

    def answer(prompt: str) -> Answer:
        number = int(prompt.split("number ")[1].split(" ")[0])
        return Answer(scores(number % 11, 1 + number % 5), delay_seconds=0.005)

    server.model = answer
    asked = judge(server, {"max_in_flight": 4})
    results = asked.score_many([attempt(f"number {number} .") for number in range(40)])
    expected = [(3 * (number % 11) / 10 + number % 5 / 4) / 4 for number in range(40)]
    assert [score.value for score in results] == pytest.approx(expected)
    assert server.num_in_flight_max <= 4
    assert len(server.requests) == 120


def test_one_question_is_asked_once_by_many(server: LoopbackServer) -> None:
    server.model = lambda prompt: Answer(GOOD, delay_seconds=0.05)
    asked = judge(server, {"max_in_flight": 16})
    ready = threading.Barrier(12)

    def score(_: int) -> Score:
        ready.wait(PATIENCE_SECONDS)
        return asked(FOUR)

    with ThreadPoolExecutor(12) as threads:
        results = list(threads.map(score, range(12)))
    assert len(server.requests) == 3
    assert all(result == results[0] for result in results)


def test_who_waits_for_anothers_question_waits_no_longer_than_its_own_deadline(server: LoopbackServer) -> None:
    may_answer = threading.Event()
    server.model = lambda prompt: GOOD if may_answer.wait(PATIENCE_SECONDS) else ""
    client = JudgeClient(config(server, votes=1))
    server.clients.append(client)
    patient, hasty = (
        RubricJudge(client.config, client),
        RubricJudge(config(server, votes=1, deadline_seconds=0.2), client),
    )
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(patient, FOUR)
        assert eventually(lambda: server.requests)
        assert hasty(FOUR).details["failures"] == {"deadline": 1}
        may_answer.set()
        assert waiting.result(PATIENCE_SECONDS).value == 1.0


def test_fingerprints(server: LoopbackServer) -> None:
    """What changes the judgement changes the name that it is kept under."""
    names = [
        judge(server).fingerprint,
        judge(server, rubric="Be kind.").fingerprint,
        judge(server, votes=1).fingerprint,
        judge(server, combine="mean").fingerprint,
        judge(server, {"extra_body": {"top_k": 1}}).fingerprint,
    ]
    assert len(set(names)) == 5
    assert judge(server).fingerprint == names[0]


def test_a_client_of_another_judge_is_shared(server: LoopbackServer) -> None:
    with RubricJudge(config(server)) as first:
        second = RubricJudge(config(server), first.client)
        first(FOUR)
        assert second(FOUR).value is not None
        assert len(server.requests) == 3


def test_the_key_must_be_there(server: LoopbackServer) -> None:
    with pytest.raises(UsageError, match="LEARNLOOP_NO_KEY"):
        RubricJudge(config(server, {"api_key_env": "LEARNLOOP_NO_KEY"}))


def test_an_attempt_of_nothing(server: LoopbackServer) -> None:
    assert judge(server)(Attempt()).value is None
