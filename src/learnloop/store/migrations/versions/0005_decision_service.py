"""What the decision service keeps: features of actions, vectors, modes, slots; settings, updates, repeated requests."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from learnloop.store.migrations.tables import BYTES, INTEGER, JSON, TEXT, TIME, columns, create_indexes, create_table

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for column in (
        *columns(JSON, "action_features?"),
        *columns(BYTES, "vector?"),
        *columns(TEXT, "mode?"),
        *columns(INTEGER, "settings_version?"),
        *columns(TEXT, "baseline_action?", "policy_action?", "request_id?", "slot?"),
    ):
        op.add_column("decisions", column)
    op.add_column("decisions", sa.Column("is_deferred", sa.Boolean(), nullable=False, server_default=sa.false()))
    create_indexes("decisions", "agent_id policy sequence")
    create_table(
        "decision_activations", *columns(TEXT, "decision_id"), *columns(TIME, "created_at"), indexes=["created_at"]
    )
    _make_settings()
    _make_updates()
    create_table(
        "idempotent_answers",
        *columns(TEXT, "idempotent_answer_id", "fingerprint"),
        *columns(INTEGER, "status"),
        *columns(TEXT, "media_type"),
        *columns(BYTES, "body"),
        *columns(TIME, "created_at"),
        indexes=["created_at"],
    )


def _make_settings() -> None:
    create_table(
        "policy_settings",
        *columns(TEXT, "policy_settings_id", "agent_id", "policy"),
        *columns(INTEGER, "version"),
        *columns(JSON, "settings"),
        *columns(TEXT, "author?"),
        *columns(TIME, "created_at"),
        refers=["agents.agent_id"],
        unique=["agent_id", "policy", "version"],
    )


def _make_updates() -> None:
    create_table(
        "learning_updates",
        *columns(TEXT, "learning_update_id", "agent_id", "policy"),
        *columns(INTEGER, "settings_version", "reward_sequence", "num_samples", "num_held_out"),
        *columns(TEXT, "verdict?"),
        *columns(JSON, "reasons", "metrics"),
        *columns(TEXT, "policy_version_id?", "parent_version_id?", "error?"),
        *columns(TIME, "started_at", "ended_at"),
        refers=["agents.agent_id"],
        indexes=["agent_id policy learning_update_id"],
    )
