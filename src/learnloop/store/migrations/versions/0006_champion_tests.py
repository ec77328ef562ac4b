"""Tests of what is served against what is tried besides it, and aliases that point nowhere any more."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from learnloop.store.migrations.tables import FLOAT, INTEGER, JSON, TEXT, TIME, columns, create_table

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("policy_aliases", sa.Column("is_removal", sa.Boolean(), nullable=False, server_default=sa.false()))
    create_table(
        "champion_tests",
        *columns(TEXT, "champion_test_id", "agent_id", "policy", "policy_version_id"),
        *columns(INTEGER, "decision_sequence", "num_decisions", "num_others", "num_missing", "num_untested"),
        *columns(FLOAT, "evidence"),
        *columns(JSON, "state"),
        *columns(TEXT, "reason?"),
        *columns(TIME, "put_out_at?", "started_at", "updated_at"),
        refers=["agents.agent_id"],
        indexes=["agent_id policy champion_test_id"],
    )
