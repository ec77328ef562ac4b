"""The reward engine that the settings of a workspace describe, with what its tasks have cost before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from learnloop.core.attempts import Attempt
from learnloop.core.decoding import convert_record
from learnloop.core.errors import one_of
from learnloop.loop.rewards.learned import open_learned_reward, workspace_embedder
from learnloop.loop.workspace.core import WorkspaceCore
from learnloop.loop.workspace.settings import RewardSettings
from learnloop.rewards.functions.efficiency import History, efficiency_from
from learnloop.rewards.judge.config import JudgeConfig
from learnloop.rewards.judge.judge import RubricJudge
from learnloop.rewards.learned.reward import require_another
from learnloop.rewards.scoring.engine import DEFAULT_WEIGHTS, RewardEngine
from learnloop.rewards.scoring.function import RewardFunction
from learnloop.store.queries.shares import metadata_of_runs

LEARNED = "learned"
"""What ``weights`` calls the learned reward."""
COSTS = "costs"
"""The entry of a share's metadata with what its run cost; it stands in the first line of a sharing."""
_MAX_RUNS = 100
"""The newest runs of a task that count."""
_SUCCESS = 0.5
_LAST = "\U0010ffff"
_before: ContextVar[str] = ContextVar("before", default=_LAST)


def make_engine(workspace: WorkspaceCore, settings: RewardSettings | None = None) -> RewardEngine:
    """Returns the engine that settings describe, with their judges and their learned reward.

    Args:
        workspace: whose.
        settings: those of the workspace where None.

    Raises:
        UsageError, NotFoundError: they name what there is not, or a learned reward is all that they weigh.
        MissingExtraError: what they name needs a package that is not installed.
    """
    chosen = settings or workspace.settings.rewards
    own = [_judge(each, fields, workspace) for each, fields in chosen.judges.items() if _is_weighed(chosen, each)]
    if chosen.learned is not None and _is_weighed(chosen, LEARNED):
        own.append(_learned(workspace, chosen.learned))
    added = {each.name: 1.0 for each in own}
    own.append(efficiency_from(StoredHistories(workspace)))
    engine = RewardEngine(chosen.weights or {**DEFAULT_WEIGHTS, **added}, own, chosen.timeout_seconds)
    if not chosen.learned_alone:
        require_another({name: (engine.functions[name], weight) for name, weight in engine.weights.items()})
    return engine


def _is_weighed(settings: RewardSettings, name: str) -> bool:
    """Returns whether a judge, or the learned reward, is in force: what is not is not loaded."""
    return not settings.weights or name in settings.weights


def _judge(name: str, fields: dict[str, Any], workspace: WorkspaceCore) -> RewardFunction:
    hint = f"; allowed keys are {one_of(JudgeConfig.__struct_fields__, 30)}"
    config = convert_record(fields, f"the judge {name!r} of learnloop.toml cannot be used", JudgeConfig, hint=hint)
    return RewardFunction(RubricJudge(config, folder=workspace.settings.home.parent), name, needs=("output",))


def _learned(workspace: WorkspaceCore, name: str) -> RewardFunction:
    learned = open_learned_reward(workspace, name, workspace_embedder(workspace))
    learned.check_usable()
    return RewardFunction(learned, LEARNED, needs=("output",))


@contextmanager
def as_of(key: str) -> Iterator[None]:
    """Lets histories be what they were when the reward, or the sharing, with this id was made."""
    token = _before.set(key)
    try:
        yield
    finally:
        _before.reset(token)


class StoredHistories:
    """The histories of the tasks in a store, read when they are asked for.

    A history is of the other runs of an attempt's task: the newest whose reward, as it counts now, is at least 0.5.
    """

    def __init__(self, workspace: WorkspaceCore) -> None:
        self._store = workspace.store

    def __call__(self, attempt: Attempt) -> History | None:
        """Returns what the task of an attempt has cost; None where the attempt is of no task."""
        if attempt.task_id is None:
            return None
        found = self._store.read(
            metadata_of_runs,
            attempt.task_id,
            min_reward=_SUCCESS,
            other_than=attempt.episode_id,
            before=_before.get(),
            limit=_MAX_RUNS,
        )
        costs = [metadata[COSTS] for metadata in found if isinstance(metadata.get(COSTS), Mapping)]
        return History(**{
            name: [float(cost[name]) for cost in costs if name in cost] for name in History.__struct_fields__
        })  # fmt: skip
