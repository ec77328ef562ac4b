"""Makes the environment ``trace-replay`` of a file of traces, by its id as by hand.

It stands here because environments know nothing of traces; the registry of environments names it by its address.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from learnloop.core.datasets import Dataset
from learnloop.core.errors import NotFoundError, UsageError
from learnloop.envs.trace_replay import TraceReplay
from learnloop.traces.datasets.building import dataset_from_file
from learnloop.traces.datasets.logged_episodes import RewardKind, StepKind


def trace_replay(
    trace_file: str | Path | None = None,
    *,
    dataset: Dataset | None = None,
    format_name: str | None = None,
    policy: str | None = None,
    steps: StepKind = "auto",
    rewards: RewardKind = "auto",
) -> TraceReplay:
    """Returns an environment that replays the episodes of a file, or of a data set.

    Args:
        trace_file: read as ``dataset_from_file`` reads it; several environments of a process share what was read.
        dataset: in the place of a file.
        format_name: of the file.
        policy: of the file, only the decisions of this policy.
        steps: of the file, what a step is.
        rewards: of the file, which rewards count.

    Raises:
        UsageError: neither or both are given, or no episode can be learned from.
        NotFoundError: there is no such file.
        FormatError: it is no file of traces.
    """
    if (trace_file is None) == (dataset is None):
        raise UsageError(
            "trace-replay needs the file of traces that it replays (env_kwargs={'trace_file': PATH}), or a data set "
            "(dataset=)"
        )
    if dataset is not None:
        return TraceReplay(dataset)
    path = Path(str(trace_file)).absolute()
    if not path.is_file():
        raise NotFoundError(f"trace-replay: no file {str(path)!r}; name a JSON Lines file of traces")
    found = path.stat()
    return TraceReplay(_read(path, found.st_mtime_ns, found.st_size, format_name, policy, steps, rewards))


@lru_cache(maxsize=2)
def _read(
    path: Path,
    changed: int,
    size: int,
    format_name: str | None,
    policy: str | None,
    steps: StepKind,
    rewards: RewardKind,
) -> Dataset:
    """Returns the data set of a file in this state."""
    return dataset_from_file(path, format_name=format_name, policy=policy, steps=steps, rewards=rewards)[0]
