"""tau-bench results: a list of trials, each with its task, its reward and the whole conversation.

Source: Yao et al. 2024, "tau-bench", the files in ``historical_trajectories`` of its repository. The reward compares
the database after the run with the one that the task's own actions leave behind, so it is verified.
"""

from __future__ import annotations

from typing import Any

import msgspec

from learnloop.core.records import Record
from learnloop.traces.building import EpisodeBuilder
from learnloop.traces.formats.base import ContentIds, Source, TraceFormat, convert
from learnloop.traces.messages import read_message


class _Trial(msgspec.Struct):
    task_id: int | str
    reward: float | None
    traj: list[dict[str, Any]]
    trial: int | None = None
    info: dict[str, Any] = {}


class TauBenchReader:
    """Reads each trial into an episode."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._ids = ContentIds("tau-bench")

    def read(self, item: Any) -> list[Record]:
        """Returns the episode of one trial, with a step for each answer of the model."""
        trial = convert(item, _Trial)
        episode_id = self._ids.derive("episode", self._source.name, self._ids.for_line(item))
        task = trial.info.get("task")
        builder = EpisodeBuilder(
            self._source,
            self._ids,
            episode_id,
            task_id=f"tau-bench:{trial.task_id}",
            attempt=trial.trial,
            metadata={
                "instruction": task.get("instruction") if isinstance(task, dict) else None,
                "reward_info": trial.info.get("reward_info"),
                "user_cost": trial.info.get("user_cost"),
            },
        )
        builder.conversation(map(read_message, trial.traj))
        builder.reward("reward", trial.reward)
        return builder.finish()

    def finish(self) -> list[Record]:
        """Returns nothing: each trial stands for itself."""
        return []


def _fits(value: Any) -> bool:
    first = value[0] if isinstance(value, list) and value else None
    return isinstance(first, dict) and {"task_id", "reward", "traj"} <= first.keys()


TAU_BENCH = TraceFormat(
    "tau-bench",
    "a list of objects with task_id, reward and traj",
    _fits,
    TauBenchReader,
    shape="document",
    document_items=list,
)
