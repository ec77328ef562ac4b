"""All tables of the first version."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql
from sqlalchemy.types import UserDefinedType

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


class HalfVector(UserDefinedType[object]):
    """pgvector's half-precision vector of any dimension."""

    cache_ok = True

    def get_col_spec(self, **options: object) -> str:
        """Returns its name in SQL."""
        return "HALFVEC"


text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
moment = sa.BigInteger().with_variant(sa.DateTime(timezone=True), "postgresql")
json_value = sa.Text().with_variant(postgresql.JSONB(), "postgresql")
number = sa.Float().with_variant(postgresql.DOUBLE_PRECISION(), "postgresql")
embedding = sa.LargeBinary().with_variant(HalfVector(), "postgresql")
counter = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    if op.get_context().dialect.name == "postgresql":
        op.execute("CREATE EXTENSION IF NOT EXISTS vector")
    _create_traces()
    _create_decisions()
    _create_policies()
    _create_learning()


def _create_traces() -> None:
    """Agents, tasks and what they did."""
    op.create_table(
        "agents",
        sa.Column("agent_id", text, nullable=False),
        sa.Column("created_at", moment, nullable=False),
        sa.PrimaryKeyConstraint("agent_id", name="pk_agents"),
    )
    op.create_table(
        "tasks",
        sa.Column("task_id", text, nullable=False),
        sa.Column("created_at", moment, nullable=False),
        sa.Column("metadata", json_value, nullable=False),
        sa.PrimaryKeyConstraint("task_id", name="pk_tasks"),
    )
    op.create_table(
        "episodes",
        sa.Column("episode_id", text, nullable=False),
        sa.Column("trace_id", text, nullable=False),
        sa.Column("agent_id", text, nullable=False),
        sa.Column("task_id", text, nullable=True),
        sa.Column("attempt", sa.BigInteger(), nullable=True),
        sa.Column("source", text, nullable=False),
        sa.Column("status", text, nullable=False),
        sa.Column("terminated", sa.Boolean(), nullable=False),
        sa.Column("truncated", sa.Boolean(), nullable=False),
        sa.Column("error", text, nullable=True),
        sa.Column("started_at", moment, nullable=False),
        sa.Column("ended_at", moment, nullable=True),
        sa.Column("metadata", json_value, nullable=False),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.agent_id"], name="fk_episodes_agent_id"),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.task_id"], name="fk_episodes_task_id"),
        sa.PrimaryKeyConstraint("episode_id", name="pk_episodes"),
    )
    op.create_index("ix_episodes_agent_id", "episodes", ["agent_id"], unique=False)
    op.create_index("ix_episodes_started_at_episode_id", "episodes", ["started_at", "episode_id"], unique=False)
    op.create_index("ix_episodes_task_id", "episodes", ["task_id"], unique=False)
    op.create_index("ix_episodes_trace_id", "episodes", ["trace_id"], unique=False)
    op.create_table(
        "spans",
        sa.Column("span_id", text, nullable=False),
        sa.Column("trace_id", text, nullable=False),
        sa.Column("episode_id", text, nullable=True),
        sa.Column("parent_id", text, nullable=True),
        sa.Column("operation", text, nullable=False),
        sa.Column("name", text, nullable=False),
        sa.Column("status", text, nullable=False),
        sa.Column("error", text, nullable=True),
        sa.Column("started_at", moment, nullable=False),
        sa.Column("ended_at", moment, nullable=False),
        sa.Column("attributes", json_value, nullable=False),
        sa.PrimaryKeyConstraint("span_id", name="pk_spans"),
    )
    op.create_index("ix_spans_episode_id", "spans", ["episode_id"], unique=False)
    op.create_index("ix_spans_trace_id", "spans", ["trace_id"], unique=False)


def _create_decisions() -> None:
    """What is counted in the order in which it became durable."""
    op.create_table(
        "decisions",
        sa.Column("sequence", counter, autoincrement=True, nullable=False),
        sa.Column("decision_id", text, nullable=False),
        sa.Column("episode_id", text, nullable=True),
        sa.Column("span_id", text, nullable=True),
        sa.Column("agent_id", text, nullable=False),
        sa.Column("policy", text, nullable=False),
        sa.Column("policy_version_id", text, nullable=True),
        sa.Column("algorithm", text, nullable=True),
        sa.Column("num_updates", sa.BigInteger(), nullable=True),
        sa.Column("context", json_value, nullable=False),
        sa.Column("actions", json_value, nullable=False),
        sa.Column("mask", json_value, nullable=True),
        sa.Column("action", text, nullable=False),
        sa.Column("propensity", number, nullable=True),
        sa.Column("probabilities", json_value, nullable=True),
        sa.Column("created_at", moment, nullable=False),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.agent_id"], name="fk_decisions_agent_id"),
        sa.PrimaryKeyConstraint("sequence", name="pk_decisions"),
        sa.UniqueConstraint("decision_id", name="uq_decisions_decision_id"),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "ix_decisions_agent_id_policy_decision_id", "decisions", ["agent_id", "policy", "decision_id"], unique=False
    )
    op.create_index("ix_decisions_episode_id", "decisions", ["episode_id"], unique=False)
    op.create_index("ix_decisions_policy_version_id", "decisions", ["policy_version_id"], unique=False)
    op.create_table(
        "rewards",
        sa.Column("sequence", counter, autoincrement=True, nullable=False),
        sa.Column("reward_id", text, nullable=False),
        sa.Column("episode_id", text, nullable=True),
        sa.Column("decision_id", text, nullable=True),
        sa.Column("span_id", text, nullable=True),
        sa.Column("name", text, nullable=False),
        sa.Column("value", number, nullable=True),
        sa.Column("weight", number, nullable=False),
        sa.Column("source", text, nullable=False),
        sa.Column("reason", text, nullable=True),
        sa.Column("created_at", moment, nullable=False),
        sa.PrimaryKeyConstraint("sequence", name="pk_rewards"),
        sa.UniqueConstraint("reward_id", name="uq_rewards_reward_id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_rewards_decision_id", "rewards", ["decision_id"], unique=False)
    op.create_index("ix_rewards_episode_id", "rewards", ["episode_id"], unique=False)
    op.create_table(
        "events",
        sa.Column("sequence", counter, autoincrement=True, nullable=False),
        sa.Column("kind", text, nullable=False),
        sa.Column("subject", text, nullable=False),
        sa.Column("payload", json_value, nullable=False),
        sa.Column("created_at", moment, nullable=False),
        sa.PrimaryKeyConstraint("sequence", name="pk_events"),
        sqlite_autoincrement=True,
    )


def _create_policies() -> None:
    """The registry."""
    op.create_table(
        "policy_versions",
        sa.Column("policy_version_id", text, nullable=False),
        sa.Column("policy", text, nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("content_hash", text, nullable=False),
        sa.Column("algorithm", text, nullable=False),
        sa.Column("parent_id", text, nullable=True),
        sa.Column("metrics", json_value, nullable=False),
        sa.Column("lineage", json_value, nullable=False),
        sa.Column("created_at", moment, nullable=False),
        sa.PrimaryKeyConstraint("policy_version_id", name="pk_policy_versions"),
        sa.UniqueConstraint("policy", "version", name="uq_policy_versions_policy_version"),
    )
    op.create_index("ix_policy_versions_content_hash", "policy_versions", ["content_hash"], unique=False)
    op.create_table(
        "policy_aliases",
        sa.Column("alias_move_id", text, nullable=False),
        sa.Column("policy", text, nullable=False),
        sa.Column("alias", text, nullable=False),
        sa.Column("policy_version_id", text, nullable=False),
        sa.Column("actor", text, nullable=False),
        sa.Column("reason", text, nullable=False),
        sa.Column("created_at", moment, nullable=False),
        sa.ForeignKeyConstraint(
            ["policy_version_id"], ["policy_versions.policy_version_id"], name="fk_policy_aliases_policy_version_id"
        ),
        sa.PrimaryKeyConstraint("alias_move_id", name="pk_policy_aliases"),
    )
    op.create_index("ix_policy_aliases_policy_alias", "policy_aliases", ["policy", "alias"], unique=False)
    op.create_index("ix_policy_aliases_policy_version_id", "policy_aliases", ["policy_version_id"], unique=False)
    op.create_table(
        "certificates",
        sa.Column("certificate_id", text, nullable=False),
        sa.Column("content_hash", text, nullable=False),
        sa.Column("verdict", text, nullable=False),
        sa.Column("reasons", json_value, nullable=False),
        sa.Column("statistics", json_value, nullable=False),
        sa.Column("created_at", moment, nullable=False),
        sa.PrimaryKeyConstraint("certificate_id", name="pk_certificates"),
    )
    op.create_index("ix_certificates_content_hash", "certificates", ["content_hash"], unique=False)


def _create_learning() -> None:
    """Memory, experience, credit and checkpoints."""
    length_check = (
        "vector_dims(embedding) = embedding_dimension"
        if op.get_context().dialect.name == "postgresql"
        else "length(embedding) = 2 * embedding_dimension"
    )
    op.create_table(
        "agent_memories",
        sa.Column("memory_id", text, nullable=False),
        sa.Column("agent_id", text, nullable=False),
        sa.Column("memory_type", text, nullable=False),
        sa.Column("content", json_value, nullable=False),
        sa.Column("embedding", embedding, nullable=True),
        sa.Column("importance", number, nullable=False),
        sa.Column("access_count", sa.BigInteger(), nullable=False),
        sa.Column("last_accessed", moment, nullable=True),
        sa.Column("created_at", moment, nullable=False),
        sa.Column("embedding_dimension", sa.BigInteger(), nullable=True),
        sa.CheckConstraint(
            "(embedding IS NULL) = (embedding_dimension IS NULL)", name=op.f("ck_agent_memories_embedding_dimension")
        ),
        sa.CheckConstraint(length_check, name=op.f("ck_agent_memories_embedding_length")),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.agent_id"], name="fk_agent_memories_agent_id"),
        sa.PrimaryKeyConstraint("memory_id", name="pk_agent_memories"),
    )
    op.create_index(
        "ix_agent_memories_agent_id_memory_type", "agent_memories", ["agent_id", "memory_type"], unique=False
    )
    op.create_table(
        "training_transitions",
        sa.Column("transition_id", text, nullable=False),
        sa.Column("agent_id", text, nullable=False),
        sa.Column("observation", json_value, nullable=False),
        sa.Column("action", json_value, nullable=False),
        sa.Column("reward", number, nullable=True),
        sa.Column("next_observation", json_value, nullable=False),
        sa.Column("terminated", sa.Boolean(), nullable=False),
        sa.Column("truncated", sa.Boolean(), nullable=False),
        sa.Column("batch_id", text, nullable=True),
        sa.Column("created_at", moment, nullable=False),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.agent_id"], name="fk_training_transitions_agent_id"),
        sa.PrimaryKeyConstraint("transition_id", name="pk_training_transitions"),
    )
    op.create_index("ix_training_transitions_agent_id", "training_transitions", ["agent_id"], unique=False)
    op.create_index("ix_training_transitions_batch_id", "training_transitions", ["batch_id"], unique=False)
    op.create_table(
        "reward_history",
        sa.Column("reward_share_id", text, nullable=False),
        sa.Column("task_id", text, nullable=False),
        sa.Column("agent_id", text, nullable=False),
        sa.Column("raw_reward", number, nullable=False),
        sa.Column("shaped_reward", number, nullable=False),
        sa.Column("credit_assigned", number, nullable=False),
        sa.Column("metadata", json_value, nullable=False),
        sa.Column("created_at", moment, nullable=False),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.agent_id"], name="fk_reward_history_agent_id"),
        sa.ForeignKeyConstraint(["task_id"], ["tasks.task_id"], name="fk_reward_history_task_id"),
        sa.PrimaryKeyConstraint("reward_share_id", name="pk_reward_history"),
    )
    op.create_index("ix_reward_history_task_id_agent_id", "reward_history", ["task_id", "agent_id"], unique=False)
    op.create_table(
        "model_checkpoints",
        sa.Column("checkpoint_id", text, nullable=False),
        sa.Column("agent_id", text, nullable=False),
        sa.Column("policy", text, nullable=True),
        sa.Column("checkpoint_path", text, nullable=False),
        sa.Column("performance_metrics", json_value, nullable=False),
        sa.Column("training_iteration", sa.BigInteger(), nullable=False),
        sa.Column("created_at", moment, nullable=False),
        sa.ForeignKeyConstraint(["agent_id"], ["agents.agent_id"], name="fk_model_checkpoints_agent_id"),
        sa.PrimaryKeyConstraint("checkpoint_id", name="pk_model_checkpoints"),
    )
    op.create_index("ix_model_checkpoints_agent_id", "model_checkpoints", ["agent_id"], unique=False)
