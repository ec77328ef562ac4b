"""The mapping is complete, and any record comes back from both back ends."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from learnloop.core import records as core_records
from learnloop.core.ids import new_id
from learnloop.core.records import Decision, DecisionMode, Memory, Record, Reward, Span, SpanStatus
from learnloop.store import Store
from learnloop.store.columns import encode_json
from learnloop.store.schema import TABLES

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def test_each_record_has_a_table_with_its_fields() -> None:
    kinds = {
        kind
        for kind in vars(core_records).values()
        if isinstance(kind, type) and issubclass(kind, Record) and kind is not Record
    }
    assert set(TABLES) == kinds
    extra = {Decision: {"sequence"}, Reward: {"sequence"}, Memory: {"embedding_dimension"}}
    for kind, table in TABLES.items():
        assert set(table.columns.keys()) == set(kind.__struct_fields__) | extra.get(kind, set())


def test_the_tables_of_the_seed_have_fitting_references() -> None:
    """F4.10: the seed's SQL cannot be created, since its keys and references have different types."""
    by_name = {table.name: table for table in TABLES.values()}
    targets = {
        name: {key.target_fullname for key in by_name[name].foreign_keys}
        for name in ("agent_memories", "training_transitions", "reward_history", "model_checkpoints")
    }
    assert targets == {
        "agent_memories": {"agents.agent_id"},
        "training_transitions": {"agents.agent_id"},
        "reward_history": {"agents.agent_id", "tasks.task_id"},
        "model_checkpoints": {"agents.agent_id"},
    }
    for table in TABLES.values():
        for key in table.foreign_keys:
            assert type(key.column.type) is type(key.parent.type)


def test_json_of_numpy_numbers_and_mappings() -> None:
    value = {"a": np.float32(0.5), "b": np.int64(3), "c": MappingProxyType({"d": np.float64(1.5)}), 1: (2, None)}
    assert encode_json(value) == '{"a":0.5,"b":3,"c":{"d":1.5},"1":[2,null]}'


@pytest.mark.parametrize(
    "value", [math.nan, [math.inf], {"a": {"b": -math.inf}}, (None, np.float64("nan")), np.float32("inf")]
)
def test_json_refuses_what_is_not_finite(value: object) -> None:
    with pytest.raises(ValueError, match="not a finite number"):
        encode_json(value)


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)
numbers = st.floats(-1e15, 1e15).map(lambda number: number + 0.0)  # JSONB knows no -0.0
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | numbers | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)
objects = st.dictionaries(texts, json_values, max_size=5)
moments = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30)).map(lambda moment: moment.replace(tzinfo=UTC))
finite = st.floats(allow_nan=False, allow_infinity=False)
spans = st.builds(
    Span,
    span_id=st.builds(new_id),
    trace_id=texts,
    episode_id=st.none() | texts,
    parent_id=st.none() | texts,
    operation=texts,
    name=texts,
    status=st.sampled_from(SpanStatus),
    error=st.none() | texts,
    started_at=moments,
    ended_at=moments,
    attributes=objects,
)
decisions = st.builds(
    Decision,
    decision_id=st.builds(new_id),
    episode_id=st.none() | texts,
    agent_id=texts,
    policy=texts,
    algorithm=st.none() | texts,
    num_updates=st.none() | st.integers(-(2**63) + 1, 2**63 - 1),
    context=objects,
    actions=st.lists(texts),
    mask=st.none() | st.lists(st.booleans()),
    action=texts,
    propensity=st.none() | finite,
    probabilities=st.none() | st.lists(st.floats(0, 1).map(lambda number: number + 0.0)),
    action_features=st.none() | st.lists(objects, max_size=3),
    vector=st.none() | st.binary(max_size=40),
    mode=st.none() | st.sampled_from(DecisionMode),
    is_deferred=st.booleans(),
    created_at=moments,
)
rewards = st.builds(
    Reward,
    reward_id=st.builds(new_id),
    episode_id=st.none(),
    name=texts,
    value=st.none() | finite,
    weight=finite,
    created_at=moments,
)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def long_store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('mapping')}/learnloop.db"
    else:
        server = request.getfixturevalue("postgres_server")
        server.execute("CREATE DATABASE mapping TEMPLATE learnloop_template")
        url = server.url("mapping")
    with Store.open(url) as store:
        yield store


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(batch=st.lists(spans | decisions | rewards, min_size=1, max_size=6))
def test_any_record_comes_back(long_store: Store, batch: list[Any]) -> None:
    long_store.write(batch)
    for record in batch:
        found = long_store.get(type(record), getattr(record, record.__struct_fields__[0]))
        assert found == record
        assert list(map(type, _leaves(found))) == list(map(type, _leaves(record)))


def _leaves(record: Record) -> Iterator[object]:
    for name in record.__struct_fields__:
        value = getattr(record, name)
        yield value.replace(tzinfo=None) if isinstance(value, datetime) else value


def test_a_batch_of_columns_that_are_all_none(long_store: Store) -> None:
    batch = [Reward(reward_id=new_id(), episode_id=None, name="n", value=None, created_at=T0 + timedelta(1))] * 2
    long_store.write(batch)
    assert long_store.get(Reward, batch[0].reward_id) == batch[0]
