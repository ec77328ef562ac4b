"""What the decision service keeps: features of actions, vectors, modes, slots; settings, updates, repeated requests."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
moment = sa.BigInteger().with_variant(sa.DateTime(timezone=True), "postgresql")
json_value = sa.Text().with_variant(postgresql.JSONB(), "postgresql")


def upgrade() -> None:
    for name, kind in (
        ("action_features", json_value),
        ("vector", sa.LargeBinary()),
        ("mode", text),
        ("settings_version", sa.BigInteger()),
        ("baseline_action", text),
        ("policy_action", text),
        ("request_id", text),
        ("slot", text),
    ):
        op.add_column("decisions", sa.Column(name, kind, nullable=True))
    op.add_column("decisions", sa.Column("is_deferred", sa.Boolean(), nullable=False, server_default=sa.false()))
    newest = ["agent_id", "policy", "sequence"]
    op.create_index(f"ix_decisions_{'_'.join(newest)}", "decisions", newest, unique=False)
    op.create_table(
        "decision_activations",
        sa.Column("decision_id", text, nullable=False),
        sa.Column("created_at", moment, nullable=False),
        sa.PrimaryKeyConstraint("decision_id", name="pk_decision_activations"),
    )
    op.create_index("ix_decision_activations_created_at", "decision_activations", ["created_at"], unique=False)
    _make_settings()
    _make_updates()
    op.create_table(
        "idempotent_answers",
        sa.Column("idempotent_answer_id", text, nullable=False),
        sa.Column("fingerprint", text, nullable=False),
        sa.Column("status", sa.BigInteger(), nullable=False),
        sa.Column("media_type", text, nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("created_at", moment, nullable=False),
        sa.PrimaryKeyConstraint("idempotent_answer_id", name="pk_idempotent_answers"),
    )
    op.create_index("ix_idempotent_answers_created_at", "idempotent_answers", ["created_at"], unique=False)


def _make_settings() -> None:
    op.create_table(
        "policy_settings",
        sa.Column("policy_settings_id", text, nullable=False),
        sa.Column("agent_id", text, nullable=False),
        sa.Column("policy", text, nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("settings", json_value, nullable=False),
        sa.Column("author", text, nullable=True),
        sa.Column("created_at", moment, nullable=False),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.agent_id"], name="fk_policy_settings_agent_id"),
        sa.PrimaryKeyConstraint("policy_settings_id", name="pk_policy_settings"),
        sa.UniqueConstraint("agent_id", "policy", "version", name="uq_policy_settings_agent_id_policy_version"),
    )


def _make_updates() -> None:
    op.create_table(
        "learning_updates",
        sa.Column("learning_update_id", text, nullable=False),
        sa.Column("agent_id", text, nullable=False),
        sa.Column("policy", text, nullable=False),
        sa.Column("settings_version", sa.BigInteger(), nullable=False),
        sa.Column("reward_sequence", sa.BigInteger(), nullable=False),
        sa.Column("num_samples", sa.BigInteger(), nullable=False),
        sa.Column("num_held_out", sa.BigInteger(), nullable=False),
        sa.Column("verdict", text, nullable=True),
        sa.Column("reasons", json_value, nullable=False),
        sa.Column("metrics", json_value, nullable=False),
        sa.Column("policy_version_id", text, nullable=True),
        sa.Column("parent_version_id", text, nullable=True),
        sa.Column("error", text, nullable=True),
        sa.Column("started_at", moment, nullable=False),
        sa.Column("ended_at", moment, nullable=False),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.agent_id"], name="fk_learning_updates_agent_id"),
        sa.PrimaryKeyConstraint("learning_update_id", name="pk_learning_updates"),
    )
    columns = ["agent_id", "policy", "learning_update_id"]
    op.create_index(f"ix_learning_updates_{'_'.join(columns)}", "learning_updates", columns, unique=False)
