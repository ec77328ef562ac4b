"""Training from the facade: ``ll.train``, and the way of what was learned into the registry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from learnloop.core.checks import check_name
from learnloop.core.datasets import Dataset
from learnloop.core.errors import UsageError
from learnloop.core.records import PolicyVersion
from learnloop.envs import resolve_env
from learnloop.envs.text_view import TEXT_ENCODER
from learnloop.evaluation.tables import html_table
from learnloop.loop.workspace.core import WorkspaceCore
from learnloop.loop.workspace.settings import Settings, find_settings
from learnloop.traces.datasets.building import DatasetReport, dataset_from_file
from learnloop.training.options import TrainingOptions, check_source, make_options
from learnloop.training.proof import HELD_OUT_EPISODES, TrainingProof
from learnloop.training.runs import TrainedRun, TrainedSeed, load_run, resume_run, start_run
from learnloop.training.trainers.seed_trainer import OnProgress, SeedResult

RUNS_FOLDER = "runs"
DEFAULT_ALGORITHM = "ppo"
DEFAULT_ENV = "CartPole-v1"
RUN_OPTIONS = (
    "preset",
    "n_envs",
    "updates",
    "vectorization",
    "env_kwargs",
    "text_encoder",
    "network",
    "device",
    "checkpoint_interval",
    "eval_interval",
    "eval_episodes",
)
"""Options that are not the algorithm's."""

Home: TypeAlias = str | Path | Settings | None


class LearnedPolicy(TrainedSeed):
    """The best policy of one seed of a run; it acts with numpy alone, but where its network is a torch module."""

    def __init__(self, run: Run, result: SeedResult) -> None:
        super().__init__(run, result)
        self._settings = run.settings
        self._proof: TrainingProof | None = None

    def prove(self, on_progress: OnProgress | None = None, *, num_episodes: int = HELD_OUT_EPISODES) -> TrainingProof:
        """Returns whether it has learned: against the policy before its first update, the random one and controls.

        Shuffled controls are trained now, each with the same budget, while each update credits actions with others'
        advantages: 19 for a run of one seed, unless one is as good, 5 for one of five seeds.
        """
        if self._proof is None or self._proof.num_episodes != num_episodes:
            self._proof = super().prove(on_progress, num_episodes=num_episodes)
        return self._proof

    def register(self, name: str, on_progress: OnProgress | None = None) -> PolicyVersion:
        """Returns the new version of the policy ``name`` in the registry, if it has learned.

        Raises:
            CheckFailedError: its learning is not proven; nothing is made.
            UsageError: a policy cannot be called ``name``.
        """
        check_name("a policy", name)
        found = self.prove(on_progress)
        record = self.run.record
        lineage = {
            "kind": "training",
            "run_id": record.run_id,
            "seed": self.seed,
            "env": record.options.env,
            "env_kwargs": record.options.env_kwargs,
            "own_env": record.own_env,
            "num_steps": self.result.best_steps,
            "num_updates": self.result.best_updates,
            "dataset": record.options.dataset,
            "options": msgspec.to_builtins(record.options),
            "held_out": {"kind": "environment"},
        }
        with WorkspaceCore(self._settings, create=True) as workspace:
            return workspace.registry.register_proven(name, self.policy, found, lineage=lineage)


class Run(TrainedRun):
    """A training that has ended, with its files in the store's folder.

    Attributes:
        settings: of the store.
    """

    def __init__(self, trained: TrainedRun, settings: Settings) -> None:
        super().__init__(trained.folder, trained.record, trained.own_env)
        self.settings = settings

    @property
    def run_id(self) -> str:
        """Its name, under which it can be looked at again."""
        return self.record.run_id

    @property
    def seeds(self) -> list[LearnedPolicy]:
        """The best policy of each seed."""
        return [LearnedPolicy(self, result) for result in self.results()]

    @property
    def best(self) -> LearnedPolicy:
        """The policy that earned most in the evaluations while it trained, of all seeds."""
        return LearnedPolicy(self, self.best_result())

    @property
    def can_evaluate(self) -> bool:
        """Whether an environment is known to try its policies in; with a data set there may be none."""
        return self.record.options.env is not None or self.own_env is not None

    def _repr_html_(self) -> str:
        """Returns the figures of each seed as a table, which notebooks show."""
        names = ("seed", "num_steps", "num_episodes", "num_updates", "seconds", "best_return")
        rows = [{name: getattr(result, name) for name in names} for result in self.record.results]
        return html_table(rows, f"{self.record.options.algorithm} {self.run_id}")


def train(
    algorithm: str = DEFAULT_ALGORITHM,
    env: Any = None,
    *,
    steps: int | None = None,
    episodes: int | None = None,
    updates: int | None = None,
    dataset: Dataset | str | Path | None = None,
    seeds: int | Sequence[int] = 1,
    options: Mapping[str, Any] | None = None,
    home: Home = None,
    on_progress: OnProgress | None = None,
) -> Run:
    """Trains a policy and returns the run.

    Args:
        algorithm: ``ppo``, ``dqn``, ``a2c``, ``a3c``, ``sac`` or ``random``; from a data set ``bc``, ``cql``, ``iql``
            or ``awac``; or a registered one.
        env: the id of a gymnasium environment, an alias such as ``cartpole``, a callable that makes an environment,
            or a vector environment. None: CartPole-v1; with a data set none, and what is learned is not tried out.
        steps: environment steps; None: the preset's, or as many as ``episodes`` take.
        episodes: ends after so many, if that comes first.
        updates: gradient steps, with a data set; None: 20,000.
        dataset: logged episodes to learn from, or a file of traces that hold them.
        seeds: how many (0, 1, ...), or which ones; several train side by side in processes of their own.
        options: hyper-parameters by Stable-Baselines3's names, and those of ``RUN_OPTIONS``: ``n_envs``, ``preset``,
            ``network``, ``device``, ``checkpoint_interval``, ``text_encoder`` and so on. What is not given is rl-zoo's
            for environments that it knows, else the algorithm's default.
        home: the store's folder, or the settings that ``find_settings`` returns, with its database; found where None.
        on_progress: called about twice a second for each seed.

    Raises:
        UsageError: an unknown name, or values that contradict each other or do not fit the environment.
        DivergedError: a number is not finite; the message names the update.
    """
    given = {**_checked(options), **({} if updates is None else {"updates": updates})}
    settings = _settings(home)
    check_source(algorithm, has_dataset=dataset is not None)  # before a file that may be large is read
    logged = read_traces(dataset)[0] if isinstance(dataset, str | Path) else dataset
    place = DEFAULT_ENV if env is None and logged is None else env
    wanted = training_options(algorithm, place, steps=steps, episodes=episodes, dataset=logged, options=given)
    chosen = _seeds(seeds)
    own = None if isinstance(place, str) else place
    runs = settings.home / RUNS_FOLDER
    return Run(start_run(runs, wanted, chosen, dataset=logged, env=own, on_progress=on_progress), settings)


def read_traces(path: str | Path) -> tuple[Dataset, DatasetReport]:
    """Returns the data set of a file of traces, and what was left out of it.

    Raises:
        NotFoundError: there is no such file.
        FormatError: it is no file of traces.
        UsageError: no episode of it can be learned from; why is said.
    """
    return dataset_from_file(Path(path))


def resume(
    run_id: str = "latest",
    *,
    env: Any = None,
    home: Home = None,
    on_progress: OnProgress | None = None,
) -> Run:
    """Goes on with a run that was interrupted, from its newest checkpoints, and returns it.

    Args:
        run_id: which one; ``latest``: the newest.
        env: the environment again, where it was the caller's own.
        home: the store's folder.
        on_progress: called about twice a second for each seed.

    Raises:
        NotFoundError: there is no such run.
        ConflictError: it has completed, or another process trains it.
    """
    settings = _settings(home)
    return Run(resume_run(settings.home / RUNS_FOLDER, run_id, env=env, on_progress=on_progress), settings)


def open_run(run_id: str = "latest", *, env: Any = None, home: Home = None) -> Run:
    """Returns a run that was trained before, also by another process.

    Raises:
        NotFoundError: there is no such run.
    """
    settings = _settings(home)
    return Run(load_run(settings.home / RUNS_FOLDER, run_id, env=env), settings)


def training_options(
    algorithm: str,
    env: Any,
    *,
    steps: int | None = None,
    episodes: int | None = None,
    dataset: Dataset | None = None,
    options: Mapping[str, Any] | None = None,
) -> TrainingOptions:
    """Returns the whole options of a training, as ``train`` would use them.

    Raises:
        UsageError, NotFoundError: a name is not known, or values contradict each other.
    """
    given = _checked(options)
    run_options = {name: given.pop(name) for name in RUN_OPTIONS if name in given}
    _put_text_encoder(run_options, env)
    if env is None and dataset is not None:
        name = None
    else:
        name = resolve_env(env) if isinstance(env, str) else _describe(env)
        if not isinstance(env, str) and not callable(env) and dataset is None:
            run_options.setdefault("n_envs", getattr(env, "num_envs", 1))  # an object has the envs that it has
    return make_options(algorithm, name, steps=steps, episodes=episodes, dataset=dataset, options=given, **run_options)


def _put_text_encoder(run_options: dict[str, Any], env: Any) -> None:
    """Moves ``text_encoder`` to what the environment is made with: its texts are seen through it wherever it is."""
    encoder = run_options.pop(TEXT_ENCODER, None)
    if encoder is None:
        return
    if env is None:
        raise UsageError(f"{TEXT_ENCODER} is for the texts of an environment; a data set says itself how they are seen")
    kwargs = run_options.get("env_kwargs") or {}
    if not isinstance(kwargs, Mapping) or TEXT_ENCODER in kwargs:
        raise UsageError(f"env_kwargs is {kwargs!r}; a dict without {TEXT_ENCODER!r}, which is given, is needed")
    run_options["env_kwargs"] = {**kwargs, TEXT_ENCODER: encoder}


def _settings(home: Home) -> Settings:
    return home if isinstance(home, Settings) else find_settings(home)


def _seeds(seeds: object) -> list[Any]:
    if isinstance(seeds, int) and not isinstance(seeds, bool):
        return list(range(seeds))
    if isinstance(seeds, Sequence) and not isinstance(seeds, str):
        return list(seeds)
    raise UsageError(f"seeds is {seeds!r}; how many, or a list of whole numbers, is needed")


def _checked(options: object) -> dict[str, Any]:
    if options is not None and not isinstance(options, Mapping):
        raise UsageError(f"options is {options!r}; hyper-parameters by their names are needed, or None")
    return dict(options or {})


def _describe(env: Any) -> str:
    if env is None:
        raise UsageError("env is None; give an id, a callable that makes an environment, or a vector environment")
    return f"{getattr(env, '__module__', '')}.{getattr(env, '__qualname__', type(env).__qualname__)}".lstrip(".")
