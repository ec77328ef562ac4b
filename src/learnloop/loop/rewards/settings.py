"""How rewards are set up in ``learnloop.toml``, and the engine that comes of it.

The settings are plain data: reading them loads nothing that scores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from learnloop.core.errors import UsageError, one_of

if TYPE_CHECKING:
    from learnloop.loop.workspace.workspace import Workspace
    from learnloop.rewards.scoring.engine import RewardEngine
    from learnloop.rewards.scoring.function import RewardFunction

LEARNED = "learned"
"""What ``weights`` calls the learned reward."""
_Weight = Annotated[float, msgspec.Meta(gt=0)]


class RewardSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table ``[rewards]``."""

    weights: dict[str, _Weight] = {}
    """By the names of reward functions; empty: the defaults of ``RewardEngine``, and 1 for judges and ``learned``."""
    timeout_seconds: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """For one call of a function that is not learnloop's own; None: as each function says (10 where it does not)."""
    credit: str = "uniform"
    """How a reward is shared out over the steps and agents of a run."""
    credit_options: dict[str, Any] = {}
    """The options of that method, such as ``gamma``."""
    potential: str = "none"
    """What rewards are shaped by."""
    gamma: Annotated[float, msgspec.Meta(ge=0, le=1)] = 1.0
    """The discount of shaping."""
    judges: dict[str, dict[str, Any]] = {}
    """AI judges by the names under which ``weights`` has them: fields of ``JudgeConfig``."""
    learned: str | None = None
    """The content hash of a learned reward, or ``newest``; ``weights`` has it as ``learned``."""
    learned_alone: bool = False
    """Let a learned reward be all that is weighed; what is optimised then finds its faults."""


def make_engine(workspace: Workspace, settings: RewardSettings | None = None) -> RewardEngine:
    """Returns the engine that settings describe, with their judges and their learned reward.

    Args:
        workspace: whose.
        settings: those of the workspace where None.

    Raises:
        UsageError, NotFoundError: they name what there is not, or a learned reward is all that they weigh.
        MissingExtraError: what they name needs a package that is not installed.
    """
    from learnloop.loop.rewards.histories import StoredHistories
    from learnloop.rewards.functions.efficiency import efficiency_from
    from learnloop.rewards.learned.reward import require_another
    from learnloop.rewards.scoring.engine import DEFAULT_WEIGHTS, RewardEngine

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


def _judge(name: str, fields: dict[str, Any], workspace: Workspace) -> RewardFunction:
    from learnloop.rewards.judge.config import JudgeConfig
    from learnloop.rewards.judge.judge import RubricJudge
    from learnloop.rewards.scoring.function import RewardFunction

    allowed = one_of(JudgeConfig.__struct_fields__, 30)
    try:
        config = msgspec.convert(fields, JudgeConfig)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"the judge {name!r} of learnloop.toml cannot be used: {error}; allowed keys are {allowed}"
        ) from error
    return RewardFunction(RubricJudge(config, folder=workspace.settings.home.parent), name, needs=("output",))


def _learned(workspace: Workspace, name: str) -> RewardFunction:
    from learnloop.loop.rewards.learned import open_learned_reward, workspace_embedder
    from learnloop.rewards.scoring.function import RewardFunction

    learned = open_learned_reward(workspace, name, workspace_embedder(workspace))
    learned.check_usable()
    return RewardFunction(learned, LEARNED, needs=("output",))
