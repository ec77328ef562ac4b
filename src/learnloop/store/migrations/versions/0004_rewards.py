"""Who gave a reward, the shares of a reward by step, and the label queue.

The rows that ``reward_history`` had are kept, each as a share that was given out alone.
"""

from __future__ import annotations

from alembic import op

from learnloop.store.migrations.tables import FLOAT, INTEGER, JSON, TEXT, TIME, columns, create_indexes, create_table

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


KEPT = "reward_history_kept"


def upgrade() -> None:
    op.add_column("rewards", *columns(TEXT, "author?"))
    _make_reward_history()
    _make_label_requests()


def _make_reward_history() -> None:
    op.execute(f"CREATE TABLE {KEPT} AS SELECT * FROM reward_history")
    op.drop_table("reward_history")
    create_table(
        "reward_history",
        *columns(TEXT, "reward_share_id", "completion_id", "episode_id?", "task_id?", "agent_id", "span_id?"),
        *columns(INTEGER, "step?"),
        *columns(FLOAT, "raw_reward", "shaped_reward", "credit_assigned"),
        *columns(TEXT, "method"),
        *columns(JSON, "metadata"),
        *columns(TIME, "created_at"),
        refers=["agents.agent_id", "tasks.task_id"],
    )
    op.execute(
        "INSERT INTO reward_history (reward_share_id, completion_id, task_id, agent_id, raw_reward, shaped_reward, "
        "credit_assigned, method, metadata, created_at) SELECT reward_share_id, reward_share_id, task_id, agent_id, "
        f"raw_reward, shaped_reward, credit_assigned, 'unknown', metadata, created_at FROM {KEPT}"
    )
    op.drop_table(KEPT)
    create_indexes(
        "reward_history",
        "completion_id",
        "episode_id",
        "task_id agent_id",
        "task_id reward_share_id",
        "agent_id reward_share_id",
        "span_id",
    )


def _make_label_requests() -> None:
    create_table(
        "label_requests",
        *columns(TEXT, "label_request_id", "episode_id", "status"),
        *columns(FLOAT, "priority"),
        *columns(TEXT, "reason"),
        *columns(FLOAT, "suggested_value?"),
        *columns(TEXT, "suggested_by?", "reward_id?"),
        *columns(TIME, "created_at", "closed_at?"),
        *columns(TEXT, "closed_by?"),
        indexes=["episode_id", "status priority label_request_id"],
    )
