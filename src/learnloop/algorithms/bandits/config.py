"""How an online policy learns and how a policy explores, as data."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, get_args

import msgspec

from learnloop.core.checks import check_range
from learnloop.core.decoding import convert_record
from learnloop.core.errors import UsageError, one_of
from learnloop.nn.encoders.context_schema import ContextSchema, FeatureKind

ExplorationAlgorithm = Literal["squarecb", "linucb", "thompson", "epsilon_greedy", "softmax"]
NEEDS_WIDTHS = frozenset({"linucb", "thompson"})
"""Those that explore by how uncertain a prediction is, which only an online model knows."""
_MIN_FLOOR = 1e-6
_EPSILONS = {"squarecb": 0.0, "linucb": 0.02, "thompson": 0.01}
"""What a bandit by itself needs besides its algorithm; a policy draws more uniformly, to keep its log informative."""


class ExplorationConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a policy tries actions that it does not prefer. Predictions count in standard deviations of the reward."""

    algorithm: ExplorationAlgorithm = "squarecb"
    epsilon: float = 0.05
    """The share of decisions that is drawn uniformly from the allowed actions, whichever the algorithm. It keeps the
    log informative about policies that choose otherwise."""
    gamma_scale: float = 0.15
    """Of squarecb: gamma is ``gamma_scale`` x t ^ ``gamma_exponent`` after t learned rewards (Vowpal Wabbit's
    schedule); larger explores less."""
    gamma_exponent: float = 0.85
    """See ``gamma_scale``. The paper's theorem 1 has a constant of the order of the square root of the horizon."""
    alpha: float = 1.0
    """Of linucb: how many standard errors of the prediction are added to it."""
    num_draws: int = 100
    """Of thompson: how many posterior draws a decision makes. The action is drawn from their empirical distribution."""
    posterior_scale: float = 0.3
    """Of thompson: the factor v on the posterior's standard deviation."""
    temperature: float = 0.25
    """Of softmax."""

    def __post_init__(self) -> None:
        """Refuses values without a meaning."""
        low = _MIN_FLOOR if self.algorithm in NEEDS_WIDTHS else 0.0  # they give an action no chance of their own
        check_range("epsilon", self.epsilon, low, 1)
        check_range("gamma_scale", self.gamma_scale, 1e-6, 1e9)
        check_range("gamma_exponent", self.gamma_exponent, 0, 1)
        check_range("alpha", self.alpha, 0, 1e6)
        check_range("num_draws", self.num_draws, 1, 100_000)
        check_range("posterior_scale", self.posterior_scale, 0, 1e6)
        check_range("temperature", self.temperature, 1e-6, 1e6)


class OnlineConfig(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="online"
):
    """A ridge regression for each action that learns each reward as it comes."""

    num_warm_up: int = 40
    """How many rewards are learned before the encoder and the scale of the rewards are fitted; until then actions
    are drawn uniformly. It lasts longer, up to 10 times, while all rewards are equal: they have no scale yet."""
    l2_weight: float = 1.0
    """The ridge penalty on the weights of each action, for rewards of standard deviation 1."""
    interactions: bool = True
    """Whether the encoder adds interactions of features."""
    features: dict[str, FeatureKind] | None = None
    """The kind of each feature of the context; None: found out from the first contexts."""

    def __post_init__(self) -> None:
        """Refuses values without a meaning."""
        check_range("num_warm_up", self.num_warm_up, 1)
        check_range("l2_weight", self.l2_weight, 1e-6, 1e6)

    @property
    def schema(self) -> ContextSchema | None:
        """The declared features; None where none are."""
        return None if self.features is None else ContextSchema(features=dict(self.features))


class BanditConfig(NamedTuple):
    """How a contextual bandit learns and explores."""

    model: OnlineConfig
    exploration: ExplorationConfig


def build_config(algorithm: str, **options: Any) -> BanditConfig:
    """Returns the config of a bandit that explores by ``algorithm``.

    Args:
        algorithm: ``squarecb``, ``linucb``, ``thompson``, ``epsilon_greedy`` or ``softmax``.
        options: fields of ``OnlineConfig`` and ``ExplorationConfig``; where it is not given, ``epsilon`` is 0 for
            squarecb, 0.02 for linucb and 0.01 for thompson.

    Raises:
        UsageError: there is no such algorithm or option, or an option's value is not allowed.
    """
    if algorithm not in get_args(ExplorationAlgorithm):
        raise UsageError(f"no algorithm is called {algorithm!r}; known are {one_of(get_args(ExplorationAlgorithm))}")
    learning = {name: value for name, value in options.items() if name in OnlineConfig.__struct_fields__}
    exploring = {name: value for name, value in options.items() if name not in learning} | {"algorithm": algorithm}
    exploring.setdefault("epsilon", _EPSILONS.get(algorithm, ExplorationConfig().epsilon))
    fields = (*OnlineConfig.__struct_fields__, *ExplorationConfig.__struct_fields__[1:])
    what, hint = f"the options {options} do not fit", f"; a bandit's options are {one_of(fields)}"
    model = convert_record(learning, what, OnlineConfig, hint=hint)
    return BanditConfig(model, convert_record(exploring, what, ExplorationConfig, hint=hint))
