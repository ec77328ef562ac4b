"""What people say of runs: who said it, and what it does to the queue of those who are asked."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from learnloop.core.errors import ConflictError, NotFoundError, UsageError
from learnloop.core.records import Episode, EpisodeStatus, LabelRequest, LabelStatus, Reward
from learnloop.loop import Workspace
from learnloop.loop.rewards.learned import labelled_attempts
from learnloop.loop.workspace.settings import find_settings
from learnloop.rewards.learned.label_queue import LabelAsk, LabelQueue
from learnloop.store.queries.labels import unlabelled_episodes
from tests.loop.recorded_runs import answered


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with Workspace(find_settings(tmp_path / "home"), create=True) as opened:
        opened.store.write(
            [
                Episode(
                    episode_id="e1",
                    trace_id="t1",
                    agent_id="a",
                    task_id=None,
                    status=EpisodeStatus.COMPLETED,
                    started_at=datetime(2026, 1, 1, tzinfo=UTC),
                )
            ]
        )
        yield opened


def test_a_label_has_its_author(workspace: Workspace) -> None:
    given = workspace.labels.give("e1", "up", author="eva", note="good")
    assert workspace.store.get(Reward, given.reward_id) == given
    assert (given.value, given.author, given.source) == (1.0, "eva", "label")
    assert workspace.labels.give("e1", "down").author is None
    with pytest.raises(UsageError, match="author is empty"):
        workspace.labels.give("e1", "up", author=" ")


def test_a_label_answers_the_open_request(workspace: Workspace) -> None:
    """One of another name, or of a span, does not; and whoever answers afterwards is told."""
    queue = LabelQueue(workspace.store)
    (request,) = queue.ask([LabelAsk(episode_id="e1", reason="asked")])
    workspace.labels.give("e1", "up", name="style", author="eva")
    assert queue.pending().requests == [request]
    given = workspace.labels.give("e1", 0.25, author="eva")
    closed = workspace.store.get(LabelRequest, request.label_request_id)
    assert (closed.status, closed.reward_id, closed.closed_by) == (LabelStatus.ANSWERED, given.reward_id, "eva")
    with pytest.raises(ConflictError, match="eva was first"):
        queue.answer(request.label_request_id, 1.0, "tom")


def test_a_refused_label_leaves_the_request_open(workspace: Workspace) -> None:
    queue = LabelQueue(workspace.store)
    (request,) = queue.ask([LabelAsk(episode_id="e1", reason="asked")])
    with pytest.raises(UsageError, match="is not a label"):
        workspace.labels.give("e1", "perhaps")
    with pytest.raises(NotFoundError):
        workspace.labels.give("e2", "good")
    assert queue.pending().requests == [request]
    assert workspace.store.count(Reward) == 0


def test_requests_are_shown_whatever_the_runs_say_of_themselves(workspace: Workspace) -> None:
    workspace.store.write(answered("e2", "Write!", "Roses", metadata={"task_type": "poetry"}))
    LabelQueue(workspace.store).ask([LabelAsk(episode_id=each, reason="asked") for each in ("e1", "e2")])
    shown = workspace.labels.list()
    assert [(each.prompt, each.output) for each in shown] == [(None, None), ("Write!", "Roses")]


def test_a_label_of_a_step_is_none_of_the_run(workspace: Workspace) -> None:
    """The run can still be asked about."""
    workspace.store.write(answered("e2", "q", "a"))
    workspace.labels.give("e2", "good", span="e2-1")
    assert sorted(workspace.store.read(unlabelled_episodes, None)) == ["e1", "e2"]
    assert list(labelled_attempts(workspace)) == []
    workspace.labels.give("e2", "good")
    assert workspace.store.read(unlabelled_episodes, None) == ["e1"]
