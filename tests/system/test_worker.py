"""Child processes: what they say, how they end, and that none is left, whoever of the two is killed."""

from __future__ import annotations

import ast
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from learnloop.core.errors import ActionError, LearnloopError, StoreLockedError, UnreachableError, UsageError
from learnloop.system.shared_arrays import SharedArrays
from learnloop.system.worker import END_SECONDS, Worker, WorkerDied
from tests.project import name_of, source_files, tree_of
from tests.waiting import PATIENCE_SECONDS, eventually

TARGETS = "tests.system.worker_targets"


def is_there(process_id: int) -> bool:
    """Whether there is such a process, a zombie too."""
    return Path(f"/proc/{process_id}").exists()


def handles() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.fixture
def start() -> Iterator[Callable[..., Worker]]:
    """Starts workers; after the test neither process, nor zombie, nor open file may be left."""
    started: list[Worker] = []
    before = handles()

    def run(target: str, **options: object) -> Worker:
        started.append(Worker(f"{TARGETS}:{target}", "the child", **options))  # type: ignore[arg-type]
        return started[-1]

    yield run
    ids = [worker.process_id for worker in started]
    for worker in started:
        worker.close(0.0)
        worker.close()  # again is harmless
    assert not any(is_there(each) for each in ids)
    assert handles() == before


# Messages -------------------------------------------------------------------------------------------------------------


def test_messages_go_to_and_fro_whole(start: Callable[..., Worker]) -> None:
    worker = start("echo")
    for message in (b"", b"x", bytes(range(256)) * 20_000, b"y"):
        worker.send(message)
        assert worker.receive() == message
    for number in range(100):
        worker.send(b"%d" % number)
    assert [worker.receive() for _ in range(100)] == [b"%d" % number for number in range(100)]


def test_what_was_said_before_the_end_is_heard(start: Callable[..., Worker]) -> None:
    worker = start("count")
    assert eventually(lambda: not worker.is_alive)
    assert [int(worker.receive()) for _ in range(1000)] == list(range(1000))
    with pytest.raises(WorkerDied, match="exit code 0"):
        worker.receive()


def test_nothing_is_waited_for_longer_than_was_asked(start: Callable[..., Worker]) -> None:
    worker = start("echo")
    worker.send(b"x")
    worker.receive()
    begun = time.monotonic()
    with pytest.raises(UnreachableError, match=r"the child \(process \d+\) did not answer in time"):
        worker.receive(0.2)
    assert 0.2 <= time.monotonic() - begun < PATIENCE_SECONDS / 2  # it would say nothing for ever
    worker.send(b"late")
    assert worker.receive(PATIENCE_SECONDS) == b"late"


def test_several_are_waited_for_at_once(start: Callable[..., Worker]) -> None:
    import selectors

    workers = [start("echo") for _ in range(3)]
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            selector.register(worker, selectors.EVENT_READ)
        workers[1].send(b"x")
        assert [key.fileobj for key, _ in selector.select(PATIENCE_SECONDS)] == [workers[1]]


# Errors ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("what", "kind", "words"),
    [
        ("ours", ActionError, r"^child: the action is 7; allowed are 0 to 3$"),
        ("of theirs", StoreLockedError, r"(?s)^child: it is held\nTraceback.*RuntimeError: the wheel came off"),
        ("theirs", LearnloopError, r"(?s)^child: it failed\nTraceback.*RuntimeError: the wheel came off"),
        ("missing", UsageError, r"^child: there is no environment 'x'. Register it$"),
        ("extra", UsageError, r"pip install .learnloop\[onnx\]"),
        ("unknown", LearnloopError, "^child: odd$"),
    ],
)
def test_an_error_of_the_child_is_raised_here(
    start: Callable[..., Worker], what: str, kind: type[LearnloopError], words: str
) -> None:
    worker = start("fail", prefix="child: ", hint="Register it")
    assert worker.receive() == b"ready"
    worker.send(what.encode())
    with pytest.raises(kind, match=words) as raised:
        worker.receive()
    assert type(raised.value) is kind
    assert eventually(lambda: not worker.is_alive)


def test_a_target_that_is_not_there_is_told(start: Callable[..., Worker]) -> None:
    with pytest.raises(LearnloopError, match="no attribute 'nowhere'"):
        start("nowhere").receive()


# Ends -----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("how", "code"), [("exit", 5), ("kill", -9), ("return", 0), ("half", -9)])
def test_an_end_without_a_word_is_told_with_its_code(start: Callable[..., Worker], how: str, code: int) -> None:
    """Also one in the middle of a message."""
    worker = start("die")
    worker.send(how.encode())
    with pytest.raises(WorkerDied, match=rf"^the child \(process {worker.process_id}\) ended by .* exit code {code};"):
        worker.receive()
    worker.send(b"nobody hears it")
    with pytest.raises(WorkerDied):
        worker.receive()


def test_an_end_is_noticed_where_another_holds_the_channel_open(start: Callable[..., Worker]) -> None:
    worker = start("die")
    begun = time.monotonic()
    worker.send(b"with a child")
    with pytest.raises(WorkerDied, match="exit code -9"):
        worker.receive()
    assert time.monotonic() - begun < 50  # that child lives for a minute


def test_a_child_that_is_not_wanted_any_more_cleans_up(start: Callable[..., Worker], tmp_path: Path) -> None:
    """Whatever it does at the time."""
    worker = start("work")
    worker.send(str(tmp_path / "told").encode())
    worker.receive()
    worker.close()
    assert (tmp_path / "told").read_text() == "cleaned up"


def test_a_child_that_does_not_end_is_killed(start: Callable[..., Worker]) -> None:
    worker = start("hang")
    worker.receive()
    begun = time.monotonic()
    worker.close(0.2)
    assert 0.2 <= time.monotonic() - begun < END_SECONDS
    assert not is_there(worker.process_id)


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_who_waits_in_another_thread_is_told(start: Callable[..., Worker], how: str) -> None:
    worker = start("hang")
    worker.receive()
    found: list[LearnloopError] = []

    def wait() -> None:
        try:
            worker.receive()
        except LearnloopError as error:
            found.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    worker.stop(0.1) if how == "stop" else worker.kill()
    thread.join(PATIENCE_SECONDS)
    assert [type(error) for error in found] == [WorkerDied]


def test_one_that_is_forgotten_is_ended() -> None:
    before = handles()
    worker = Worker(f"{TARGETS}:echo", "the child")
    worker.send(b"x")
    worker.receive()
    process_id = worker.process_id
    del worker
    gc.collect()
    assert eventually(lambda: not is_there(process_id))
    assert handles() == before


PARENT = """
import sys, time
from learnloop.system.worker import Worker
worker = Worker(f"tests.system.worker_targets:{sys.argv[1]}", "the child")
worker.send(sys.argv[2].encode())
print(worker.receive().decode(), flush=True)
time.sleep(100)
"""


@pytest.mark.parametrize("target", ["work", "hang"])
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_no_child_outlives_its_parent(target: str, how: signal.Signals, tmp_path: Path) -> None:
    """Neither one that computes nor one that hears nothing; the former still cleans up."""
    command = [sys.executable, "-c", PARENT, target, str(tmp_path / "told")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert is_there(child)
        parent.send_signal(how)
        parent.wait()
    assert eventually(lambda: not is_there(child))
    assert (tmp_path / "told").exists() == (target == "work")


def test_a_system_without_processes_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    before = handles()
    monkeypatch.setattr("learnloop.system.worker.subprocess.Popen", refuse)
    with pytest.raises(UnreachableError, match=r"the child could not be started .*temporarily unavailable"):
        Worker(f"{TARGETS}:echo", "the child")
    assert handles() == before


# Surroundings ---------------------------------------------------------------------------------------------------------


def test_the_surroundings_of_a_child(start: Callable[..., Worker], capfd: pytest.CaptureFixture[str]) -> None:
    """What it prints is not an answer, it reads nothing, gives way, ignores Ctrl-C, and has only its own open files."""
    worker = start("say", niceness=3)
    assert worker.receive() == b"''"
    assert int(worker.receive()) == min(os.getpriority(os.PRIO_PROCESS, 0) + 3, 19)  # there is none above
    assert worker.receive() == b"1"
    assert worker.receive().decode() == repr([each or os.getcwd() for each in sys.path])
    assert len(worker.receive().split()) == 2
    assert worker.receive() == b"no"  # what it starts has not
    said = capfd.readouterr()
    assert (said.out, said.err) == ("", "no answer\n")


def test_threads_are_limited_where_that_is_wanted(
    start: Callable[..., Worker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "7")
    worker = start("say", one_thread=False)
    assert [worker.receive() for _ in range(3)][2] == b"7"


SCRIPT = """
import sys
from learnloop.system.worker import Worker
from tests.system import worker_targets

def answer(channel):
    channel.send(b"from the script")

worker_targets.answer = answer
{guard}
    worker = Worker("tests.system.worker_targets:answer", "the child", script={script})
    try:
        sys.stdout.write(worker.receive().decode())
    finally:
        worker.close()
"""


@pytest.mark.parametrize(
    ("script", "guard", "told"),
    [
        (True, 'if __name__ == "__main__":', "from the script"),
        (False, 'if __name__ == "__main__":', "has no attribute 'answer'"),
        (True, "if True:", 'put what starts it under: if __name__ == "__main__":'),
    ],
)
def test_a_script_is_run_where_that_is_wanted(script: bool, guard: str, told: str, tmp_path: Path) -> None:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT.format(script=script, guard=guard))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, path], capture_output=True, text=True, env=environment, timeout=PATIENCE_SECONDS
    )
    assert told in done.stdout + done.stderr


# Shared memory --------------------------------------------------------------------------------------------------------


def test_arrays_are_shared(start: Callable[..., Worker]) -> None:
    shared = SharedArrays({"x": (np.float64, (3,))})
    shared.arrays["x"][:] = [1, 2, 3]
    worker = start("double", handles=[shared.handle])
    worker.send(b"%d" % shared.handle)
    assert worker.receive() == b"done"
    assert shared.arrays["x"].tolist() == [2, 4, 6]
    shared.close()
    shared.close()  # again is harmless
    assert shared.arrays["x"].tolist() == [2, 4, 6]


def test_the_layout_of_shared_arrays() -> None:
    shapes = {"bools": (np.bool_, (3,)), "numbers": (np.float64, (2, 2)), "none": (np.int64, (0, 4))}
    before = handles()
    shared = SharedArrays(shapes)
    again = SharedArrays(shapes, os.dup(shared.handle))
    shared.arrays["numbers"][1, 0] = 5
    shared.arrays["bools"][2] = True
    assert again.arrays["numbers"].tolist() == [[0, 0], [5, 0]]
    assert again.arrays["bools"].tolist() == [False, False, True]
    assert again.arrays["none"].shape == (0, 4)
    assert again.arrays["numbers"].flags.aligned
    with pytest.raises(UsageError, match=r"shared memory has .* bytes, not"):
        SharedArrays({**shapes, "more": (np.float32, (9,))}, shared.handle)
    del shared, again
    gc.collect()
    assert handles() == before


# One way --------------------------------------------------------------------------------------------------------------

STARTERS = {
    "system/worker.py": "the one way",
    "sandbox/running.py": "bubblewrap, which is no process of ours",
    "testing/contracts/encoder.py": "asks a new interpreter whether it encodes the same",
}
"""Which files start processes, and why."""


def test_processes_are_started_in_one_way() -> None:
    found = set()
    for path in source_files():
        for node in ast.walk(tree_of(path)):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            if {name.split(".")[0] for name in names} & {"subprocess", "multiprocessing"}:
                found.add(name_of(path))
    assert found == set(STARTERS)
