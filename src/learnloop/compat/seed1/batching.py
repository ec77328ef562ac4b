"""Requests for a choice that come together go through the network together: its weights are read once for all.

So a choice waits for others as long as they come, and for a moment more while a commit is under way: to be written, it
would have to wait for its end anyway.
"""

from __future__ import annotations

import asyncio
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


class _Request(NamedTuple):
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
        self._asked: list[_Request] = []
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
        self._asked.append(_Request(state, deterministic, done))
        if self._turn is None:
            self._turn = self._loop.create_task(self._choose())
        return await done

    async def _choose(self) -> None:
        await self._wait_for_others()
        asked = [each for each in self._asked if not each.done.done()]  # who gave up is in no log
        self._asked, self._turn = [], None
        if not asked:
            return
        try:
            selections = self._learner.select_many(
                [each.state for each in asked], [each.deterministic for each in asked]
            )
        except Exception as error:  # a fault of ours, which goes on from here
            for each in asked:
                each.done.set_exception(error)
            raise
        for each, selection in zip(asked, selections, strict=True):
            if isinstance(selection, DivergedError):
                each.done.set_exception(selection)
            else:
                self._log.add(Waiting([selection.decision], each.done, selection))

    async def _wait_for_others(self) -> None:
        """Returns when nothing more seems to come, or as many came as go through the network at once."""
        if self._log.is_busy:
            await asyncio.sleep(COMMIT_SECONDS)
        num_quiet = 0
        while num_quiet < QUIET_TURNS and len(self._asked) < MAX_BATCH:
            number = len(self._asked)
            await asyncio.sleep(0)
            num_quiet = num_quiet + 1 if len(self._asked) == number else 0
