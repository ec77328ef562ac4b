"""The learner as a process of its own, so that learning never holds up a decision.

It runs beside the server at a lower priority and on one thread. The two share nothing but the store and the folder of
versions: what was learned is served because the alias ``champion`` moved. It reads its task from its standard input,
which stays open: when that ends, the server has ended, however it did, and the learner ends too.
"""

from __future__ import annotations

import logging
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Final

import msgspec

from learnloop.core.errors import CorruptError, LearnloopError, NotFoundError
from learnloop.store import Store
from learnloop.store.queries.news import policies_imitating, policies_rewarded

NICENESS: Final = 10
MAX_WAIT_SECONDS: Final = 60.0
"""Between two starts of a learner that does not stay alive, at the most."""
STABLE_SECONDS: Final = 60.0
"""Who lived so long is started again at once."""
STOP_SECONDS: Final = 5.0
_ORPHAN_SECONDS = 5.0
_PAGE = 10_000
_PROGRAM = "from learnloop.decisions.learning.learner_process import main; main()"

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
    """What a learner says of itself, one line of JSON each."""

    state: str
    """``ready``, ``updated`` or ``waiting``."""
    what: str = ""
    """Which update, or why it waits."""


# In the learner's process -----------------------------------------------------------------------------------------


def main() -> None:
    """Runs a learner on the task that the first line of the standard input holds, until that ends or SIGTERM comes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal interrupts all; the server decides
    signal.signal(signal.SIGTERM, _end)
    os.nice(NICENESS)
    place = msgspec.json.decode(sys.stdin.buffer.readline(), type=LearnerPlace)
    stop = threading.Event()
    threading.Thread(target=_watch_parent, args=(stop,), daemon=True).start()
    logging.basicConfig(level=logging.WARNING, format="learner: %(levelname)s %(message)s")
    run_learner(place, stop)


def _end(number: int, frame: FrameType | None) -> None:
    """Ends the process where it stands: an update is whole in the store, or not there."""
    raise SystemExit(0)


def _watch_parent(stop: threading.Event) -> None:
    while os.read(sys.stdin.fileno(), 1024):
        pass
    stop.set()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_ORPHAN_SECONDS)
    os._exit(1)  # something does not let the main thread go: nobody is left to wait for


def run_learner(place: LearnerPlace, stop: threading.Event) -> None:
    """Updates the policies that have news, one after another, until ``stop`` is set.

    A store that is away, locked or not there yet is waited for, and the reason is told.
    """
    while not stop.is_set():
        try:
            with _open(place) as store:
                _tell(LearnerNews(state="ready"))
                _Watch(store, place).run(stop)
        except LearnloopError as error:
            _tell(LearnerNews(state="waiting", what=str(error)))
            _log.warning("waiting: %s", error)
        stop.wait(place.poll_seconds)


def _open(place: LearnerPlace) -> Store:
    from learnloop.store.engine import parse_url

    path = parse_url(place.database).path
    if path is not None and not path.exists():
        raise NotFoundError(f"there is no database {path} yet")
    blobs = None if place.blobs is None else Path(place.blobs)
    return Store.open(place.database, blobs=blobs, upgrade=False)


class _Watch:
    """Which policies have news, and their updates."""

    def __init__(self, store: Store, place: LearnerPlace) -> None:
        from learnloop.decisions.learning.learner import Learner  # numpy and all that learns, once the store is there
        from learnloop.registry import Registry

        self._store = store
        self._place = place
        self._learner = Learner(store, Registry(store, Path(place.versions)))
        self._rewards = self._decisions = 0
        self._waiting: set[tuple[str, str]] = set()

    def run(self, stop: threading.Event) -> None:
        from learnloop.decisions.service.settings_store import current

        while not stop.is_set():
            self._look(stop)
            for agent_id, policy in sorted(self._waiting):
                if stop.is_set():
                    return
                try:
                    settings = current(self._store, agent_id, policy)
                except CorruptError as error:  # the other policies learn all the same
                    _tell(LearnerNews(state="waiting", what=str(error)))
                    _log.warning("%s", error)
                    continue
                record = self._learner.update(agent_id, policy, settings)
                if record is not None:
                    verdict = record.error if record.verdict is None else record.verdict.value
                    _tell(LearnerNews(state="updated", what=f"{agent_id}.{policy}: {verdict}"))
            self._waiting.clear()  # who has too little news comes again with the next of it
            stop.wait(self._place.poll_seconds)

    def _look(self, stop: threading.Event) -> None:
        """Notes the policies of the service that the log has news of, page by page."""
        while not stop.is_set():
            found, last = self._store.read(policies_rewarded, self._rewards, _PAGE)
            self._waiting |= found
            if last is None:
                break
            self._rewards = last
        while not stop.is_set():
            found, last = self._store.read(policies_imitating, self._decisions, _PAGE)
            self._waiting |= found
            if last is None:
                break
            self._decisions = last


def _tell(news: LearnerNews) -> None:
    line = msgspec.json.encode(news) + b"\n"
    try:
        sys.stdout.buffer.write(line)
        sys.stdout.buffer.flush()
    except BrokenPipeError as error:
        raise SystemExit(0) from error  # nobody is there any more


# In the server's process ------------------------------------------------------------------------------------------


class LearnerProcess:
    """A learner process that is kept alive: one that ends by itself is started again, later each time it fails.

    Args:
        place: what it works on.
    """

    def __init__(self, place: LearnerPlace) -> None:
        self._place = place
        self._process: subprocess.Popen[bytes] | None = None
        self._stop = threading.Event()
        self._keeper: threading.Thread | None = None
        self._lock = threading.Lock()
        self.num_starts = 0
        self.news: LearnerNews | None = None
        """The last thing that it said."""

    @property
    def is_alive(self) -> bool:
        """Whether it runs at this moment."""
        process = self._process
        return process is not None and process.poll() is None

    @property
    def process_id(self) -> int | None:
        """The id of the process; None where none was started."""
        return None if self._process is None else self._process.pid

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
            process = self._process
        if process is not None and process.poll() is None:
            process.terminate()
            try:
                process.wait(timeout_seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._keeper is not None:
            self._keeper.join(timeout_seconds)
            self._keeper = None

    def _keep(self) -> None:
        failures = 0
        while not self._stop.is_set():
            began = time.monotonic()
            with self._lock:
                if self._stop.is_set():
                    return
                try:
                    process = self._process = self._spawn()
                except OSError as error:  # no memory or no process is left for it now
                    process, ended = None, f"could not be started ({error})"
            if process is not None:
                self._listen(process)
                ended = f"ended with the exit code {process.wait()}"
            if self._stop.is_set():
                return
            failures = 0 if time.monotonic() - began >= STABLE_SECONDS else failures + 1
            pause = min(MAX_WAIT_SECONDS, 0.25 * 2 ** min(failures, 16)) * random.uniform(0.8, 1.2)
            _log.warning("the learner %s; it is started again in %.1f s", ended, pause)
            self._stop.wait(pause)

    def _spawn(self) -> subprocess.Popen[bytes]:
        from learnloop.training.workers.child_processes import child_environment

        process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=child_environment(),
        )
        self.num_starts += 1
        try:
            if process.stdin is not None:
                process.stdin.write(msgspec.json.encode(self._place) + b"\n")
                process.stdin.flush()
        except BrokenPipeError as error:
            _log.warning("the learner ended before it was told what to do: %s", error)
        return process

    def _listen(self, process: subprocess.Popen[bytes]) -> None:
        """Reads what it says until it ends."""
        if process.stdout is None:
            return
        with process.stdout:
            for line in process.stdout:
                try:
                    self.news = msgspec.json.decode(line, type=LearnerNews)
                except msgspec.DecodeError as error:
                    _log.warning("the learner said something else than news: %s", error)
        if process.stdin is not None:
            try:
                process.stdin.close()
            except BrokenPipeError as error:
                _log.debug("the learner did not read all of its task: %s", error)
