"""Environments stepped in this process, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from learnloop.core.arrays import F32
from learnloop.core.spaces import Spaces
from learnloop.core.stepping import LaneStep
from learnloop.envs.registry import MadeEnv
from learnloop.envs.streams.blocks import StepBlock
from learnloop.envs.streams.episodes import Episode, EpisodeLog
from learnloop.envs.streams.lanes import Lanes
from learnloop.envs.streams.masks import MaskReader

if TYPE_CHECKING:
    from learnloop.core.stepping import Actions, Masks


class SyncStream:
    """Lanes that are stepped by a loop in this process; an ended lane begins again in the same step.

    Attributes:
        spaces: of a policy for the environment.
        encoder: of its observations.
        num_lanes: how many environments there are.
        findings: what the check before found odd.
    """

    def __init__(self, made: Sequence[MadeEnv], label: str, spaces: Spaces, findings: Sequence[str] = ()) -> None:
        self.spaces = spaces
        self.num_lanes = len(made)
        self.findings = tuple(findings)
        self._lanes = Lanes(made, label, spaces)
        self.encoder = self._lanes.encoder
        self._log = EpisodeLog(self.num_lanes)
        size, num_choices = self.encoder.size, MaskReader(spaces.action).num_choices
        self._block, self._other = (StepBlock(self.num_lanes, size, num_choices) for _ in range(2))

    def reset(self, seed: int) -> tuple[F32, Masks | None]:
        """Begins new episodes in all lanes; see ``EnvStream.reset``."""
        block = self._turn()
        self._lanes.reset(block, seed)
        self._log.begin(range(self.num_lanes))
        return block.observations, block.masks if self._lanes.has_masks else None

    def step(self, actions: Actions) -> LaneStep:
        """Steps all lanes; see ``EnvStream.step``."""
        block = self._turn()
        ended = self._lanes.advance(block, actions)
        self._log.count(block.rewards, self.num_lanes)
        if ended:
            self._log.end(ended, block.terminated, block.truncated)
            self._lanes.restart(block, ended)
            self._log.begin(ended)
        return block.lane_step(has_ended=bool(ended), has_masks=self._lanes.has_masks)

    def episodes(self) -> list[Episode]:
        """Returns the episodes that ended since it was last asked."""
        return self._log.take()

    def close(self) -> None:
        """Closes the environments."""
        self._lanes.close()

    def _turn(self) -> StepBlock:
        self._block, self._other = self._other, self._block
        return self._block
