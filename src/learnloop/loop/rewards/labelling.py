"""What people say that episodes were worth."""

from __future__ import annotations

from learnloop.core.records import Reward
from learnloop.core.rewards import LABEL, Parts, take_part, total_of
from learnloop.loop.workspace.core import WorkspaceCore


def labels_of(workspace: WorkspaceCore) -> dict[str, float]:
    """Returns what people say of each episode that they labelled: the last label of each, the mean over persons."""
    found: dict[str, Parts] = {}
    where = {"name": LABEL, "source": LABEL, "span_id": None, "decision_id": None}
    for reward in workspace.store.iterate(Reward, where=where):
        if reward.episode_id is not None:
            take_part(found.setdefault(reward.episode_id, {}), reward)
    return {each: value for each, parts in found.items() if (value := total_of(parts)) is not None}
