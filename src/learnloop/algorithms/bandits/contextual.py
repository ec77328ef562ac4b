"""The contextual bandit: acts, and learns from each reward as it comes, in any order.

Rewards may have any offset and scale. The first rewards are learned while actions are drawn uniformly; they are kept
as they came, then the encoder and the mean and standard deviation of the rewards are fitted on them and frozen, and
they are learned. So acting and learning always see the same numbers, and an action without a reward is predicted to
earn the mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from learnloop.algorithms.bandits.actions import allowed_actions, check_actions
from learnloop.algorithms.bandits.config import NEEDS_WIDTHS, BanditConfig, ExplorationConfig, OnlineConfig
from learnloop.algorithms.bandits.exploration import explore
from learnloop.algorithms.bandits.linear_policy import LinearPolicy
from learnloop.algorithms.bandits.ridge import Ridge
from learnloop.core.arrays import F64, Bools, Indices
from learnloop.core.decoding import convert_record
from learnloop.core.errors import ContextError, CorruptError, UsageError
from learnloop.core.protocols import Context, PolicyArtifact, Question, Sample
from learnloop.core.rewards import check_reward
from learnloop.nn.encoders.context_encoder import ContextEncoder
from learnloop.nn.encoders.context_schema import ContextSchema, flat_context

MAX_WARM_UP = 10
"""The warm-up ends after this many times ``num_warm_up`` rewards, even if they are all equal."""

CHUNK = 4096
"""How many samples ``learn_many`` encodes at once."""


class Prepared(msgspec.Struct, frozen=True, gc=False):
    """A context that was checked."""

    context: Context
    x: F64 | None
    """Its vector, shape ``(dimension,)``; None: the encoder was not fitted yet."""


class _Learned(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A reward of the warm-up."""

    context: dict[str, Any]
    action: str
    reward: float


class _State(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    model: OnlineConfig
    exploration: ExplorationConfig
    schema: ContextSchema | None
    num_updates: int
    warm_up: list[_Learned]
    encoder: dict[str, Any] | None
    offset: float
    scale: float
    actions: list[str]


class ContextualBandit:
    """A contextual bandit with a ridge regression for each action.

    Attributes:
        config: how it explores and learns.
        schema: the features of its contexts; None: not declared, and no context was seen yet.
        num_updates: how many rewards it has learned from.
    """

    def __init__(self, config: BanditConfig) -> None:
        self.config = config
        self.schema = config.model.schema
        self.num_updates = 0
        self._needs_widths = config.exploration.algorithm in NEEDS_WIDTHS
        self._is_guessed = False
        self._warm_up: list[_Learned] = []
        self._encoder: ContextEncoder | None = None
        self._ridge: Ridge | None = None
        self._offset = 0.0
        self._scale = 1.0
        self._actions: tuple[str, ...] | None = None
        self._rows: Indices = np.zeros(0, dtype=np.intp)
        self._all_allowed: Bools = np.zeros(0, dtype=np.bool_)
        self._num_rows = 0

    @property
    def tag(self) -> str:
        """The name of the algorithm, as ``build_config`` knows it."""
        return self.config.exploration.algorithm

    def explore_by(self, exploration: ExplorationConfig) -> None:
        """Explores by another config from now on; what was learned does not depend on it."""
        self.config = self.config._replace(exploration=exploration)
        self._needs_widths = exploration.algorithm in NEEDS_WIDTHS

    @property
    def is_fitted(self) -> bool:
        """Whether the warm-up is over: the encoder and the scale of the rewards are fitted."""
        return self._encoder is not None

    def prepare(self, context: Context, *, strict: bool = True) -> Prepared:
        """Returns ``context``, checked, and encoded once the encoder is fitted. It can be learned from at any time.

        Args:
            context: as it was given; features of nested objects have dotted names.
            strict: False: what the bandit cannot read of it is left out.

        Raises:
            ContextError: a feature is missing or unknown, a value is not of its kind, or it comes with what only other
                models read.
        """
        if strict:
            check_readable(context)
        context = flat_context(context)
        if self._encoder is not None:
            encode = self._encoder.encode if strict else self._encoder.encode_known
            return Prepared(context, encode(context))
        if self.schema is None or (strict and self._is_guessed):
            self.schema = ContextSchema.infer(context, strict=strict)
            self._is_guessed = not strict  # a program's own context says more than what others have logged
        if not strict:
            return Prepared(self.schema.known_part(context), None)
        self.schema.validate(context)
        return Prepared(dict(context), None)  # a copy: the warm-up keeps it, and the caller may change theirs

    def probabilities(
        self,
        prepared: Prepared,
        actions: Sequence[str],
        mask: Sequence[bool] | None,
        rng: np.random.Generator,
    ) -> F64:
        """Returns the probability of each action, shape ``(len(actions),)``; 0 where ``mask`` is False.

        Raises:
            ActionError: ``actions`` or ``mask`` cannot be chosen from.
        """
        rows = self._lookup(actions)
        allowed = self._all_allowed if mask is None else allowed_actions(actions, mask)
        if self._ridge is None:
            uniform: F64 = allowed / np.count_nonzero(allowed)
            return uniform
        x = self._vector(prepared)
        means = self._ridge.means(x)[rows]
        widths = self._ridge.widths(x)[rows] if self._needs_widths else None
        return explore(means, allowed, self.num_updates, self.config.exploration, rng, widths)

    def preferred(self, prepared: Prepared, actions: Sequence[str], mask: Sequence[bool] | None) -> int | None:
        """Returns the index of the allowed action that is predicted to earn most; None while the warm-up lasts.

        Raises:
            ActionError: ``actions`` or ``mask`` cannot be chosen from.
        """
        rows = self._lookup(actions)
        if self._ridge is None:
            return None
        allowed = self._all_allowed if mask is None else allowed_actions(actions, mask)
        means = self._ridge.means(self._vector(prepared))[rows]
        return int(np.where(allowed, means, -np.inf).argmax())

    def learn(self, prepared: Prepared, action: str, reward: float) -> None:
        """Learns that ``action`` earned ``reward`` in the context ``prepared``.

        Raises:
            RewardError: ``reward`` is not a finite number.
        """
        reward = check_reward(reward)
        self.num_updates += 1
        if self._ridge is not None:
            self._ridge.update(action, self._vector(prepared), (reward - self._offset) / self._scale)
            return
        self._warm_up.append(_Learned(context=dict(prepared.context), action=action, reward=reward))
        if len(self._warm_up) >= self.config.model.num_warm_up:
            self._fit()

    def learn_many(self, samples: Sequence[Sample]) -> None:
        """Learns from logged samples in their order: what ``learn`` would, but for rounding, in less time.

        What the bandit cannot read of a logged context is left out.

        Raises:
            RewardError: a reward is not a finite number.
        """
        position = 0
        while not self.is_fitted and position < len(samples):
            sample = samples[position]
            self.learn(self.prepare(sample.context, strict=False), sample.action, sample.reward)
            position += 1
        for start in range(position, len(samples), CHUNK):
            self._learn_chunk(samples[start : start + CHUNK])

    def correct(self, prepared: Prepared, action: str, delta: float) -> None:
        """Adds ``delta`` to a reward that ``action`` earned in the context ``prepared`` and that was learned before.

        Raises:
            RewardError: ``delta`` is not a finite number.
            UsageError: no such reward was learned.
        """
        delta = check_reward(delta)
        if self._ridge is not None:
            self._ridge.correct(action, self._vector(prepared), delta / self._scale)
            return
        for learned in reversed(self._warm_up):
            if learned.action == action and learned.context == prepared.context:
                learned.reward += delta
                return
        raise UsageError(f"no reward of {action!r} in the context {prepared.context} was learned; learn it first")

    def policy(self, *, strict: bool = True) -> LinearPolicy:
        """Returns a frozen copy of what was learned, which acts greedily; uniform while the warm-up lasts.

        Args:
            strict: whether it refuses contexts that do not fit; see ``LinearPolicy``.
        """
        if self._ridge is None:
            return LinearPolicy(None, [], np.zeros((0, 0)), self.tag, strict=strict)
        return LinearPolicy(self._encoder, self._ridge.actions, self._ridge.weights[1:], self.tag, strict=strict)

    def to_artifact(self) -> PolicyArtifact:
        """Returns the whole state; a bandit made from it goes on as this one would, bit for bit."""
        state = _State(
            model=self.config.model,
            exploration=self.config.exploration,
            schema=self.schema,
            num_updates=self.num_updates,
            warm_up=self._warm_up,
            encoder=None if self._encoder is None else self._encoder.to_config(),
            offset=self._offset,
            scale=self._scale,
            actions=[] if self._ridge is None else self._ridge.actions,
        )
        tensors = {} if self._ridge is None else self._ridge.to_tensors()
        return PolicyArtifact(self.tag, msgspec.to_builtins(state), tensors)

    @classmethod
    def from_artifact(cls, artifact: PolicyArtifact) -> ContextualBandit:
        """Returns the bandit that ``to_artifact`` described.

        Raises:
            CorruptError: the config or the arrays are not those of a bandit.
        """
        state = convert_record(_current(artifact.config), "a stored bandit cannot be read", _State, error=CorruptError)
        bandit = cls(BanditConfig(state.model, state.exploration))
        bandit.schema = state.schema
        bandit.num_updates = state.num_updates
        bandit._warm_up = state.warm_up
        bandit._offset, bandit._scale = state.offset, state.scale
        if state.encoder is not None:
            bandit._encoder = ContextEncoder.from_config(state.encoder)
            dimension = bandit._encoder.dimension
            bandit._ridge = Ridge.from_tensors(dimension, state.model.l2_weight, state.actions, artifact.tensors)
        return bandit

    def _lookup(self, actions: Sequence[str]) -> Indices:
        """Returns the ridge's row of each action; checks ``actions`` where they are not those of the last call."""
        num_rows = 0 if self._ridge is None else self._ridge.num_rows
        if num_rows != self._num_rows or tuple(actions) != self._actions:
            check_actions(actions)
            if self._ridge is not None:
                self._rows = self._ridge.rows(actions)
            self._all_allowed = allowed_actions(actions, None)
            self._actions, self._num_rows = tuple(actions), num_rows
        return self._rows

    def _vector(self, prepared: Prepared) -> F64:
        if prepared.x is not None:
            return prepared.x
        if self._encoder is None:
            raise UsageError("a context cannot be encoded before the warm-up is over")
        return self._encoder.encode_known(prepared.context)

    def _fit(self) -> None:
        """Ends the warm-up, unless all rewards are equal yet: fits encoder and scale, and learns what was kept."""
        rewards = np.array([learned.reward for learned in self._warm_up])
        offset, spread = _offset_and_spread(rewards)
        if spread == 0.0 and len(rewards) < MAX_WARM_UP * self.config.model.num_warm_up:
            return
        contexts = [learned.context for learned in self._warm_up]
        schema = ContextSchema.infer(contexts[0], strict=False) if self.schema is None else self.schema
        self._encoder = ContextEncoder.fit(schema, contexts, interactions=self.config.model.interactions, strict=False)
        self.schema = self._encoder.schema
        self._offset, self._scale = offset, spread or 1.0
        self._ridge = Ridge(self._encoder.dimension, self.config.model.l2_weight)
        for learned, reward in zip(self._warm_up, (rewards - self._offset) / self._scale, strict=True):
            self._ridge.update(learned.action, self._encoder.encode_known(learned.context), float(reward))
        self._warm_up = []

    def _learn_chunk(self, samples: Sequence[Sample]) -> None:
        if self._encoder is None or self._ridge is None:
            raise UsageError("samples cannot be encoded before the warm-up is over")
        inputs = np.empty((len(samples), self._encoder.dimension))
        positions: dict[str, list[int]] = {}
        for position, sample in enumerate(samples):
            inputs[position] = self._encoder.encode_known(flat_context(sample.context))
            positions.setdefault(sample.action, []).append(position)
        rewards = (np.array([check_reward(sample.reward) for sample in samples]) - self._offset) / self._scale
        for action, rows in positions.items():
            self._ridge.update_many(action, inputs[rows], rewards[rows])
        self.num_updates += len(samples)


def check_readable(context: Context) -> None:
    """Returns if a bandit can read all that comes with ``context``.

    Raises:
        ContextError: it comes with features of actions or a vector, which only other models read.
    """
    if isinstance(context, Question) and (context.action_features is not None or context.vector is not None):
        given = "a vector" if context.action_features is None else "features of actions"
        raise ContextError(
            f"the decision comes with {given}, but the policy's model is online, which reads the context and the names "
            "of the actions alone; set model.kind to hashed (or to network, for a vector)"
        )


def _current(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the config of a stored bandit as it is written now; earlier ones had one record for all of it."""
    if "config" not in config:
        return config
    mixed = dict(config["config"])
    learning = {name: mixed.pop(name) for name in ("num_warm_up", "l2_weight", "interactions") if name in mixed}
    rest = {name: value for name, value in config.items() if name not in ("config", "declared")}
    learning["features"] = config.get("declared")
    return {**rest, "model": learning, "exploration": mixed}


def _offset_and_spread(rewards: F64) -> tuple[float, float]:
    """Returns mean and standard deviation of ``rewards``; the latter is 0 where they differ by rounding only."""
    peak = float(np.abs(rewards).max()) or 1.0
    spread = float(np.std(rewards / peak))
    return float(np.mean(rewards / peak)) * peak, spread * peak if spread > 1e-9 else 0.0


class BanditTrainer:
    """A trainer that learns from logged samples as a fresh bandit would that saw them in their order.

    Attributes:
        config: how the bandit learns; how it explores does not matter here.
        strict: whether its policies refuse contexts that do not fit; see ``LinearPolicy``.
    """

    def __init__(self, config: OnlineConfig | None = None, *, strict: bool = True) -> None:
        self.config = config or OnlineConfig()
        self.strict = strict

    def train(self, samples: Sequence[Sample], seed: int) -> LinearPolicy:
        """Returns the greedy policy learned from ``samples``. ``seed`` is not used: nothing here is random.

        The encoder and the scale of the rewards are fitted on the warm-up's samples, as when learning online. With
        fewer samples than the warm-up needs they are fitted on all of them. If all rewards are equal, there is
        nothing to learn and the policy may be uniform.

        Raises:
            UsageError: there are no samples.
            RewardError: a reward is not a finite number.
        """
        if not samples:
            raise UsageError("a policy is trained on 0 samples; give at least 1")
        num_warm_up = min(self.config.num_warm_up, len(samples))
        model = msgspec.structs.replace(self.config, num_warm_up=num_warm_up)
        bandit = ContextualBandit(BanditConfig(model, ExplorationConfig()))
        bandit.learn_many(samples)
        return bandit.policy(strict=self.strict)
