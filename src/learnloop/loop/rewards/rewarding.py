"""What a finished task was worth: score it, shape it, share it out, store it, announce it. One way for all callers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from learnloop.core.attempts import Attempt
from learnloop.core.decoding import convert_record
from learnloop.core.errors import FormatError, NotFoundError, UsageError
from learnloop.core.records import Episode, Record, Reward, RewardShare
from learnloop.core.rewards import worth
from learnloop.loop.rewards.engine import COSTS, make_engine
from learnloop.loop.rewards.recording import find_queued
from learnloop.loop.workspace.core import WorkspaceCore
from learnloop.loop.workspace.settings import RewardSettings
from learnloop.rewards.functions.efficiency import costs_of
from learnloop.rewards.scoring.engine import RewardEngine, Scored
from learnloop.rewards.sharing.credit import credit_method
from learnloop.rewards.sharing.ledger import RewardLedger
from learnloop.rewards.sharing.shaping import PotentialShaping, find_potential
from learnloop.rewards.sharing.shapley import CoalitionValue
from learnloop.store.queries.rewards import earned_rewards


class TaskCompletion(Record, frozen=True, kw_only=True):
    """What ``process_task_completion`` found and stored."""

    attempt: Attempt
    scored: Scored
    raw_reward: float | None = None
    """What the run is worth in all; None: it is not known, and nothing was shared out; ``scored`` says why."""
    shaped_reward: float | None = None
    shares: list[RewardShare] = msgspec.field(default_factory=list)
    rewards: list[Reward]
    """The stored ones; empty where the attempt is of no stored episode."""


class RewardProcess:
    """Scores finished tasks with one engine. Safe to share between threads.

    Args:
        workspace: where rewards and shares are stored.
        settings: the functions with their weights, shaping and credit; those of the workspace where None.
        engine: instead of the one that ``settings`` name.

    Raises:
        UsageError, NotFoundError: the settings name what there is not.
    """

    def __init__(
        self, workspace: WorkspaceCore, settings: RewardSettings | None = None, engine: RewardEngine | None = None
    ) -> None:
        self._settings = settings or workspace.settings.rewards
        self._engine = engine or make_engine(workspace, self._settings)
        self._credit = credit_method(self._settings.credit, **self._settings.credit_options)
        self._shaping = PotentialShaping(potential=self._settings.potential, gamma=self._settings.gamma)
        find_potential(self._settings.potential)
        self._ledger = RewardLedger(workspace.store)
        self._workspace = workspace

    @property
    def engine(self) -> RewardEngine:
        """The engine that scores."""
        return self._engine

    def check_needs_no_value(self) -> None:
        """Returns if rewards can be shared out without what fewer agents would have achieved.

        Raises:
            UsageError: the credit method of the settings asks for it.
        """
        if self._credit.needs_value:
            raise UsageError(
                f"rewards.credit is {self._settings.credit!r}, which asks what fewer agents would have achieved; only "
                "Python can tell it (process_task_completion, value=): choose 'last', 'uniform' or 'discounted' here"
            )

    def preview(self, attempt: Attempt) -> Scored:
        """Returns what an attempt would be worth; nothing is stored."""
        return self._engine.score(attempt)

    def process_task_completion(self, attempt: Attempt, *, value: CoalitionValue | None = None) -> TaskCompletion:
        """Scores an attempt, shapes the reward, shares it out, and stores all of it in one transaction.

        Stored are the shares and, where the attempt names its episode, that one's ``total`` and each part as a metric
        of weight 0. Shared out is what the episode is worth in all: a label stands before the total, and an outcome
        counts where there is no total. Processing it again replaces the reward; the ledger keeps both. Where the reward
        is not known, that is stored with the reason and nothing is shared out. Events: ``reward.recorded`` and
        ``reward.shared``.

        Args:
            attempt: complete. Where it names no agent, it is the one of its episode.
            value: what each set of agents would have achieved alone, for credit that asks for it.

        Raises:
            NotFoundError: there is no such episode.
            UsageError, RewardError: the reward cannot be shared out or shaped as the settings say, or the episode is a
                try at another task.
            StoreError: the store refuses.
        """
        attempt = _with_episode(self._workspace, attempt)
        scored = self._engine.score(attempt)
        rewards = [] if attempt.episode_id is None else scored.rewards(attempt.episode_id)
        raw = scored.total if attempt.episode_id is None else self._worth(attempt.episode_id, rewards)
        if raw is None:
            self._workspace.store.write(rewards)
            return TaskCompletion(attempt=attempt, scored=scored, rewards=rewards)
        shaped = self._shaping.shape(attempt, raw, truncated=False)
        credit = self._credit.assign(attempt, shaped.shaped_reward, value)
        scores = {name: score.value for name, score in scored.scores.items()}
        metadata = {"scores": scores, COSTS: costs_of(attempt)}
        shares = self._ledger.book(attempt, raw, credit, metadata=metadata, also=rewards)
        return TaskCompletion(
            attempt=attempt,
            scored=scored,
            raw_reward=raw,
            shaped_reward=shaped.shaped_reward,
            shares=shares,
            rewards=rewards,
        )

    def _worth(self, episode_id: str, new: Sequence[Reward]) -> float | None:
        """Returns what an episode is worth in all once it has ``new`` rewards, its labels and outcome included."""
        stored = self._workspace.store.read(earned_rewards, [], [episode_id])
        return worth([*stored, *new])


def _with_episode(workspace: WorkspaceCore, attempt: Attempt) -> Attempt:
    """Returns an attempt if its episode, where it names one, is stored and of its task; with whose run it was."""
    if attempt.episode_id is None:
        return attempt
    episode = find_queued(workspace, Episode, attempt.episode_id)
    if episode is None:
        raise NotFoundError(
            f"there is no episode {attempt.episode_id!r}; record or import it first, or leave episode_id out"
        )
    if episode.task_id is not None and episode.task_id != attempt.task_id:
        raise UsageError(
            f"the episode {attempt.episode_id} is a try at the task {episode.task_id!r}, not at {attempt.task_id!r}"
        )
    if attempt.agents or any(step.agent_id is not None for step in attempt.steps):
        return attempt
    return msgspec.structs.replace(attempt, agents=[episode.agent_id])


def process_task_completion(
    workspace: WorkspaceCore, task_id: str, result: Mapping[str, Any], *, process: RewardProcess | None = None
) -> TaskCompletion:
    """Scores, shapes, credits and stores a finished task that is told as data; see ``RewardProcess``.

    Args:
        workspace: where.
        task_id: of the task.
        result: fields of ``Attempt``: ``task_type``, ``output``, ``expected``, ``metadata``, ``steps``, ``agents`` ...;
            with ``episode_id`` the rewards are that episode's.
        process: how; made from the settings of the workspace where None.

    Raises:
        FormatError: ``result`` has unknown fields, or fields of another type.
        NotFoundError, UsageError: as ``RewardProcess.process_task_completion``.
    """
    attempt = read_result(task_id, result)
    return (process or RewardProcess(workspace)).process_task_completion(attempt)


def read_result(task_id: str, result: Mapping[str, Any]) -> Attempt:
    """Returns a finished task that is told as data as an attempt.

    Raises:
        FormatError: a field is unknown or has another type than it should.
    """
    what = f"the result of the task {task_id!r} cannot be read"
    return convert_record({**result, "task_id": task_id}, what, Attempt, error=FormatError)
