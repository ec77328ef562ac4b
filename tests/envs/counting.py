"""An environment whose observations say which env, episode and step they are of, and what must come of its actions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from learnloop.core.seeding import derive_seed


class Counting(gymnasium.Env[Any, Any]):
    """Shows (tag, episode, step); the tag is that of the seed it was reset with last.

    Episode e of tag g lasts 2 + (g + e) % 3 steps and ends terminated where g + e is even, else truncated. A reward is
    100 e + 10 step + action. With ``masked`` the action (step % 3) is not allowed; on a terminated observation none is.
    """

    def __init__(self, masked: str = "", kill_at: int = -1) -> None:
        self.observation_space = gymnasium.spaces.Box(-1e6, 1e6, (3,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(3)
        self.tag = 0
        self.episode = 0
        self.t = 0
        self.terminated = False
        self.masked = masked
        self.kill_at = kill_at
        if masked == "method":
            self.action_masks = self.mask

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode = 0 if seed is not None else self.episode + 1
        self.tag = self.tag if seed is None else tag_of(seed)
        self.t, self.terminated = 0, False
        return self.show()

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if self.kill_at == self.t + self.episode * 100:
            raise RuntimeError("the world ended")
        if self.masked and not self.mask()[action]:
            raise RuntimeError(f"action {action} is not allowed at {self.t}")
        reward = reward_of(self.episode, self.t, int(action))
        self.t += 1
        is_over = self.t == length_of(self.tag, self.episode)
        self.terminated = is_over and is_end(self.tag, self.episode)
        observation, info = self.show()
        return observation, reward, self.terminated, is_over and not self.terminated, info

    def mask(self) -> np.ndarray[Any, Any]:
        allowed = np.arange(3) != self.t % 3
        return allowed & (not self.terminated)

    def show(self) -> tuple[Any, dict[str, Any]]:
        info = {"action_mask": self.mask()} if self.masked == "info" else {}
        return np.array([self.tag, self.episode, self.t], dtype=np.float32), info


def tag_of(seed: int) -> int:
    return seed % 1000


def length_of(tag: int, episode: int) -> int:
    return 2 + (tag + episode) % 3


def is_end(tag: int, episode: int) -> bool:
    return (tag + episode) % 2 == 0


def reward_of(episode: int, t: int, action: int) -> float:
    return 100.0 * episode + 10.0 * t + action


def lane_tag(seed: int, lane: int) -> int:
    """The tag of an env, whose seed derives from the stream's and its number."""
    return tag_of(derive_seed(seed, "lane", lane) & 0x7FFFFFFF)


class Transition(NamedTuple):
    observation: tuple[float, ...]
    action: int
    reward: float
    final_observation: tuple[float, ...]
    terminated: bool
    truncated: bool
    next_observation: tuple[float, ...]


def transitions(tag: int, actions: Sequence[int]) -> Iterator[Transition]:
    """What must come of an env's actions."""
    episode = t = 0
    for action in actions:
        is_over = t + 1 == length_of(tag, episode)
        ends = is_over and is_end(tag, episode)
        after = (tag, episode + 1, 0) if is_over else (tag, episode, t + 1)
        yield Transition(
            (tag, episode, t),
            action,
            reward_of(episode, t, action),
            (tag, episode, t + 1),
            ends,
            is_over and not ends,
            after,
        )
        episode, t = after[1], after[2]
