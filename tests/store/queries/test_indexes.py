"""Queries that grow with the log go by an index: what SQLite plans, without a pass over a table or a sort."""

from __future__ import annotations

import pytest

from learnloop.store import Store

PAGE_OF_A_POLICY = (
    "SELECT action FROM decisions WHERE agent_id = 'a' AND policy = 'p' AND decision_id > 'd' ORDER BY decision_id"
)
DECISIONS_OF_A_VERSION = "SELECT action FROM decisions WHERE policy_version_id = 'v'"
VERSIONS_WITH_DECISIONS = (
    "SELECT policy_version_id FROM policy_versions v WHERE policy = 'p' "
    "AND EXISTS (SELECT * FROM decisions WHERE policy_version_id = v.policy_version_id)"
)
NEWEST_EPISODES = "SELECT status FROM episodes ORDER BY started_at DESC, episode_id DESC LIMIT 10"


@pytest.mark.parametrize(
    ("query", "index"),
    [
        (PAGE_OF_A_POLICY, "ix_decisions_agent_id_policy_decision_id"),
        (DECISIONS_OF_A_VERSION, "ix_decisions_policy_version_id"),
        (VERSIONS_WITH_DECISIONS, "ix_decisions_policy_version_id"),
        (NEWEST_EPISODES, "ix_episodes_started_at_episode_id"),
    ],
)
def test_what_is_asked_often_has_an_index(sqlite_url: str, query: str, index: str) -> None:
    with Store.open(sqlite_url) as store:
        plan = store.read(lambda connection: connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {query}").all())
    steps = " | ".join(str(step[-1]) for step in plan)
    assert index in steps
    assert "TEMP B-TREE" not in steps
