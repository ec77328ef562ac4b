"""What the routes of the decision service share: the policies in memory, the durable log, and what runs beside them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np

from learnloop.core.checks import check_name
from learnloop.core.errors import ConflictError, LearnloopError
from learnloop.core.records import Decision, DecisionMode, Reward
from learnloop.decisions.learning.champion_watch import is_tested
from learnloop.decisions.learning.learner import learns_in_updates
from learnloop.decisions.learning.learner_process import LearnerPlace, LearnerProcess
from learnloop.decisions.service.policies import Policies, registered_name
from learnloop.decisions.service.request import MAX_SLOTS, DecisionRequest
from learnloop.decisions.service.snapshot import PolicySnapshot, slot_decision_id
from learnloop.serve.durable_log import DurableLog
from learnloop.serve.http.problems import Problem
from learnloop.serve.service import Service, beside
from learnloop.store import Store

REFRESH_SECONDS = 0.5
"""How old what is served may be, at most, when a better version or other settings are there."""

_log = logging.getLogger("learnloop.serve")


class DecisionMaker:
    """Makes decisions for the routes; all of it on the event loop but for what reads the store."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._store = service.workspace.store
        self._log = service.part(DurableLog)
        self._rng = np.random.default_rng()
        self._learner = _learner(service)
        self._is_set_up = False
        self.policies = Policies(self._store, service.workspace.registry)

    async def _snapshot(self, agent_id: str, policy: str) -> PolicySnapshot:
        """Returns a policy as it is asked now."""
        found = self.policies.find(agent_id, policy)
        if found is not None:
            return found
        registered_name(agent_id, policy)
        return await self._service.call(self.policies.load, agent_id, policy)

    async def decide(self, agent_id: str, policy: str, request: DecisionRequest) -> list[Decision]:
        """Returns the decisions that a request asks for, one or one a slot; they are in the log by then.

        Raises:
            ContextError, ActionError, UsageError: what is asked cannot be decided; nothing is logged.
            ConflictError: the client's own id is that of another policy's decision.
        """
        snapshot = await self._snapshot(agent_id, policy)
        if request.decision_id is not None:
            return await self._decide_once(snapshot, request, request.decision_id)
        decisions = await self._choose(snapshot, request)
        await self._log.keep(decisions)
        return decisions

    async def _choose(self, snapshot: PolicySnapshot, request: DecisionRequest) -> list[Decision]:
        if snapshot.learner is None:
            return snapshot.decide(request, self._rng)
        agent_id, policy = snapshot.agent_id, snapshot.policy  # it may be learning now, for which no other waits
        return await self._service.call(self.policies.decide, agent_id, policy, request)

    async def _decide_once(
        self, snapshot: PolicySnapshot, request: DecisionRequest, decision_id: str
    ) -> list[Decision]:
        """Decides under a client's own id; the log says what was decided, whoever was first."""
        check_name("a decision", decision_id)
        made = await self._service.call(find_made, self._store, decision_id)
        if not made:
            await self._log.keep(await self._choose(snapshot, request))
            made = await self._service.call(find_made, self._store, decision_id)
            if snapshot.learner is not None:
                await self._service.call(self.policies.expect_kept, snapshot.agent_id, snapshot.policy, made)
        if any((each.agent_id, each.policy) != (snapshot.agent_id, snapshot.policy) for each in made):
            raise ConflictError(f"the decision id {decision_id!r} was used for another policy; give a new one")
        return made

    async def keep_current(self) -> None:
        """Follows changes of settings and champions, and gives default rewards, until it is cancelled."""
        while True:
            await asyncio.sleep(REFRESH_SECONDS)
            for work in (self._set_up, self.policies.keep, self._learn):
                try:
                    await self._service.call(work)
                except (LearnloopError, Problem, OSError, RuntimeError) as error:  # busy, away, no thread; tried again
                    _log.warning("policies are not brought up to date: %s", error)

    def _set_up(self) -> None:
        if not self._is_set_up:
            self.policies.load_set_up()
            self._is_set_up = True

    def _learn(self) -> None:
        """Starts the learner as soon as there is something that it can learn from, or a champion to be watched."""
        if self._learner is None or self._learner.num_starts:
            return
        if any(each.version_id is not None and is_tested(each.settings) for each in self.policies.snapshots()):
            self._learner.start()
            return
        policies = [each for each in self.policies.snapshots() if learns_in_updates(each.settings)]
        is_apprentice = any(each.settings.mode is DecisionMode.APPRENTICE for each in policies)
        if is_apprentice or (policies and self._store.last_sequence(Reward) > 0):
            self._learner.start()

    def stop(self) -> None:
        """Ends the learner, and saves what online policies have learned."""
        try:
            self.policies.checkpoint()
        except LearnloopError as error:  # the log has everything
            _log.warning("what online policies learned is not saved: %s", error)
        if self._learner is not None:
            self._learner.stop()


def _learner(service: Service) -> LearnerProcess | None:
    """Returns what learns beside the server, not yet started; None where that is not wanted or cannot be."""
    settings = service.workspace.settings
    if not service.options.learning or settings.in_memory:
        return None
    home = settings.home
    place = LearnerPlace(database=settings.database, blobs=str(home / "blobs"), versions=str(home / "policies"))
    return LearnerProcess(place)


def find_made(store: Store, decision_id: str) -> list[Decision]:
    """Returns the decision of this id, or those of the slots of the request of this id, in their order."""
    found = store.find(Decision, decision_id)
    if found is not None:
        return [found]
    ids = [slot_decision_id(decision_id, number) for number in range(MAX_SLOTS)]
    by_id = {each.decision_id: each for each in store.iterate(Decision, where={"decision_id": ids})}
    return [by_id[each] for each in ids if each in by_id]


@asynccontextmanager
async def keep_deciding(service: Service) -> AsyncIterator[None]:
    """Gives ``service`` the parts that decide, as long as the server lives."""
    service.add(DurableLog(service.workspace.store))
    part = await asyncio.to_thread(DecisionMaker, service)  # also where no thread is left for calls of clients
    service.add(part)
    try:
        async with beside(part.keep_current()):
            yield
    finally:
        await asyncio.to_thread(part.stop)
