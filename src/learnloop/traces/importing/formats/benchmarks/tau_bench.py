"""tau-bench results: a list of trials, each with its task, its reward and the whole conversation.

The reward compares the database after the run with the one that the task's own actions leave behind, so it is verified.
A trial that broke has an ``error``; the benchmark writes a reward of 0 for it, which is kept, and the episode is
``failed``. Which of the benchmark's domains a task number belongs to is read from the policy that opens a conversation:
task 3 of two domains is not one task. The files hold no times, and the model only in the name that the benchmark gives
them.

Source: Yao et al. 2024, "tau-bench", the files in ``historical_trajectories`` of its repository and what its ``run``
writes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import msgspec

from learnloop.core.records import Record
from learnloop.traces.conversation.messages import as_text, read_message
from learnloop.traces.importing.building import EpisodeBuilder
from learnloop.traces.importing.reader import Count, ItemReader, TraceFormat, convert, first_has_fields
from learnloop.traces.json_values import find, known_list, known_object, known_text

_POLICY = re.compile(r"\s*#\s*(\w+) agent policy", re.IGNORECASE)
_RUN_FILE = re.compile(
    r"(?P<strategy>tool-calling|act|react|few-shot)-(?P<model>.+)-(?P<temperature>[\d.]+)_range_-?\d+--?\d+"
    r"_user-(?P<user_model>.+)-(?P<user_strategy>[a-z]+)_\d+\.json"
)


class _Trial(msgspec.Struct):
    task_id: int | str
    traj: list[dict[str, Any]]
    reward: float | bool | None = None
    trial: Count | None = None
    info: dict[str, Any] = {}
    domain: str | None = None
    """Of the whole file; see ``_items``."""


class TauBenchReader(ItemReader):
    """Reads each trial into an episode."""

    format_name = "tau-bench"

    def read(self, item: Any) -> list[Record]:
        """Returns the episode of one trial, with a step for each answer of the model."""
        trial = convert(item, _Trial)
        task_id = ":".join(["tau-bench", *([trial.domain] if trial.domain else []), str(trial.task_id)])
        info, run = trial.info, self.source.says(_RUN_FILE)
        builder = EpisodeBuilder(
            self,
            self.unnamed_id(item),
            task_id=task_id,
            attempt=trial.trial,
            metadata={**run, **{name: info.get(name) for name in ("reward_info", "user_cost", "traceback")}},
        )
        builder.conversation(map(read_message, trial.traj), model=run.get("model") or "")
        builder.reward("reward", trial.reward, reason="null in the file" if trial.reward is None else None)
        error = as_text(info["error"]) or "unknown" if info.get("error") is not None else None
        task = self.task_records(task_id, known_object(info.get("task")))
        return [*task, *builder.finish(terminated=error is None, error=error)]


def _items(value: list[Any]) -> Iterable[Any]:
    """Yields each trial, with the domain of the whole file where one says it: a trial that broke at once does not."""
    domain = next((found for trial in value if (found := _domain(trial))), None)
    return ({"domain": domain, **trial} if domain and isinstance(trial, dict) else trial for trial in value)


def _domain(trial: Any) -> str | None:
    first = next(iter(known_list(find(trial, "traj"))), None)
    found = _POLICY.match(known_text(find(first, "content")) or "")
    return found[1].lower() if found else None


TAU_BENCH = TraceFormat(
    "tau-bench",
    "a list of objects with task_id, reward and traj",
    first_has_fields("task_id", "reward", "traj"),
    TauBenchReader,
    shape="document",
    items=_items,
)
