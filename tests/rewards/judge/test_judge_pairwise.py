"""The pairwise judge: both orders, votes, what is kept, rankings of groups."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from learnloop.core.attempts import Attempt
from learnloop.core.errors import UsageError
from learnloop.rewards.judge.pairwise import PairwiseJudge, bradley_terry, pairs_of
from tests.loopback import Fault, LoopbackServer
from tests.rewards.judging import attempt, config, winner
from tests.waiting import costs_at_most

_ANSWER = re.compile(r"<<<BEGIN \w+ (FIRST|SECOND) ANSWER>>>\n(.*?)\n<<<END", re.DOTALL)
BASEBALL = np.array(
    [  # Milwaukee, Detroit, Toronto, New York, Boston, Cleveland, Baltimore
        [0, 7, 9, 7, 7, 9, 11],
        [6, 0, 7, 5, 11, 9, 9],
        [4, 6, 0, 7, 7, 8, 12],
        [6, 8, 6, 0, 6, 7, 10],
        [6, 2, 6, 7, 0, 7, 12],
        [4, 4, 5, 6, 6, 0, 6],
        [2, 4, 1, 3, 1, 7, 0],
    ],
    dtype=float,
)
"""American League East 1987, 13 games of each pair: Agresti, Categorical Data Analysis, 2nd edition, table 10.10."""


def longest(prompt: str) -> str:
    """The judge that likes the longer answer, wherever it stands."""
    sizes = {place: len(text) for place, text in _ANSWER.findall(prompt)}
    if sizes["FIRST"] == sizes["SECOND"]:
        return winner("tie")
    return winner("first" if sizes["FIRST"] > sizes["SECOND"] else "second")


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with LoopbackServer(longest) as opened:
        yield opened


def judge(server: LoopbackServer, of_endpoint: dict[str, Any] | None = None, **fields: Any) -> PairwiseJudge:
    made = PairwiseJudge(config(server, of_endpoint, **fields))
    server.clients.append(made.client)
    return made


# Two -----------------------------------------------------------------------------------------------------------------


def test_both_orders_are_asked(server: LoopbackServer) -> None:
    result = judge(server, votes=2).compare(attempt("long one"), attempt("short"))
    assert (result.win_probability, result.num_wins, result.num_losses, result.num_ties) == (1.0, 2, 0, 0)
    assert (result.num_votes, result.num_valid, result.num_front, result.num_back) == (2, 2, 0, 0)
    orders = [[text for _, text in _ANSWER.findall(request["messages"][-1]["content"])] for request in server.requests]
    assert orders == [["long one", "short"], ["short", "long one"]] * 2
    assert [request["seed"] for request in server.requests] == [0, 0, 1, 1]
    (form,) = {
        str(request["response_format"]["json_schema"]["schema"]["properties"]["winner"]) for request in server.requests
    }
    assert "'first', 'second', 'tie'" in form


@pytest.mark.parametrize(
    ("said", "probability", "wins", "losses", "front", "back"),
    [
        (["first", "second"], 1.0, 1, 0, 0, 0),
        (["second", "first"], 0.0, 0, 1, 0, 0),
        (["tie", "tie"], 0.5, 0, 0, 0, 0),
        (["first", "first"], 0.5, 0, 0, 1, 0),
        (["second", "second"], 0.5, 0, 0, 0, 1),
        (["first", "tie"], 0.5, 0, 0, 0, 0),
        (["tie", "first"], 0.5, 0, 0, 0, 0),
        (["first", "second", "tie", "tie", "second", "first"], 0.5, 1, 1, 0, 0),
        (["first", "second", "first", "second", "first", "first"], 2.5 / 3, 2, 0, 1, 0),
    ],
)
def test_what_votes_come_to(
    server: LoopbackServer, said: list[str], probability: float, wins: int, losses: int, front: int, back: int
) -> None:
    """By hand: two answers of a vote are the winner when A stands first, and when it stands second."""
    server.script = [winner(each) for each in said]
    result = judge(server, votes=len(said) // 2).compare(attempt("A"), attempt("B"))
    assert result.win_probability == pytest.approx(probability)
    assert (result.num_wins, result.num_losses, result.num_front, result.num_back) == (wins, losses, front, back)


@pytest.mark.parametrize("text", ['{"winner": "A"}', '{"winner": ["first"]}', "first", '{"winner": null}', "{}", ""])
def test_nonsense_is_no_vote(server: LoopbackServer, text: str) -> None:
    server.model = lambda prompt: text
    result = judge(server).compare(attempt("A"), attempt("B"))
    assert result.win_probability is None
    assert result.failures == {"invalid": 2}
    assert len(server.requests) == 2, "the other order of a vote that does not count is not asked"


def test_half_a_vote_is_none_and_stays_paid(server: LoopbackServer) -> None:
    asked = judge(server, votes=1)
    server.script = [winner("first"), Fault(500)]
    failed = asked.compare(attempt("A"), attempt("B"))
    assert (failed.win_probability, failed.failures) == (None, {"no answer": 1})
    server.script = [winner("second")]
    assert asked.compare(attempt("A"), attempt("B")).win_probability == 1.0
    assert len(server.requests) == 3


def test_kept_votes(server: LoopbackServer, tmp_path: Path) -> None:
    """The other way round it is the same question; nothing is asked again, by another judge either."""
    cache = {"cache": str(tmp_path)}
    first = judge(server, cache).compare(attempt("long one"), attempt("short"))
    again = judge(server, cache).compare(attempt("short"), attempt("long one"))
    assert len(server.requests) == 6
    assert (first.win_probability, again.win_probability) == (1.0, 0.0)


def test_nobody_is_asked_where_nothing_is_to_be_found_out(server: LoopbackServer) -> None:
    asked = judge(server)
    same = asked.compare(attempt("4"), attempt("4"))
    assert (same.win_probability, same.num_votes) == (0.5, 0)
    assert asked.compare(attempt("4"), attempt(" ")).win_probability == 1.0
    assert asked.compare(attempt(""), attempt("4")).win_probability == 0.0
    assert asked.compare(attempt(""), attempt(" ")).win_probability == 0.5
    unknown = asked.compare(attempt(None), attempt("4"))
    assert (unknown.win_probability, unknown.num_votes) == (None, 0)
    assert server.requests == []


def test_fingerprints(server: LoopbackServer) -> None:
    made = [judge(server), judge(server, prior=2.0), judge(server, max_pairs=9), judge(server, votes=1)]
    assert len({each.fingerprint for each in made}) == 4
    assert judge(server).fingerprint == made[0].fingerprint


def test_attempts_at_different_tasks(server: LoopbackServer) -> None:
    with pytest.raises(UsageError, match="different values of prompt"):
        judge(server).compare(attempt("4"), attempt("5", prompt="What is 2 + 3?"))
    with pytest.raises(UsageError, match="different values of task_id"):
        judge(server).rank([attempt("4"), Attempt(task_id="u", prompt="What is 2 + 2?", output="4")])


# Groups --------------------------------------------------------------------------------------------------------------


def test_a_group_is_ranked(server: LoopbackServer) -> None:
    group = [attempt("x" * size) for size in (3, 9, 1, 7, 5)]
    ranking = judge(server, votes=1).rank(group)
    values = [score.value for score in ranking.scores]
    assert sorted(range(5), key=lambda place: -(values[place] or 0.0)) == [1, 3, 4, 0, 2]
    assert all(value is not None and 0.0 < value < 1.0 for value in values)
    assert values[4] == pytest.approx(0.5), "the middle one wins and loses as often"
    assert len(server.requests) == 2 * 10
    assert ranking.pairs == list(itertools.combinations(range(5), 2))
    assert ranking.scores[0].details["num_comparisons"] == 4


def test_two_of_which_one_wins(server: LoopbackServer) -> None:
    """By hand, with s the strength of the winner and 1/s of the loser: 1.5 = s/(s + 1/s) + s/(s + 1)."""
    ranking = judge(server, votes=1).rank([attempt("xx"), attempt("x")])
    strength = ranking.scores[0].details["strength"]
    assert strength / (strength + 1 / strength) + strength / (strength + 1) == pytest.approx(1.5)
    assert ranking.scores[0].value == pytest.approx(strength / (1 + strength))
    assert (ranking.scores[0].value or 0) + (ranking.scores[1].value or 0) == pytest.approx(1.0)


def test_a_group_with_gaps(server: LoopbackServer) -> None:
    """What is not recorded is unknown, what is empty is 0, and the others are ranked all the same."""
    ranking = judge(server, votes=1).rank([attempt("xxx"), attempt(None), attempt(""), attempt("x"), attempt("x")])
    values = [score.value for score in ranking.scores]
    assert values[1] is None
    assert values[2] == 0.0
    assert (values[0] or 0.0) > (values[3] or 0.0) > 0.0
    assert values[3] == pytest.approx(values[4])


def test_a_judge_that_is_down_ranks_nobody(server: LoopbackServer) -> None:
    server.model = lambda prompt: "nonsense"
    ranking = judge(server).rank([attempt("x"), attempt("xx"), attempt("xxx")])
    assert [(score.value, score.is_applicable) for score in ranking.scores] == [(None, True)] * 3
    assert all("votes do not count" in (score.reason or "") for score in ranking.scores)


def test_small_groups(server: LoopbackServer) -> None:
    assert judge(server).rank([]).scores == []
    (alone,) = judge(server).rank([attempt("x")]).scores
    assert alone.value is None
    assert "nothing to compare" in (alone.reason or "")


def test_a_budget_that_ends_in_the_middle(server: LoopbackServer) -> None:
    group = [attempt("x" * size) for size in range(1, 7)]
    ranking = judge(server, {"max_requests": 9, "max_in_flight": 1}, votes=1).rank(group)
    assert len(server.requests) == 9
    assert sum(each.win_probability is not None for each in ranking.comparisons) == 4
    missing = [score for score in ranking.scores if score.value is None]
    assert all("max_requests" in (score.reason or "") for score in missing)


def test_calls_are_bounded(server: LoopbackServer) -> None:
    group = [attempt("x" * size) for size in range(1, 21)]
    ranking = judge(server, votes=2, max_pairs=40).rank(group)
    assert len(server.requests) == 2 * 2 * 40
    values = [score.value or 0.0 for score in ranking.scores]
    assert sorted(values)[-1] == max(values[-3:])
    assert all(score.details["num_comparisons"] == 4 for score in ranking.scores)
    with pytest.raises(UsageError, match="20 attempts need 19 pairs"):
        judge(server, max_pairs=18).rank(group)


@pytest.mark.parametrize("num", range(2, 14))
def test_pairs_connect_all_evenly(num: int) -> None:
    every = set(itertools.combinations(range(num), 2))
    for max_pairs in range(num - 1, len(every) + 3):
        pairs = pairs_of(num, max_pairs, 0)
        assert len(pairs) == len(set(pairs)) == min(max_pairs, len(every))
        assert set(pairs) <= every
        groups = [{place} for place in range(num)]
        for pair in pairs:
            joined = [group for group in groups if group & set(pair)]
            groups = [group for group in groups if not group & set(pair)] + [set().union(*joined)]
        assert len(groups) == 1
        degrees = [sum(place in pair for pair in pairs) for place in range(num)]
        assert max(degrees) - min(degrees) <= 2


def test_published_strengths() -> None:
    """The coefficients that the R package BradleyTerry2 (Turner & Firth 2012, section 3) gives for this table."""
    logs = np.log(bradley_terry(BASEBALL, 1e-4))
    assert logs - logs[-1] == pytest.approx([1.5814, 1.4364, 1.2945, 1.2476, 1.1077, 0.6839, 0.0], abs=2e-4)


def log_posterior(logs: list[float], wins: np.ndarray, prior: float) -> float:
    total = 0.0
    for i, a in enumerate(logs):
        total -= prior / 2 * (math.log1p(math.exp(-a)) + math.log1p(math.exp(a)))
        for j, b in enumerate(logs):
            total -= wins[i, j] * math.log1p(math.exp(b - a))
    return total


def climb(wins: np.ndarray, prior: float) -> list[float]:
    """Returns the maximum by golden section along one coordinate after the other: slow, and sure to be another way."""
    logs = [0.0] * len(wins)
    ratio = (math.sqrt(5) - 1) / 2
    for _ in range(60):
        for place in range(len(logs)):
            low, high = -12.0, 12.0
            while high - low > 1e-7:
                tried = []
                for point in (high - ratio * (high - low), low + ratio * (high - low)):
                    logs[place] = point
                    tried.append((log_posterior(logs, wins, prior), point))
                if tried[0][0] > tried[1][0]:
                    high = tried[1][1]
                else:
                    low = tried[0][1]
            logs[place] = (low + high) / 2
    return logs


@pytest.mark.parametrize("prior", [0.5, 1.0])
@pytest.mark.parametrize(
    "wins",
    [
        [[0, 1], [0, 0]],
        [[0, 2.5, 1], [0.5, 0, 3], [0, 0, 0]],
        [[0, 4, 0], [1, 0, 0], [0, 0, 0]],
    ],
)
def test_the_maximum(wins: list[list[float]], prior: float) -> None:
    table = np.array(wins, dtype=float)
    assert np.log(bradley_terry(table, prior)) == pytest.approx(climb(table, prior), abs=1e-4)


@given(
    st.integers(2, 7).flatmap(
        lambda num: st.lists(
            st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=num, max_size=num), min_size=num, max_size=num
        )
    )
)
@settings(max_examples=60, deadline=None)
def test_the_equations_hold(rows: list[list[float]]) -> None:
    """Wins are what the strengths let expect, for each player; names and a swap of all results change nothing."""
    wins = np.array(rows)
    np.fill_diagonal(wins, 0.0)
    strengths = bradley_terry(wins, 1.0)
    expected = ((wins + wins.T) * strengths[:, None] / (strengths[:, None] + strengths)).sum(axis=1)
    assert wins.sum(axis=1) + 0.5 == pytest.approx(expected + strengths / (strengths + 1.0), abs=1e-6)
    order = np.arange(len(wins))[::-1]
    assert bradley_terry(wins[np.ix_(order, order)], 1.0) == pytest.approx(strengths[order], rel=1e-6)
    assert bradley_terry(wins.T, 1.0) == pytest.approx(1.0 / strengths, rel=1e-6)


def test_who_always_wins_is_finite_and_who_never_plays_is_average() -> None:
    wins = np.triu(np.ones((20, 20)), 1)
    strengths = bradley_terry(wins, 1.0)
    assert np.isfinite(strengths).all()
    assert (np.diff(strengths) < 0).all()
    assert bradley_terry(np.zeros((3, 3)), 1.0).tolist() == [1.0, 1.0, 1.0]
    assert bradley_terry(np.zeros((0, 0)), 1.0).shape == (0,)


@pytest.mark.parametrize(
    ("wins", "prior"),
    [(np.ones(3), 1.0), (np.ones((2, 3)), 1.0), (np.eye(2), 1.0), (np.zeros((2, 2)), 0.0), (-np.ones((2, 2)), 1.0)],
)
def test_what_has_no_meaning(wins: np.ndarray, prior: float) -> None:
    with pytest.raises(UsageError):
        bradley_terry(wins, prior)


@pytest.mark.parametrize("num", [11, 45])
def test_a_full_order_with_the_smallest_prior_settles_soon(num: int) -> None:
    """Where each beats all who come after, a prior of 0.01 leaves strengths far apart."""
    wins = np.triu(np.ones((num, num)), 1)
    with costs_at_most(1):
        strengths = bradley_terry(wins, 0.01)
    assert (np.diff(strengths) < 0).all()
    chances = strengths[:, None] / (strengths[:, None] + strengths)
    expected = ((wins + wins.T) * chances).sum(axis=1) + 0.01 * strengths / (strengths + 1)
    np.testing.assert_allclose(expected, wins.sum(axis=1) + 0.005, atol=1e-6)
