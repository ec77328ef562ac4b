"""A world of ten actions in which what is served may become bad; decisions are made by the service's own policies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from learnloop.algorithms.bandits.config import ExplorationConfig
from learnloop.algorithms.hashed.config import HashedConfig
from learnloop.algorithms.hashed.trainer import HashedTrainer
from learnloop.core.clock import now
from learnloop.core.ids import new_id
from learnloop.core.protocols import Sample
from learnloop.core.records import Decision, PolicyVersion, Record, Reward, Verdict
from learnloop.decisions.learning.champion_watch import ChampionWatch
from learnloop.decisions.service.policies import Policies
from learnloop.decisions.service.request import DecisionRequest
from learnloop.decisions.service.settings import DecisionSettings, LearningSettings
from learnloop.decisions.service.settings_store import put
from learnloop.registry import Proof, Registry
from learnloop.store import Store

ACTIONS = [f"a{number}" for number in range(10)]
NAME = "bot.p"
MODEL = HashedConfig(num_bits=8, num_passes=2)
SETTINGS = DecisionSettings(
    exploration=ExplorationConfig(algorithm="epsilon_greedy", epsilon=0.1),
    model=MODEL,
    learning=LearningSettings(min_new_rewards=400),
)


class World:
    """Users of one policy: what each action earns may change, and so may what is told of it."""

    def __init__(self, store: Store, registry: Registry, settings: DecisionSettings = SETTINGS, seed: int = 0) -> None:
        self.store, self.registry = store, registry
        self.rng = np.random.default_rng(seed)
        self.policies = Policies(store, registry, seed=seed)
        self.watch = ChampionWatch(store, registry)
        self.earns = dict.fromkeys(ACTIONS, 0.4)
        self.fields: dict[str, Any] = {}
        put(store, "bot", "p", settings)

    def champion(self, action: str, number: int = 1) -> PolicyVersion:
        """Serves a version that always prefers one action."""
        samples = [
            Sample(f"u{row}", {}, ACTIONS, None, ACTIONS[row % 10], 0.1, float(ACTIONS[row % 10] == action))
            for row in range(20 * number)
        ]
        artifact = HashedTrainer(MODEL).train(samples, 0).to_artifact()
        proof = Proof(verdict=Verdict.LEARNED, reasons=["a test says so"])
        version = self.registry.register(NAME, artifact, proof, lineage={})
        self.registry.set_alias(NAME, "champion", version, actor="ann", reason="test")
        self.policies.refresh()
        return version

    def live(self, number: int, tell: Callable[[Decision, float], bool] = lambda made, reward: True) -> None:
        """Makes decisions of what is served now, and tells the rewards of those of which ``tell`` says so."""
        records: list[Record] = []
        for _ in range(number):
            (made,) = self.policies.decide("bot", "p", DecisionRequest(actions=ACTIONS, context={}))
            made = msgspec.structs.replace(made, **self.fields)
            records.append(made)
            reward = float(self.rng.random() < self.earns[made.action])
            if tell(made, reward):
                records.append(told(made, reward))
        self.store.write(records)

    def until_out(self, number: int, step: int = 20) -> int | None:
        """Lives on, looking each ``step`` decisions; returns after how many a champion was put out."""
        for passed in range(step, number + 1, step):
            self.live(step)
            if any(test.put_out_at is not None for test in self.watch.look()):
                self.policies.refresh()
                return passed
        return None

    def serving(self) -> PolicyVersion | None:
        return self.registry.aliases(NAME).get("champion")


def told(decision: Decision, value: float) -> Reward:
    return Reward(
        reward_id=new_id(), episode_id=None, decision_id=decision.decision_id, name="r", value=value, created_at=now()
    )
