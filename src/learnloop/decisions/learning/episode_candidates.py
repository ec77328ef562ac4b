"""Candidates of policies that learn over episodes with PPO, from the log of what they and earlier versions chose."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learnloop.algorithms.on_policy.episode_trainer import EpisodeTrainer
from learnloop.algorithms.on_policy.ppo import PPOConfig
from learnloop.algorithms.on_policy.segment_ppo import SegmentPPO, is_readable
from learnloop.algorithms.policies.named_actions import TAG as NAMED_ACTIONS
from learnloop.algorithms.policies.named_actions import NamedActionsPolicy
from learnloop.core.errors import UsageError
from learnloop.core.protocols import Sample
from learnloop.core.records import Decision
from learnloop.decisions.learning.candidates import Candidate
from learnloop.decisions.learning.episode_log import read_episodes
from learnloop.decisions.service.settings import DecisionSettings, NetworkConfig
from learnloop.evaluation.logged import LoggedEpisodes, step_means
from learnloop.evaluation.splitting import split_by_unit
from learnloop.registry import Registry
from learnloop.registry.references import CHAMPION
from learnloop.store import Store
from learnloop.training.presets import prompt_mutation_config


def episode_candidate(
    store: Store, registry: Registry, agent_id: str, policy: str, settings: DecisionSettings, log_sequence: int
) -> Candidate:
    """Returns the candidate of the newest decisions; it goes on from the weights of the version that is served.

    Raises:
        UsageError: the settings have no network.
    """
    network, learning = settings.network, settings.learning
    if network is None:
        raise UsageError(f"{agent_id}.{policy} learns without a network; set model.kind to network")
    log = read_episodes(store, agent_id, policy, learning.window, log_sequence, partial(fits_network, network))
    usable = without_gaps(log.samples)
    split = split_by_unit(usable, learning.held_out_share)
    held_out = [sample for sample in split.held_out if sample.unit not in log.cut]
    config = network_config(network)
    start = _served_training(registry, f"{agent_id}.{policy}", network, config)
    notes = []
    num_left_out = log.num_unknown + len(log.samples) - len(usable)
    if num_left_out:
        what = "known reward, propensity or end, or of another form than the network's"
        notes = [f"{num_left_out} decisions without a {what} were left out"]
    return Candidate(
        trainer=EpisodeTrainer(config, network.input_dim, network.actions, start),
        train=split.train,
        held_out=LoggedEpisodes(held_out, step_means(split.train)),
        num_held_out=len(held_out),
        metrics={"log/num_rewarded": float(len(usable)), "log/num_left_out": float(num_left_out)},
        lineage={
            "window": learning.window,
            "held_out": {"kind": "log", "share": learning.held_out_share},
            "goes_on": start is not None,
        },
        notes=notes,
    )


def _served_training(
    registry: Registry, name: str, network: NetworkConfig, config: PPOConfig
) -> dict[str, NDArray[Any]] | None:
    """Returns what the training of the champion left; None where no champion has this network."""
    champion = registry.aliases(name).get(CHAMPION)
    if champion is None or champion.algorithm != NAMED_ACTIONS:
        return None
    found = NamedActionsPolicy.from_artifact(registry.load(champion))
    parameters = found.training.get("parameters")
    wanted = SegmentPPO(config, network.input_dim, len(network.actions)).network.parameters.shape
    if found.actions != list(network.actions) or parameters is None or parameters.shape != wanted:
        return None
    return found.training


def fits_network(network: NetworkConfig, decision: Decision) -> bool:
    """Returns whether a network can learn from a decision: any client may send others until the first is served."""
    if decision.vector is None or len(decision.vector) != 4 * network.input_dim:
        return False
    return is_readable(np.frombuffer(decision.vector, dtype="<f4")) and set(decision.actions) <= set(network.actions)


def without_gaps(samples: Sequence[Sample]) -> list[Sample]:
    """Returns the samples of the units of which each sample has a propensity."""
    gaps = {sample.unit for sample in samples if sample.propensity is None}
    return [sample for sample in samples if sample.unit not in gaps]


def network_config(network: NetworkConfig) -> PPOConfig:
    """Returns PPO's hyper-parameters for a policy of the decision service: seed 1's, without dropout.

    What is served is the policy without dropout, and what is learned from is what was served.

    Raises:
        UsageError: an option is unknown or not allowed.
    """
    config = prompt_mutation_config("model.options", network.options, net_arch=network.hidden, dropout=0.0)
    if config.dropout:
        raise UsageError("model.options: dropout is not for logged decisions; leave it out")
    return config
