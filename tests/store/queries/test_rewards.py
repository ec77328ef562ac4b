"""What an episode was worth, in SQL, is what core/rewards.py says: the two are held equal, on each database."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from learnloop.core.ids import new_id
from learnloop.core.records import Episode, EpisodeStatus, Reward
from learnloop.core.rewards import worth
from learnloop.store import Store, schema
from learnloop.store.queries.rewards import reward_of_episode, rewards_of_episodes

NOW = datetime(2026, 1, 1, tzinfo=UTC)

parts = st.builds(
    Reward,
    reward_id=st.builds(new_id),
    episode_id=st.just("e"),
    decision_id=st.sampled_from([None, None, None, "d"]),
    span_id=st.sampled_from([None, None, None, "s"]),
    name=st.sampled_from(["label", "total", "outcome", "correctness", "cost", "default"]),
    value=st.none() | st.integers(-8, 8).map(lambda number: number / 4),
    weight=st.sampled_from([0.0, 1.0, 1.0, -0.5]),
    source=st.sampled_from(["user", "label", "rewards", "tau-bench"]),
    author=st.sampled_from([None, "eva", "tom"]),
    created_at=st.just(NOW),
)


def episode(episode_id: str) -> Episode:
    return Episode(
        episode_id=episode_id,
        trace_id=episode_id,
        agent_id="a",
        task_id=None,
        status=EpisodeStatus.COMPLETED,
        started_at=NOW,
    )


@pytest.mark.parametrize("store_url", ["sqlite", "postgresql"], indirect=True)
@settings(
    max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None
)
@given(st.lists(parts, max_size=12))
def test_sql_and_python_say_the_same(store: Store, rewards: list[Reward]) -> None:
    known = new_id()
    given_now = [msgspec.structs.replace(each, reward_id=new_id(), episode_id=known) for each in rewards]
    store.write([episode(known), *given_now])
    expected = worth(each for each in given_now if each.decision_id is None and each.span_id is None)
    columns, table = schema.episodes.c, rewards_of_episodes()
    one = select(reward_of_episode(columns.episode_id)).where(columns.episode_id == known)
    many = select(table.c.reward).where(table.c.episode_id == known)
    assert store.read(lambda connection: connection.execute(one).scalar_one()) == pytest.approx(expected, abs=1e-12)
    assert store.read(lambda connection: connection.execute(many).scalar()) == pytest.approx(expected, abs=1e-12)
