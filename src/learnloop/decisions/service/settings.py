"""How a policy chooses and learns, whichever door asks it: typed, versioned, checked before anything is stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from learnloop.algorithms.bandits.config import NEEDS_WIDTHS, ExplorationConfig, OnlineConfig
from learnloop.algorithms.hashed.config import HashedConfig
from learnloop.algorithms.hashed.features import MAX_VECTOR
from learnloop.core.checks import check_range
from learnloop.core.decoding import convert_record
from learnloop.core.errors import UsageError
from learnloop.core.records import MAX_REWARD, DecisionMode

MAX_ACTIONS = 1_000
MIN_WINDOW = 10
MAX_WAIT_SECONDS = 366 * 86_400.0


EPISODE: Final = "episode"
"""The unit where nothing else is said: decisions of one episode belong together."""


class LearningSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When and from what the learner makes a candidate, and when that is served."""

    min_new_rewards: int = 100
    """Rewarded decisions since the last update before the next one is made."""
    window: int = 20_000
    """The newest rewarded decisions that are looked at; older ones say too little about today."""
    held_out_share: float = 0.4
    """The share of episodes (or decisions outside of one) that candidates are judged on and never trained on."""
    unit: str = EPISODE
    """What is independent of each other: ``episode``, ``task``, or a feature of contexts or a key of episodes'
    metadata, such as ``user``. All that belongs to one unit is trained on, or all of it is judged on."""
    alpha: float = 0.05
    """The level of the tests that a candidate must pass to be served; each level takes 2 / alpha shuffled trainings."""

    def __post_init__(self) -> None:
        """Refuses values without a meaning."""
        check_range("min_new_rewards", self.min_new_rewards, 1, 10_000_000)
        check_range("window", self.window, MIN_WINDOW, 1_000_000)
        check_range("held_out_share", self.held_out_share, 0.1, 0.9)
        check_range("alpha", self.alpha, 0.005, 0.5)
        if not self.unit.strip():
            raise UsageError(f"learning.unit is {self.unit!r}; allowed are episode, task and the name of a feature")


class ChampionTestSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the version that is served is tested against what is tried besides it, and put out where it is worse."""

    enabled: bool = True
    alpha: float = 0.05
    """The probability with which a version that is no worse is put out within 20,000 decisions, at the most."""
    reward_range: tuple[float, float] | None = None
    """The lowest and the highest reward; None: those of the log from before the version was served."""

    def __post_init__(self) -> None:
        """Refuses values without a meaning."""
        check_range("champion_test.alpha", self.alpha, 1e-6, 0.5)
        for end in self.reward_range or ():
            check_range("champion_test.reward_range", end, -MAX_REWARD, MAX_REWARD)
        if self.reward_range is not None and not self.reward_range[0] < self.reward_range[1]:
            raise UsageError(
                f"champion_test.reward_range is {self.reward_range}; give the lowest reward and one above it"
            )


class NetworkConfig(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind", tag="network"
):
    """A network over ``vector`` that learns over episodes with PPO; defaults are seed 1's."""

    input_dim: int = 1536
    """The length of the vector that a decision brings."""
    actions: tuple[str, ...]
    """The actions in the order of the network's outputs; a decision offers some of them."""
    hidden: tuple[int, ...] = (256, 256, 128)
    options: dict[str, Any] = {}
    """Fields of PPOConfig, or of the seed's, such as ``gamma``, ``eps_clip``, ``n_epochs``."""

    def __post_init__(self) -> None:
        """Refuses values without a meaning."""
        check_range("model.input_dim", self.input_dim, 1, MAX_VECTOR)
        check_range("the number of model.actions", len(self.actions), 2, MAX_ACTIONS)
        if len(set(self.actions)) != len(self.actions) or not all(self.actions):
            raise UsageError(f"model.actions are {self.actions}; give distinct names that are not empty")
        check_range("the number of model.hidden layers", len(self.hidden), 1, 8)
        for size in self.hidden:
            check_range("model.hidden", size, 1, 4096)


class DecisionSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a policy chooses and learns."""

    mode: DecisionMode = DecisionMode.LEARNING
    exploration: ExplorationConfig = ExplorationConfig()
    """How it tries what it does not prefer; every decision is logged with the propensity that follows."""
    model: OnlineConfig | HashedConfig | NetworkConfig = HashedConfig()
    """What learns: ``online`` from each reward as it comes, and serves what it knows by then; ``hashed`` (any features
    of contexts and actions) and ``network`` (over episodes) in updates, of which those are served that are proven."""
    learning: LearningSettings = LearningSettings()
    champion_test: ChampionTestSettings = ChampionTestSettings()
    reward_wait_seconds: float | None = None
    """After so long a decision without a reward gets ``default_reward``; None: never, it stays unknown."""
    default_reward: float | None = None
    """See ``reward_wait_seconds``; both or none."""

    def __post_init__(self) -> None:
        """Refuses values without a meaning."""
        if self.exploration.algorithm in NEEDS_WIDTHS and not isinstance(self.model, OnlineConfig):
            raise UsageError(
                f"exploration.algorithm is {self.exploration.algorithm!r}, which needs a model of kind online: others "
                "do not know how sure their predictions are; allowed are squarecb, epsilon_greedy and softmax"
            )
        if (self.reward_wait_seconds is None) != (self.default_reward is None):
            raise UsageError(
                f"reward_wait_seconds is {self.reward_wait_seconds} and default_reward {self.default_reward}; give "
                "both, or neither: without them a decision that nobody rewards stays unknown and is not learned from"
            )
        if self.reward_wait_seconds is not None:
            check_range("reward_wait_seconds", self.reward_wait_seconds, 0.01, MAX_WAIT_SECONDS)
        if self.default_reward is not None:
            check_range("default_reward", self.default_reward, -MAX_REWARD, MAX_REWARD)

    @property
    def network(self) -> NetworkConfig | None:
        """The model, where it is a network."""
        return self.model if isinstance(self.model, NetworkConfig) else None

    @property
    def online(self) -> OnlineConfig | None:
        """The model, where it learns online."""
        return self.model if isinstance(self.model, OnlineConfig) else None


ONLINE = DecisionSettings(model=OnlineConfig())
"""What a policy has that ``Loop.choose`` asks first: it learns from each reward at once."""


class VersionedSettings(NamedTuple):
    """Settings as they hold, and their version; 0: the defaults, nothing was set yet."""

    version: int
    settings: DecisionSettings


def read_settings(given: object) -> DecisionSettings:
    """Returns settings from JSON.

    Raises:
        UsageError: a field is unknown, or a value not allowed; the message names it.
    """
    return convert_record(given, "these are no settings of a policy", DecisionSettings)


def stored_settings(stored: Mapping[str, Any]) -> DecisionSettings:
    """Returns settings that the store has, as they are written now or were before the model said its kind.

    Raises:
        UsageError: as ``read_settings``.
    """
    given = dict(stored)
    network = given.pop("network", None)
    if network is not None:
        given["model"] = {"kind": "network", **network}
    elif "model" in given and "kind" not in given["model"]:
        given["model"] = {"kind": "hashed", **given["model"]}
    return read_settings(given)
