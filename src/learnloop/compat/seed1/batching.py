"""Requests for a choice that come together go through the network together: its weights are read once for all.

So a choice waits for others as long as they come, and for a moment more while a commit is under way: to be written, it
would have to wait for its end anyway.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from learnloop.compat.seed1.learner import MAX_BATCH, MutationLearner, Selection
from learnloop.core.arrays import F32
from learnloop.core.errors import DivergedError
from learnloop.serve.durable_log import DurableLog, Waiting

QUIET_TURNS = 2
"""After so many turns of the event loop in which nothing came, what came is chosen for."""
COMMIT_SECONDS = 0.001
"""How long a choice waits first where a commit is under way. Meanwhile the loop rests, which leaves the interpreter to
the thread that commits: looking again in each turn held up both."""


class _Asked(NamedTuple):
    state: F32
    deterministic: bool
    done: asyncio.Future[Selection]


class SelectionBatcher:
    """Gathers what coroutines of one event loop ask for, asks once, and has the answers written.

    Args:
        learner: who chooses.
        log: where the choices go.
    """

    def __init__(self, learner: MutationLearner, log: DurableLog) -> None:
        self._learner = learner
        self._log = log
        self._loop = asyncio.get_running_loop()
        self._asked: list[_Asked] = []
        self._turn: asyncio.Task[None] | None = None
        """Chooses for what is gathered now."""

    async def select(self, state: F32, *, deterministic: bool) -> Selection:
        """Returns what ``MutationLearner.select`` would, when it is in the log.

        Raises:
            ContextError, DivergedError: as it.
            LearnloopError: as ``Store.write``.
        """
        self._learner.check_state("the embedding", state)
        done: asyncio.Future[Selection] = self._loop.create_future()
        self._asked.append(_Asked(state, deterministic, done))
        if self._turn is None:
            self._turn = self._loop.create_task(self._choose())
        return await done

    async def _choose(self) -> None:
        await self._gathered()
        asked = [each for each in self._asked if not each.done.done()]  # who gave up is in no log
        self._asked, self._turn = [], None
        if not asked:
            return
        with _telling(asked):
            for each, selection in zip(asked, self._selections(asked), strict=True):
                if isinstance(selection, Selection):
                    self._log.add(Waiting([selection.decision], each.done, selection))
                else:
                    each.done.set_exception(selection)

    async def _gathered(self) -> None:
        """Returns when nothing more seems to come, or as many came as go through the network at once."""
        if self._log.is_busy:
            await asyncio.sleep(COMMIT_SECONDS)
        num_quiet = 0
        while num_quiet < QUIET_TURNS and len(self._asked) < MAX_BATCH:
            number = len(self._asked)
            await asyncio.sleep(0)
            num_quiet = num_quiet + 1 if len(self._asked) == number else 0

    def _selections(self, asked: Sequence[_Asked]) -> Sequence[Selection | DivergedError]:
        try:
            return self._learner.select_many([each.state for each in asked], [each.deterministic for each in asked])
        except DivergedError as error:
            if len(asked) == 1:
                return [error]
        return [self._alone(each) for each in asked]  # the numbers of one may be too large for the network

    def _alone(self, asked: _Asked) -> Selection | DivergedError:
        try:
            return self._learner.select(asked.state, deterministic=asked.deterministic)
        except DivergedError as error:
            return error


@contextmanager
def _telling(asked: Sequence[_Asked]) -> Iterator[None]:
    """Has all who wait hear of a fault of ours, which goes on from here."""
    try:
        yield
    except Exception as error:
        for each in asked:
            if not each.done.done():
                each.done.set_exception(error)
        raise
