"""All tables of the first version."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

from learnloop.store.migrations.tables import (
    BOOLEAN,
    COUNTER,
    EMBEDDING,
    FLOAT,
    INTEGER,
    JSON,
    TEXT,
    TIME,
    columns,
    create_table,
)

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    if op.get_context().dialect.name == "postgresql":
        op.execute("CREATE EXTENSION IF NOT EXISTS vector")
    _create_traces()
    _create_decisions()
    _create_policies()
    _create_learning()


def _create_traces() -> None:
    """Agents, tasks and what they did."""
    create_table("agents", *columns(TEXT, "agent_id"), *columns(TIME, "created_at"))
    create_table("tasks", *columns(TEXT, "task_id"), *columns(TIME, "created_at"), *columns(JSON, "metadata"))
    create_table(
        "episodes",
        *columns(TEXT, "episode_id", "trace_id", "agent_id", "task_id?"),
        *columns(INTEGER, "attempt?"),
        *columns(TEXT, "source", "status"),
        *columns(BOOLEAN, "terminated", "truncated"),
        *columns(TEXT, "error?"),
        *columns(TIME, "started_at", "ended_at?"),
        *columns(JSON, "metadata"),
        refers=["agents.agent_id", "tasks.task_id"],
        indexes=["agent_id", "started_at episode_id", "task_id", "trace_id"],
    )
    create_table(
        "spans",
        *columns(TEXT, "span_id", "trace_id", "episode_id?", "parent_id?", "operation", "name", "status", "error?"),
        *columns(TIME, "started_at", "ended_at"),
        *columns(JSON, "attributes"),
        indexes=["episode_id", "trace_id"],
    )


def _create_decisions() -> None:
    """What is counted in the order in which it became durable."""
    create_table(
        "decisions",
        sa.Column("sequence", COUNTER, autoincrement=True, nullable=False),
        *columns(
            TEXT, "decision_id", "episode_id?", "span_id?", "agent_id", "policy", "policy_version_id?", "algorithm?"
        ),
        *columns(INTEGER, "num_updates?"),
        *columns(JSON, "context", "actions", "mask?"),
        *columns(TEXT, "action"),
        *columns(FLOAT, "propensity?"),
        *columns(JSON, "probabilities?"),
        *columns(TIME, "created_at"),
        refers=["agents.agent_id"],
        unique=["decision_id"],
        indexes=["agent_id policy decision_id", "episode_id", "policy_version_id"],
        sqlite_autoincrement=True,
    )
    create_table(
        "rewards",
        sa.Column("sequence", COUNTER, autoincrement=True, nullable=False),
        *columns(TEXT, "reward_id", "episode_id?", "decision_id?", "span_id?", "name"),
        *columns(FLOAT, "value?", "weight"),
        *columns(TEXT, "source", "reason?"),
        *columns(TIME, "created_at"),
        unique=["reward_id"],
        indexes=["decision_id", "episode_id"],
        sqlite_autoincrement=True,
    )
    create_table(
        "events",
        sa.Column("sequence", COUNTER, autoincrement=True, nullable=False),
        *columns(TEXT, "kind", "subject"),
        *columns(JSON, "payload"),
        *columns(TIME, "created_at"),
        sqlite_autoincrement=True,
    )


def _create_policies() -> None:
    """The registry."""
    create_table(
        "policy_versions",
        *columns(TEXT, "policy_version_id", "policy"),
        *columns(INTEGER, "version"),
        *columns(TEXT, "content_hash", "algorithm", "parent_id?"),
        *columns(JSON, "metrics", "lineage"),
        *columns(TIME, "created_at"),
        unique=["policy", "version"],
        indexes=["content_hash"],
    )
    create_table(
        "policy_aliases",
        *columns(TEXT, "alias_move_id", "policy", "alias", "policy_version_id", "actor", "reason"),
        *columns(TIME, "created_at"),
        refers=["policy_versions.policy_version_id"],
        indexes=["policy alias", "policy_version_id"],
    )
    create_table(
        "certificates",
        *columns(TEXT, "certificate_id", "content_hash", "verdict"),
        *columns(JSON, "reasons", "statistics"),
        *columns(TIME, "created_at"),
        indexes=["content_hash"],
    )


def _create_learning() -> None:
    """Memory, experience, credit and checkpoints."""
    length_check = (
        "vector_dims(embedding) = embedding_dimension"
        if op.get_context().dialect.name == "postgresql"
        else "length(embedding) = 2 * embedding_dimension"
    )
    create_table(
        "agent_memories",
        *columns(TEXT, "memory_id", "agent_id", "memory_type"),
        *columns(JSON, "content"),
        *columns(EMBEDDING, "embedding?"),
        *columns(FLOAT, "importance"),
        *columns(INTEGER, "access_count"),
        *columns(TIME, "last_accessed?", "created_at"),
        *columns(INTEGER, "embedding_dimension?"),
        sa.CheckConstraint(
            "(embedding IS NULL) = (embedding_dimension IS NULL)", name=op.f("ck_agent_memories_embedding_dimension")
        ),
        sa.CheckConstraint(length_check, name=op.f("ck_agent_memories_embedding_length")),
        refers=["agents.agent_id"],
        indexes=["agent_id memory_type"],
    )
    create_table(
        "training_transitions",
        *columns(TEXT, "transition_id", "agent_id"),
        *columns(JSON, "observation", "action"),
        *columns(FLOAT, "reward?"),
        *columns(JSON, "next_observation"),
        *columns(BOOLEAN, "terminated", "truncated"),
        *columns(TEXT, "batch_id?"),
        *columns(TIME, "created_at"),
        refers=["agents.agent_id"],
        indexes=["agent_id", "batch_id"],
    )
    create_table(
        "reward_history",
        *columns(TEXT, "reward_share_id", "task_id", "agent_id"),
        *columns(FLOAT, "raw_reward", "shaped_reward", "credit_assigned"),
        *columns(JSON, "metadata"),
        *columns(TIME, "created_at"),
        refers=["agents.agent_id", "tasks.task_id"],
        indexes=["task_id agent_id"],
    )
    create_table(
        "model_checkpoints",
        *columns(TEXT, "checkpoint_id", "agent_id", "policy?", "checkpoint_path"),
        *columns(JSON, "performance_metrics"),
        *columns(INTEGER, "training_iteration"),
        *columns(TIME, "created_at"),
        refers=["agents.agent_id"],
        indexes=["agent_id"],
    )
