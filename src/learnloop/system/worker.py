"""Child processes: one way to start them, speak with them, learn how they ended, and see that none is left.

Parent and child have a channel of whole messages. Whatever the child prints goes to standard error. An error of
learnloop's in the child is raised in the parent, with the traceback where its cause was another's code. The child ends
when the channel does: because its parent has closed it, or has ended, however it did. The terminal's interrupts are for
the parent alone.
"""

from __future__ import annotations

import importlib
import os
import select
import signal
import struct
import subprocess
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Sequence
from contextlib import suppress
from functools import reduce
from types import FrameType
from typing import Any

import msgspec

from learnloop.core import errors
from learnloop.core.errors import LearnloopError, MissingExtraError, NotFoundError, UnreachableError, UsageError

END_SECONDS = 5.0
"""So long a process that is no longer wanted has to end by itself; then it is killed."""
_LOOK_SECONDS = 1.0
"""So often the end of a child is looked for, which others that it started may keep the channel open for."""
_CHUNK_BYTES = 1 << 16
_MESSAGE, _FAILURE = 0, 1
_FRAME = struct.Struct("<QB")
"""What goes before each message: its length and its kind."""


class WorkerDied(LearnloopError):
    """A child process ended without a word."""


class _Failure(msgspec.Struct, frozen=True):
    """What a child raised."""

    kind: str
    """The name of its class."""
    message: str


class _Start(msgspec.Struct, frozen=True):
    """What a child is to run."""

    target: str
    niceness: int
    script: dict[str, str]
    """Where the parent's script lies, for ``multiprocessing`` to run it as it does; empty: it is not run."""


def found_at(place: str) -> Any:
    """Returns what lies at ``module:name``.

    Raises:
        ImportError, AttributeError: it is not there.
    """
    module, _, name = place.partition(":")
    return reduce(getattr, name.split("."), importlib.import_module(module))


class Channel:
    """One end of a channel: messages go to and fro through two pipes, each whole and in order."""

    def __init__(self, incoming: int, outgoing: int) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self._held = bytearray()

    def send(self, message: bytes, kind: int = _MESSAGE) -> None:
        """Sends a message; waits while the other side has too many to read.

        Raises:
            BrokenPipeError: the other side is gone.
        """
        data = _FRAME.pack(len(message), kind) + message
        sent = os.write(self._outgoing, data)
        while sent < len(data):  # a long one
            sent += os.write(self._outgoing, memoryview(data)[sent:])

    def receive(self) -> bytes:
        """Returns the next message.

        Raises:
            EOFError: nothing more will come.
        """
        found = self.held()
        while found is None:
            found = self.read()
        return found[0]

    def held(self) -> tuple[bytes, int] | None:
        """Returns the next message that was read as a whole, with its kind; None: none was."""
        held = self._held
        if len(held) < _FRAME.size:
            return None
        length, kind = _FRAME.unpack_from(held)
        end = _FRAME.size + length
        if len(held) < end:
            return None
        message = bytes(memoryview(held)[_FRAME.size : end])
        del held[:end]
        return message, kind

    def read(self) -> tuple[bytes, int] | None:
        """Reads what is here, waiting for some, and returns as ``held``.

        Raises:
            EOFError: nothing more will come.
        """
        part = os.read(self._incoming, _CHUNK_BYTES)
        if not part:
            raise EOFError("the other side of the channel is gone")
        if not self._held and len(part) >= _FRAME.size:  # mostly it is one short message: nothing is to be held
            length, kind = _FRAME.unpack_from(part)
            if len(part) == _FRAME.size + length:
                return part[_FRAME.size :], kind
        self._held += part
        return self.held()


# The parent's side ------------------------------------------------------------------------------------------------


class Worker:
    """A child process, as its parent sees it. ``close`` it; one that is forgotten is ended all the same.

    Args:
        target: the function that it runs, as ``module:name``; it is given its end of the channel.
        name: what messages call it, such as ``worker 3``.
        handles: open files that it shares with this process, under the same numbers.
        niceness: how much it gives way to others.
        one_thread: whether its numerical libraries compute on one thread.
        script: whether it runs the script of this process first, as ``multiprocessing`` does, to find what is defined
            and registered there; what starts such a process must then stand under ``if __name__ == "__main__":``.
        prefix: what goes before the message of an error that it raised.
        hint: what to do where it did not find something that this process has.

    Raises:
        UsageError: a script starts a process while it is run by one.
        UnreachableError: the system has no process or memory left for it.
    """

    def __init__(
        self,
        target: str,
        name: str,
        *,
        handles: Sequence[int] = (),
        niceness: int = 0,
        one_thread: bool = True,
        script: bool = False,
        prefix: str = "",
        hint: str = "",
    ) -> None:
        if _RUNS_SCRIPT.is_set():
            raise UsageError(
                f"{name} would be started by a process that runs this script to find what it defines, and so without "
                'end; put what starts it under: if __name__ == "__main__":'
            )
        self.name = name
        self._prefix = prefix
        self._hint = hint
        theirs_in, self._outgoing = os.pipe()
        self._incoming, theirs_out = os.pipe()
        self._open = [self._outgoing, self._incoming]
        try:
            self._process = _started((theirs_in, theirs_out), handles, name, one_thread=one_thread)
        except BaseException:
            _close(self._open)
            raise
        finally:
            _close([theirs_in, theirs_out])
        self._forget = weakref.finalize(self, _end, self._process, self._open, END_SECONDS)
        self._channel = Channel(self._incoming, self._outgoing)
        self._arrivals = select.poll()
        self._arrivals.register(self._incoming, select.POLLIN)
        self.send(msgspec.json.encode(_Start(target, niceness, _script() if script else {})))

    @property
    def process_id(self) -> int:
        """The system's number of the process."""
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        """Whether it runs at this moment."""
        return self._process.poll() is None

    def fileno(self) -> int:
        """Returns the open file by which a selector sees that something has arrived."""
        return self._incoming

    def send(self, message: bytes) -> None:
        """Sends a message. A process that has ended gets none: ``receive`` tells why."""
        with suppress(BrokenPipeError):
            self._channel.send(message)

    def receive(self, timeout_seconds: float | None = None) -> bytes:
        """Returns the next message.

        Args:
            timeout_seconds: how long it is waited for; None: as long as the process lives.

        Raises:
            LearnloopError: what the process raised.
            WorkerDied: it ended.
            UnreachableError: nothing came in time.
        """
        deadline = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        found = self._channel.held()
        while found is None:
            self._wait(deadline)
            try:
                found = self._channel.read()
            except EOFError as error:
                raise self._end_of() from error
        message, kind = found
        if kind == _FAILURE:
            raise _error_of(msgspec.json.decode(message, type=_Failure), self._prefix, self._hint)
        return message

    def _wait(self, deadline: float | None) -> None:
        """Returns once something has arrived."""
        while True:
            left = _LOOK_SECONDS if deadline is None else min(_LOOK_SECONDS, max(0.0, deadline - time.monotonic()))
            if self._arrivals.poll(1000 * left):
                return
            if not self.is_alive and not self._arrivals.poll(0):
                raise self._end_of()
            if deadline is not None and time.monotonic() >= deadline:
                raise UnreachableError(f"{self.name} (process {self.process_id}) did not answer in time")

    def _end_of(self) -> WorkerDied:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_SECONDS)
        return WorkerDied(
            f"{self.name} (process {self.process_id}) ended by itself with exit code {self._process.returncode}; what "
            "it said is on standard error (a negative code is the signal that killed it, -9 when the memory is full)"
        )

    def ask_to_end(self) -> None:
        """Lets it end, and does not wait for it. Nothing more can be sent."""
        with suppress(ValueError):  # it was asked already
            self._open.remove(self._outgoing)
            os.close(self._outgoing)

    def kill(self) -> None:
        """Ends it at once; whoever receives from it, in another thread, is told."""
        self._process.kill()
        self._process.wait()

    def stop(self, timeout_seconds: float = END_SECONDS) -> None:
        """Asks it to end and waits for that; kills it where it takes longer. Another thread may be receiving."""
        self.ask_to_end()
        _reap(self._process, timeout_seconds)

    def close(self, timeout_seconds: float = END_SECONDS) -> None:
        """Stops it and gives all back; again is harmless. No other thread may be using it."""
        self.stop(timeout_seconds)
        self._forget()


_RUNS_SCRIPT = threading.Event()
"""Set in a child while it runs the script of its parent."""


def _script() -> dict[str, str]:
    from multiprocessing import spawn

    data = spawn.get_preparation_data("worker")
    return {key: value for key, value in data.items() if key.startswith("init_main")}


def _started(
    channel: tuple[int, int], handles: Sequence[int], name: str, *, one_thread: bool
) -> subprocess.Popen[bytes]:
    path = [each or os.getcwd() for each in sys.path]  # so that it finds what this process finds
    program = f"import sys; sys.path[:] = {path!r}; from learnloop.system.worker import run; run{channel}"
    limits = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"} if one_thread else {}
    try:
        return subprocess.Popen(
            [sys.executable, "-c", program],
            stdin=subprocess.DEVNULL,
            stdout=2,  # its answers come over the channel
            pass_fds=[*channel, *handles],
            env={**os.environ, **limits},
        )
    except OSError as error:
        raise UnreachableError(f"{name} could not be started ({error})") from error


def _reap(process: subprocess.Popen[bytes], timeout_seconds: float) -> None:
    """Waits for the end of a process, and kills it where that takes longer."""
    try:
        process.wait(timeout_seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _end(process: subprocess.Popen[bytes], handles: list[int], timeout_seconds: float) -> None:
    """Closes the channel and leaves neither process nor zombie."""
    _close(handles)
    _reap(process, timeout_seconds)


def _close(handles: list[int]) -> None:
    while handles:
        os.close(handles.pop())


def _error_of(failure: _Failure, prefix: str, hint: str) -> LearnloopError:
    """Returns what a child raised, as an error of this process, which may have what the child did not find."""
    kind, message = getattr(errors, failure.kind, LearnloopError), f"{prefix}{failure.message}"
    if kind is NotFoundError and hint:
        return UsageError(f"{message}. {hint}")
    if not issubclass(kind, LearnloopError):
        return LearnloopError(message)
    return UsageError(message) if kind is MissingExtraError else kind(message)


# The child's side -------------------------------------------------------------------------------------------------


def run(incoming: int, outgoing: int) -> None:
    """Runs in a child what its parent wants, until that is done or the channel ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _terminate)
    for handle in (incoming, outgoing):
        os.set_inheritable(handle, False)
    threading.Thread(target=_end_with, args=(incoming,), daemon=True).start()
    channel = Channel(incoming, outgoing)
    try:
        start = msgspec.json.decode(channel.receive(), type=_Start)
        os.nice(start.niceness)
        _run_script(start.script)
        found_at(start.target)(channel)
    except (EOFError, BrokenPipeError) as error:
        raise SystemExit(0) from error  # nobody is there any more
    except LearnloopError as error:
        _tell(channel, _Failure(type(error).__name__, _describe_error(error)))
        raise SystemExit(error.exit_code) from error
    except Exception as error:
        _tell(channel, _Failure("LearnloopError", f"it failed\n{traceback.format_exc()}"))
        raise SystemExit(1) from error


def _run_script(script: dict[str, str]) -> None:
    if not script:
        return
    from multiprocessing import spawn

    _RUNS_SCRIPT.set()
    try:
        spawn.prepare(script)
    finally:
        _RUNS_SCRIPT.clear()


def _terminate(number: int, frame: FrameType | None) -> None:
    """Ends the process where it stands."""
    raise SystemExit(0)


def _end_with(handle: int) -> None:
    """Ends this process when the other side of its channel has ended; after some time whatever it does by then."""
    watched = select.poll()
    watched.register(handle, 0)  # a hang-up is told without being asked for
    watched.poll()
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(END_SECONDS)
    os._exit(1)


def _describe_error(error: LearnloopError) -> str:
    """Returns the words of an error, with the traceback of its cause where that is of another's code."""
    cause = error.__cause__
    if cause is None or isinstance(cause, LearnloopError):
        return str(error)
    return f"{error}\n{''.join(traceback.format_exception(cause))}"


def _tell(channel: Channel, failure: _Failure) -> None:
    with suppress(BrokenPipeError):  # nobody is there any more
        channel.send(msgspec.json.encode(failure), _FAILURE)
