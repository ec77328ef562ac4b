"""The learner as a process of its own, so that learning never holds up a decision.

It runs beside the server at a lower priority, and trains on one thread; another watches what is served, so that no
training holds that up. The two processes share nothing but the store and the folder of
versions: what was learned is served because the alias ``champion`` moved. The process may be ended at any time: an
update is whole in the store, or not there.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NoReturn

import msgspec

from learnloop.core.errors import CorruptError, LearnloopError, NotFoundError
from learnloop.store import Store
from learnloop.store.queries.news import policies_imitating, policies_rewarded
from learnloop.system.worker import Channel, Worker

NICENESS: Final = 10
MAX_WAIT_SECONDS: Final = 60.0
"""Between two starts of a learner that does not stay alive, at the most."""
STABLE_SECONDS: Final = 60.0
"""Who lived so long is started again at once."""
STOP_SECONDS: Final = 5.0
_PAGE = 10_000
_TARGET = "learnloop.decisions.learning.learner_process:work"

_log = logging.getLogger(__name__)


class LearnerPlace(msgspec.Struct, frozen=True, kw_only=True):
    """What a learner works on."""

    database: str
    """The URL of the store; with a password, which is why this is never an argument of the command line."""
    blobs: str | None
    """The folder of blobs."""
    versions: str
    """The folder of the registry."""
    poll_seconds: float = 1.0
    """So often the log is asked for news."""


class LearnerNews(msgspec.Struct, frozen=True, kw_only=True):
    """What a learner says of itself."""

    state: str
    """``ready``, ``updated``, ``put out`` or ``waiting``."""
    what: str = ""
    """Which update, what was put out and why, or why it waits."""


# In the learner's process -----------------------------------------------------------------------------------------


def work(channel: Channel) -> NoReturn:
    """Updates the policies of the place that the first message names whenever they have news, one after another.

    Beside that it watches what is served. A store that is away, locked or not there yet is waited for, and the reason
    is told.
    """
    logging.basicConfig(level=logging.WARNING, format="learner: %(levelname)s %(message)s")
    place = msgspec.json.decode(channel.receive(), type=LearnerPlace)
    telling = threading.Lock()

    def tell(news: LearnerNews) -> None:
        with telling:
            channel.send(msgspec.json.encode(news))

    while True:
        try:
            with _open(place) as store, _watched(store, place, tell) as watching:
                tell(LearnerNews(state="ready"))
                _learn(store, place, tell, watching)
        except LearnloopError as error:
            tell(LearnerNews(state="waiting", what=str(error)))
            _log.warning("waiting: %s", error)
        time.sleep(place.poll_seconds)


def _open(place: LearnerPlace) -> Store:
    from learnloop.store.engine import parse_url

    path = parse_url(place.database).path
    if path is not None and not path.exists():
        raise NotFoundError(f"there is no database {path} yet")
    blobs = None if place.blobs is None else Path(place.blobs)
    return Store.open(place.database, blobs=blobs, upgrade=False)


@contextmanager
def _watched(store: Store, place: LearnerPlace, tell: Callable[[LearnerNews], None]) -> Iterator[threading.Thread]:
    """Has a thread watch what is served, as long as what is within runs; yields it."""
    stop = threading.Event()
    thread = threading.Thread(target=_watch, args=(store, place, tell, stop), name="champion-watch", daemon=True)
    thread.start()
    try:
        yield thread
    finally:
        stop.set()
        thread.join(1.0)  # what it is at is made good by the next look


def _watch(store: Store, place: LearnerPlace, tell: Callable[[LearnerNews], None], stop: threading.Event) -> None:
    """Looks at what champions decide until ``stop``; a store that refuses is asked again at the next look."""
    from learnloop.decisions.learning.champion_watch import ChampionWatch
    from learnloop.registry import Registry

    watch = ChampionWatch(store, Registry(store, Path(place.versions)))
    while not stop.wait(place.poll_seconds):
        try:
            tests = watch.look()
        except LearnloopError as error:
            _log.warning("champions are not watched: %s", error)
            continue
        for test in tests:
            if test.put_out_at is not None:
                tell(LearnerNews(state="put out", what=f"{test.agent_id}.{test.policy}: {test.reason}"))


def _learn(
    store: Store, place: LearnerPlace, tell: Callable[[LearnerNews], None], watching: threading.Thread
) -> NoReturn:
    """Updates the policies that have news; those with too little of it come again with the next.

    Raises:
        RuntimeError: nothing is watched any more; this process is started again.
    """
    from learnloop.decisions.learning.learner import Learner  # numpy and all that learns, once the store is there
    from learnloop.decisions.service.settings_store import current
    from learnloop.registry import Registry

    learner = Learner(store, Registry(store, Path(place.versions)))
    looked = {policies_rewarded: 0, policies_imitating: 0}  # up to which sequence of the log each was answered
    while True:
        if not watching.is_alive():
            raise RuntimeError("the watch over what is served has ended")
        waiting: set[tuple[str, str]] = set()
        for question, sequence in looked.items():
            last: int | None = sequence
            while last is not None:
                looked[question] = last
                found, last = store.read(question, last, _PAGE)
                waiting |= found
        for agent_id, policy in sorted(waiting):
            try:
                settings = current(store, agent_id, policy)
            except CorruptError as error:  # the other policies learn all the same
                tell(LearnerNews(state="waiting", what=str(error)))
                _log.warning("%s", error)
                continue
            record = learner.update(agent_id, policy, settings)
            if record is not None:
                verdict = record.error if record.verdict is None else record.verdict.value
                tell(LearnerNews(state="updated", what=f"{agent_id}.{policy}: {verdict}"))
        time.sleep(place.poll_seconds)


# In the server's process ------------------------------------------------------------------------------------------


class LearnerProcess:
    """A learner process that is kept alive: one that ends by itself is started again, later each time it fails.

    Args:
        place: what it works on.
    """

    def __init__(self, place: LearnerPlace) -> None:
        self._place = place
        self._worker: Worker | None = None
        self._stop = threading.Event()
        self._keeper: threading.Thread | None = None
        self._lock = threading.Lock()
        self.num_starts = 0
        self.news: LearnerNews | None = None
        """The last thing that it said."""

    @property
    def is_alive(self) -> bool:
        """Whether it runs at this moment."""
        worker = self._worker
        return worker is not None and worker.is_alive

    @property
    def process_id(self) -> int | None:
        """The id of the process; None where none was started."""
        return None if self._worker is None else self._worker.process_id

    def start(self) -> None:
        """Starts it and returns at once; does nothing where it was started already."""
        if self._keeper is not None:
            return
        self._stop.clear()
        self._keeper = threading.Thread(target=self._keep, name="learner-keeper", daemon=True)
        self._keeper.start()

    def stop(self, timeout_seconds: float = STOP_SECONDS) -> None:
        """Ends it, and returns when it has ended; kills it where it takes longer."""
        self._stop.set()
        with self._lock:
            worker = self._worker
        if worker is not None:
            worker.stop(timeout_seconds)
        if self._keeper is not None:
            self._keeper.join(timeout_seconds)
            self._keeper = None

    def _keep(self) -> None:
        failures = 0
        while not self._stop.is_set():
            began = time.monotonic()
            try:
                self._run()
            except LearnloopError as error:
                if self._stop.is_set():
                    return
                failures = 0 if time.monotonic() - began >= STABLE_SECONDS else failures + 1
                pause = min(MAX_WAIT_SECONDS, 0.25 * 2 ** min(failures, 16)) * random.uniform(0.8, 1.2)
                _log.warning("%s; it is started again in %.1f s", error, pause)
                self._stop.wait(pause)

    def _run(self) -> None:
        """Starts a learner, unless none is wanted any more, and hears it until it ends.

        Raises:
            LearnloopError: it could not be started, or ended; the message says how.
        """
        with self._lock:
            if self._stop.is_set():
                return
            worker = self._worker = Worker(_TARGET, "the learner", niceness=NICENESS)
            worker.send(msgspec.json.encode(self._place))
            self.num_starts += 1
        try:
            while True:
                self.news = msgspec.json.decode(worker.receive(), type=LearnerNews)
        finally:
            worker.close()
