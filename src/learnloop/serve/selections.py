"""Requests for a choice that come together go through the network together: its weights are read once for all."""

from __future__ import annotations

import asyncio

import numpy as np
from numpy.typing import NDArray

from learnloop.core.errors import LearnloopError
from learnloop.decisions.mutation_learner import MutationLearner, Selection

Floats = NDArray[np.float32]
Waiting = tuple[Floats, bool, "asyncio.Future[Selection]"]


class Selections:
    """Gathers what coroutines of one event loop ask for within a turn of it, and asks once.

    Args:
        learner: who chooses.
    """

    def __init__(self, learner: MutationLearner) -> None:
        self._learner = learner
        self._loop = asyncio.get_running_loop()
        self._waiting: list[Waiting] = []

    async def select(self, state: Floats, *, deterministic: bool) -> Selection:
        """Returns what ``MutationLearner.select`` would.

        Raises:
            ContextError, DivergedError: as it.
        """
        self._learner.check_state("the embedding", state)
        if not self._waiting:
            self._loop.call_soon(self._choose)
        done: asyncio.Future[Selection] = self._loop.create_future()
        self._waiting.append((state, deterministic, done))
        return await done

    def _choose(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._answer(waiting)

    def _answer(self, waiting: list[Waiting]) -> None:
        try:
            found = self._learner.select_many([each[0] for each in waiting], [each[1] for each in waiting])
        except LearnloopError as error:
            if len(waiting) > 1:  # the numbers of one may be too large for the network
                for each in waiting:
                    self._answer([each])
            elif not waiting[0][2].done():
                waiting[0][2].set_exception(error)
            return
        for (_, _, done), selection in zip(waiting, found, strict=True):
            if not done.done():  # else whoever asked is gone
                done.set_result(selection)
