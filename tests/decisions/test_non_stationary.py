"""Issue 7: a policy recovers when the world changes, and rewards that say nothing never change what is served."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from learnloop.algorithms.bandits.config import ExplorationConfig
from learnloop.algorithms.hashed.config import HashedConfig
from learnloop.core.records import LearningUpdate, Verdict
from learnloop.decisions.service.settings import DecisionSettings, LearningSettings
from learnloop.registry import Registry
from learnloop.store import Store
from tests.decisions.population import NAME, Population
from tests.repeats import repeats

EXPLORATION = ExplorationConfig(algorithm="epsilon_greedy", epsilon=0.3)
BATCH = 500
RECOVERY = 2_500
"""Decisions after the change within which the policy is back at 90 % of the new optimum: two actions, of which the one
that is not preferred is tried in 15 % of the decisions, half of which are held out."""
SETTINGS = DecisionSettings(
    exploration=EXPLORATION,
    model=HashedConfig(num_bits=8, num_passes=2),
    learning=LearningSettings(min_new_rewards=BATCH, held_out_share=0.5, window=8_000),
)


@pytest.fixture
def places(tmp_path: Path) -> Iterator[tuple[Store, Registry]]:
    with Store.open(f"sqlite:///{tmp_path}/learnloop.db") as store:
        yield store, Registry(store, tmp_path / "policies")


@pytest.mark.slow
@pytest.mark.parametrize("seed", repeats([0, 1, 2]))
def test_it_recovers_after_a_change(places: tuple[Store, Registry], seed: int) -> None:
    """At 90 % of the optimum before, far below it right after the change, and back within ``RECOVERY`` decisions."""
    users = Population(*places, SETTINGS, seed)
    for _ in range(4):
        users.live(BATCH)
        users.update()
    assert users.value() >= 0.9
    users.switch()
    assert users.value() < 0.5
    needed = 0
    while users.value() < 0.9 and needed < RECOVERY:
        users.live(BATCH)
        needed += BATCH
        users.update()
    assert users.value() >= 0.9, needed
    moves = users.registry.alias_history(NAME)
    assert sum(move.alias == "champion" for move in moves) <= 4


@pytest.mark.slow
@pytest.mark.parametrize("num_updates", repeats([4, 12]))
def test_rewards_that_say_nothing_change_nothing(places: tuple[Store, Registry], num_updates: int) -> None:
    """Updates on rewards without a signal, before and after something was learned: none is swapped in."""
    learning = msgspec.structs.replace(SETTINGS.learning, window=1_000)
    users = Population(*places, msgspec.structs.replace(SETTINGS, learning=learning), 3)
    for _ in range(num_updates):
        users.live(BATCH, shuffled=True)
        users.update()
    assert users.registry.alias_history(NAME) == []
    for _ in range(2):
        users.live(BATCH)
        users.update()
    moves = users.registry.alias_history(NAME)
    assert moves
    for _ in range(num_updates):
        users.live(BATCH, shuffled=True)
        users.update()
    assert users.registry.alias_history(NAME) == moves
    updates = list(users.store.iterate(LearningUpdate))
    assert len(updates) == 2 * num_updates + 2
    assert {each.error for each in updates} == {None}
    assert sum(each.verdict is Verdict.LEARNED for each in updates) == 1
