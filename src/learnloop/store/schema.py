"""The tables: one for each record of ``core/records.py``, the same on SQLite and PostgreSQL.

A field of a record is a column of its name, of the type that its hint asks for; what a hint does not say is said here.
``sequence`` (events, decisions, rewards) counts in the order in which rows became durable and is not part of a decision
or a reward. Spans, decisions and rewards may come before the episode that they name, or late, so these references are
indexed but not enforced.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Any, get_args, get_type_hints

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
from sqlalchemy.schema import SchemaItem

from learnloop.core import records
from learnloop.core.records import Record
from learnloop.store.columns import BOOLEAN, BYTES, EMBEDDING, FLOAT, INTEGER, JSON, TEXT, TIME, StoredType

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)
_COUNTER = BigInteger().with_variant(Integer(), "sqlite")
_TYPES: Mapping[type[Any], StoredType] = {
    bool: BOOLEAN,
    bytes: BYTES,
    datetime: TIME,
    float: FLOAT,
    int: INTEGER,
    str: TEXT,
}
"""Of plain hints; enums are text, all else is JSON."""
_REFERENCES: Mapping[str, str] = {"agent_id": "agents.agent_id", "task_id": "tasks.task_id"}
"""What fields of these names refer to, in each table but their own."""
_tables: dict[type[Record], Table] = {}


def _table(kind: type[Record], name: str, *more: SchemaItem, **options: Any) -> Table:
    """Returns the table of a kind of record, whose first field is the key; columns in ``more`` replace fields'."""
    given = {each.name for each in more if isinstance(each, Column)}
    key = None if "sequence" in given else kind.__struct_fields__[0]
    fields = [_column(field, hint, field == key) for field, hint in get_type_hints(kind).items() if field not in given]
    _tables[kind] = Table(name, metadata, *fields, *more, **options)
    return _tables[kind]


def _column(name: str, hint: Any, is_key: bool) -> Column[Any]:
    """Returns the column of a field; one that may be None is NULL then."""
    choices = [choice for choice in get_args(hint) if choice is not type(None)]
    is_optional = type(None) in get_args(hint)
    plain = choices[0] if is_optional else hint
    plain = str if isinstance(plain, type) and issubclass(plain, str) else plain
    references = [ForeignKey(_REFERENCES[name])] if name in _REFERENCES and not is_key else []
    return Column(name, _TYPES.get(plain, JSON), *references, primary_key=is_key, nullable=is_optional)


def _counted(kind: type[Record]) -> tuple[SchemaItem, ...]:
    """Returns the columns of a table whose rows are counted as they come: the count is its primary key."""
    key = kind.__struct_fields__[0]
    count = Column("sequence", _COUNTER, primary_key=True, autoincrement=True)
    return (count,) if key == "sequence" else (count, Column(key, TEXT, nullable=False, unique=True))


agents = _table(records.Agent, "agents")
tasks = _table(records.Task, "tasks")
episodes = _table(
    records.Episode,
    "episodes",
    Index(None, "trace_id"),
    Index(None, "agent_id"),
    Index(None, "task_id"),
    Index(None, "started_at", "episode_id"),
)
spans = _table(records.Span, "spans", Index(None, "trace_id"), Index(None, "episode_id"))
decisions = _table(
    records.Decision,
    "decisions",
    *_counted(records.Decision),
    Column("is_deferred", BOOLEAN, nullable=False, server_default=false()),
    Index(None, "episode_id"),
    Index(None, "agent_id", "policy", "sequence"),
    Index(None, "agent_id", "policy", "decision_id"),
    Index(None, "policy_version_id"),
    sqlite_autoincrement=True,
)
rewards = _table(
    records.Reward,
    "rewards",
    *_counted(records.Reward),
    Index(None, "episode_id"),
    Index(None, "decision_id"),
    sqlite_autoincrement=True,
)
policy_versions = _table(
    records.PolicyVersion, "policy_versions", UniqueConstraint("policy", "version"), Index(None, "content_hash")
)
policy_aliases = _table(
    records.AliasMove,
    "policy_aliases",
    Column("policy_version_id", TEXT, ForeignKey("policy_versions.policy_version_id"), nullable=False),
    Column("is_removal", BOOLEAN, nullable=False, server_default=false()),
    Index(None, "policy", "alias"),
    Index(None, "policy_version_id"),
)
certificates = _table(records.Certificate, "certificates", Index(None, "content_hash"))
agent_memories = _table(
    records.Memory,
    "agent_memories",
    Column("embedding", EMBEDDING, nullable=True),
    Column("embedding_dimension", INTEGER, nullable=True),
    CheckConstraint("(embedding IS NULL) = (embedding_dimension IS NULL)", name="embedding_dimension"),
    CheckConstraint("length(embedding) = 2 * embedding_dimension", name="embedding_length").ddl_if(dialect="sqlite"),
    CheckConstraint("vector_dims(embedding) = embedding_dimension", name="embedding_length").ddl_if(
        dialect="postgresql"
    ),
    Index(None, "agent_id", "memory_type"),
)
training_transitions = _table(
    records.Transition, "training_transitions", Index(None, "agent_id"), Index(None, "batch_id")
)
reward_history = _table(
    records.RewardShare,
    "reward_history",
    Index(None, "completion_id"),
    Index(None, "episode_id"),
    Index(None, "task_id", "agent_id"),
    Index(None, "task_id", "reward_share_id"),
    Index(None, "agent_id", "reward_share_id"),
    Index(None, "span_id"),
)
label_requests = _table(
    records.LabelRequest,
    "label_requests",
    Index(None, "episode_id"),
    Index(None, "status", "priority", "label_request_id"),
)
decision_activations = _table(records.DecisionActivation, "decision_activations", Index(None, "created_at"))
policy_settings = _table(records.PolicySettings, "policy_settings", UniqueConstraint("agent_id", "policy", "version"))
learning_updates = _table(
    records.LearningUpdate, "learning_updates", Index(None, "agent_id", "policy", "learning_update_id")
)
champion_tests = _table(records.ChampionTest, "champion_tests", Index(None, "agent_id", "policy", "champion_test_id"))
idempotent_answers = _table(records.IdempotentAnswer, "idempotent_answers", Index(None, "created_at"))
model_checkpoints = _table(records.ModelCheckpoint, "model_checkpoints", Index(None, "agent_id"))
api_keys = _table(records.ApiKey, "api_keys", Column("secret_hash", TEXT, nullable=False, unique=True))
events = _table(records.Event, "events", *_counted(records.Event), sqlite_autoincrement=True)

TABLES: Mapping[type[Record], Table] = MappingProxyType(_tables)
"""Each kind of record and its table, in an order in which references point back."""

# The full-text index, which is made of the spans and can be thrown away; its table of words is made in full_text.py.

search_queue = Table("search_queue", metadata, Column("episode_id", TEXT, primary_key=True))
search_episodes = Table(
    "search_episodes",
    metadata,
    Column("number", _COUNTER, primary_key=True, autoincrement=True),
    Column("episode_id", TEXT, nullable=False, unique=True),
    sqlite_autoincrement=True,
)
search_spans = Table(
    "search_spans",
    metadata,
    Column("search_id", _COUNTER, primary_key=True, autoincrement=False),
    Column("span_id", TEXT, nullable=False, unique=True),
)
