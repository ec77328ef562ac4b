"""One decision in this process, through the network 1536-256-256-128-5: what is asked, chosen and made a record."""

from __future__ import annotations

import statistics
import time

import numpy as np

from learnloop.algorithms.on_policy.episode_trainer import EpisodeTrainer
from learnloop.decisions.learning.episode_candidates import network_config
from learnloop.decisions.service.request import DecisionRequest
from learnloop.decisions.service.settings import DecisionSettings, NetworkConfig
from learnloop.decisions.service.snapshot import PolicySnapshot

MUTATIONS = ("try-catch-style", "context-reduction", "expansion", "constraint-addition", "task-decomposition")
_WARM = 200


def median_microseconds(number: int) -> float:
    """Returns the median time of ``number`` decisions, each about another vector, in microseconds."""
    network = NetworkConfig(actions=MUTATIONS)
    policy = EpisodeTrainer(network_config(network), network.input_dim, MUTATIONS).train([], seed=0)
    settings = DecisionSettings(model=network)
    served = PolicySnapshot("agent", "policy", 1, settings, "version", "named_actions", policy, None)
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(64, network.input_dim)).astype(np.float32)
    times = []
    for turn in range(_WARM + number):
        asked = DecisionRequest(list(MUTATIONS), vector=vectors[turn % len(vectors)])
        began = time.perf_counter()
        served.decide(asked, rng)
        times.append(time.perf_counter() - began)
    return statistics.median(times[_WARM:]) * 1e6
