"""Candidates of policies that learn over episodes with PPO, from the log of what they and earlier versions chose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from learnloop.algorithms.base.states import put_parameters
from learnloop.algorithms.building import configure, translate
from learnloop.algorithms.on_policy.ppo import PPOConfig
from learnloop.algorithms.on_policy.rollout import Steps
from learnloop.algorithms.on_policy.segment_ppo import SegmentPPO, is_readable
from learnloop.algorithms.policies.named_actions import TAG as NAMED_ACTIONS
from learnloop.algorithms.policies.named_actions import NamedActionsPolicy, action_rows
from learnloop.core.errors import CorruptError, UsageError
from learnloop.core.protocols import Sample
from learnloop.core.records import Decision
from learnloop.decisions.learning.candidates import Candidate
from learnloop.decisions.learning.episode_log import Situation, read_episodes
from learnloop.decisions.service.settings import DecisionSettings, NetworkConfig
from learnloop.evaluation.logged import LoggedEpisodes, step_means
from learnloop.evaluation.splitting import split_by_unit
from learnloop.registry import Registry
from learnloop.registry.references import CHAMPION
from learnloop.store import Store
from learnloop.training.presets import PRESETS

NUM_PASSES = 10
"""How often a training goes through the log; from the second time on the policy has moved away from it, which the
importance weights answer for."""
_MOMENTS = ("first_moment", "second_moment")


class LogPPO(SegmentPPO):
    """PPO over logged segments, which goes on from version to version."""

    def training_state(self) -> dict[str, NDArray[Any]]:
        """Returns what the training of the next version goes on from."""
        state = self.optimizer.state()
        figures = [float(state["unit"]), float(state["num_steps"]), float(self.num_updates)]
        moments = {name: state[name].copy() for name in _MOMENTS}
        return {"parameters": self.network.parameters.copy(), **moments, "figures": np.array(figures)}

    def go_on_from(self, training: Mapping[str, NDArray[Any]]) -> None:
        """Takes over what ``training_state`` returned.

        Raises:
            CorruptError: it is of another network.
        """
        try:
            unit, num_steps, num_updates = training["figures"].tolist()
            put_parameters(self.network, training["parameters"], "parameters")
            moments = {name: training[name] for name in _MOMENTS}
            figures = {"unit": np.array(unit), "num_steps": np.array(int(num_steps), dtype=np.int64)}
            self.optimizer.restore({**moments, **figures})
        except (KeyError, ValueError) as error:
            raise CorruptError(f"the training cannot go on from the version that is served: {error}") from error
        self.num_updates = int(num_updates)


class EpisodeTrainer:
    """Trains a network's policy on logged steps; ``core``'s ``Trainer``.

    Args:
        network: how it is built and learns.
        start: what an earlier training left (``NamedActionsPolicy.training``); None: it begins anew.

    Attributes:
        diagnostics: figures of the last training.
    """

    def __init__(self, network: NetworkConfig, start: Mapping[str, NDArray[Any]] | None = None) -> None:
        self.config = network_config(network)
        self.diagnostics: dict[str, float] = {}
        self._network = network
        self._rows = {name: row for row, name in enumerate(network.actions)}
        self._start = start

    def train(self, samples: Sequence[Sample], seed: int) -> NamedActionsPolicy:
        """Returns the policy that was learned from ``samples``, whose contexts are ``Situation``.

        Raises:
            UsageError: a sample has no propensity, or is no step of an episode.
            DivergedError: a number is not finite.
        """
        ppo = LogPPO(self.config, self._network.input_dim, len(self._network.actions), seed=seed)
        if self._start:
            ppo.go_on_from(self._start)
        num_own = 0
        if samples:
            steps = self._steps(samples)
            num_own = steps.size - ppo.learn_steps(steps).num_stale
            for _ in range(NUM_PASSES - 1):
                ppo.learn_steps(steps)
        taken = ppo.metrics.take()
        self.diagnostics = {**taken, "train/num_own_steps": float(num_own)}
        return NamedActionsPolicy(ppo.policy(), self._network.actions, ppo.training_state())

    def _steps(self, samples: Sequence[Sample]) -> Steps:
        count, size = len(samples), self._network.input_dim
        observations = np.empty((count, size), dtype=np.float32)
        masks = np.zeros((count, len(self._rows)), dtype=np.bool_)
        actions = np.empty(count, dtype=np.int64)
        ended = np.zeros(count, dtype=np.bool_)
        cut: list[int] = []
        following = []
        for row, sample in enumerate(samples):
            context = sample.context
            if not isinstance(context, Situation) or context.vector is None or context.vector.shape != (size,):
                raise UsageError(f"a sample of unit {sample.unit!r} is no step of an episode with {size} numbers")
            if sample.propensity is None or not 0 < sample.propensity <= 1:
                raise UsageError(f"a sample of unit {sample.unit!r} has the propensity {sample.propensity}")
            observations[row] = context.vector
            offered = action_rows(sample.actions, self._rows)
            masks[row, offered] = True if sample.mask is None else sample.mask
            actions[row] = self._rows[sample.action]
            ended[row] = context.is_last
            if context.next_vector is not None:
                cut.append(row)
                following.append(context.next_vector)
        propensities = [sample.propensity for sample in samples]
        return Steps(
            observations=observations,
            actions=actions,
            masks=masks,
            log_probs=np.log(np.array(propensities, dtype=np.float64)).astype(np.float32),
            rewards=np.array([sample.reward for sample in samples], dtype=np.float32),
            ended=ended,
            cut=np.array(cut, dtype=np.intp),
            next_observations=np.array(following, dtype=np.float32).reshape(len(cut), size),
        )


class EpisodeCandidates:
    """Makes candidates of policies whose settings have a network: from the weights of the version that is served."""

    def __init__(self, store: Store, registry: Registry) -> None:
        self._store = store
        self._registry = registry

    def make(self, agent_id: str, policy: str, settings: DecisionSettings, log_sequence: int) -> Candidate:
        """Returns the candidate of the newest decisions.

        Raises:
            UsageError: the settings have no network.
        """
        if settings.network is None:
            raise UsageError(f"{agent_id}.{policy} learns without a network; set model.kind to network")
        learning = settings.learning
        fits = partial(fits_network, settings.network)
        log = read_episodes(self._store, agent_id, policy, learning.window, log_sequence, fits)
        usable = [each for each in log.samples if each.propensity is not None]
        usable = usable if len(usable) == len(log.samples) else without_gaps(log.samples)
        split = split_by_unit(usable, learning.held_out_share)
        held_out = [sample for sample in split.held_out if sample.unit not in log.cut]
        start = self._start(agent_id, policy, settings.network)
        notes = []
        num_left_out = log.num_unknown + len(log.samples) - len(usable)
        if num_left_out:
            what = "known reward, propensity or end, or of another form than the network's"
            notes = [f"{num_left_out} decisions without a {what} were left out"]
        return Candidate(
            trainer=EpisodeTrainer(settings.network, start),
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

    def _start(self, agent_id: str, policy: str, network: NetworkConfig) -> dict[str, NDArray[Any]] | None:
        """Returns what the training of the champion left; None where there is none of this network."""
        champion = self._registry.aliases(f"{agent_id}.{policy}").get(CHAMPION)
        if champion is None or champion.algorithm != NAMED_ACTIONS:
            return None
        found = NamedActionsPolicy.from_artifact(self._registry.load(champion))
        ppo = LogPPO(network_config(network), network.input_dim, len(network.actions))
        is_same = found.actions == list(network.actions)
        parameters = found.training.get("parameters")
        if not is_same or parameters is None or parameters.shape != ppo.network.parameters.shape:
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
    given = translate("ppo", network.options)
    chosen = {**PRESETS["ppo", "prompt-mutation"].options, "net_arch": network.hidden, "dropout": 0.0}
    config = configure("ppo", {**chosen, **given})
    if not isinstance(config, PPOConfig):
        raise UsageError("model.options are those of PPO")
    if config.dropout or config.normalize_observations or config.normalize_rewards:
        raise UsageError("model.options: dropout and normalisation are not for logged decisions; leave them out")
    return config
