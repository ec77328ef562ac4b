"""An environment: a text says behind which of two doors the prize is."""

from __future__ import annotations

from typing import Any

import gymnasium

from learnloop.envs import EncodedText

CLUES = ("the prize is behind the left door", "the prize is behind the right door")


class TwoDoors(gymnasium.Env[str, Any]):
    """Choose the door (0: left, 1: right) that the text names: 1, else 0. One step an episode."""

    def __init__(self) -> None:
        self.observation_space = EncodedText("letters")
        self.action_space = gymnasium.spaces.Discrete(2)
        self._prize = 0

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Hides the prize."""
        super().reset(seed=seed)
        self._prize = int(self.np_random.integers(2))
        return CLUES[self._prize], {}

    def step(self, action: Any) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Opens a door, which ends the episode."""
        return CLUES[self._prize], float(int(action) == self._prize), True, False, {}
