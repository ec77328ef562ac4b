"""Requests for a choice that come together go through the network together: its weights are read once for all."""

from __future__ import annotations

import asyncio

import numpy as np
from numpy.typing import NDArray

from learnloop.core.errors import DivergedError
from learnloop.decisions.mutation_learner import MutationLearner, Selection

Floats = NDArray[np.float32]


class Selections:
    """Gathers what coroutines of one event loop ask for within a turn of it, and asks once.

    Args:
        learner: who chooses.
    """

    def __init__(self, learner: MutationLearner) -> None:
        self._learner = learner
        self._loop = asyncio.get_running_loop()
        self._asked: list[tuple[Floats, bool]] = []
        self._answers: asyncio.Task[list[Selection | DivergedError]] | None = None
        """Of what is gathered now; whatever goes wrong in it is raised by all who wait for it."""

    async def select(self, state: Floats, *, deterministic: bool) -> Selection:
        """Returns what ``MutationLearner.select`` would.

        Raises:
            ContextError, DivergedError: as it.
        """
        self._learner.check_state("the embedding", state)
        if self._answers is None:
            self._answers = self._loop.create_task(self._choose())
        answers, place = self._answers, len(self._asked)
        self._asked.append((state, deterministic))
        found = (await asyncio.shield(answers))[place]  # who gives up waiting takes no others along
        if isinstance(found, DivergedError):
            raise found
        return found

    async def _choose(self) -> list[Selection | DivergedError]:
        asked, self._asked, self._answers = self._asked, [], None
        states, deterministic = [each[0] for each in asked], [each[1] for each in asked]
        try:
            return [*self._learner.select_many(states, deterministic)]
        except DivergedError as error:
            if len(asked) == 1:
                return [error]
        return [self._alone(*each) for each in asked]  # the numbers of one may be too large for the network

    def _alone(self, state: Floats, deterministic: bool) -> Selection | DivergedError:
        try:
            return self._learner.select(state, deterministic=deterministic)
        except DivergedError as error:
            return error
