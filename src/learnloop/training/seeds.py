"""Trains one seed, here or in a process of its own.

A process is asked with one JSON line and answers with JSON lines: progress, then the result or the error. Everything
else is in the seed's folder.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from threadpoolctl import threadpool_limits

from learnloop.core import errors
from learnloop.core.errors import LearnloopError, NotFoundError
from learnloop.training.options import TrainingOptions
from learnloop.training.policy_files import write_policy
from learnloop.training.trainer import Progress, SeedResult, Trainer

RESULT_FILE = "result.json"
BEST, FIRST = "best", "first"

OnProgress = Callable[[Progress], None]


class SeedTask(msgspec.Struct, frozen=True, kw_only=True):
    """One seed to train."""

    options: TrainingOptions
    seed: int
    folder: str
    resume: bool = False


def train_seed(task: SeedTask, *, env: Any = None, on_progress: OnProgress | None = None) -> SeedResult:
    """Trains one seed in this process, on one thread, and leaves its policies and its result in its folder.

    A seed whose result is there already is not trained again when ``task.resume`` is set; without a checkpoint it
    starts from the beginning.

    Raises:
        LearnloopError: as ``Trainer``.
    """
    folder = Path(task.folder)
    if task.resume and (folder / RESULT_FILE).exists():
        return msgspec.json.decode((folder / RESULT_FILE).read_bytes(), type=SeedResult)
    with threadpool_limits(limits=1, user_api="blas"):
        trainer = Trainer(task.options, task.seed, env=env, folder=folder, on_progress=on_progress)
        if task.resume:
            try:
                trainer.resume()
            except NotFoundError:
                trainer.start_over()
        result = trainer.run()
    write_policy(folder / FIRST, trainer.first)
    write_policy(folder / BEST, trainer.best or trainer.algorithm.policy())
    part = folder / f".{RESULT_FILE}.part"
    part.write_bytes(msgspec.json.encode(result))
    part.replace(folder / RESULT_FILE)
    return result


class SeedProcess:
    """One seed in a process of its own."""

    def __init__(self, task: SeedTask) -> None:
        self.task = task
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "learnloop.training.seeds"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )

    def run(self, on_progress: OnProgress | None) -> SeedResult:
        """Trains it to its end.

        Raises:
            LearnloopError: what the training raised, or that its process ended without an answer.
        """
        with self._process as process:
            if process.stdin is None or process.stdout is None:
                raise LearnloopError("the process of a seed has no pipes")
            process.stdin.write(msgspec.json.encode(self.task).decode() + "\n")
            process.stdin.close()
            answer: _Answer | None = None
            for line in process.stdout:
                answer = msgspec.json.decode(line, type=_Answer)
                if answer.progress is not None and on_progress is not None:
                    on_progress(Progress(*answer.progress))
            code = process.wait()
        if answer is not None and answer.error is not None:
            raise _error(answer.error)
        if answer is None or answer.result is None:
            raise LearnloopError(f"the process of seed {self.task.seed} ended with {code} and without a result")
        return answer.result

    def stop(self) -> None:
        """Ends the process, whatever it does."""
        self._process.terminate()
        self._process.wait()


class _Error(msgspec.Struct, frozen=True):
    kind: str
    message: str


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    progress: list[Any] | None = None
    result: SeedResult | None = None
    error: _Error | None = None


def _error(error: _Error) -> LearnloopError:
    kind = getattr(errors, error.kind, LearnloopError)
    if isinstance(kind, type) and issubclass(kind, LearnloopError) and kind is not errors.MissingExtraError:
        return kind(error.message)
    return LearnloopError(error.message)


def main() -> None:
    """Trains the seed that standard input asks for."""
    task = msgspec.json.decode(sys.stdin.readline(), type=SeedTask)

    def answer(**fields: Any) -> None:
        sys.stdout.write(msgspec.json.encode(_Answer(**fields)).decode() + "\n")
        sys.stdout.flush()

    try:
        answer(result=train_seed(task, on_progress=lambda progress: answer(progress=list(progress))))
    except LearnloopError as error:
        answer(error=_Error(type(error).__name__, str(error)))
        sys.exit(error.exit_code)


if __name__ == "__main__":
    main()
