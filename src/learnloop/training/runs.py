"""A training run: one algorithm, one environment, some seeds, one folder with all that came of it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from learnloop.algorithms.policies.network_policy import NetworkPolicy
from learnloop.core.clock import now
from learnloop.core.datasets import Dataset
from learnloop.core.decoding import NOT_JSON
from learnloop.core.errors import ConflictError, CorruptError, NotFoundError, UsageError, one_of
from learnloop.core.extensions import POINTS, Kind
from learnloop.core.ids import new_id
from learnloop.core.seeding import derive_seed
from learnloop.envs.registry import ADDED, evaluation_env
from learnloop.evaluation.returns import Returns, evaluate_side_by_side
from learnloop.evaluation.seeds import SeedStatistics, summarise_seeds
from learnloop.system.files import write_whole
from learnloop.training.options import TrainingOptions
from learnloop.training.proof import (
    FROZEN,
    HELD_OUT_EPISODES,
    LEARNED,
    NUM_TURNS,
    RANDOM,
    Change,
    Rivals,
    TrainingProof,
    controls_needed,
    draw_controls,
    judge_policy,
)
from learnloop.training.run_files import DATASET_FILE, held, read_policy, write_dataset
from learnloop.training.trainers.seed_trainer import OnProgress, SeedResult
from learnloop.training.trainers.trainers import make_trainer
from learnloop.training.workers.seeds import BEST, FIRST, SeedProcesses, SeedTask, train_seed

RUN_FILE = "run.json"
FORMAT = "learnloop.run/v1"

Status = Literal["running", "completed", "failed", "interrupted"]


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What ``run.json`` says."""

    format: str = FORMAT
    run_id: str
    options: TrainingOptions
    seeds: list[int]
    status: Status
    error: str | None = None
    created_at: str
    own_env: bool = False
    """Whether the environment was the caller's own object, which no other process can make again."""
    results: list[SeedResult] = []


class TrainedSeed:
    """What one seed of a run learned.

    Attributes:
        seed: which one.
        result: its figures.
        policy: the best policy, by the evaluations while it trained.
        first: the policy before its first update.
    """

    def __init__(self, run: TrainedRun, result: SeedResult) -> None:
        self.run = run
        self.seed = result.seed
        self.result = result
        self.policy: NetworkPolicy = read_policy(run.seed_folder(result.seed) / BEST)
        self.first: NetworkPolicy = read_policy(run.seed_folder(result.seed) / FIRST)

    def evaluate(self, num_episodes: int = HELD_OUT_EPISODES) -> Returns:
        """Returns what the policy earns on episodes that neither trained nor chose it."""
        return self._returns(self.policy, num_episodes)

    def prove(self, on_progress: OnProgress | None = None, *, num_episodes: int = HELD_OUT_EPISODES) -> TrainingProof:
        """Returns whether it has learned; trains the shuffled controls that say so, each with the same budget, once.

        Raises:
            LearnloopError: as training.
        """
        chance = NetworkPolicy(
            self.policy.spaces,
            None,
            outputs="uniform",
            learned_by="random",
            seed=derive_seed(self.seed, "random"),
        )
        arms = {LEARNED: self.policy, FROZEN: self.first, RANDOM: chance}
        earned = self._side_by_side(arms, num_episodes)
        means = [late_return(result) for result in self.run.record.results]
        controls: list[float] = []
        if self.run.record.options.algorithm != "random":
            with SeedProcesses() as processes:

                def train(numbers: Sequence[int]) -> list[float]:
                    return [late_return(result) for result in self.run.train_controls(numbers, processes, on_progress)]

                controls = draw_controls(means, controls_needed(len(means)), train, processes.num_processes)
        again = self._returns(self.policy, num_episodes)
        rivals = Rivals(earned[FROZEN], earned[RANDOM], means, controls)
        return judge_policy(earned[LEARNED], rivals, seed=self.seed, again=again, as_trained=self._as_trained())

    def _as_trained(self) -> Change | None:
        """Returns what the policy earned when training chose it, and what it earns now in the same episodes."""
        before, options = self.result.best_return, self.run.record.options
        if before is None:
            return None
        seed = derive_seed(self.seed, "evaluation")
        return Change(before, self._played({LEARNED: self.policy}, options.eval_episodes, seed, num_turns=1)[LEARNED])

    def _side_by_side(self, policies: Mapping[str, NetworkPolicy], num_episodes: int) -> dict[str, Returns]:
        return self._played(policies, num_episodes, derive_seed(self.seed, "held-out"), num_turns=NUM_TURNS)

    def _returns(self, policy: NetworkPolicy, num_episodes: int) -> Returns:
        return self._played({LEARNED: policy}, num_episodes, derive_seed(self.seed, "held-out"), num_turns=1)[LEARNED]

    def _played(
        self, policies: Mapping[str, NetworkPolicy], num_episodes: int, seed: int, *, num_turns: int
    ) -> dict[str, Returns]:
        return evaluate_side_by_side(
            policies,
            self.run.env,
            num_episodes=num_episodes,
            seed=seed,
            env_kwargs=self.run.record.options.env_kwargs or None,
            num_turns=num_turns,
        )


LATE_SHARE = 4
"""The last of so many parts of a training is what trainings are compared by."""


def late_return(result: SeedResult) -> float:
    """Returns the mean return of the last quarter of the evaluations of a training.

    Raises:
        UsageError: there were none.

    Not that of its best policy: the best of many policies that drift without learning is often good, where good ones
    are many (random search solves CartPole).
    """
    if not result.curve:
        raise UsageError(
            f"seed {result.seed} learned without an environment, so nothing was evaluated while it learned, which is "
            "what trainings are compared by; train again with env="
        )
    late = result.curve[-math.ceil(len(result.curve) / LATE_SHARE) :]
    return sum(point.mean_return for point in late) / len(late)


class TrainedRun:
    """A run that has ended: its seeds, and the best of them.

    Attributes:
        record: what was asked and what came of it.
        folder: where all of it is.
    """

    def __init__(self, folder: Path, record: RunRecord, own_env: Any = None) -> None:
        self.folder = folder
        self.record = record
        self.own_env = own_env

    @property
    def env(self) -> Any:
        """What makes the environment: its id, or the caller's own.

        Raises:
            UsageError: it was the caller's own, and this process does not have it; or there is none.
        """
        if self.record.options.env is None and self.own_env is None:
            raise UsageError(
                f"run {self.record.run_id} learned from a data set, and no environment is known to try its policies "
                "in: what they earn is not measured. Hand one over with env= to measure it; to prove it, train with one"
            )
        if self.own_env is None and self.record.own_env:
            raise UsageError(
                f"run {self.record.run_id} was trained in an environment of the caller's own "
                f"({self.record.options.env}); hand it over again with env="
            )
        return evaluation_env(self.record.options.env if self.own_env is None else self.own_env)

    @property
    def dataset_file(self) -> Path | None:
        """Where the data set is that it learned from; None: it learned in its environment."""
        return None if self.record.options.dataset is None else self.folder / DATASET_FILE

    def task(self, options: TrainingOptions, seed: int, folder: Path, *, resume: bool) -> SeedTask:
        """Returns what is to be trained for ``seed``."""
        dataset = None if self.dataset_file is None else str(self.dataset_file)
        return SeedTask(options=options, seed=seed, folder=str(folder), resume=resume, dataset=dataset)

    def seed_folder(self, seed: int) -> Path:
        """Returns where the files of ``seed`` are."""
        return self.folder / f"seed-{seed}"

    def train_controls(
        self,
        numbers: Sequence[int],
        processes: SeedProcesses,
        on_progress: OnProgress | None = None,
    ) -> list[SeedResult]:
        """Returns what came of each of the controls ``numbers``, trained now unless that was done before.

        Raises:
            LearnloopError: as training.
        """
        options = msgspec.structs.replace(self.record.options, shuffled=True, checkpoint_interval=None)
        first = self.record.seeds[0]
        tasks = [
            self.task(options, derive_seed(first, "twin", number), self.folder / "twins" / str(number), resume=True)
            for number in numbers
        ]
        return _train_tasks(tasks, self.own_env, processes, on_progress)

    @property
    def seeds(self) -> Sequence[TrainedSeed]:
        """What each seed learned, in their order."""
        return [TrainedSeed(self, result) for result in self.results()]

    @property
    def best(self) -> TrainedSeed:
        """The policy that earned most in the evaluations while it trained, of all seeds."""
        return TrainedSeed(self, self.best_result())

    def best_result(self) -> SeedResult:
        """Returns what came of the seed whose best policy earned most in the evaluations while it trained.

        Raises:
            UsageError: nothing was evaluated, as there was no environment for it.
        """
        known = [(result.best_return, result) for result in self.results() if result.best_return is not None]
        if not known:
            raise UsageError(
                f"run {self.record.run_id} learned from a data set without an environment: which of its "
                f"{len(self.results())} policies is best is not known; choose one of seeds"
            )
        return max(known, key=lambda each: each[0])[1]

    def results(self) -> list[SeedResult]:
        """Returns what came of each seed, in their order.

        Raises:
            ConflictError: the run has not ended.
        """
        if not self.record.results:
            raise ConflictError(
                f"run {self.record.run_id} is {self.record.status} and has no results yet; wait for it, or resume it"
            )
        return self.record.results

    def evaluate(self, num_episodes: int = HELD_OUT_EPISODES) -> RunEvaluation:
        """Returns what the policy of each seed earns on held-out episodes, and what that says of the algorithm."""
        returns = [seed.evaluate(num_episodes) for seed in self.seeds]
        means = [each.mean for each in returns]
        return RunEvaluation(
            num_episodes=num_episodes,
            seeds=[result.seed for result in self.record.results],
            means=means,
            summary=summarise_seeds(means),
        )


class RunEvaluation(msgspec.Struct, frozen=True, kw_only=True):
    """Held-out returns of a run."""

    num_episodes: int
    """Of each seed."""
    seeds: list[int]
    means: list[float]
    """The mean return of each seed's best policy."""
    summary: SeedStatistics
    """Over seeds."""


def start_run(
    runs: Path,
    options: TrainingOptions,
    seeds: Sequence[int],
    *,
    dataset: Dataset | None = None,
    env: Any = None,
    jobs: int | None = None,
    on_progress: OnProgress | None = None,
) -> TrainedRun:
    """Trains each of ``seeds`` and returns the run, in a folder of its own under ``runs``.

    Several seeds of an environment with an id train in processes of their own, side by side; others in turn.

    Args:
        runs: the folder of all runs.
        options: what to train.
        seeds: which ones.
        dataset: what ``options`` say to learn from; it is kept in the run's folder.
        env: the environment where it is the caller's own object and not an id.
        jobs: how many at once; None: as many as there are processors.
        on_progress: called about twice a second for each seed.

    Raises:
        LearnloopError: what the first seed that failed raised; the others are stopped.
        UsageError: no seeds, one twice, or one that is no whole number.
    """
    if not seeds or len(set(seeds)) != len(seeds):
        raise UsageError(f"the seeds are {list(seeds)}; at least one is needed, each of them once")
    given: Sequence[object] = seeds
    for seed in given:
        if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 1 << 63:
            raise UsageError(f"a seed is {seed!r}; whole numbers from 0 to below 2^63 are needed")
    record = RunRecord(
        run_id=new_id(),
        options=options,
        seeds=list(seeds),
        status="running",
        created_at=now().isoformat(),
        own_env=env is not None,
    )
    make_trainer(options, seeds[0], dataset, env=env).close()  # what does not fit is told before anything is written
    folder = runs / record.run_id
    if dataset is not None:
        write_dataset(folder / DATASET_FILE, dataset)
    return _train(TrainedRun(folder, record, env), jobs, on_progress, resume=False)


def resume_run(
    runs: Path,
    run_id: str,
    *,
    env: Any = None,
    jobs: int | None = None,
    on_progress: OnProgress | None = None,
) -> TrainedRun:
    """Goes on with a run that was interrupted, from the newest checkpoint of each seed, and returns it.

    Raises:
        NotFoundError: there is no such run.
        ConflictError: it has completed.
        UsageError: its environment is the caller's own and was not handed over.
    """
    run = load_run(runs, run_id, env=env)
    if run.record.status == "completed":
        raise ConflictError(f"run {run.record.run_id} has completed; start another one")
    if run.record.own_env and env is None:
        raise UsageError(f"run {run.record.run_id} needs its environment again; hand it over with env=")
    return _train(run, jobs, on_progress, resume=True)


def list_runs(runs: Path) -> list[RunRecord]:
    """Returns the records of all runs in a folder, the newest last.

    Raises:
        CorruptError: one cannot be read.
    """
    return [_read_record(runs / name) for name in _run_names(runs)]


def load_run(runs: Path, run_id: str, *, env: Any = None) -> TrainedRun:
    """Returns the run ``run_id``, or the newest one for ``latest``.

    Raises:
        NotFoundError: there is none.
        CorruptError: its record cannot be read.
    """
    known = _run_names(runs)
    found = known[-1] if run_id == "latest" and known else run_id
    if found not in known:
        raise NotFoundError(f"there is no run {run_id!r} in {runs}; there are {one_of(known)}")
    return TrainedRun(runs / found, _read_record(runs / found), env)


def _run_names(runs: Path) -> list[str]:
    """Returns the ids of all runs in a folder, the newest last: they begin with the time."""
    return sorted(each.name for each in runs.iterdir() if (each / RUN_FILE).is_file()) if runs.is_dir() else []


def _read_record(folder: Path) -> RunRecord:
    path = folder / RUN_FILE
    try:
        record = msgspec.json.decode(path.read_bytes(), type=RunRecord)
    except (OSError, *NOT_JSON) as error:
        raise CorruptError(f"{path} cannot be read: {error}") from error
    if record.format != FORMAT:
        raise CorruptError(f"{path} has the format {record.format!r}; {FORMAT!r} can be read")
    return record


def _train(run: TrainedRun, jobs: int | None, on_progress: OnProgress | None, *, resume: bool) -> TrainedRun:
    with held(run.folder):
        record = run.record
        tasks = [run.task(record.options, seed, run.seed_folder(seed), resume=resume) for seed in record.seeds]
        _write(run.folder, msgspec.structs.replace(record, status="running", error=None))
        try:
            with SeedProcesses(jobs) as processes:
                results = _train_tasks(tasks, run.own_env, processes, on_progress)
        except BaseException as error:
            status: Status = "interrupted" if isinstance(error, KeyboardInterrupt) else "failed"
            told = str(error) or type(error).__name__
            _write(run.folder, msgspec.structs.replace(record, status=status, error=told))
            raise
        run.record = msgspec.structs.replace(record, status="completed", error=None, results=results)
        _write(run.folder, run.record)
    return run


def _train_tasks(
    tasks: Sequence[SeedTask],
    env: Any,
    processes: SeedProcesses,
    on_progress: OnProgress | None,
) -> list[SeedResult]:
    if env is not None or len(tasks) == 1 or _is_of_this_process(tasks[0].options):
        return [train_seed(task, env=env, on_progress=on_progress) for task in tasks]
    return processes.train(tasks, on_progress)


def _is_of_this_process(options: TrainingOptions) -> bool:
    """Returns whether another process may not find all by its name: it was registered here.

    Which encoders and rewards an environment looks up is its own affair: any that were registered count.
    """
    env = "" if options.env is None else options.env.removeprefix(ADDED)
    names: dict[Kind, str] = {"algorithm": options.algorithm, "environment": env, "network": options.network}
    known_here = any(POINTS[kind].is_local(name) for kind, name in names.items())
    return known_here or POINTS["encoder"].has_local() or POINTS["reward"].has_local()


def _write(folder: Path, record: RunRecord) -> None:
    write_whole(folder / RUN_FILE, msgspec.json.format(msgspec.json.encode(record)))
