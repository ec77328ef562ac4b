"""Users whose tastes are known, who decide with the policy that is served and whose rewards go into a store."""

from __future__ import annotations

from datetime import timedelta

import numpy as np

from learnloop.algorithms import load_policy
from learnloop.algorithms.bandits.exploration import explore
from learnloop.core.arrays import F64
from learnloop.core.clock import now
from learnloop.core.records import Agent, Decision, DecisionMode, Record, Reward
from learnloop.decisions.learning.learner import Learner
from learnloop.decisions.service.settings import DecisionSettings, VersionedSettings
from learnloop.registry import Registry
from learnloop.store import Store

ACTIONS = ["left", "right"]
SEGMENTS = ["s0", "s1", "s2"]
NAME = "bot.p"


class Population:
    """Each segment likes one action, which earns 1 with a probability of ``high``, and any other with ``low``."""

    def __init__(self, store: Store, registry: Registry, settings: DecisionSettings, seed: int) -> None:
        self.store, self.registry, self.settings = store, registry, settings
        self.learner = Learner(store, registry)
        self.rng = np.random.default_rng(seed)
        self.likes = {"s0": "left", "s1": "right", "s2": "left"}
        self.high, self.low = 0.8, 0.2
        self.num_ids = 0
        store.write([Agent(agent_id="bot", created_at=now())])

    def _id(self) -> str:
        """Returns the next id; they come in order, since which decisions are held out hangs on their ids."""
        self.num_ids += 1
        return f"01900000-0000-7000-8000-{self.num_ids:012x}"

    def switch(self) -> None:
        """All tastes change."""
        self.likes = {segment: ACTIONS[1 - ACTIONS.index(action)] for segment, action in self.likes.items()}

    def update(self) -> object:
        """Asks the learner for an update."""
        return self.learner.update("bot", "p", VersionedSettings(1, self.settings))

    def live(self, number: int, *, shuffled: bool = False) -> None:
        """Lets ``number`` users decide with what is served; rewards that are shuffled say nothing of the action."""
        chosen = {segment: self._distribution(segment) for segment in SEGMENTS}
        records: list[Record] = []
        for _ in range(number):
            segment = SEGMENTS[int(self.rng.integers(3))]
            at = int(self.rng.choice(2, p=chosen[segment]))
            chance = self.high if self.likes[segment] == ACTIONS[at] else self.low
            chance = 0.5 if shuffled else chance
            decision_id, moment = self._id(), now()
            records.append(
                Decision(
                    decision_id=decision_id,
                    episode_id=None,
                    agent_id="bot",
                    policy="p",
                    algorithm="joint",
                    context={"segment": segment},
                    actions=ACTIONS,
                    action=ACTIONS[at],
                    propensity=float(chosen[segment][at]),
                    probabilities=chosen[segment].tolist(),
                    mode=DecisionMode.LEARNING,
                    created_at=moment,
                )
            )
            earned = float(self.rng.random() < chance)
            records.append(
                Reward(
                    reward_id=self._id(), episode_id=None, decision_id=decision_id, name="r", value=earned,
                    created_at=moment + timedelta(milliseconds=1),
                )
            )  # fmt: skip
        self.store.write(records)

    def value(self) -> float:
        """Returns what the greedy choice of what is served earns, as a share of the most that can be."""
        champion = self.registry.aliases(NAME).get("champion")
        if champion is None:
            return (self.high + self.low) / 2 / self.high
        policy = load_policy(self.registry.load(champion))
        earned = 0.0
        for segment in SEGMENTS:
            greedy = policy.probabilities({"segment": segment}, ACTIONS)
            likes = ACTIONS.index(self.likes[segment])
            earned += float(greedy[likes] * self.high + greedy[1 - likes] * self.low) / len(SEGMENTS)
        return earned / self.high

    def _distribution(self, segment: str) -> F64:
        champion = self.registry.aliases(NAME).get("champion")
        scores, num_updates = np.zeros(2), 0
        if champion is None:
            return np.full(2, 0.5)
        policy = load_policy(self.registry.load(champion))
        scores, num_updates = policy.scores({"segment": segment}, ACTIONS), policy.num_updates  # type: ignore[attr-defined]
        return explore(scores, np.ones(2, dtype=bool), num_updates, self.settings.exploration, self.rng)
