"""The reward engine that the settings of a workspace describe."""

from __future__ import annotations

from typing import Any

from learnloop.core.decoding import convert_record
from learnloop.core.errors import one_of
from learnloop.loop.rewards.histories import StoredHistories
from learnloop.loop.rewards.learned import open_learned_reward, workspace_embedder
from learnloop.loop.workspace.core import WorkspaceCore
from learnloop.loop.workspace.settings import RewardSettings
from learnloop.rewards.functions.efficiency import efficiency_from
from learnloop.rewards.judge.config import JudgeConfig
from learnloop.rewards.judge.judge import RubricJudge
from learnloop.rewards.learned.reward import require_another
from learnloop.rewards.scoring.engine import DEFAULT_WEIGHTS, RewardEngine
from learnloop.rewards.scoring.function import RewardFunction

LEARNED = "learned"
"""What ``weights`` calls the learned reward."""


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
