"""Trains seeds, here or in other processes.

A process is told which seed, and answers with its progress, then with the result; then it is told the next one.
Everything else is in the seed's folder.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import msgspec
from threadpoolctl import threadpool_limits

from learnloop.core.decoding import NOT_JSON
from learnloop.core.errors import ConflictError, CorruptError, NotFoundError
from learnloop.system.files import write_whole
from learnloop.system.worker import Channel, Worker
from learnloop.training.options import TrainingOptions
from learnloop.training.run_files import held, read_dataset, write_policy
from learnloop.training.trainers.seed_trainer import OnProgress, SeedResult, TrainingProgress
from learnloop.training.trainers.trainers import make_trainer

RESULT_FILE = "result.json"
BEST, FIRST = "best", "first"

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
        LearnloopError: as ``EnvTrainer``.
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
    except (OSError, *NOT_JSON) as error:
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


class SeedProcesses:
    """Processes that train seeds side by side: started as they are needed, and kept for further seeds.

    Args:
        num_processes: at most; None: one a core.
    """

    def __init__(self, num_processes: int | None = None) -> None:
        self.num_processes = num_processes or os.cpu_count() or 1
        self._all: list[Worker] = []
        self._free: list[Worker] = []
        self._lock = threading.Lock()
        self._is_stopped = False

    def __enter__(self) -> SeedProcesses:
        """Returns itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Ends the processes."""
        for process in self._all:
            process.close()

    @property
    def process_ids(self) -> list[int]:
        """The system's numbers of those that were started."""
        return [process.process_id for process in self._all]

    def train(self, tasks: Sequence[SeedTask], on_progress: OnProgress | None) -> list[SeedResult]:
        """Returns the results of ``tasks`` in their order; when one fails, the others are stopped.

        Raises:
            LearnloopError: what a training raised, or that its process ended without an answer.
        """
        with ThreadPoolExecutor(max_workers=min(self.num_processes, len(tasks))) as pool:
            futures = [pool.submit(self._train, task, on_progress) for task in tasks]
            try:
                for future in as_completed(futures):
                    future.result()
            except BaseException:
                self._stop()
                raise
        return [future.result() for future in futures]

    def _train(self, task: SeedTask, on_progress: OnProgress | None) -> SeedResult:
        with self._lock:
            if self._is_stopped:
                raise ConflictError(f"seed {task.seed} was not started: another one failed")
            if self._free:
                process = self._free.pop()
            else:
                process = Worker(_TARGET, "a process that trains seeds", hint=_HINT)
                self._all.append(process)
        process.name = f"the process of seed {task.seed}"
        process.send(msgspec.json.encode(task))
        while (result := (answer := msgspec.json.decode(process.receive(), type=_Answer)).result) is None:
            if answer.progress is not None and on_progress is not None:
                on_progress(TrainingProgress(*answer.progress))
        with self._lock:
            self._free.append(process)
        return result

    def _stop(self) -> None:
        with self._lock:
            self._is_stopped = True
            for process in self._all:
                process.stop()


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    progress: list[Any] | None = None
    result: SeedResult | None = None


def work(channel: Channel) -> None:
    """Trains the seeds that messages ask for, until there are no more."""

    def answer(**fields: Any) -> None:
        channel.send(msgspec.json.encode(_Answer(**fields)))

    while True:
        task = msgspec.json.decode(channel.receive(), type=SeedTask)
        answer(result=train_seed(task, on_progress=lambda progress: answer(progress=list(progress))))
