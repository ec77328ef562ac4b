"""Data sets from traces: what offline algorithms learn from, made of what agents did.

An episode of a data set is a logged one, with its goal, its steps in their order, and nothing of what came of a step in
what that step was chosen on. What cannot be learned from is left out, counted by reason, and never made up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args

import msgspec
import numpy as np

from learnloop.core.arrays import F32, I64, Bools
from learnloop.core.checks import check_choice, check_range
from learnloop.core.datasets import Dataset
from learnloop.core.errors import ActionError, UsageError, one_of
from learnloop.core.seeding import generator
from learnloop.core.spaces import Spaces
from learnloop.core.stepping import Masks
from learnloop.store import Store
from learnloop.traces.datasets.logged_episodes import EpisodeGatherer, LoggedEpisode, LoggedStep, RewardKind, StepKind
from learnloop.traces.datasets.observations import ObservationLayout, Seen, feature_kinds, spaces_for
from learnloop.traces.datasets.stored_episodes import stored_episodes
from learnloop.traces.importing.exchange import TraceFile
from learnloop.traces.importing.files import format_of, source_of
from learnloop.traces.importing.report import LineFault

_CHUNK = 4_096
"""Rows that are encoded at once."""


class DatasetReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a data set was made of, and what was left out."""

    source: str
    num_episodes_read: int
    num_episodes: int
    """In the data set."""
    num_steps: int
    left_out: Mapping[str, int]
    """Episodes that are not in it, by reason."""
    actions: Mapping[str, int]
    """How often each action was taken; 0: it could have been, and never was."""
    num_bad_lines: int = 0
    """Lines of a file that could not be read."""
    bad_lines: Sequence[LineFault] = ()
    """The first of them."""

    @property
    def only_action(self) -> str | None:
        """The action, if only one was ever taken; nothing can then be learned about which is better."""
        taken = [name for name, count in self.actions.items() if count]
        return taken[0] if len(taken) == 1 else None


def build_dataset(
    store: Store,
    *,
    agent_id: str | None = None,
    policy: str | None = None,
    steps: StepKind = "auto",
    rewards: RewardKind = "auto",
    like: Dataset | None = None,
    progress: Callable[[int], None] | None = None,
) -> tuple[Dataset, DatasetReport]:
    """Returns the episodes of a store as a data set, and what was left out.

    Args:
        store: where they lie.
        agent_id: whose; None: all agents'.
        policy: the decisions of this policy are the steps; None: those of all.
        steps: what a step is: ``decisions``, ``spans`` (executed tools), or ``auto``: decisions where an episode has
            some, else executed tools.
        rewards: ``steps``: those that were given for a decision or a span; ``episode``: those for the whole episode,
            paid at its last step; ``auto``: both.
        like: a data set whose actions and observations this one is to have too, such as the one that a policy was
            learned from; None: the actions are those of the log, by name.
        progress: told of the number of episodes read.

    Raises:
        UsageError: no episode is left; the message says how many were read and why each was left out.
        ActionError: the log has actions that ``like`` does not know.
        ContextError: it has features that ``like`` does not know, or too many.
    """
    log = _new_log(steps, rewards, policy, agent_id)
    source = "the store" if agent_id is None else f"the agent {agent_id}"
    episodes, left_out = _sort_out(stored_episodes(store, log, agent_id, progress))
    return _assemble(episodes, left_out, source, like)


def dataset_from_file(
    path: str | Path,
    *,
    format_name: str | None = None,
    agent_id: str | None = None,
    policy: str | None = None,
    steps: StepKind = "auto",
    rewards: RewardKind = "auto",
    like: Dataset | None = None,
    progress: Callable[[int], None] | None = None,
) -> tuple[Dataset, DatasetReport]:
    """Returns the episodes of a file of traces as a data set, and what was left out; no store is needed.

    Lines that cannot be read are counted and left out. Lines of a format without episode ids (``goal``) are taken in
    the order of their times.

    Args:
        path: JSON Lines, gzipped or not.
        format_name: one of ``FORMATS``; recognised by the first readable line where None.
        agent_id: whose episodes, where the file says; None: all agents'.
        policy: as in ``build_dataset``.
        steps: as in ``build_dataset``.
        rewards: as in ``build_dataset``.
        like: as in ``build_dataset``.
        progress: told of the number of bytes read.

    Raises:
        NotFoundError: there is no such file.
        FormatError: the format is unknown, no line can be read, or the file is damaged.
        UsageError: no episode is left; the message says how many were read and why each was left out.
        ActionError, ContextError: as in ``build_dataset``.
    """
    file = Path(path)
    log = _new_log(steps, rewards, policy, agent_id)
    trace_format = format_of(file, format_name)
    source = source_of(file, agent_id or file.stem)
    traces = TraceFile(file, trace_format, source, by_time=True, progress=progress)
    for record in traces.records():
        log.add(record)
    read = traces.report()
    episodes, left_out = _sort_out(log.take_all())
    dataset, report = _assemble(episodes, left_out, file.name, like)
    return dataset, msgspec.structs.replace(report, num_bad_lines=read.num_bad_lines, bad_lines=read.bad_lines)


def split_episodes(
    dataset: Dataset, share: float, seed: int = 0, *, group: Literal["episode", "goal"] = "episode"
) -> tuple[Dataset, Dataset]:
    """Returns a data set of about ``share`` of the episodes, drawn at random, and one of the others.

    Args:
        dataset: what is split; both parts keep its spaces and actions, and the order of its episodes.
        share: above 0 and below 1.
        seed: of the draw.
        group: ``goal``: all attempts at one goal are on the same side, so that what was seen of a goal in learning
            does not count as known in evaluating. Episodes without a goal stand for themselves.

    Raises:
        UsageError: a value has no meaning, or one side would be empty.
    """
    check_choice("group", group, ("episode", "goal"))
    check_range("share", share, above=0, below=1)
    groups: dict[object, list[int]] = {}
    for number, goal in enumerate(dataset.goals):
        groups.setdefault(goal if group == "goal" and goal else number, []).append(number)
    if len(groups) < 2:
        raise UsageError(
            f"the data set of {dataset.source} has one {group} only, which cannot be on both sides; log more"
        )
    members = list(groups.values())
    wanted = share * dataset.num_episodes
    is_first = np.zeros(dataset.num_episodes, dtype=bool)
    order = generator(seed, "split").permutation(len(members))
    for place, index in enumerate(order):
        # Each side gets a group; between them the first is filled as long as that brings it nearer to its share.
        after = np.count_nonzero(is_first) + len(members[index]) / 2
        if place == len(order) - 1 or (place > 0 and after > wanted):
            break
        is_first[members[index]] = True
    return _part(dataset, is_first, "one part"), _part(dataset, ~is_first, "the other part")


def _new_log(steps: StepKind, rewards: RewardKind, policy: str | None, agent_id: str | None) -> EpisodeGatherer:
    check_choice("steps", steps, get_args(StepKind))
    check_choice("rewards", rewards, get_args(RewardKind))
    if policy is not None and steps == "spans":
        raise UsageError(f"the policy {policy!r} made decisions, and steps is 'spans'; leave one of the two out")
    return EpisodeGatherer("decisions" if policy is not None else steps, rewards, policy, agent_id)


def _sort_out(found: Iterable[LoggedEpisode | str]) -> tuple[list[LoggedEpisode], dict[str, int]]:
    """Returns the episodes in their order, and how many were left out, by reason."""
    episodes: list[LoggedEpisode] = []
    left_out: Counter[str] = Counter()
    for each in found:
        if isinstance(each, str):
            left_out[each] += 1
        else:
            episodes.append(each)
    episodes.sort(key=lambda episode: episode.place)
    return episodes, dict(left_out.most_common())


def _assemble(
    episodes: Sequence[LoggedEpisode], left_out: Mapping[str, int], source: str, like: Dataset | None
) -> tuple[Dataset, DatasetReport]:
    num_read = len(episodes) + sum(left_out.values())
    if not episodes:
        reasons = "; ".join(f"{count:,}: {reason}" for reason, count in left_out.items()) or "there were none"
        raise UsageError(
            f"no episode of {source} can be learned from; {num_read:,} were read, and left out for these reasons: "
            f"{reasons}. Each needs an end, steps (decisions or executed tools) and a reward, for each step or for the "
            "episode"
        )
    steps = [step for episode in episodes for step in episode.steps]
    spaces, names = _vocabulary(steps, source, like)
    dataset = _Arrays(episodes, steps, spaces, names).dataset(source)
    counts = np.bincount(dataset.actions, minlength=len(names)).tolist()
    report = DatasetReport(
        source=source,
        num_episodes_read=num_read,
        num_episodes=len(episodes),
        num_steps=len(steps),
        left_out=left_out,
        actions=dict(zip(names, counts, strict=True)),
    )
    return dataset, report


def _vocabulary(steps: Sequence[LoggedStep], source: str, like: Dataset | None) -> tuple[Spaces, Sequence[str]]:
    """Returns the spaces and the names of the actions: those of the log, or of ``like``."""
    found = {step.action for step in steps}
    for allowed in {step.allowed for step in steps}:
        found.update(allowed or ())
    if like is None:
        return spaces_for(len(found), feature_kinds(step.context for step in steps)), sorted(found)
    ObservationLayout(like.spaces, like.action_names)  # raises if it shows something else than logged steps do
    names = like.action_names or ()
    unknown = sorted(found.difference(names))
    if unknown:
        raise ActionError(
            f"{source} has the actions {one_of(unknown)}, which the data set of {like.source} does not know; it knows "
            f"{one_of(names)}. Build one data set of both logs, or leave those episodes out"
        )
    return like.spaces, names


class _Arrays:
    """Lays the steps of episodes out as arrays."""

    def __init__(
        self, episodes: Sequence[LoggedEpisode], steps: Sequence[LoggedStep], spaces: Spaces, names: Sequence[str]
    ) -> None:
        self._episodes = episodes
        self._steps = steps
        self._spaces = spaces
        self._names = names
        self._layout = ObservationLayout(spaces, names)
        self._numbers = {name: number for number, name in enumerate(names)}
        self._lengths = np.array([len(episode.steps) for episode in episodes])
        self._stops = np.cumsum(self._lengths)

    def dataset(self, source: str) -> Dataset:
        """Returns the data set."""
        actions = np.array([self._numbers[step.action] for step in self._steps], dtype=np.int64)
        observations = self._observations(actions)
        masks = self._masks()
        ends = self._stops - 1
        terminated = np.zeros(len(self._steps), dtype=bool)
        truncated = terminated.copy()
        terminated[ends] = [episode.terminated for episode in self._episodes]
        truncated[ends] = ~terminated[ends]
        return Dataset(
            spaces=self._spaces,
            observations=observations,
            actions=actions,
            rewards=np.array([step.reward for step in self._steps], dtype=np.float64),
            next_observations=self._nexts(observations, actions[ends]),
            terminated=terminated,
            truncated=truncated,
            episodes=np.repeat(np.arange(len(self._episodes), dtype=np.int64), self._lengths),
            goals=tuple(episode.goal for episode in self._episodes),
            masks=masks,
            next_masks=None if masks is None else self._next_masks(masks),
            action_names=tuple(self._names),
            source=source,
        )

    def _observations(self, actions: I64) -> F32:
        starts = self._stops - self._lengths
        previous = np.empty(len(actions), dtype=np.int64)
        previous[1:] = actions[:-1] + 1
        previous[starts] = 0
        return self._encode(
            Seen(
                goals=[episode.goal for episode in self._episodes for _ in episode.steps],
                num_steps=np.arange(len(actions)) - np.repeat(starts, self._lengths),
                previous=previous,
                outcomes=np.array([step.previous_outcome for step in self._steps], dtype=np.int64),
                contexts=[step.context for step in self._steps],
            )
        )

    def _nexts(self, observations: F32, last: I64) -> F32:
        """Returns what each step led to: the observation of the next, or what can be seen after the last."""
        nexts = np.empty_like(observations)
        nexts[:-1] = observations[1:]
        nexts[self._stops - 1] = self._encode(
            Seen(
                goals=[episode.goal for episode in self._episodes],
                num_steps=self._lengths,
                previous=last + 1,
                outcomes=np.array([episode.last_outcome for episode in self._episodes], dtype=np.int64),
                contexts=[{}] * len(self._episodes),
            )
        )
        return nexts

    def _encode(self, seen: Seen) -> F32:
        rows = np.zeros((len(seen.goals), self._layout.size), dtype=np.float32)
        for start in range(0, len(rows), _CHUNK):
            part = slice(start, start + _CHUNK)
            self._layout.write(seen.part(part), rows[part])
        return rows

    def _masks(self) -> Masks | None:
        """Returns which actions each step allowed; None where no step forbade any."""
        rows: dict[tuple[str, ...] | None, Bools] = {None: np.ones(len(self._names), dtype=bool)}
        for allowed in {step.allowed for step in self._steps} - {None}:
            rows[allowed] = row = np.zeros(len(self._names), dtype=bool)
            row[[self._numbers[name] for name in allowed or ()]] = True
        if all(row.all() for row in rows.values()):
            return None
        return np.stack([rows[step.allowed] for step in self._steps])

    def _next_masks(self, masks: Masks) -> Masks:
        nexts = np.empty_like(masks)
        nexts[:-1] = masks[1:]
        nexts[self._stops - 1] = True  # what could be done next was never asked
        return nexts


def _part(dataset: Dataset, is_taken: Bools, what: str) -> Dataset:
    """Returns the episodes of ``dataset`` that are taken."""
    rows = is_taken[dataset.episodes]
    numbers = np.cumsum(is_taken) - 1
    masks, next_masks = dataset.masks, dataset.next_masks
    return replace(
        dataset,
        observations=dataset.observations[rows],
        actions=dataset.actions[rows],
        rewards=dataset.rewards[rows],
        next_observations=dataset.next_observations[rows],
        terminated=dataset.terminated[rows],
        truncated=dataset.truncated[rows],
        episodes=numbers[dataset.episodes[rows]],
        goals=tuple(goal for goal, taken in zip(dataset.goals, is_taken.tolist(), strict=True) if taken),
        masks=None if masks is None else masks[rows],
        next_masks=None if next_masks is None else next_masks[rows],
        source=f"{what} of {dataset.source}",
    )
