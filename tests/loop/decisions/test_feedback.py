"""learnloop.loop.decisions.feedback: what users say becomes the part of the reward that counts, once."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from learnloop.core.errors import NotFoundError, UsageError
from learnloop.core.records import Agent, Decision, Episode, EpisodeStatus
from learnloop.decisions import logged_samples
from learnloop.loop import Workspace
from learnloop.loop.decisions.feedback import MAX_EDIT_CHARACTERS, Edit, Feedback, kept_share, record_feedback
from learnloop.loop.workspace.settings import find_settings
from tests.waiting import costs_at_most

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with Workspace(find_settings(tmp_path), create=True) as opened:
        episode = Episode(
            episode_id="e", trace_id="t", agent_id="bot", task_id=None, status=EpisodeStatus.RUNNING, started_at=NOW
        )
        decisions = [
            Decision(
                decision_id=key, episode_id=inside, agent_id="bot", policy="p", algorithm=None, context={},
                actions=["a", "b"], action="a", propensity=0.5, created_at=NOW,
            )
            for key, inside in (("d", None), ("in", "e"))
        ]  # fmt: skip
        opened.store.write([Agent(agent_id="bot", created_at=NOW), episode, *decisions])
        yield opened


def learned(workspace: Workspace) -> dict[str, float]:
    return {sample.unit: sample.reward for sample in logged_samples(workspace.store, "bot", "p")}


def test_thumbs_are_learned_from(workspace: Workspace) -> None:
    rewards = record_feedback(workspace, Feedback(thumbs="up", comment="good", author="ann"), decision_id="d")
    assert [(each.name, each.value, each.weight) for each in rewards] == [
        ("feedback", 1.0, 1.0),
        ("feedback.thumbs", 1.0, 0.0),
    ]
    assert {(each.source, each.author, each.reason) for each in rewards} == {("user", "ann", "good")}
    assert learned(workspace) == {"d": 1.0}
    record_feedback(workspace, Feedback(thumbs="down"), episode_id="e")
    assert learned(workspace) == {"d": 1.0, "e": 0.0}


def test_the_newest_feedback_counts_and_kinds_do_not_add_up(workspace: Workspace) -> None:
    record_feedback(workspace, Feedback(thumbs="up"), decision_id="d")
    record_feedback(workspace, Feedback(edit=Edit(original="abcd", final="abxd")), decision_id="d")
    assert learned(workspace) == {"d": 0.75}
    record_feedback(workspace, Feedback(thumbs="down", rating=0.5), decision_id="d")
    assert learned(workspace) == {"d": 0.5}


@pytest.mark.parametrize(
    "wrong",
    [
        {}, {"comment": "words alone"}, {"thumbs": "sideways"}, {"rating": 1.5}, {"rating": -0.1},
        {"rating": float("nan")}, {"rating": True}, {"thumbs": "up", "author": " "},
        {"thumbs": "up", "author": "x" * 201},
        {"thumbs": "up", "comment": "x" * 10_001}, {"edit": Edit(original="", final="x" * (MAX_EDIT_CHARACTERS + 1))},
    ],
)  # fmt: skip
def test_feedback_without_a_meaning(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Feedback(**wrong)


def test_what_it_is_about(workspace: Workspace) -> None:
    said = Feedback(thumbs="up")
    for about in ({}, {"decision_id": "d", "episode_id": "e"}):
        with pytest.raises(UsageError, match="name the one"):
            record_feedback(workspace, said, **about)
    with pytest.raises(NotFoundError):
        record_feedback(workspace, said, decision_id="unknown")
    with pytest.raises(NotFoundError):
        record_feedback(workspace, said, episode_id="unknown")
    assert learned(workspace) == {}


def common(first: str, second: str) -> int:
    @cache
    def length(i: int, j: int) -> int:
        if i == len(first) or j == len(second):
            return 0
        if first[i] == second[j]:
            return 1 + length(i + 1, j + 1)
        return max(length(i + 1, j), length(i, j + 1))

    return length(0, 0)


@given(st.text("abcé", max_size=12), st.text("abcé", max_size=12))
def test_the_kept_share_is_that_of_the_textbook(first: str, second: str) -> None:
    """By the recursion that defines the longest common subsequence."""
    size = len(first) + len(second)
    expected = 2 * common(first, second) / size if size else 1.0
    assert kept_share(Edit(original=first, final=second)) == pytest.approx(expected)


def test_the_longest_texts_take_less_than_a_second() -> None:
    for first, second in (("ab" * 10_000, "ba" * 10_000), ("a" * 20_000, "b" * 20_000)):
        with costs_at_most(1.0):
            kept_share(Edit(original=first, final=second))
