"""Trains one seed, here or in a process of its own.

A process is told which seed, and answers with its progress, then with the result. Everything else is in the seed's
folder.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from threadpoolctl import threadpool_limits

from learnloop.core.errors import CorruptError, NotFoundError
from learnloop.system.files import write_whole
from learnloop.system.worker import Channel, Worker
from learnloop.training.dataset_files import read_dataset
from learnloop.training.disk import held
from learnloop.training.options import TrainingOptions
from learnloop.training.policy_files import write_policy
from learnloop.training.trainers.seed_trainer import Progress, SeedResult
from learnloop.training.trainers.trainers import make_trainer

RESULT_FILE = "result.json"
BEST, FIRST = "best", "first"

OnProgress = Callable[[Progress], None]

_TARGET = "learnloop.training.workers.seeds:work"
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
        self._worker = Worker(_TARGET, f"the process of seed {task.seed}", hint=_HINT)

    def run(self, on_progress: OnProgress | None) -> SeedResult:
        """Trains it to its end.

        Raises:
            LearnloopError: what the training raised, or that its process ended without an answer.
        """
        try:
            self._worker.send(msgspec.json.encode(self.task))
            while True:
                answer = msgspec.json.decode(self._worker.receive(), type=_Answer)
                if answer.result is not None:
                    return answer.result
                if answer.progress is not None and on_progress is not None:
                    on_progress(Progress(*answer.progress))
        finally:
            self._worker.close()

    def stop(self) -> None:
        """Ends the process, whatever it does; ``run``, in another thread, raises."""
        self._worker.stop()


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    progress: list[Any] | None = None
    result: SeedResult | None = None


def work(channel: Channel) -> None:
    """Trains the seed that the first message asks for."""

    def answer(**fields: Any) -> None:
        channel.send(msgspec.json.encode(_Answer(**fields)))

    task = msgspec.json.decode(channel.receive(), type=SeedTask)
    answer(result=train_seed(task, on_progress=lambda progress: answer(progress=list(progress))))
