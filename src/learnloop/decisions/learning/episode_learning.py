"""Candidates of policies that learn over episodes with PPO, from the log of what they and earlier versions chose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from learnloop.algorithms.base.states import put_parameters
from learnloop.algorithms.building import configure, translate
from learnloop.algorithms.on_policy.advantages import gae, vtrace
from learnloop.algorithms.on_policy.ppo import PPOConfig
from learnloop.algorithms.on_policy.rollout import Batch
from learnloop.algorithms.on_policy.segment_ppo import TOLERANCE, SegmentPPO, is_readable
from learnloop.algorithms.policies.named_actions import TAG as NAMED_ACTIONS
from learnloop.algorithms.policies.named_actions import NamedActionsPolicy, action_rows
from learnloop.core.arrays import F32, F64, I64, Bools, Indices
from learnloop.core.errors import CorruptError, UsageError
from learnloop.core.protocols import Policy, Sample
from learnloop.core.records import Decision
from learnloop.decisions.learning.candidates import Candidate
from learnloop.decisions.learning.episode_log import Situation, read_episodes
from learnloop.decisions.service.settings import DecisionSettings, NetworkConfig
from learnloop.evaluation.overlap import Overlap, overlap_of
from learnloop.evaluation.policies import logged_probabilities
from learnloop.evaluation.splitting import split_by_unit
from learnloop.registry import Registry
from learnloop.registry.references import CHAMPION
from learnloop.store import Store
from learnloop.training.presets import PRESETS

NUM_PASSES = 10
"""How often a training goes through the log; from the second time on the policy has moved away from it, which the
importance weights answer for."""
_MOMENTS = ("first_moment", "second_moment")


class _Logged(NamedTuple):
    """Steps of segments, one after the other; arrays have the shape ``(num_steps, ...)``."""

    observations: F32
    actions: I64
    masks: Bools
    log_probs: F32
    rewards: F32
    ended: Bools
    segments: Indices
    """The number of its segment."""
    cut: Indices
    """The rows that are bootstrapped."""
    next_observations: F32
    """Shape ``(len(cut), size)``."""


class LogPPO(SegmentPPO):
    """PPO over logged segments."""

    def learn_logged(self, logged: _Logged) -> int:
        """Updates once; returns how many steps were this very policy's.

        Segments that this policy chose are learned from as PPO does. In all others each action is weighted by how
        likely this policy would have chosen it, cut at 1, and values are corrected by V-trace: nothing is learned as if
        this policy had acted. Source: as of ``OnPolicyAlgorithm.learn_from``.
        """
        outputs = self.network.predict(logged.observations).copy()
        current = self.distribution.evaluate(outputs[:, :-1], logged.actions, logged.masks).log_probs.copy()
        values = outputs[:, -1].copy()
        ratios = current - logged.log_probs
        foreign = np.zeros(int(logged.segments[-1]) + 1, dtype=np.bool_)
        np.logical_or.at(foreign, logged.segments, np.abs(ratios) > TOLERANCE)
        is_own = ~foreign[logged.segments]
        ahead = np.zeros_like(values)
        ahead[:-1] = values[1:]
        ahead[logged.ended] = 0
        if len(logged.cut):
            ahead[logged.cut] = self._values(logged.next_observations)
        gamma = self.config.gamma
        lane = (logged.rewards[:, None], values[:, None], ahead[:, None], logged.ended[:, None])
        advantages = gae(*lane, gamma=gamma, gae_lambda=self.config.gae_lambda)[:, 0]
        corrected = vtrace(*lane, ratios[:, None], gamma=gamma)
        self._learn_batch(
            Batch(
                observations=logged.observations,
                actions=logged.actions,
                log_probs=np.where(is_own, logged.log_probs, current),
                values=values,
                advantages=np.where(is_own, advantages, corrected.advantages[:, 0]),
                returns=np.where(is_own, advantages + values, corrected.targets[:, 0]),
                masks=logged.masks,
                dropout=None,
                weights=np.where(is_own, np.float32(1), corrected.weights[:, 0]),
            )
        )
        return int(np.count_nonzero(is_own))

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
            logged = self._logged(samples)
            for number in range(NUM_PASSES):
                count = ppo.learn_logged(logged)
                num_own = num_own if number else count
        taken = ppo.metrics.take()
        self.diagnostics = {**taken, "train/num_own_steps": float(num_own)}
        return NamedActionsPolicy(ppo.policy(), self._network.actions, ppo.training_state())

    def _logged(self, samples: Sequence[Sample]) -> _Logged:
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
        return _Logged(
            observations=observations,
            actions=actions,
            masks=masks,
            log_probs=np.log(np.array(propensities, dtype=np.float64)).astype(np.float32),
            rewards=np.array([sample.reward for sample in samples], dtype=np.float32),
            ended=ended,
            segments=np.concatenate([[0], np.cumsum(ended[:-1])]).astype(np.intp),
            cut=np.array(cut, dtype=np.intp),
            next_observations=np.array(following, dtype=np.float32).reshape(len(cut), size),
        )


class LoggedEpisodes:
    """Held-out episodes of which only what was done is known: a per-decision importance-sampled estimate.

    The value of an episode is sum_t [w_{t-1} c_t + w_t (r_t - c_t)] with w_t = prod_{k<=t} pi(a_k | x_k) / p_k and a
    constant model c_t of the reward of the t-th step: unbiased for any c that does not come from these episodes.

    Source: Jiang & Li 2016, Doubly Robust Off-policy Value Evaluation for Reinforcement Learning, equation 10, with a
    model that is constant in each step and no discount.
    """

    def __init__(self, samples: Sequence[Sample], reward_models: Sequence[float]) -> None:
        """Keeps the log.

        Args:
            samples: steps with propensities, episode by episode, none of them used for training.
            reward_models: c_t by the number of the step, in practice means of the training samples.
        """
        self._samples = tuple(samples)
        self._units = tuple(dict.fromkeys(sample.unit for sample in samples))
        rows = {unit: row for row, unit in enumerate(self._units)}
        self._rows = np.array([rows[sample.unit] for sample in samples], dtype=np.intp)
        self._steps = step_numbers(samples)
        length = int(self._steps.max(initial=-1)) + 1
        models = np.zeros(length)
        models[: len(reward_models)] = list(reward_models)[:length]
        self._models = models
        self._propensities = np.array([sample.propensity for sample in samples], dtype=np.float64)
        self._rewards = np.array([sample.reward for sample in samples], dtype=np.float64)

    @property
    def units(self) -> Sequence[str]:
        """The episodes, in the order of their first step."""
        return self._units

    def rewards(self, policy: Policy) -> F64:
        """Returns the estimate of what ``policy`` earns in each episode, shape ``(num_units,)``.

        Raises:
            UsageError: the policy does not give a distribution over the allowed actions.
        """
        weights = self._weights(policy)
        before = np.ones_like(weights)
        before[1:] = np.where(self._steps[1:] > 0, weights[:-1], 1.0)
        models = self._models[self._steps]
        values = before * models + weights * (self._rewards - models)
        totals: F64 = np.bincount(self._rows, values, minlength=len(self._units)).astype(np.float64)
        return totals

    def overlap(self, policy: Policy) -> Overlap:
        """Returns how much these episodes say about ``policy``: their weights are those of whole episodes."""
        last = np.append(self._steps[1:] == 0, np.ones(min(1, len(self._steps)), dtype=np.bool_))
        weights = self._weights(policy)[last]
        return overlap_of(weights, weights - 1.0)

    def _weights(self, policy: Policy) -> F64:
        """Returns w_t of each step, shape ``(num_steps,)``."""
        if not self._samples:
            return np.zeros(0)
        weights = logged_probabilities(policy, self._samples) / self._propensities
        for row in np.flatnonzero(self._steps > 0).tolist():
            weights[row] *= weights[row - 1]
        return weights


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


def step_numbers(samples: Sequence[Sample]) -> Indices:
    """Returns the number of each step within its episode, from 0, shape ``(num_samples,)``."""
    numbers = np.zeros(len(samples), dtype=np.intp)
    for row in range(1, len(samples)):
        if samples[row].unit == samples[row - 1].unit:
            numbers[row] = numbers[row - 1] + 1
    return numbers


def step_means(samples: Sequence[Sample]) -> list[float]:
    """Returns the mean reward of each step of episodes by its number."""
    if not samples:
        return []
    numbers = step_numbers(samples)
    sums = np.bincount(numbers, [sample.reward for sample in samples])
    means: list[float] = (sums / np.bincount(numbers)).tolist()
    return means


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
