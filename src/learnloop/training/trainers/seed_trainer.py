"""What all trainers of one seed share: its algorithm, evaluations, the best policy, figures, checkpoints, resuming."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from learnloop.algorithms.base.algorithm import Algorithm
from learnloop.algorithms.base.states import part_of, prefixed
from learnloop.algorithms.building import build_algorithm
from learnloop.algorithms.policies.network_policy import NetworkPolicy
from learnloop.core.datasets import Dataset
from learnloop.core.errors import CorruptError, UsageError, needs_extra
from learnloop.core.protocols import PolicyArtifact
from learnloop.core.seeding import derive_seed
from learnloop.core.spaces import Spaces
from learnloop.envs.registry import evaluation_env
from learnloop.evaluation.returns import evaluate_returns
from learnloop.nn.mlp.network import MLP
from learnloop.nn.network import Network
from learnloop.nn.network_builders import DEFAULT, BuiltByName, build_network
from learnloop.system.state_file import State
from learnloop.training.checkpoints import Checkpoint, newest_checkpoint, save_checkpoint
from learnloop.training.options import TrainingOptions
from learnloop.training.run_files import MetricsFile

EPISODE_WINDOW = 100
"""How many of the last episodes the rollout figures are means of."""
LOG_SECONDS = 0.5
"""Figures are written at most so often, but for those of evaluations."""


class TrainingProgress(NamedTuple):
    """How far a training is."""

    seed: int
    num_steps: int
    num_episodes: int
    fraction: float
    """Of the training, from 0 to 1."""
    per_second: float
    """Steps, or updates of a training from a data set, of this process; evaluations left out."""
    seconds_left: float | None
    mean_return: float | None
    """Of the last 100 episodes; None: none has ended."""
    evaluated: float | None
    """The mean return of the last evaluation; None: there was none."""
    num_updates: int = 0
    is_offline: bool = False
    """Whether it learns from a data set: then updates count, not steps."""


OnProgress = Callable[[TrainingProgress], None]


class CurvePoint(msgspec.Struct, frozen=True, kw_only=True):
    """One evaluation on the seeds of evaluations."""

    num_steps: int
    num_updates: int = 0
    mean_return: float
    seconds: float
    """Of training until then, evaluations left out."""


class SeedResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one seed."""

    seed: int
    num_steps: int
    """Environment steps; of a training from a data set those of the data set."""
    num_episodes: int
    num_updates: int
    seconds: float
    """Of training, evaluations left out; of the processes before a resumption too."""
    best_steps: int
    """When the best policy was evaluated."""
    best_updates: int = -1
    """-1: a result of before updates were kept."""
    best_return: float | None
    """Its mean return then, on the seeds of evaluations, which chose it: not a figure to publish. None: there is no
    environment to evaluate in, and the last policy is kept."""
    curve: list[CurvePoint]
    parameter_hash: str
    """SHA-256 of the last parameters: the same options and seed give the same one on one thread."""


class TrainerState(msgspec.Struct, kw_only=True):
    """The trainer's own part of a checkpoint."""

    num_episodes: int = 0
    seconds: float = 0.0
    next_eval: int = 0
    next_checkpoint: int = 0
    last_returns: list[float] = []
    last_lengths: list[int] = []
    curve: list[CurvePoint] = []
    best_steps: int = -1
    best_updates: int = -1
    best_return: float = float("-inf")


class SeedTrainer(ABC):
    """One seed of a training.

    Attributes:
        algorithm: what learns.
        first: the policy before it learned anything.
        best: the policy that evaluations liked best so far; None: none was evaluated yet.
    """

    def __init__(
        self,
        options: TrainingOptions,
        seed: int,
        dataset: Dataset | None = None,
        *,
        env: Any = None,
        folder: Path | None = None,
        on_progress: OnProgress | None = None,
    ) -> None:
        """Checks everything that can be known before the first step.

        Args:
            options: what to do.
            seed: of the algorithm, the environments and the evaluations.
            dataset: what it learns from, if that is no environment: the one of the options' fingerprint.
            env: the environment where it is not an id but the caller's own: a callable that makes one, or a
                vector environment.
            folder: for metrics and checkpoints; None: neither is written.
            on_progress: called about twice a second.

        Raises:
            UsageError: the options, the environment, its spaces and the data set do not fit each other, or no second
                environment can be made to evaluate in.
            CorruptError: it is another data set, or there is none.
        """
        self.options = options
        self.seed = seed
        self._dataset = dataset
        self._env: Any = options.env if env is None else env
        self._evaluation_env = None if self._env is None else evaluation_env(self._env)
        self._folder = folder
        self._on_progress = on_progress
        self.algorithm: Algorithm = self._build()
        self.first: NetworkPolicy = self.algorithm.policy()
        self.best: NetworkPolicy | None = None
        self._state = TrainerState(
            num_episodes=0 if dataset is None else dataset.num_episodes,
            next_eval=options.eval_interval,
            next_checkpoint=options.checkpoint_interval or 0,
        )
        self._metrics = MetricsFile(None if folder is None else folder / "metrics.jsonl")
        self._next_log = self._begun = 0.0

    # What a kind of trainer gives --------------------------------------------------------------------------------

    @abstractmethod
    def _build(self) -> Algorithm:
        """Returns the algorithm, fresh, and takes what it learns from."""

    @abstractmethod
    def _train(self) -> None:
        """Trains to the end, and leaves in the state how long it took."""

    def _position(self) -> int:
        """Returns how far it is, in the unit of its budget and of the intervals of evaluations and checkpoints."""
        return self.algorithm.num_steps

    def _fraction(self) -> float:
        """Returns how much of the training is done, from 0 to 1: by its budget or by episodes, whichever is further."""
        fraction = self._position() / self.options.budget
        if self.options.episodes is not None:
            fraction = max(fraction, self._state.num_episodes / self.options.episodes)
        return min(fraction, 1.0)

    @abstractmethod
    def _take_episodes(self) -> None:
        """Counts the episodes that have ended since the last call."""

    @abstractmethod
    def _release(self) -> None:
        """Gives back what it learns from."""

    # From outside ------------------------------------------------------------------------------------------------

    def resume(self) -> int:
        """Goes on from the newest checkpoint of the folder and returns its steps, or updates with a data set.

        Raises:
            NotFoundError: there is none.
            CorruptError: none is whole, or it is another training's.
        """
        if self._folder is None:
            raise CorruptError("a training without a folder has no checkpoints")
        checkpoint = newest_checkpoint(self._folder / "checkpoints")
        theirs = msgspec.convert(checkpoint.values["options"], TrainingOptions), checkpoint.values["seed"]
        if theirs != (self.options, self.seed):
            raise CorruptError("the checkpoint is of a training with other options; resume with the same ones")
        tensors = part_of(checkpoint.tensors, "algorithm/")
        self.algorithm.restore(State(tensors, checkpoint.values["algorithm"]))
        self._state = msgspec.convert(checkpoint.values["trainer"], TrainerState)
        best = checkpoint.values["best"]
        if best is not None:
            artifact = PolicyArtifact(best["algorithm"], best["config"], part_of(checkpoint.tensors, "best/"))
            self.best = NetworkPolicy.from_artifact(artifact)
        self._metrics.cut_after(checkpoint.position)
        return checkpoint.position

    def start_over(self) -> None:
        """Drops what a training that was killed before its first checkpoint wrote."""
        self._metrics.cut_after(-1)

    def run(self) -> SeedResult:
        """Trains to the end and returns what came of it.

        Raises:
            DivergedError: a number is not finite; checkpoints and the best policy so far are kept.
            UsageError: the environment breaks gymnasium's rules.
        """
        try:
            self._train()
            evaluated = [(point.num_steps, point.num_updates) for point in self._state.curve[-1:]]
            if (self.algorithm.num_steps, self.algorithm.num_updates) not in evaluated:
                self._evaluate()
            self._log()
        finally:
            self.close()
        return self.result()

    def close(self) -> None:
        """Closes the environments, unless they are an object of the caller's, and the file of figures."""
        self._release()
        self._metrics.close()

    def result(self) -> SeedResult:
        """Returns what came of it so far."""
        state = self._state
        return SeedResult(
            seed=self.seed,
            num_steps=self.algorithm.num_steps,
            num_episodes=state.num_episodes,
            num_updates=self.algorithm.num_updates,
            seconds=state.seconds,
            best_steps=state.best_steps if state.curve else self.algorithm.num_steps,
            best_updates=state.best_updates if state.curve else self.algorithm.num_updates,
            best_return=state.best_return if state.curve else None,
            curve=list(state.curve),
            parameter_hash=self.algorithm.parameter_hash(),
        )

    # Shared by all -----------------------------------------------------------------------------------------------

    def _start_clock(self) -> None:
        """Lets time count as training from now on."""
        self._begun = time.perf_counter() - self._state.seconds

    def _look_up(self, now: float, *, may_log: bool = True) -> bool:
        """Writes figures, evaluates and makes a checkpoint, each if it is due; none of them counts as training.

        Args:
            now: what ``time.perf_counter`` said.
            may_log: whether there are figures to write.

        Returns:
            Whether it has made a checkpoint.
        """
        state, position = self._state, self._position()
        state.seconds = now - self._begun
        if may_log and now >= self._next_log:
            self._log()
        if position >= state.next_eval:
            self._evaluate()
        is_due = self.options.checkpoint_interval is not None and position >= state.next_checkpoint
        if is_due:
            self._checkpoint()
        self._start_clock()
        return is_due

    def _next_stop(self) -> int:
        """Returns at which position an evaluation or a checkpoint is due."""
        due = self._state.next_eval
        return due if self.options.checkpoint_interval is None else min(due, self._state.next_checkpoint)

    def _count_episodes(self, ended: Iterable[tuple[float, int]]) -> None:
        """Counts episodes that have ended, each with its return and its length."""
        state = self._state
        for total_reward, length in ended:
            state.num_episodes += 1
            state.last_returns = [*state.last_returns[1 - EPISODE_WINDOW :], total_reward]
            state.last_lengths = [*state.last_lengths[1 - EPISODE_WINDOW :], length]

    def _evaluate(self) -> None:
        """Evaluates where there is an environment for it, and keeps the policy if it is the best one so far."""
        if self._evaluation_env is None:
            self._state.next_eval += self.options.eval_interval
            return
        state, options = self._state, self.options
        policy = self.algorithm.policy()
        returns = evaluate_returns(
            policy,
            self._evaluation_env,
            num_episodes=options.eval_episodes,
            seed=derive_seed(self.seed, "evaluation"),
            env_kwargs=options.env_kwargs or None,
        )
        point = CurvePoint(
            num_steps=self.algorithm.num_steps,
            num_updates=self.algorithm.num_updates,
            mean_return=returns.mean,
            seconds=state.seconds,
        )
        state.curve = [*state.curve, point]
        if returns.mean >= state.best_return:  # of equals the later one: it has seen more
            self.best = policy
            state.best_return, state.best_steps, state.best_updates = returns.mean, point.num_steps, point.num_updates
        while state.next_eval <= self._position():
            state.next_eval += options.eval_interval
        self._log({"eval/mean_reward": returns.mean, "eval/std_reward": returns.std})

    def _log(self, more: dict[str, float] | None = None) -> None:
        self._take_episodes()
        self._next_log = time.perf_counter() + LOG_SECONDS
        state, algorithm = self._state, self.algorithm
        figures = algorithm.metrics.take()
        if state.last_returns:
            figures["rollout/ep_rew_mean"] = float(np.mean(state.last_returns))
            figures["rollout/ep_len_mean"] = float(np.mean(state.last_lengths))
        rate = "time/updates_per_second" if self.options.dataset is not None else "time/fps"
        figures[rate] = self._position() / state.seconds if state.seconds else 0.0
        figures["time/time_elapsed"] = state.seconds
        counts = {
            "num_steps": algorithm.num_steps,
            "num_episodes": state.num_episodes,
            "num_updates": algorithm.num_updates,
        }
        self._metrics.write(self._position(), counts, {**figures, **(more or {})})
        if self._on_progress is not None:
            self._on_progress(self._progress())

    def _progress(self) -> TrainingProgress:
        state, position = self._state, self._position()
        fraction = self._fraction()
        rate = position / state.seconds if state.seconds else 0.0
        left = state.seconds * (1 - fraction) / fraction if fraction and state.seconds else None
        mean = float(np.mean(state.last_returns)) if state.last_returns else None
        evaluated = state.curve[-1].mean_return if state.curve else None
        counts = self.algorithm.num_steps, state.num_episodes
        more = self.algorithm.num_updates, self.options.dataset is not None
        return TrainingProgress(self.seed, *counts, fraction, rate, left, mean, evaluated, *more)

    def _checkpoint(self) -> None:
        interval = self.options.checkpoint_interval or 1
        while self._state.next_checkpoint <= self._position():
            self._state.next_checkpoint += interval
        self._take_episodes()
        if self._folder is None:
            return
        algorithm_state = self.algorithm.state()
        best = None if self.best is None else self.best.to_artifact()
        checkpoint = Checkpoint(
            position=self._position(),
            tensors={
                **{f"algorithm/{name}": value for name, value in algorithm_state.tensors.items()},
                **({} if best is None else prefixed("best/", best.tensors)),
            },
            values={
                "options": msgspec.to_builtins(self.options),
                "seed": self.seed,
                "algorithm": algorithm_state.values,
                "trainer": msgspec.to_builtins(self._state),
                "best": None if best is None else {"algorithm": best.algorithm, "config": dict(best.config)},
            },
        )
        save_checkpoint(self._folder / "checkpoints", checkpoint)


def assemble(
    options: TrainingOptions, spaces: Spaces, num_envs: int, seed: int, *, network_seed: int | None = None
) -> Algorithm:
    """Returns the algorithm that ``options`` describe, fresh.

    Args:
        options: of the training.
        spaces: of its environment or its data set.
        num_envs: how many environments run side by side.
        seed: of everything random.
        network_seed: of a network that is named; None: ``seed``. Where parameters come from another process, the
            tensors that do not learn must be the ones that it has.

    Raises:
        UsageError: the config does not fit the spaces or the memory, torch has no such device, or the network that is
            named does not fit, or the algorithm has none that it could stand in for.
        NotFoundError, ExtensionError: there is no such network, or it cannot be built.
        MissingExtraError: a device other than ``cpu``, and a network that is named, need torch.
    """
    config = options.algorithm_config()
    try:
        algorithm = build_algorithm(config, spaces, num_envs=num_envs, seed=seed)
        if options.device != "cpu" or options.network != DEFAULT:
            drawn = seed if network_seed is None else network_seed
            networks = {name: _other(each, name, options, drawn) for name, each in algorithm.networks().items()}
            if options.network != DEFAULT and not any(isinstance(each, BuiltByName) for each in networks.values()):
                raise UsageError(f"{options.algorithm} has no network that {options.network!r} could stand in for")
            algorithm = build_algorithm(config, spaces, num_envs=num_envs, seed=seed, **networks)
    except MemoryError as error:
        raise UsageError(
            f"{options.algorithm} with {num_envs} envs needs more memory than there is ({error}); lower n_steps, "
            "buffer_size, n_envs or net_arch"
        ) from error
    algorithm.shuffled = options.shuffled
    return algorithm


def _other(network: Network, name: str, options: TrainingOptions, seed: int) -> Network:
    """Returns what stands in for ``network``, which the algorithm calls ``name``: an MLP, if it is to be another."""
    if not isinstance(network, MLP):
        return network
    if options.network == DEFAULT:
        return _on_device(network, options.device)
    drawn = derive_seed(seed, "network", name)
    return build_network(options.network, network.config, seed=drawn, device=options.device)


def _on_device(network: MLP, device: str) -> Network:
    with needs_extra(f"device {device!r}", "torch"):
        from learnloop.nn.torch.mlp import on_device
    return on_device(network, device)
