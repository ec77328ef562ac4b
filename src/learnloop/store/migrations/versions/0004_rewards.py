"""Who gave a reward, the shares of a reward by step, and the label queue.

The rows that ``reward_history`` had are kept, each as a share that was given out alone.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
moment = sa.BigInteger().with_variant(sa.DateTime(timezone=True), "postgresql")
json_value = sa.Text().with_variant(postgresql.JSONB(), "postgresql")


number = sa.Float().with_variant(postgresql.DOUBLE_PRECISION(), "postgresql")
KEPT = "reward_history_kept"


def upgrade() -> None:
    op.add_column("rewards", sa.Column("author", text, nullable=True))
    _make_reward_history()
    _make_label_requests()


def _make_reward_history() -> None:
    op.execute(f"CREATE TABLE {KEPT} AS SELECT * FROM reward_history")
    op.drop_table("reward_history")
    op.create_table(
        "reward_history",
        sa.Column("reward_share_id", text, nullable=False),
        sa.Column("completion_id", text, nullable=False),
        sa.Column("episode_id", text, nullable=True),
        sa.Column("task_id", text, nullable=True),
        sa.Column("agent_id", text, nullable=False),
        sa.Column("span_id", text, nullable=True),
        sa.Column("step", sa.BigInteger(), nullable=True),
        sa.Column("raw_reward", number, nullable=False),
        sa.Column("shaped_reward", number, nullable=False),
        sa.Column("credit_assigned", number, nullable=False),
        sa.Column("method", text, nullable=False),
        sa.Column("metadata", json_value, nullable=False),
        sa.Column("created_at", moment, nullable=False),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.agent_id"], name="fk_reward_history_agent_id"),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.task_id"], name="fk_reward_history_task_id"),
        sa.PrimaryKeyConstraint("reward_share_id", name="pk_reward_history"),
    )
    op.execute(
        "INSERT INTO reward_history (reward_share_id, completion_id, task_id, agent_id, raw_reward, shaped_reward, "
        "credit_assigned, method, metadata, created_at) SELECT reward_share_id, reward_share_id, task_id, agent_id, "
        f"raw_reward, shaped_reward, credit_assigned, 'unknown', metadata, created_at FROM {KEPT}"
    )
    op.drop_table(KEPT)
    for columns in (
        ["completion_id"],
        ["episode_id"],
        ["task_id", "agent_id"],
        ["task_id", "reward_share_id"],
        ["agent_id", "reward_share_id"],
        ["span_id"],
    ):
        op.create_index(f"ix_reward_history_{'_'.join(columns)}", "reward_history", columns, unique=False)


def _make_label_requests() -> None:
    op.create_table(
        "label_requests",
        sa.Column("label_request_id", text, nullable=False),
        sa.Column("episode_id", text, nullable=False),
        sa.Column("status", text, nullable=False),
        sa.Column("priority", number, nullable=False),
        sa.Column("reason", text, nullable=False),
        sa.Column("suggested_value", number, nullable=True),
        sa.Column("suggested_by", text, nullable=True),
        sa.Column("reward_id", text, nullable=True),
        sa.Column("created_at", moment, nullable=False),
        sa.Column("closed_at", moment, nullable=True),
        sa.Column("closed_by", text, nullable=True),
        sa.PrimaryKeyConstraint("label_request_id", name="pk_label_requests"),
    )
    for columns in (["episode_id"], ["status", "priority", "label_request_id"]):
        op.create_index(f"ix_label_requests_{'_'.join(columns)}", "label_requests", columns, unique=False)
