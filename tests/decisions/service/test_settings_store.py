"""Settings in the store: what was written before models said their kind is read, and so are policies without any."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from learnloop.core.ids import new_id
from learnloop.core.records import Agent, Decision, PolicySettings
from learnloop.decisions.service.settings import ONLINE, DecisionSettings, read_settings
from learnloop.decisions.service.settings_store import current, put_first
from learnloop.store import Store
from tests.waiting import PATIENCE_SECONDS

MOMENT = datetime(2026, 11, 1, tzinfo=UTC)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store.open(f"sqlite:///{tmp_path}/learnloop.db") as opened:
        yield opened


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ({"model": {"num_bits": 12}, "network": None}, {"model": {"kind": "hashed", "num_bits": 12}}),
        (
            {"model": {"num_bits": 12}, "network": {"actions": ["a", "b"], "input_dim": 3}, "mode": "frozen"},
            {"model": {"kind": "network", "actions": ["a", "b"], "input_dim": 3}, "mode": "frozen"},
        ),
        ({"exploration": {"epsilon": 0.2}}, {"exploration": {"epsilon": 0.2}}),
        ({"model": {"kind": "online"}}, {"model": {"kind": "online"}}),
    ],
)
def test_settings_of_before_models_had_kinds(store: Store, written: dict[str, Any], meant: dict[str, Any]) -> None:
    record = PolicySettings(
        policy_settings_id=new_id(), agent_id="a", policy="p", version=4, settings=written, created_at=MOMENT
    )
    store.write([Agent(agent_id="a", created_at=MOMENT), record])
    assert current(store, "a", "p") == (4, read_settings(meant))


def decision(algorithm: str | None, settings_version: int | None) -> Decision:
    return Decision(
        decision_id=new_id(),
        episode_id=None,
        agent_id="a",
        policy="p",
        algorithm=algorithm,
        settings_version=settings_version,
        context={},
        actions=["x"],
        action="x",
        propensity=1.0,
        created_at=MOMENT,
    )


@pytest.mark.parametrize(
    ("algorithm", "version", "online"),
    [
        ("squarecb", None, True),
        ("thompson", None, True),
        ("squarecb", 0, False),
        ("joint", 0, False),
        (None, None, False),
    ],
)
def test_a_policy_that_programs_used_before_settings_were_kept_is_online(
    store: Store, algorithm: str | None, version: int | None, online: bool
) -> None:
    store.write([Agent(agent_id="a", created_at=MOMENT), decision(algorithm, version)])
    assert current(store, "a", "p") == (0, ONLINE if online else DecisionSettings())


def test_of_two_who_ask_first_one_sets(store: Store) -> None:
    other = read_settings({"mode": "frozen"})
    first, second = put_first(store, "a", "p", ONLINE), put_first(store, "a", "p", other)
    assert first.result(PATIENCE_SECONDS) == second.result(PATIENCE_SECONDS) == current(store, "a", "p") == (1, ONLINE)
