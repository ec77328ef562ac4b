"""Live steps that wait to be learned from, episode by episode; as many as there is room for."""

from __future__ import annotations

from collections.abc import Iterator

from learnloop.algorithms.live.episodes import LiveStep


class LiveSegments:
    """The steps of live episodes since the last update, the newest ones where ``room`` is too small for all.

    Attributes:
        num_steps: how many steps wait.
        num_dropped: how many were forgotten to make room, since it was made.
    """

    def __init__(self, room: int) -> None:
        """Keeps at most ``room`` steps."""
        self.num_steps = 0
        self.num_dropped = 0
        self._room = room
        self._num_begun = 0
        self._steps: dict[int, list[LiveStep]] = {}
        """By the number of the segment, so that the one that began first comes first."""
        self._running: dict[str, int] = {}
        """The segment of each running episode."""

    def __len__(self) -> int:
        return len(self._steps)

    def __iter__(self) -> Iterator[list[LiveStep]]:
        """Yields the steps of each episode; an episode that ended is apart from the next one of its name."""
        return iter(self._steps.values())

    def add(self, episode: str, step: LiveStep) -> None:
        """Adds the next step of ``episode``; where there is no room, the first step of the oldest one is forgotten."""
        if self.num_steps >= self._room:
            self._drop()
        number = self._running.get(episode)
        if number is None or number not in self._steps:
            number = self._running[episode] = self._num_begun
            self._steps[number] = []
            self._num_begun += 1
        self._steps[number].append(step)
        self.num_steps += 1
        if step.terminated or step.truncated:  # the name is free again while its steps wait to be learned
            del self._running[episode]

    def _drop(self) -> None:
        number, steps = next(iter(self._steps.items()))
        del steps[0]  # what is left is a segment too
        if not steps:
            del self._steps[number]
        self.num_steps -= 1
        self.num_dropped += 1

    def discard(self, episode: str) -> None:
        """Forgets the steps of the running ``episode``."""
        number = self._running.pop(episode, None)
        if number is not None:
            self.num_steps -= len(self._steps.pop(number, []))

    def clear(self) -> None:
        """Forgets all steps: they are learned, or their clients are gone."""
        self._steps.clear()
        self._running.clear()
        self.num_steps = 0
