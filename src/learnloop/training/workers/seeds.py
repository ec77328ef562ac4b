"""Trains one seed, here or in a process of its own.

A process is asked with one JSON line and answers with JSON lines: progress, then the result or the error. Everything
else is in the seed's folder.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from threadpoolctl import threadpool_limits

from learnloop.core.errors import CorruptError, LearnloopError, NotFoundError
from learnloop.system.files import write_whole
from learnloop.training.dataset_files import read_dataset
from learnloop.training.disk import held
from learnloop.training.options import TrainingOptions
from learnloop.training.policy_files import write_policy
from learnloop.training.trainers.seed_trainer import Progress, SeedResult
from learnloop.training.trainers.trainers import make_trainer
from learnloop.training.workers.child_processes import Failure, child_environment, error_of

RESULT_FILE = "result.json"
BEST, FIRST = "best", "first"

OnProgress = Callable[[Progress], None]

_STOP_SECONDS = 5.0
_PROGRAM = (
    "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); "  # the terminal interrupts all; the parent decides
    "from learnloop.training.workers.seeds import main; main()"
)
_HINT = (
    "Several seeds train in processes that do not run your script: give an environment that the script registers as "
    "'module:Id', or as a callable"
)


class SeedTask(msgspec.Struct, frozen=True, kw_only=True):
    """One seed to train."""

    options: TrainingOptions
    seed: int
    folder: str
    resume: bool = False
    dataset: str | None = None
    """The file of the data set that it learns from."""


def train_seed(task: SeedTask, *, env: Any = None, on_progress: OnProgress | None = None) -> SeedResult:
    """Trains one seed in this process, on one thread, and leaves its policies and its result in its folder.

    A seed whose result is there already is not trained again when ``task.resume`` is set; without a checkpoint it
    starts from the beginning.

    Raises:
        LearnloopError: as ``Trainer``.
        ConflictError: another process trains in the folder.
    """
    folder = Path(task.folder)
    with held(folder):
        if task.resume and (folder / RESULT_FILE).exists():
            return _read_result(folder / RESULT_FILE, task.seed)
        return _train(task, folder, env, on_progress)


def _read_result(path: Path, seed: int) -> SeedResult:
    try:
        result = msgspec.json.decode(path.read_bytes(), type=SeedResult)
    except (OSError, msgspec.MsgspecError) as error:
        raise CorruptError(f"{path} cannot be read: {error}; remove it to train this seed again") from error
    if result.seed != seed:
        raise CorruptError(f"{path} is of seed {result.seed}, not {seed}; remove it to train this seed again")
    return result


def _train(task: SeedTask, folder: Path, env: Any, on_progress: OnProgress | None) -> SeedResult:
    with threadpool_limits(limits=1, user_api="blas"):
        dataset = None if task.dataset is None else read_dataset(Path(task.dataset))
        trainer = make_trainer(task.options, task.seed, dataset, env=env, folder=folder, on_progress=on_progress)
        if task.resume:
            try:
                trainer.resume()
            except NotFoundError:
                trainer.start_over()
        result = trainer.run()
    write_policy(folder / FIRST, trainer.first)
    write_policy(folder / BEST, trainer.best or trainer.algorithm.policy())
    write_whole(folder / RESULT_FILE, msgspec.json.encode(result))
    return result


class SeedProcess:
    """One seed in a process of its own."""

    def __init__(self, task: SeedTask) -> None:
        self.task = task
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            encoding="utf-8",
            env=child_environment(),
        )

    def run(self, on_progress: OnProgress | None) -> SeedResult:
        """Trains it to its end.

        Raises:
            LearnloopError: what the training raised, or that its process ended without an answer.
        """
        with self._process as process:
            if process.stdin is None or process.stdout is None:
                raise LearnloopError("the process of a seed has no pipes")
            with suppress(BrokenPipeError):  # it ended already; its code says why
                process.stdin.write(msgspec.json.encode(self.task).decode() + "\n")
                process.stdin.close()
            answer: _Answer | None = None
            for line in process.stdout:
                answer = msgspec.json.decode(line, type=_Answer)
                if answer.progress is not None and on_progress is not None:
                    on_progress(Progress(*answer.progress))
            code = process.wait()
        if answer is not None and answer.error is not None:
            raise error_of(answer.error, _HINT)
        if answer is None or answer.result is None:
            raise LearnloopError(
                f"the process of seed {self.task.seed} ended with exit code {code} and without a result; what it said "
                "is on standard error (a negative code is the signal that killed it, -9 when the memory is full)"
            )
        return answer.result

    def stop(self) -> None:
        """Ends the process, whatever it does."""
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    progress: list[Any] | None = None
    result: SeedResult | None = None
    error: Failure | None = None


def main() -> None:
    """Trains the seed that standard input asks for."""
    task = msgspec.json.decode(sys.stdin.readline(), type=SeedTask)
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what an environment prints is no answer

    def answer(**fields: Any) -> None:
        answers.write(msgspec.json.encode(_Answer(**fields)).decode() + "\n")
        answers.flush()

    try:
        answer(result=train_seed(task, on_progress=lambda progress: answer(progress=list(progress))))
    except LearnloopError as error:
        answer(error=Failure(type(error).__name__, str(error)))
        sys.exit(error.exit_code)
    except BrokenPipeError:  # nobody waits for answers any more
        os._exit(1)
