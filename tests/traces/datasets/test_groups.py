"""Groups of attempts, on both databases."""

from __future__ import annotations

from datetime import UTC, datetime

from learnloop.core.ids import new_id
from learnloop.core.records import Episode, EpisodeStatus, Reward
from learnloop.store import Store
from learnloop.traces.datasets.groups import GroupReport, count_groups

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def attempt(store: Store, task: str | None, *outcomes: float | None, agent: str = "a") -> str:
    """Stores an attempt whose reward part was given so, the last one last."""
    episode_id = new_id()
    episode = Episode(
        episode_id=episode_id,
        trace_id=episode_id,
        agent_id=agent,
        task_id=task,
        status=EpisodeStatus.COMPLETED,
        started_at=NOW,
        ended_at=NOW,
    )
    store.write([episode])
    for value in outcomes:
        store.write([reward(episode_id, value)])
    return episode_id


def reward(episode_id: str, value: float | None, name: str = "solved", weight: float = 1.0) -> Reward:
    return Reward(
        reward_id=new_id(), episode_id=episode_id, name=name, value=value, weight=weight, source="t", created_at=NOW
    )


def test_kinds_of_groups(store: Store) -> None:
    for outcome in (0.0, 1.0, 1.0):
        attempt(store, "mixed", outcome)
    for _ in range(2):
        attempt(store, "equal", 1.0)
        attempt(store, "unknown")
        attempt(store, None, 1.0)
    attempt(store, "mixed and unknown", 1.0)
    attempt(store, "mixed and unknown", 0.0)
    attempt(store, "mixed and unknown")
    attempt(store, "once", 1.0)
    attempt(store, "half known", 1.0)
    attempt(store, "half known", None)
    attempt(store, "mixed", 0.5, agent="b")
    assert count_groups(store) == GroupReport(
        num_groups=7, num_repeated=5, num_mixed=2, num_without_signal=1, num_unknown=2, sizes={1: 2, 2: 3, 3: 2}
    )
    assert count_groups(store, {"b"}).num_groups == 1
    assert count_groups(store, {"nobody"}).num_groups == 0


def test_an_outcome_is_the_last_of_each_part_and_no_metric(store: Store) -> None:
    attempt(store, "t", 0.0, 1.0)
    second = attempt(store, "t", 1.0)
    store.write([reward(second, 0.25, "length", 0.0)])
    assert count_groups(store).num_without_signal == 1
    store.write([reward(second, None)])
    assert count_groups(store).num_without_signal == 1, "what could not be computed changes nothing"
    store.write([reward(second, 1.0, "cost", -0.5)])
    assert count_groups(store).num_mixed == 1
