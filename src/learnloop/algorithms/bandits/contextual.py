"""The contextual bandit: acts, and learns from each reward as it comes, in any order.

Rewards may have any offset and scale. The first rewards are learned while actions are drawn uniformly; they are kept
as they came, then the encoder and the mean and standard deviation of the rewards are fitted on them and frozen, and
they are learned. So acting and learning always see the same numbers, and an action without a reward is predicted to
earn the mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from learnloop.algorithms.bandits.actions import allowed_actions, check_actions
from learnloop.algorithms.bandits.linear_policy import LinearPolicy
from learnloop.algorithms.bandits.linucb import LinUCBConfig, linucb_probabilities
from learnloop.algorithms.bandits.ridge import Ridge
from learnloop.algorithms.bandits.squarecb import SquareCBConfig, squarecb_probabilities
from learnloop.algorithms.bandits.thompson import ThompsonConfig, thompson_probabilities
from learnloop.core.arrays import F64, Bools, Indices
from learnloop.core.errors import CorruptError, UsageError, one_of
from learnloop.core.protocols import Context, PolicyArtifact, Sample
from learnloop.core.rewards import check_reward
from learnloop.nn.encoders.context_encoder import ContextEncoder
from learnloop.nn.encoders.context_schema import ContextSchema

AnyConfig = SquareCBConfig | LinUCBConfig | ThompsonConfig

MAX_WARM_UP = 10
"""The warm-up ends after this many times ``num_warm_up`` rewards, even if they are all equal."""


class _Algorithm(NamedTuple):
    config: type[AnyConfig]
    probabilities: Callable[..., F64]
    needs_widths: bool


_ALGORITHMS: Mapping[str, _Algorithm] = {
    "squarecb": _Algorithm(SquareCBConfig, squarecb_probabilities, needs_widths=False),
    "linucb": _Algorithm(LinUCBConfig, linucb_probabilities, needs_widths=True),
    "thompson": _Algorithm(ThompsonConfig, thompson_probabilities, needs_widths=True),
}

CHUNK = 4096
"""How many samples ``learn_many`` encodes at once."""


def build_config(name: str, **options: Any) -> AnyConfig:
    """Returns the config of the algorithm called ``name``.

    Raises:
        UsageError: there is no such algorithm, or it has no such option, or an option's value is not allowed.
    """
    algorithm = _ALGORITHMS.get(name)
    if algorithm is None:
        raise UsageError(f"no algorithm is called {name!r}; known are {one_of(_ALGORITHMS)}")
    try:
        return msgspec.convert(options, algorithm.config)
    except msgspec.ValidationError as error:
        fields = one_of(algorithm.config.__struct_fields__)
        raise UsageError(f"the options {options} do not fit {name!r}: {error}; its options are {fields}") from error


class Prepared(NamedTuple):
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
    config: AnyConfig
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

    def __init__(self, config: AnyConfig, *, schema: ContextSchema | None = None) -> None:
        self.config = config
        self.schema = schema
        self.num_updates = 0
        self._algorithm = _ALGORITHMS[self.tag]
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
        return str(type(self.config).__struct_config__.tag)

    @property
    def is_fitted(self) -> bool:
        """Whether the warm-up is over: the encoder and the scale of the rewards are fitted."""
        return self._encoder is not None

    def prepare(self, context: Context) -> Prepared:
        """Returns ``context``, checked, and encoded once the encoder is fitted. It can be learned from at any time.

        Raises:
            ContextError: a feature is missing or unknown, or a value is not of its kind.
        """
        if self._encoder is not None:
            return Prepared(context, self._encoder.encode(context))
        if self.schema is None:
            self.schema = ContextSchema.infer(context)
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
        widths = self._ridge.widths(x)[rows] if self._algorithm.needs_widths else None
        return self._algorithm.probabilities(means, widths, allowed, self.num_updates, self.config, rng)

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
        if len(self._warm_up) >= self.config.num_warm_up:
            self._fit()

    def learn_many(self, samples: Sequence[Sample]) -> None:
        """Learns from logged samples in their order: what ``learn`` would, but for rounding, in less time.

        Raises:
            ContextError: a context does not fit the others.
            RewardError: a reward is not a finite number.
        """
        position = 0
        while not self.is_fitted and position < len(samples):
            sample = samples[position]
            self.learn(self.prepare(sample.context), sample.action, sample.reward)
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

    def policy(self) -> LinearPolicy:
        """Returns a frozen copy of what was learned, which acts greedily; uniform while the warm-up lasts."""
        if self._ridge is None:
            return LinearPolicy(None, [], np.zeros((0, 0)), self.tag)
        return LinearPolicy(self._encoder, self._ridge.actions, self._ridge.weights[1:], self.tag)

    def to_artifact(self) -> PolicyArtifact:
        """Returns the whole state; a bandit made from it goes on as this one would, bit for bit."""
        state = _State(
            config=self.config,
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
        try:
            state = msgspec.convert(artifact.config, _State)
        except (msgspec.ValidationError, UsageError) as error:
            raise CorruptError(f"a stored bandit cannot be read: {error}") from error
        bandit = cls(state.config, schema=state.schema)
        bandit.num_updates = state.num_updates
        bandit._warm_up = state.warm_up
        bandit._offset, bandit._scale = state.offset, state.scale
        if state.encoder is not None:
            bandit._encoder = ContextEncoder.from_config(state.encoder)
            dimension = bandit._encoder.dimension
            bandit._ridge = Ridge.from_tensors(dimension, state.config.l2_weight, state.actions, artifact.tensors)
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
        return self._encoder.encode(prepared.context)

    def _fit(self) -> None:
        """Ends the warm-up, unless all rewards are equal yet: fits encoder and scale, and learns what was kept."""
        rewards = np.array([learned.reward for learned in self._warm_up])
        offset, spread = _offset_and_spread(rewards)
        if spread == 0.0 and len(rewards) < MAX_WARM_UP * self.config.num_warm_up:
            return
        contexts = [learned.context for learned in self._warm_up]
        schema = ContextSchema.infer(contexts[0]) if self.schema is None else self.schema
        self._encoder = ContextEncoder.fit(schema, contexts, interactions=self.config.interactions)
        self.schema = self._encoder.schema
        self._offset, self._scale = offset, spread or 1.0
        self._ridge = Ridge(self._encoder.dimension, self.config.l2_weight)
        for learned, reward in zip(self._warm_up, (rewards - self._offset) / self._scale, strict=True):
            self._ridge.update(learned.action, self._encoder.encode(learned.context), float(reward))
        self._warm_up = []

    def _learn_chunk(self, samples: Sequence[Sample]) -> None:
        if self._encoder is None or self._ridge is None:
            raise UsageError("samples cannot be encoded before the warm-up is over")
        inputs = np.empty((len(samples), self._encoder.dimension))
        positions: dict[str, list[int]] = {}
        for position, sample in enumerate(samples):
            inputs[position] = self._encoder.encode(sample.context)
            positions.setdefault(sample.action, []).append(position)
        rewards = (np.array([check_reward(sample.reward) for sample in samples]) - self._offset) / self._scale
        for action, rows in positions.items():
            self._ridge.update_many(action, inputs[rows], rewards[rows])
        self.num_updates += len(samples)


def _offset_and_spread(rewards: F64) -> tuple[float, float]:
    """Returns mean and standard deviation of ``rewards``; the latter is 0 where they differ by rounding only."""
    peak = float(np.abs(rewards).max()) or 1.0
    spread = float(np.std(rewards / peak))
    return float(np.mean(rewards / peak)) * peak, spread * peak if spread > 1e-9 else 0.0


class BanditTrainer:
    """A trainer that learns from logged samples as a fresh bandit would that saw them in their order.

    Attributes:
        config: how the bandit learns; how it explores does not matter here.
    """

    def __init__(self, config: AnyConfig, *, schema: ContextSchema | None = None) -> None:
        self.config = config
        self._schema = schema

    def train(self, samples: Sequence[Sample], seed: int) -> LinearPolicy:
        """Returns the greedy policy learned from ``samples``. ``seed`` is not used: nothing here is random.

        The encoder and the scale of the rewards are fitted on the warm-up's samples, as when learning online. With
        fewer samples than the warm-up needs they are fitted on all of them. If all rewards are equal, there is
        nothing to learn and the policy may be uniform.

        Raises:
            UsageError: there are no samples.
            ContextError: a context does not fit the others.
            RewardError: a reward is not a finite number.
        """
        if not samples:
            raise UsageError("a policy is trained on 0 samples; give at least 1")
        num_warm_up = min(self.config.num_warm_up, len(samples))
        bandit = ContextualBandit(msgspec.structs.replace(self.config, num_warm_up=num_warm_up), schema=self._schema)
        bandit.learn_many(samples)
        return bandit.policy()
