"""How the learner of prompt mutations is set up; defaults are seed 1's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from learnloop.algorithms.building import translate
from learnloop.algorithms.on_policy.ppo import PPOConfig
from learnloop.algorithms.on_policy.segment_ppo import SegmentPPO
from learnloop.core.checks import check_range
from learnloop.core.decoding import convert_record
from learnloop.core.errors import UsageError
from learnloop.training.presets import prompt_mutation_config

MUTATIONS = ("try-catch-style", "context-reduction", "expansion", "constraint-addition", "task-decomposition")
"""The actions, by their numbers."""


class MutationSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Section ``[mutations]`` of ``learnloop.toml``."""

    input_dim: int = 1536
    """How many numbers an embedding has."""
    buffer_size: int = 2048
    """How many transitions may wait for an update; further ones are refused."""
    min_transitions: int = 128
    """Fewer are not learned from."""
    checkpoint_interval: int = 100
    """After so many updates a checkpoint is saved by itself, under the name ``latest``; 0: never."""
    weight_decay: float = 0.01
    """Of AdamW."""
    decay_interval: int = 100
    """After so many updates the learning rate is multiplied with ``decay``."""
    decay: float = 0.9
    """See ``decay_interval``; 1: it stays."""
    seed: int | None = None
    """All random numbers derive from it; None: others at each start."""
    options: dict[str, Any] = {}
    """Fields of PPOConfig, or the seed's names of them, such as ``eps_clip``, ``hidden_dim``, ``n_epochs``."""

    def __post_init__(self) -> None:
        """Refuses values without a meaning."""
        check_range("mutations.input_dim", self.input_dim, 1, 65_536)
        check_range("mutations.buffer_size", self.buffer_size, 1, 1_000_000)
        check_range("mutations.min_transitions", self.min_transitions, 2, self.buffer_size)
        check_range("mutations.checkpoint_interval", self.checkpoint_interval, 0, 1_000_000_000)
        check_range("mutations.weight_decay", self.weight_decay, 0, 1)
        check_range("mutations.decay_interval", self.decay_interval, 1, 1_000_000_000)
        check_range("mutations.decay", self.decay, 0.01, 1)
        self.config()

    def config(self) -> PPOConfig:
        """Returns PPO's hyper-parameters: the preset of seed 1, clipped values, and ``options``.

        Raises:
            UsageError: an option is unknown or not allowed.
        """
        if "n_steps" in translate("ppo", self.options):
            raise UsageError("mutations.options has n_steps or buffer_size; set mutations.buffer_size instead")
        config = prompt_mutation_config("mutations.options", self.options, clip_range_vf=0.2, n_steps=self.buffer_size)
        if config.batch_size > self.min_transitions:
            raise UsageError(
                f"mutations.min_transitions is {self.min_transitions}, less than the batch_size {config.batch_size}"
            )
        return config

    def ppo(self, seed: int) -> SegmentPPO:
        """Returns the algorithm, which has learned nothing yet."""
        return SegmentPPO(self.config(), self.input_dim, len(MUTATIONS), seed=seed, weight_decay=self.weight_decay)


def read_mutation_settings(given: Mapping[str, Any]) -> MutationSettings:
    """Returns the settings of a section.

    Raises:
        UsageError: a field is unknown, or a value not allowed; the message names it.
    """
    return convert_record(given, "[mutations] of learnloop.toml cannot be used", MutationSettings)
