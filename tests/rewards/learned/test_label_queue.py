"""The label queue on each back end: order, pages, one answer to each request, whoever is first."""

from __future__ import annotations

import threading
from datetime import UTC, datetime

import pytest

from learnloop.core.errors import ConflictError, LearnloopError, NotFoundError, UsageError
from learnloop.core.records import Episode, EpisodeStatus, LabelRequest, LabelStatus, Reward
from learnloop.rewards.learned.label_queue import LabelAsk, LabelQueue
from learnloop.store import Store

AT = datetime(2026, 1, 1, tzinfo=UTC)


def episodes(store: Store, number: int) -> list[str]:
    names = [f"e{index:03}" for index in range(number)]
    store.write(
        Episode(
            episode_id=name, trace_id=name, agent_id="a", task_id=None, status=EpisodeStatus.COMPLETED, started_at=AT
        )
        for name in names
    )
    return names


def asked(store: Store, number: int = 1, **fields: object) -> tuple[LabelQueue, list[LabelRequest]]:
    queue = LabelQueue(store)
    return queue, queue.ask(LabelAsk(episode_id=name, reason="random", **fields) for name in episodes(store, number))  # type: ignore[arg-type]


def test_the_most_urgent_is_asked_first(store: Store) -> None:
    """Page by page, ties by age, nothing twice and nothing left out; others may answer in between."""
    queue, priorities = LabelQueue(store), [0.1, 0.9, -2.0, 0.9, 1 / 3, 0.1, 0.9]
    names = episodes(store, 7)
    opened = queue.ask(
        LabelAsk(episode_id=name, reason="uncertain", priority=priority, suggested_value=0.25, suggested_by="hash")
        for name, priority in zip(names, priorities, strict=True)
    )
    assert all(request.status is LabelStatus.OPEN and request.suggested_value == 0.25 for request in opened)
    expected = sorted(opened, key=lambda request: (-request.priority, request.label_request_id))
    found: list[LabelRequest] = []
    cursor = None
    while True:
        page = queue.pending(limit=2, after=cursor)
        found += page.requests
        if page.next_cursor is None:
            break
        cursor = page.next_cursor
    assert found == expected
    first = queue.pending(limit=2)
    queue.skip(first.requests[0].label_request_id, "eva")
    assert queue.pending(limit=2, after=first.next_cursor).requests == expected[2:4]
    assert queue.pending(limit=1000).requests == expected[1:]


def test_an_episode_is_asked_about_once_at_a_time(store: Store) -> None:
    queue, opened = asked(store, 2)
    assert queue.ask([LabelAsk(episode_id="e000", reason="again")]) == []
    queue.skip(opened[0].label_request_id, "eva")
    assert len(queue.ask([LabelAsk(episode_id="e000", reason="again"), LabelAsk(episode_id="e001", reason="x")])) == 1
    with pytest.raises(NotFoundError, match="no episode 'nowhere'"):
        queue.ask([LabelAsk(episode_id="nowhere", reason="random")])


def test_an_answer_is_a_reward_with_its_author(store: Store) -> None:
    """The reward and the end of the request are there together."""
    queue, (request,) = asked(store)
    reward = queue.answer(request.label_request_id, 0.75, "eva", note="nearly")
    assert store.get(Reward, reward.reward_id) == reward
    assert (reward.value, reward.source, reward.author, reward.reason) == (0.75, "label", "eva", "nearly")
    closed = store.get(LabelRequest, request.label_request_id)
    assert (closed.status, closed.reward_id, closed.closed_by) == (LabelStatus.ANSWERED, reward.reward_id, "eva")
    assert closed.closed_at is not None
    assert [event.kind for event in store.events() if event.subject == reward.reward_id] == ["reward.recorded"]
    assert queue.pending().requests == []


@pytest.mark.parametrize("first", ["answer", "skip", "accept"])
def test_the_second_is_told_who_was_first(store: Store, first: str) -> None:
    queue, (request,) = asked(store, suggested_value=0.5)
    key = request.label_request_id
    {"answer": lambda: queue.answer(key, 1.0, "eva"), "skip": lambda: queue.skip(key, "eva")}.get(
        first, lambda: queue.accept(key, "eva")
    )()
    before = store.count(Reward)
    for second in (
        lambda: queue.answer(key, 0.0, "tom"),
        lambda: queue.skip(key, "tom"),
        lambda: queue.accept(key, "tom"),
    ):
        with pytest.raises(ConflictError, match=r"cannot become .*; eva was first, at 2"):
            second()
    assert store.count(Reward) == before
    assert store.get(LabelRequest, key).closed_by == "eva"


def test_of_many_at_once_one_answers(store: Store) -> None:
    queue, (request,) = asked(store)
    errors: list[LearnloopError] = []

    def work(author: str) -> None:
        try:
            queue.answer(request.label_request_id, 1.0, author)
        except ConflictError as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(f"p{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (reward,) = store.select(Reward)
    assert len(errors) == 7
    assert store.get(LabelRequest, request.label_request_id).closed_by == reward.author


def test_two_processes_share_the_queue(postgres_url: str) -> None:
    """Two stores on one database stand for two people's servers."""
    with Store.open(postgres_url) as one, Store.open(postgres_url) as other:
        _, (request,) = asked(one)
        LabelQueue(other).answer(request.label_request_id, 0.0, "tom")
        with pytest.raises(ConflictError, match="tom was first"):
            LabelQueue(one).answer(request.label_request_id, 1.0, "eva")


def test_a_person_accepts_or_changes_a_suggestion(store: Store) -> None:
    queue, opened = asked(store, 2, suggested_value=0.9, suggested_by="hash")
    assert queue.accept(opened[0].label_request_id, "eva").value == 0.9
    assert queue.answer(opened[1].label_request_id, 0.2, "eva").value == 0.2
    _, (bare,) = LabelQueue(store), queue.ask([LabelAsk(episode_id="e000", reason="random")])
    with pytest.raises(UsageError, match="no suggestion to accept"):
        queue.accept(bare.label_request_id, "eva")
    assert store.get(LabelRequest, bare.label_request_id).status is LabelStatus.OPEN


def test_a_label_without_being_asked_answers_the_request(store: Store) -> None:
    queue, (request,) = asked(store)

    def reward(key: str, **fields: object) -> Reward:
        return Reward(reward_id=key, episode_id="e000", name="label", value=1.0, author="eva", created_at=AT, **fields)  # type: ignore[arg-type]

    queue.record(reward("r1", span_id="s"))
    assert queue.pending().requests == [request]
    queue.record(reward("r2"))
    closed = store.get(LabelRequest, request.label_request_id)
    assert (closed.status, closed.reward_id, closed.closed_by) == (LabelStatus.ANSWERED, "r2", "eva")
    queue.record(reward("r3"))
    assert store.get(LabelRequest, request.label_request_id) == closed


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan"), float("inf")])
def test_wrong_values_change_nothing(store: Store, value: float) -> None:
    queue, (request,) = asked(store)
    with pytest.raises(UsageError, match=r"the answer is .*from 0 to 1"):
        queue.answer(request.label_request_id, value, "eva")
    with pytest.raises(UsageError, match="the suggestion for e000"):
        queue.ask([LabelAsk(episode_id="e000", reason="x", suggested_value=value)])
    with pytest.raises(UsageError, match="author is empty"):
        queue.answer(request.label_request_id, 1.0, " ")
    with pytest.raises(UsageError, match="priority"):
        queue.ask([LabelAsk(episode_id="e000", reason="x", priority=float("nan"))])
    assert queue.pending().requests == [request]


def test_wrong_calls_are_refused(store: Store) -> None:
    queue = LabelQueue(store)
    with pytest.raises(NotFoundError, match="no label request 'x'"):
        queue.answer("x", 1.0, "eva")
    for cursor in ("", "x", "nan:y", "1.0"):
        with pytest.raises(UsageError, match="not a cursor"):
            queue.pending(after=cursor)
    with pytest.raises(UsageError, match="limit is 0"):
        queue.pending(limit=0)


def test_a_removed_episode_cannot_be_labelled(store: Store) -> None:
    queue, (request,) = asked(store)
    store.run(lambda connection: connection.exec_driver_sql("DELETE FROM episodes"))
    with pytest.raises(NotFoundError, match="was removed; skip"):
        queue.answer(request.label_request_id, 1.0, "eva")
    assert queue.skip(request.label_request_id, "eva").status is LabelStatus.SKIPPED
