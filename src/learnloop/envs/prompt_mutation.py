"""A simulator, for tests: prompts that lack something, and mutations that put it right or overdo it.

No prompt, model or score is real here, which ``info["simulated"]`` says. A prompt lacks, of each of five properties,
0, 1 or 2 parts (its deficits). Each mutation adds a part of its property; where none is missing it overdoes it, and a
part of the next property goes missing. The quality is 1 less the share of all parts that are missing, the reward of a
step is how much it has changed. What is seen is an embedding: a unit vector in which each property has its own
direction, the same in all worlds of a seed, and each prompt its own subject, which no mutation changes.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np

from learnloop.core.arrays import F32
from learnloop.core.checks import check_number, check_whole
from learnloop.core.seeding import generator
from learnloop.envs.spaces import refuse_step

MUTATIONS = ("try-catch-style", "context-reduction", "expansion", "constraint-addition", "task-decomposition")
"""What the actions are called."""
MAX_DEFICIT = 2
"""Parts of a property that can be missing."""

_LABEL = "prompt-mutation"
_NUM_PARTS = MAX_DEFICIT * len(MUTATIONS)


class PromptMutationSimulator(gymnasium.Env[F32, int]):
    """The simulated mutation of prompts. It ends when nothing is missing and is cut after ``max_steps``.

    The most that an episode can earn is 1 less the quality that it begins with (``optimum``): any mutation whose
    property lacks a part earns 0.1, so a policy that sees the deficits and takes any of those is optimal, as long as
    ``max_steps`` is at least 10.
    """

    metadata = {"render_modes": ["ansi"], "render_fps": 4}  # noqa: RUF012 - gymnasium's own form

    def __init__(
        self,
        size: int = 1536,
        max_steps: int = 12,
        world_seed: int = 0,
        subject_weight: float = 0.5,
        render_mode: str | None = None,
    ) -> None:
        """Draws the directions.

        Args:
            size: numbers of an embedding, at least 7.
            max_steps: an episode is cut after so many.
            world_seed: of the directions; that of episodes is another.
            subject_weight: how long the part of an embedding is that only tells its prompt from others; that of a
                prompt without deficits has the length 1, each missing part half of that.
            render_mode: ``ansi`` or None.

        Raises:
            UsageError: a value has no meaning.
        """
        check_whole(f"size of {_LABEL}", size, low=len(MUTATIONS) + 2)
        check_whole(f"max_steps of {_LABEL}", max_steps)
        check_whole(f"world_seed of {_LABEL}", world_seed, low=0)
        check_number(f"subject_weight of {_LABEL}", subject_weight, 0.0, 10.0)
        self.render_mode = render_mode
        self.observation_space = gymnasium.spaces.Box(-1.0, 1.0, (size,), np.float32)
        self.action_space: Any = gymnasium.spaces.Discrete(len(MUTATIONS))
        self.max_steps = max_steps
        self._subject_weight = subject_weight
        rng = generator(world_seed, "prompt-mutation", "world")
        directions = np.linalg.qr(rng.standard_normal((size, len(MUTATIONS) + 1)))[0].T
        self._directions: F32 = np.ascontiguousarray(directions, dtype=np.float32)
        self._subject: F32 = np.zeros(size, dtype=np.float32)
        self._deficits = [0] * len(MUTATIONS)
        self._num_steps = 0
        self.is_running = False
        self._said = "nothing yet"

    @property
    def quality(self) -> float:
        """Of the prompt as it is now, from 0 to 1."""
        return 1.0 - sum(self._deficits) / _NUM_PARTS

    @property
    def deficits(self) -> tuple[int, ...]:
        """How many parts of each property are missing, in the order of ``MUTATIONS``."""
        return tuple(self._deficits)

    def optimum(self) -> float:
        """Returns the most that can still be earned in the episode, if there are steps enough."""
        return 1.0 - self.quality

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[F32, dict[str, Any]]:
        """Begins with another prompt, which lacks at least one part."""
        super().reset(seed=seed)
        deficits = self.np_random.integers(MAX_DEFICIT + 1, size=len(MUTATIONS))
        if not deficits.any():
            deficits[self.np_random.integers(len(MUTATIONS))] = 1
        self._deficits = deficits.tolist()
        subject = self.np_random.standard_normal(len(self._subject), dtype=np.float32)
        self._subject = subject * np.float32(self._subject_weight / np.sqrt(subject @ subject))
        self._num_steps = 0
        self.is_running = True
        self._said = "nothing yet"
        return self._observe(), self._info()

    def step(self, action: int) -> tuple[F32, float, bool, bool, dict[str, Any]]:
        """Mutates the prompt."""
        if not self.is_running:
            raise refuse_step(_LABEL)
        before = self.quality
        self._mutate(int(action))
        self._num_steps += 1
        reward = round(self.quality - before, 9)
        self._said = f"{MUTATIONS[action]} changed the quality by {reward:+.1f}"
        terminated = not any(self._deficits)
        truncated = not terminated and self._num_steps >= self.max_steps
        self.is_running = not (terminated or truncated)
        return self._observe(), reward, terminated, truncated, self._info()

    def render(self) -> Any:
        """Returns a line on the last step (``ansi``)."""
        if self.render_mode is None:
            return None
        return f"simulated, step {self._num_steps} of {self.max_steps}: {self._said}; quality {self.quality:.1f}\n"

    def _mutate(self, action: int) -> None:
        if self._deficits[action]:
            self._deficits[action] -= 1
            return
        other = (action + 1) % len(MUTATIONS)
        self._deficits[other] = min(MAX_DEFICIT, self._deficits[other] + 1)

    def _observe(self) -> F32:
        weights = np.array([1.0, *(each / MAX_DEFICIT for each in self._deficits)], dtype=np.float32)
        shown: F32 = weights @ self._directions + self._subject
        shown /= np.sqrt(shown @ shown)
        return np.clip(shown, -1.0, 1.0, out=shown)  # rounding

    def _info(self) -> dict[str, Any]:
        return {"simulated": True, "quality": self.quality, "is_success": not any(self._deficits)}
