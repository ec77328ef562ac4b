"""One sandboxed process: how it is started, what it is fed and what is heard of it, and that nothing of it is left.

bubblewrap waits for its arguments on a pipe; meanwhile its process is put into its group. Inside, a shell is process 1:
it sets the limits of each process, says that it is ready, and starts the command when it is told to. When it ends, the
kernel ends all that is left in the sandbox.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import math
import os
import secrets
import selectors
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence

from learnloop.core.errors import SandboxError, UsageError
from learnloop.sandbox.cgroups import Group
from learnloop.sandbox.collecting import Collected, collect
from learnloop.sandbox.interrupts import uninterrupted
from learnloop.sandbox.layout import ENVIRONMENT, PYTHON, WORK, arguments
from learnloop.sandbox.records import Command, CommandOutcome, Ending, Limits
from learnloop.sandbox.seccomp import build_filter

START_SECONDS = 60.0
"""A sandbox that is not ready by then, on a busy machine, is given up."""
_FIRST_ID = 1_900_000_000
_NUM_IDS = 2**27
"""Which ids root gives to sandboxed code: those that no user and no container has."""
_CHUNK = 65536
_READY = b"\n"
_SHELL = (
    "ulimit -p {processes} 2>/dev/null||ulimit -u {processes}||exit;"
    "ulimit -v {memory}&&ulimit -n {open_files}&&ulimit -c 0&&ulimit -f {blocks}&&"
    "ulimit -S -t {cpu}&&ulimit -H -t {hard_cpu}||exit;"
    'echo;read x||exit;exec 9>&2 2>/dev/null;(exec {become}"$@" 2>&9 9>&-);exit $?'
)
"""What process 1 does. Its own stderr is turned away: it would tell which signal ended the command. It keeps its user,
as bubblewrap's signal for the end of its parent reaches no process of another one."""
_LINK = (
    "import os,sys;r,w=map(int,sys.argv[1:3]);"
    "r=os.dup(r) if r in(3,4) else r;w=os.dup(w) if w in(3,4) else w;"
    "os.dup2(r,3);os.dup2(w,4);os.closerange(5,256);os.execvp(sys.argv[3],sys.argv[3:])"
)
"""Gives a command of a pair the pipes to its partner as 3 and 4."""


class Running:
    """A sandboxed process that is ready to begin. Always ``close`` it."""

    def __init__(
        self, command: Command, limits: Limits, group: Group | None, links: tuple[int, int] | None = None
    ) -> None:
        """Starts the sandbox and waits until it is ready.

        Args:
            command: what to run.
            limits: of it.
            group: what it is put into.
            links: the descriptors that it reads its partner from and writes to it.

        Raises:
            SandboxError: it cannot be started.
        """
        self._limits = limits
        self._process: subprocess.Popen[bytes] | None = None
        self._first: int | None = None  # a descriptor of process 1
        self._folder: int | None = None
        self._info: int | None = None
        self._ended = False
        self._is_killed = False
        self._cpu_seconds = 0.0
        self._deadline = time.monotonic() + START_SECONDS
        try:
            self._info = self._spawn(command, group, links or ())
            self._wait_until_ready(self._info, bool(command.returns))
        except BaseException:
            self.close()
            raise

    def _spawn(self, command: Command, group: Group | None, links: Sequence[int]) -> int:
        """Starts bubblewrap and returns the descriptor that tells its child's id."""
        theirs: list[int] = []
        info, telling = os.pipe()
        theirs.append(telling)
        try:
            with contextlib.suppress(BrokenPipeError):  # it has ended; what it said is read next
                self._start(command, group, links, theirs)
        except BaseException as error:
            os.close(info)
            if isinstance(error, OSError) and error.errno == errno.E2BIG:
                raise UsageError("the arguments of a sandboxed command are too long for this system") from error
            if isinstance(error, OSError):
                raise SandboxError(f"the sandbox cannot be started: {error}; nothing was run") from error
            raise
        finally:
            for each in theirs:
                os.close(each)
        return info

    def _start(self, command: Command, group: Group | None, links: Sequence[int], theirs: list[int]) -> None:
        """Starts bubblewrap; puts the descriptors that are its alone into ``theirs``, whose first tells the id."""
        as_root = os.geteuid() == 0
        theirs.append(_memory_file(_filter()))
        laid = []
        for path, content in command.files.items():
            theirs.append(_memory_file(content))
            laid.append((path, theirs[-1]))
        told = arguments(
            as_root=as_root, disk_bytes=self._limits.disk_bytes, seccomp=theirs[1], info=theirs[0], files=laid,
            env={**ENVIRONMENT, **command.env},
        )  # fmt: skip
        reading, writing = os.pipe()
        theirs.append(reading)
        with os.fdopen(writing, "wb") as pipe:
            self._process = subprocess.Popen(
                [program("bwrap"), "--args", str(reading), "--", *_inner(command, self._limits, links, as_root)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                pass_fds=[*theirs, *links], env={}, cwd="/", start_new_session=True,
            )  # fmt: skip
            if group is not None:
                group.add(self._process.pid)
            pipe.write("\0".join([*told, ""]).encode())

    def _wait_until_ready(self, info: int, is_returning: bool) -> None:
        text = self._read_until(info, b"}", 4096)
        ready = self._read_until(self._pipe(1), _READY) if text else b""
        if ready != _READY:
            raise SandboxError(f"the sandbox cannot be made, so nothing was run: {self._complaint()}")
        first = json.loads(text)["child-pid"]
        self._first = os.pidfd_open(first)
        if is_returning:
            self._folder = os.open(f"/proc/{first}/root{WORK}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def _read_until(self, descriptor: int, mark: bytes, at_once: int = 1) -> bytes:
        """Returns what comes up to ``mark``, so many bytes at once; less where it ends before."""
        found = b""
        while mark not in found:
            with selectors.DefaultSelector() as selector:
                selector.register(descriptor, selectors.EVENT_READ)
                if not selector.select(max(0.0, self._deadline - time.monotonic())):
                    raise SandboxError(f"the sandbox was not ready within {START_SECONDS:g} s; nothing was run")
            part = os.read(descriptor, at_once)
            if not part:
                break
            found += part
        return found

    def _complaint(self) -> str:
        """Returns what bubblewrap or the shell had to say."""
        self._kill()
        said = os.read(self._pipe(2), 4096)
        return said.decode(errors="replace").strip() or "it ended without a word"

    def _pipe(self, number: int) -> int:
        process = self._process
        pipe = None if process is None else (process.stdin, process.stdout, process.stderr)[number]
        if pipe is None:
            raise SandboxError("the sandbox was not started")
        return pipe.fileno()

    def begin(self) -> None:
        """Lets the command begin."""
        with contextlib.suppress(BrokenPipeError):  # it was killed; that is found when it is listened to
            os.write(self._pipe(0), b"\n")

    def listen(self, stdin: bytes, group: Group | None) -> CommandOutcome:
        """Feeds and hears the command until it ends, or is ended for what it used; ``collect`` brings its files."""
        if self._process is None or self._first is None:
            raise SandboxError("the sandbox was not started")
        begun = time.monotonic()
        with contextlib.ExitStack() as stack:
            with uninterrupted():
                pump = _Pump(self._process, stdin, self._limits)
                stack.callback(pump.close)
            ended_by = pump.run(begun, group)
        self._kill()
        seconds = time.monotonic() - begun
        pump.drain()
        if ended_by is None and pump.is_cut:
            ended_by = Ending.OUTPUT
        status = self._process.returncode
        if ended_by is None and self._is_killed and status == 128 + signal.SIGKILL:
            ended_by = Ending.PARTNER
        used = group.cpu_seconds if group is not None else self._cpu_seconds if ended_by is None else None
        code, number = (None, int(signal.SIGKILL)) if ended_by is not None else _read_status(status)
        return CommandOutcome(
            exit_code=code,
            signal=number,
            ended_by=ended_by or self._own_end(number, used, group),
            stdout=bytes(pump.outputs[0]),
            stderr=bytes(pump.outputs[1]),
            is_output_cut=pump.is_cut,
            wall_seconds=seconds,
            cpu_seconds=used,
            peak_memory_bytes=None if group is None else group.peak_memory_bytes,
        )

    def _own_end(self, number: int | None, used: float | None, group: Group | None) -> Ending:
        """Returns why a command ended that nobody here ended: ``number`` is the signal, if one did."""
        is_over = used is not None and used >= self._limits.cpu_seconds
        if number == signal.SIGXCPU or (number == signal.SIGKILL and is_over):
            return Ending.CPU
        if number == signal.SIGKILL and group is not None and group.is_memory_exhausted:
            return Ending.MEMORY
        return Ending.EXITED if number is None else Ending.SIGNALLED

    def collect(self, wanted: Sequence[str]) -> Collected:
        """Returns the files that the command left; it has ended."""
        return Collected() if self._folder is None else collect(self._folder, wanted, self._limits.disk_bytes)

    def kill(self) -> None:
        """Ends all of its processes now, for its partner's sake; the thread that listens hears of it."""
        self._is_killed = True
        self._signal()

    def _signal(self) -> None:
        if self._first is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._first, signal.SIGKILL)

    @uninterrupted()
    def _kill(self) -> None:
        """Ends all of its processes and waits until none is left."""
        if self._process is None or self._ended:
            return
        self._ended = True
        if self._first is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
        else:
            self._signal()
        _, status, usage = os.wait4(self._process.pid, 0)
        self._process.returncode = os.waitstatus_to_exitcode(status)
        self._cpu_seconds = usage.ru_utime + usage.ru_stime

    @uninterrupted()
    def close(self) -> None:
        """Ends what runs and gives all back; a second time is harmless."""
        try:
            self._kill()
        finally:
            for each in (self._first, self._folder, self._info):
                if each is not None:
                    os.close(each)
            self._first = self._folder = self._info = None
            process = self._process
            for pipe in () if process is None else (process.stdin, process.stdout, process.stderr):
                if pipe is not None:
                    with contextlib.suppress(BrokenPipeError):
                        pipe.close()


class _Pump:
    """Moves bytes between us and a command: never more than the limits, never waiting for one of the pipes alone."""

    def __init__(self, process: subprocess.Popen[bytes], stdin: bytes, limits: Limits) -> None:
        self.outputs = (bytearray(), bytearray())
        self.is_cut = False
        self._limits = limits
        self._stdin = memoryview(stdin)
        self._feed = process.stdin
        self._pipes = [pipe for pipe in (process.stdout, process.stderr) if pipe is not None]
        self._selector = selectors.DefaultSelector()
        self._end = os.pidfd_open(process.pid)
        for number, pipe in enumerate(self._pipes):
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(pipe, selectors.EVENT_READ, number)
        self._selector.register(self._end, selectors.EVENT_READ, None)
        if self._feed is not None:
            os.set_blocking(self._feed.fileno(), False)
            self._selector.register(self._feed, selectors.EVENT_WRITE, None)

    def run(self, begun: float, group: Group | None) -> Ending | None:
        """Returns once the command has ended (None), or has used too much."""
        deadline = begun + self._limits.wall_seconds
        next_count = begun + self._limits.cpu_seconds / (os.cpu_count() or 1)
        while True:
            now = time.monotonic()
            if now >= deadline:
                return Ending.WALL
            if group is not None and now >= next_count:
                used = group.cpu_seconds
                if used is None:
                    next_count = deadline
                elif used > self._limits.cpu_seconds:
                    return Ending.CPU
                else:
                    next_count = now + max(0.02, (self._limits.cpu_seconds - used) / (os.cpu_count() or 1))
            until = deadline if group is None else min(deadline, next_count)
            for key, _ in self._selector.select(max(0.0, until - now)):
                if key.fileobj == self._end:
                    return None
                if key.fileobj is self._feed:
                    self._write()
                elif not self._read(key.data):
                    return Ending.OUTPUT

    def _write(self) -> None:
        feed = self._feed
        if feed is None:
            return
        try:
            if self._stdin:
                self._stdin = self._stdin[os.write(feed.fileno(), self._stdin[:_CHUNK]) :]
        except BrokenPipeError:
            self._stdin = self._stdin[:0]
        if not self._stdin:
            self._selector.unregister(feed)
            with contextlib.suppress(BrokenPipeError):
                feed.close()

    def _read(self, number: int) -> bool:
        """Takes what is there now; returns whether it is within the limit."""
        pipe = self._pipes[number]
        try:
            data = os.read(pipe.fileno(), _CHUNK)
        except BlockingIOError:
            return True
        if not data:
            self._selector.unregister(pipe)
            return True
        return self._keep(number, data)

    def _keep(self, number: int, data: bytes) -> bool:
        """Keeps what fits and returns whether all did."""
        output = self.outputs[number]
        fitting = data[: self._limits.output_bytes - len(output)]
        output += fitting
        is_within = len(fitting) == len(data)
        self.is_cut = self.is_cut or not is_within
        return is_within

    def drain(self) -> None:
        """Takes what is left in the pipes, which nobody writes to any more."""
        for number, pipe in enumerate(self._pipes):
            with contextlib.suppress(BlockingIOError):
                while (data := os.read(pipe.fileno(), _CHUNK)) and self._keep(number, data):
                    pass

    @uninterrupted()
    def close(self) -> None:
        """Gives back what it opened."""
        self._selector.close()
        os.close(self._end)


def _read_status(status: int) -> tuple[int | None, int | None]:
    """Returns the exit code, or the signal."""
    if status < 0:
        return None, -status
    return (None, status - 128) if 128 < status <= 128 + signal.NSIG else (status, None)


def program(name: str) -> str:
    """Returns the path of a program of the system.

    Raises:
        SandboxError: it is not installed.
    """
    found = shutil.which(name)
    if found is None:
        package = {"bwrap": "bubblewrap", "setpriv": "util-linux"}[name]
        raise SandboxError(
            f"the sandbox needs the program {name!r}, which is not installed, so nothing was run; "
            f"install it with: apt install {package} (or your system's package of this name)"
        )
    return found


def _inner(command: Command, limits: Limits, links: Sequence[int], as_root: bool) -> list[str]:
    """Returns what is started in the sandbox."""
    seconds = math.ceil(limits.cpu_seconds)
    script = _SHELL.format(
        become=_become_another() if as_root else "",  # the shell stays root: nothing inside can reach it
        processes=limits.num_processes + (0 if as_root else 1),  # the shell itself
        memory=limits.memory_bytes // 1024,
        open_files=limits.num_open_files,
        blocks=math.ceil(limits.disk_bytes / 512),
        cpu=seconds,
        hard_cpu=seconds + 1,
    )
    argv = [PYTHON, "-I", "-S", "-E", "-c", _LINK, *map(str, links)] if links else []
    return ["/bin/sh", "-c", script, "sandbox", *argv, *command.argv]


def _become_another() -> str:
    """Returns the words that start a program as another user: an id that nobody else has."""
    number = _FIRST_ID + secrets.randbelow(_NUM_IDS)
    return f"{program('setpriv')} --reuid {number} --regid {number} --clear-groups --inh-caps=-all -- "


@functools.cache
def _filter() -> bytes:
    return build_filter()


def _memory_file(content: bytes) -> int:
    """Returns the descriptor of a file that is nowhere but in memory, and is read from its start."""
    descriptor = os.memfd_create("learnloop", os.MFD_CLOEXEC)
    view = memoryview(content)
    while view:
        view = view[os.write(descriptor, view) :]
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor
