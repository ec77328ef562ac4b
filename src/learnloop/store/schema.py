"""The tables: one for each record of ``core/records.py``, the same on SQLite and PostgreSQL.

A column has the name of its record's field. ``sequence`` (events, decisions, rewards) counts in the order in which rows
became durable and is not part of a decision or a reward. Spans, decisions and rewards may come before the episode
that they name, or late, so these references are indexed but not enforced.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    Table,
    UniqueConstraint,
    false,
)

from learnloop.store.columns import (
    BooleanColumn,
    BytesColumn,
    EmbeddingColumn,
    FloatColumn,
    IntegerColumn,
    JsonColumn,
    TextColumn,
    TimeColumn,
)

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)


def _key(name: str) -> Column[Any]:
    return Column(name, TextColumn(), primary_key=True, nullable=False)


def _sequence() -> Column[Any]:
    return Column("sequence", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True, autoincrement=True)


def _text(name: str, *, nullable: bool = False, unique: bool | None = None, refers: str | None = None) -> Column[Any]:
    keys = [ForeignKey(refers)] if refers else []
    return Column(name, TextColumn(), *keys, nullable=nullable, unique=unique)


def _json(name: str, *, nullable: bool = False) -> Column[Any]:
    return Column(name, JsonColumn(), nullable=nullable)


def _time(name: str, *, nullable: bool = False) -> Column[Any]:
    return Column(name, TimeColumn(), nullable=nullable)


def _float(name: str, *, nullable: bool = False) -> Column[Any]:
    return Column(name, FloatColumn(), nullable=nullable)


def _integer(name: str, *, nullable: bool = False) -> Column[Any]:
    return Column(name, IntegerColumn(), nullable=nullable)


def _boolean(name: str) -> Column[Any]:
    return Column(name, BooleanColumn(), nullable=False)


agents = Table("agents", metadata, _key("agent_id"), _time("created_at"))

tasks = Table("tasks", metadata, _key("task_id"), _time("created_at"), _json("metadata"))

episodes = Table(
    "episodes",
    metadata,
    _key("episode_id"),
    _text("trace_id"),
    _text("agent_id", refers="agents.agent_id"),
    _text("task_id", nullable=True, refers="tasks.task_id"),
    _integer("attempt", nullable=True),
    _text("source"),
    _text("status"),
    _boolean("terminated"),
    _boolean("truncated"),
    _text("error", nullable=True),
    _time("started_at"),
    _time("ended_at", nullable=True),
    _json("metadata"),
    Index(None, "trace_id"),
    Index(None, "agent_id"),
    Index(None, "task_id"),
    Index(None, "started_at", "episode_id"),
)

spans = Table(
    "spans",
    metadata,
    _key("span_id"),
    _text("trace_id"),
    _text("episode_id", nullable=True),
    _text("parent_id", nullable=True),
    _text("operation"),
    _text("name"),
    _text("status"),
    _text("error", nullable=True),
    _time("started_at"),
    _time("ended_at"),
    _json("attributes"),
    Index(None, "trace_id"),
    Index(None, "episode_id"),
)

decisions = Table(
    "decisions",
    metadata,
    _sequence(),
    _text("decision_id", unique=True),
    _text("episode_id", nullable=True),
    _text("span_id", nullable=True),
    _text("agent_id", refers="agents.agent_id"),
    _text("policy"),
    _text("policy_version_id", nullable=True),
    _text("algorithm", nullable=True),
    _integer("num_updates", nullable=True),
    _json("context"),
    _json("actions"),
    _json("mask", nullable=True),
    _text("action"),
    _float("propensity", nullable=True),
    _json("probabilities", nullable=True),
    _json("action_features", nullable=True),
    Column("vector", BytesColumn(), nullable=True),
    _text("mode", nullable=True),
    _integer("settings_version", nullable=True),
    _text("baseline_action", nullable=True),
    _text("policy_action", nullable=True),
    _text("request_id", nullable=True),
    _text("slot", nullable=True),
    Column("is_deferred", BooleanColumn(), nullable=False, server_default=false()),
    _time("created_at"),
    Index(None, "episode_id"),
    Index(None, "agent_id", "policy", "sequence"),
    Index(None, "agent_id", "policy", "decision_id"),
    Index(None, "policy_version_id"),
    sqlite_autoincrement=True,
)

rewards = Table(
    "rewards",
    metadata,
    _sequence(),
    _text("reward_id", unique=True),
    _text("episode_id", nullable=True),
    _text("decision_id", nullable=True),
    _text("span_id", nullable=True),
    _text("name"),
    _float("value", nullable=True),
    _float("weight"),
    _text("source"),
    _text("author", nullable=True),
    _text("reason", nullable=True),
    _time("created_at"),
    Index(None, "episode_id"),
    Index(None, "decision_id"),
    sqlite_autoincrement=True,
)

events = Table(
    "events",
    metadata,
    _sequence(),
    _text("kind"),
    _text("subject"),
    _json("payload"),
    _time("created_at"),
    sqlite_autoincrement=True,
)

policy_versions = Table(
    "policy_versions",
    metadata,
    _key("policy_version_id"),
    _text("policy"),
    _integer("version"),
    _text("content_hash"),
    _text("algorithm"),
    _text("parent_id", nullable=True),
    _json("metrics"),
    _json("lineage"),
    _time("created_at"),
    UniqueConstraint("policy", "version"),
    Index(None, "content_hash"),
)

policy_aliases = Table(
    "policy_aliases",
    metadata,
    _key("alias_move_id"),
    _text("policy"),
    _text("alias"),
    _text("policy_version_id", refers="policy_versions.policy_version_id"),
    _text("actor"),
    _text("reason"),
    _time("created_at"),
    Index(None, "policy", "alias"),
    Index(None, "policy_version_id"),
)

certificates = Table(
    "certificates",
    metadata,
    _key("certificate_id"),
    _text("content_hash"),
    _text("verdict"),
    _json("reasons"),
    _json("statistics"),
    _time("created_at"),
    Index(None, "content_hash"),
)

agent_memories = Table(
    "agent_memories",
    metadata,
    _key("memory_id"),
    _text("agent_id", refers="agents.agent_id"),
    _text("memory_type"),
    _json("content"),
    Column("embedding", EmbeddingColumn(), nullable=True),
    _float("importance"),
    _integer("access_count"),
    _time("last_accessed", nullable=True),
    _time("created_at"),
    _integer("embedding_dimension", nullable=True),
    CheckConstraint("(embedding IS NULL) = (embedding_dimension IS NULL)", name="embedding_dimension"),
    CheckConstraint("length(embedding) = 2 * embedding_dimension", name="embedding_length").ddl_if(dialect="sqlite"),
    CheckConstraint("vector_dims(embedding) = embedding_dimension", name="embedding_length").ddl_if(
        dialect="postgresql"
    ),
    Index(None, "agent_id", "memory_type"),
)

training_transitions = Table(
    "training_transitions",
    metadata,
    _key("transition_id"),
    _text("agent_id", refers="agents.agent_id"),
    _json("observation"),
    _json("action"),
    _float("reward", nullable=True),
    _json("next_observation"),
    _boolean("terminated"),
    _boolean("truncated"),
    _text("batch_id", nullable=True),
    _time("created_at"),
    Index(None, "agent_id"),
    Index(None, "batch_id"),
)

reward_history = Table(
    "reward_history",
    metadata,
    _key("reward_share_id"),
    _text("completion_id"),
    _text("episode_id", nullable=True),
    _text("task_id", nullable=True, refers="tasks.task_id"),
    _text("agent_id", refers="agents.agent_id"),
    _text("span_id", nullable=True),
    _integer("step", nullable=True),
    _float("raw_reward"),
    _float("shaped_reward"),
    _float("credit_assigned"),
    _text("method"),
    _json("metadata"),
    _time("created_at"),
    Index(None, "completion_id"),
    Index(None, "episode_id"),
    Index(None, "task_id", "agent_id"),
    Index(None, "task_id", "reward_share_id"),
    Index(None, "agent_id", "reward_share_id"),
    Index(None, "span_id"),
)

label_requests = Table(
    "label_requests",
    metadata,
    _key("label_request_id"),
    _text("episode_id"),
    _text("status"),
    _float("priority"),
    _text("reason"),
    _float("suggested_value", nullable=True),
    _text("suggested_by", nullable=True),
    _text("reward_id", nullable=True),
    _time("created_at"),
    _time("closed_at", nullable=True),
    _text("closed_by", nullable=True),
    Index(None, "episode_id"),
    Index(None, "status", "priority", "label_request_id"),
)

model_checkpoints = Table(
    "model_checkpoints",
    metadata,
    _key("checkpoint_id"),
    _text("agent_id", refers="agents.agent_id"),
    _text("policy", nullable=True),
    _text("checkpoint_path"),
    _json("performance_metrics"),
    _integer("training_iteration"),
    _time("created_at"),
    Index(None, "agent_id"),
)

decision_activations = Table(
    "decision_activations", metadata, _key("decision_id"), _time("created_at"), Index(None, "created_at")
)

policy_settings = Table(
    "policy_settings",
    metadata,
    _key("policy_settings_id"),
    _text("agent_id", refers="agents.agent_id"),
    _text("policy"),
    _integer("version"),
    _json("settings"),
    _text("author", nullable=True),
    _time("created_at"),
    UniqueConstraint("agent_id", "policy", "version"),
)

learning_updates = Table(
    "learning_updates",
    metadata,
    _key("learning_update_id"),
    _text("agent_id", refers="agents.agent_id"),
    _text("policy"),
    _integer("settings_version"),
    _integer("reward_sequence"),
    _integer("num_samples"),
    _integer("num_held_out"),
    _text("verdict", nullable=True),
    _json("reasons"),
    _json("metrics"),
    _text("policy_version_id", nullable=True),
    _text("parent_version_id", nullable=True),
    _text("error", nullable=True),
    _time("started_at"),
    _time("ended_at"),
    Index(None, "agent_id", "policy", "learning_update_id"),
)

idempotent_answers = Table(
    "idempotent_answers",
    metadata,
    _key("idempotent_answer_id"),
    _text("fingerprint"),
    _integer("status"),
    _text("media_type"),
    Column("body", BytesColumn(), nullable=False),
    _time("created_at"),
    Index(None, "created_at"),
)

api_keys = Table(
    "api_keys",
    metadata,
    _key("api_key_id"),
    _text("name"),
    _text("prefix"),
    _text("secret_hash", unique=True),
    _json("scopes"),
    _time("created_at"),
    _time("expires_at", nullable=True),
    _time("revoked_at", nullable=True),
)

# The full-text index, which is made of the spans and can be thrown away; its table of words is made in full_text.py.

search_queue = Table("search_queue", metadata, _key("episode_id"))

search_episodes = Table(
    "search_episodes",
    metadata,
    Column("number", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True, autoincrement=True),
    _text("episode_id", unique=True),
    sqlite_autoincrement=True,
)

search_spans = Table(
    "search_spans",
    metadata,
    Column("search_id", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True, autoincrement=False),
    _text("span_id", unique=True),
)
