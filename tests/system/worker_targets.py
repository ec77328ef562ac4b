"""What the child processes of ``test_worker.py`` run."""

from __future__ import annotations

import os
import signal
import sys
import time

import numpy as np

from learnloop.core.errors import ActionError, MissingExtraError, NotFoundError, StoreLockedError
from learnloop.system.shared_arrays import SharedArrays
from learnloop.system.worker import Channel


def echo(channel: Channel) -> None:
    """Sends back what it gets."""
    while True:
        channel.send(channel.receive())


def count(channel: Channel) -> None:
    """Sends many messages and ends."""
    for number in range(1000):
        channel.send(str(number).encode())


def fail(channel: Channel) -> None:
    """Raises what it is told to."""
    channel.send(b"ready")
    match channel.receive().decode():
        case "ours":
            raise ActionError("the action is 7; allowed are 0 to 3")
        case "of theirs":
            try:
                raise RuntimeError("the wheel came off")
            except RuntimeError as error:
                raise StoreLockedError("it is held") from error
        case "theirs":
            raise RuntimeError("the wheel came off")
        case "missing":
            raise NotFoundError("there is no environment 'x'")
        case "extra":
            raise MissingExtraError("a graph", "onnx")
        case "unknown":
            raise Unknown("odd")


class Unknown(ActionError):
    """Not one of ``core/errors.py``."""


def die(channel: Channel) -> None:
    """Ends as it is told to."""
    match channel.receive().decode():
        case "exit":
            os._exit(5)
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "return":
            return
        case "half":
            os.write(channel._outgoing, (1000).to_bytes(8, "little") + b"\0half of it")
            os.kill(os.getpid(), signal.SIGKILL)
        case "with a child":  # which has the channel open too
            if os.fork() == 0:
                os.close(1), os.close(2)
                time.sleep(60)
                os._exit(0)
            os.kill(os.getpid(), signal.SIGKILL)


def hang(channel: Channel) -> None:
    """Does nothing more, and does not let itself be asked to end."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    channel.send(str(os.getpid()).encode())
    while True:
        time.sleep(1)


def work(channel: Channel) -> None:
    """Computes, and cleans up where it is ended."""
    place = channel.receive().decode()
    try:
        channel.send(str(os.getpid()).encode())
        while True:
            sum(range(1000))
    finally:
        with open(place, "w") as stream:
            stream.write("cleaned up")


def say(channel: Channel) -> None:
    """Prints, and tells what it sees of its surroundings."""
    sys.stdout.write("no answer\n")
    sys.stdout.flush()
    channel.send(repr(sys.stdin.read()).encode())
    channel.send(str(os.getpriority(os.PRIO_PROCESS, 0)).encode())
    channel.send(os.environ.get("OPENBLAS_NUM_THREADS", "").encode())
    os.kill(os.getpid(), signal.SIGINT)
    channel.send(repr(sys.path).encode())
    channel.send(" ".join(str(handle) for handle in range(3, 30) if os.path.exists(f"/proc/self/fd/{handle}")).encode())
    channel.send(b"yes" if os.get_inheritable(channel._incoming) else b"no")


def double(channel: Channel) -> None:
    """Doubles the numbers that it shares with its parent."""
    shared = SharedArrays({"x": (np.float64, (3,))}, int(channel.receive()))
    shared.arrays["x"] *= 2
    channel.send(b"done")
