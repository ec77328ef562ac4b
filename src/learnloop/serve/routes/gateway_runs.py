"""The runs of agents behind the gateway: which request belongs to which episode.

An agent that names its run is believed. Of another one the conversation tells: a request that goes on with what was
said and answered in a run belongs to it, any other one begins a run. A run that asks nothing for a while has ended.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from learnloop.core.checks import check_name
from learnloop.core.decoding import convert_record
from learnloop.core.errors import UsageError, one_of
from learnloop.loop.traces.gateway import GATEWAY_SOURCE
from learnloop.traces.recording.recorder import ActiveEpisode, Recorder, Sink

_log = logging.getLogger("learnloop.serve")

MAX_RUNS = 10_000
"""Open at once; beyond that the one that asked nothing for the longest time ends."""


class RunName(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a request says about its run; None: nothing."""

    agent: str = "gateway"
    task: str | None = None
    attempt: int | None = None
    run: str | None = None

    @classmethod
    def of(cls, given: dict[str, str]) -> RunName:
        """Returns what was given, checked.

        Raises:
            UsageError: there is no such word, or a value cannot be used.
        """
        hint = f"; the gateway knows {one_of(cls.__struct_fields__)}"
        told: dict[str, Any] = dict(given)
        attempt = given.get("attempt")
        if attempt is not None:
            if not (attempt.isascii() and attempt.isdigit() and len(attempt) < 10):
                raise UsageError(f"attempt is {attempt!r}; give a whole number from 0")
            told["attempt"] = int(attempt)
        name = convert_record(told, "what the request says of its run cannot be read", cls, hint=hint)
        check_name("an agent", name.agent)
        return name


class GatewayRun:
    """One episode while its agent may still ask."""

    def __init__(self, recorder: Recorder, episode: ActiveEpisode, name: RunName) -> None:
        self.recorder = recorder
        self.episode = episode
        self.name = name
        self.num_open = 0
        """Requests that are not answered yet."""
        self.last_used = 0.0
        self.places: set[bytes] = set()
        """The digests of its conversations, as far as they have come and were."""


class Runs:
    """All open runs. For one thread: the event loop's."""

    def __init__(self, sink: Sink, idle_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Records into ``sink``; a run ends that asked nothing for ``idle_seconds``."""
        self._sink = sink
        self._idle_seconds = idle_seconds
        self._clock = clock
        self._named: dict[RunName, GatewayRun] = {}
        self._waiting: dict[bytes, list[GatewayRun]] = {}
        """Who may go on with a conversation, by its digest; several where runs said and heard the same."""
        self._passed: dict[bytes, GatewayRun] = {}
        """Who has gone on with it already: another call from there is a second branch of the run."""
        self.open_runs: dict[str, GatewayRun] = {}
        """By episode, the one that asked last at the end."""

    def begin(self, name: RunName, marks: Sequence[str], response_id: str | None = None) -> GatewayRun:
        """Returns the run of a request, a new one where it goes on with none.

        Args:
            name: what the request says of it.
            marks: the fingerprints of its messages.
            response_id: of the earlier answer that it says to go on with; None: it says none.
        """
        if name.run is not None:
            run = self._named.get(name)
        else:
            answered = None if response_id is None else self._passed.get(_digests(name, [response_id])[0])
            run = answered or self._find_run(name, marks)
        if run is None:
            run = self._begin_run(name)
        run.num_open += 1
        self._touch(run)
        return run

    def end(self, run: GatewayRun, said: Sequence[str], *, answered: bool, response_id: str | None = None) -> None:
        """Notes that a request has ended.

        Args:
            run: whose.
            said: the fingerprints of its conversation so far.
            answered: whether the last of them is an answer; where none came, the agent may ask the same again.
            response_id: of the answer, where it has one.
        """
        run.num_open -= 1
        if run.episode.episode_id not in self.open_runs:
            return
        self._touch(run)
        if run.name.run is None and said:
            digest = _digests(run.name, said)[-1]
            run.places.add(digest)
            self._waiting.setdefault(digest, []).append(run)
            if answered:
                self._passed[digest] = run
            if response_id is not None:
                digest = _digests(run.name, [response_id])[0]
                run.places.add(digest)
                self._passed[digest] = run

    def close_idle(self) -> int:
        """Ends the runs that have been idle for long enough; returns how many."""
        latest = self._clock() - self._idle_seconds
        idle = []
        for run in self.open_runs.values():
            if run.last_used > latest:
                break
            if not run.num_open:
                idle.append(run)
        for run in idle:
            self._close(run)
        return len(idle)

    def close(self) -> None:
        """Ends all runs: the server stops, and what their agents do next is not known."""
        for run in list(self.open_runs.values()):
            run.episode.truncate()
            self._close(run)

    def _find_run(self, name: RunName, marks: Sequence[str]) -> GatewayRun | None:
        for digest in reversed(_digests(name, marks)):
            waiting = self._waiting.get(digest)
            if waiting:
                run = waiting.pop(0)
                if not waiting:
                    del self._waiting[digest]
                return run
            if digest in self._passed:
                return self._passed[digest]
        return None

    def _begin_run(self, name: RunName) -> GatewayRun:
        if len(self.open_runs) >= MAX_RUNS:
            self._close(next(iter(self.open_runs.values())))
        recorder = Recorder(self._sink, name.agent, GATEWAY_SOURCE)  # of its own: agents may call themselves anything
        metadata = None if name.run is None else {"run": name.run}
        episode = recorder.episode(task_id=name.task, attempt=name.attempt, metadata=metadata)
        episode.begin()
        run = self.open_runs[episode.episode_id] = GatewayRun(recorder, episode, name)
        if name.run is not None:
            self._named[name] = run
        return run

    def _touch(self, run: GatewayRun) -> None:
        run.last_used = self._clock()
        self.open_runs[run.episode.episode_id] = self.open_runs.pop(run.episode.episode_id)

    def _close(self, run: GatewayRun) -> None:
        del self.open_runs[run.episode.episode_id]
        if self._named.get(run.name) is run:
            del self._named[run.name]
        for digest in run.places:
            others = [each for each in self._waiting.pop(digest, []) if each is not run]
            if others:
                self._waiting[digest] = others
            if self._passed.get(digest) is run:
                del self._passed[digest]
        run.episode.end()
        counters = run.recorder.counters()
        if counters.num_failures:
            _log.warning("%d parts of a run were not recorded; the last: %s", *msgspec.structs.astuple(counters))


def _digests(name: RunName, marks: Sequence[str]) -> list[bytes]:
    """Returns a digest of each beginning of a conversation, of one message and more."""
    digest = hashlib.blake2b(repr((name.agent, name.task, name.attempt)).encode(), digest_size=16)
    found = []
    for mark in marks:
        digest.update(mark.encode())
        found.append(digest.digest())
    return found
