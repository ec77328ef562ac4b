"""Scores many: episodes of the store, attempts of a file; and holds scores against labels and against themselves."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from learnloop.core.attempts import Attempt
from learnloop.core.checks import check_range
from learnloop.core.decoding import decode_json
from learnloop.core.errors import FormatError, MissingExtraError, NotFoundError, UsageError
from learnloop.core.extensions import POINTS
from learnloop.core.records import TOTAL, Episode, EpisodeStatus, Reward
from learnloop.core.rewards import COMPUTED
from learnloop.loop.rewards.attempts import TaskTruth, Truths, attempt_of, stored_episodes
from learnloop.loop.rewards.engine import as_of, make_engine
from learnloop.loop.rewards.labelling import labels_of
from learnloop.loop.rewards.rewarding import RewardProcess
from learnloop.loop.traces.reading import resolve_episode
from learnloop.loop.workspace.core import WorkspaceCore
from learnloop.rewards.functions.built_in import BUILT_IN
from learnloop.rewards.judge.agreement import CalibrationReport, Judgement, calibration_report
from learnloop.rewards.scoring.engine import RewardEngine, Scored
from learnloop.rewards.scoring.function import RewardFunction
from learnloop.store.queries.episodes import EpisodeQuery, episode_ids

Line = TypeVar("Line")
_SAME = 1e-6
"""How far two scores of one attempt may be apart."""


class EpisodeChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Which episodes are meant: those that are named, or all that fit."""

    episodes: Sequence[str] = ()
    """Ids, or the beginnings of ids that no other has."""
    agent: str | None = None
    task: str | None = None
    without_reward: bool = False
    """Only those whose reward is not known."""


class ScoredEpisode(msgspec.Struct, frozen=True, kw_only=True):
    """What an episode was worth."""

    episode_id: str
    task_id: str | None
    scored: Scored


class Example(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A line of a file of ``try_examples``: an attempt, and what it is to be worth."""

    attempt: Attempt
    want: float | msgspec.UnsetType | None = msgspec.UNSET
    """Its total; null: that it is not known; left out: whatever it is."""


class Tried(msgspec.Struct, frozen=True, kw_only=True):
    """What came of an example."""

    number: int
    """Its line, counted from 1."""
    scored: Scored
    is_wanted: bool
    pays_for_nothing: bool
    """Whether an empty answer in its place would earn more."""


class Regraded(msgspec.Struct, frozen=True, kw_only=True):
    """A stored reward that was worked out once more."""

    episode_id: str
    stored: float | None
    again: float | None

    @property
    def agrees(self) -> bool:
        """Whether both are the same."""
        return _is_same(self.stored, self.again)


class Component(msgspec.Struct, frozen=True, kw_only=True):
    """A reward function as it can be used here."""

    name: str
    weight: float | None
    """None: it is not in force."""
    description: str
    needs: list[str]
    task_types: list[str]
    """Empty: all."""
    error: str | None = None
    """Why it cannot be used."""


def read_truths(file: Path) -> dict[str, TaskTruth]:
    """Returns what a file says of tasks: JSON Lines with ``task_id``, ``task_type``, ``expected`` ...

    Raises:
        NotFoundError: there is no such file.
        FormatError: a line does not describe a task, or a task stands there twice.
    """
    truths: dict[str, TaskTruth] = {}
    for number, truth in _lines(file, TaskTruth):
        if truth.task_id in truths:
            raise FormatError(f"{file}, line {number}: the task {truth.task_id!r} is there twice; once is enough")
        truths[truth.task_id] = truth
    return truths


def count_episodes(workspace: WorkspaceCore, choice: EpisodeChoice) -> int:
    """Returns how many episodes are meant."""
    return len(set(choice.episodes)) or len(_ids(workspace, choice))


def chosen_episodes(workspace: WorkspaceCore, choice: EpisodeChoice) -> Iterator[Episode]:
    """Yields the episodes that are meant, oldest first.

    Raises:
        NotFoundError, UsageError: a named one is not there, or its name fits several.
    """
    named = dict.fromkeys(resolve_episode(workspace, each) for each in choice.episodes)
    yield from stored_episodes(workspace, list(named) or _ids(workspace, choice))


def _ids(workspace: WorkspaceCore, choice: EpisodeChoice) -> list[str]:
    asked = EpisodeQuery(agent_id=choice.agent, task_id=choice.task, without_reward=choice.without_reward)
    return workspace.store.read(episode_ids, asked)


def score_episodes(
    workspace: WorkspaceCore,
    choice: EpisodeChoice,
    process: RewardProcess,
    truths: Truths | None = None,
    *,
    dry_run: bool = False,
) -> Iterator[ScoredEpisode]:
    """Scores episodes, one after the other, and stores what came of each; see ``RewardProcess``.

    One that cannot be read, shaped or shared out gets a reward that is not known, with the reason, and the others go
    on. Of one that still runs nothing is stored.

    Args:
        workspace: whose.
        choice: which.
        process: how.
        truths: what is known of tasks beside the store.
        dry_run: store nothing.

    Raises:
        UsageError: the credit method needs what no stored run tells.
    """
    process.check_needs_no_value()
    for episode in chosen_episodes(workspace, choice):
        if episode.status is EpisodeStatus.RUNNING:
            scored = _unknown("the run has not ended yet")
        else:
            scored = _score_one(workspace, episode, process, truths, dry_run)
        yield ScoredEpisode(episode_id=episode.episode_id, task_id=episode.task_id, scored=scored)


def _score_one(
    workspace: WorkspaceCore, episode: Episode, process: RewardProcess, truths: Truths | None, dry_run: bool
) -> Scored:
    try:
        attempt = attempt_of(workspace, episode, truths)
        return process.preview(attempt) if dry_run else process.process_task_completion(attempt).scored
    except MissingExtraError:  # for whoever set this up
        raise
    except UsageError as error:
        scored = _unknown(str(error))
        if not dry_run:
            workspace.store.write(scored.rewards(episode.episode_id))
        return scored


def _unknown(reason: str) -> Scored:
    return Scored(total=None, reason=reason, scores={}, shares={})


def try_examples(engine: RewardEngine, file: Path) -> Iterator[Tried]:
    """Scores the examples of a JSON Lines file, and an empty answer in the place of each.

    Raises:
        NotFoundError: there is no such file.
        FormatError: a line is no ``Example``.
    """
    for number, example in _lines(file, Example):
        scored = engine.score(example.attempt)
        empty = engine.score(msgspec.structs.replace(example.attempt, output="", completed=False))
        yield Tried(
            number=number,
            scored=scored,
            is_wanted=isinstance(example.want, msgspec.UnsetType) or _is_same(scored.total, example.want),
            pays_for_nothing=_is_more(empty.total, scored.total),
        )


def list_components(workspace: WorkspaceCore) -> list[Component]:
    """Returns all reward functions that can be used here by name, those in force first."""
    engine = make_engine(workspace)
    in_force = [_component(each, engine.weights[name]) for name, each in engine.functions.items()]
    others = [_component(each, None) for name, each in BUILT_IN.items() if name not in engine.weights]
    added = [
        Component(name=each.name, weight=None, description=each.description, needs=[], task_types=[], error=each.error)
        for each in POINTS["reward"].listing({})
        if each.name not in engine.weights
    ]
    return [*in_force, *others, *added]


def _component(function: RewardFunction, weight: float | None) -> Component:
    return Component(
        name=function.name,
        weight=weight,
        description=function.description,
        needs=list(function.needs),
        task_types=sorted(function.task_types),
    )


def calibrate(workspace: WorkspaceCore, component: str, *, min_kappa: float = 0.6, seed: int = 0) -> CalibrationReport:
    """Returns how far the stored scores of a reward function agree with the labels of people, and follow length.

    Args:
        workspace: whose.
        component: the name of the function, or ``total``.
        min_kappa: what it must reach, -1 to 1.
        seed: of the bootstrap.

    Raises:
        UsageError: ``min_kappa`` has no meaning.
        NotFoundError: no episode has a score of that name, or none has a label.
    """
    check_range("min_kappa", min_kappa, -1, 1)
    scores = {episode_id: reward.value for episode_id, reward in _rewards(workspace, component)}
    labels = labels_of(workspace)
    if not scores:
        raise NotFoundError(f"no episode has a score of {component!r}; run learnloop rewards calculate first")
    if not labels:
        raise NotFoundError("no episode has a label; give some with learnloop traces label")
    episodes = {each.episode_id: each for each in stored_episodes(workspace, list(scores))}
    tasks = {each: episode.task_id for each, episode in episodes.items()}
    # Only what has a label is compared, so no other episode is read for its answer.
    lengths = {each: _answer_length(workspace, episodes[each]) for each in labels if each in episodes}
    judged = [
        Judgement(attempt_id=each, task_id=tasks.get(each), score=score, num_characters=lengths.get(each))
        for each, score in scores.items()
    ]
    return calibration_report(judged, labels, min_kappa=min_kappa, seed=seed)


def _answer_length(workspace: WorkspaceCore, episode: Episode) -> int | None:
    """Returns how many characters the graded answer has; None: none is recorded."""
    output = attempt_of(workspace, episode, is_graded=False).output
    return None if output is None else len(output)


def regrade(
    workspace: WorkspaceCore, process: RewardProcess, share: float, *, seed: int = 0, truths: Truths | None = None
) -> Iterator[Regraded]:
    """Works out a random share of the stored rewards once more, and yields both.

    What a task has cost is taken as it was known then, so that what came later changes nothing.

    Args:
        workspace: whose.
        process: how; the settings under which they were stored, or others on purpose.
        share: of the episodes that have a reward of ``RewardProcess``, above 0 and at most 1.
        seed: of the choice.
        truths: what is known of tasks beside the store.

    Raises:
        UsageError: ``share`` has no meaning.
    """
    check_range("the share to work out again", share, above=0, high=1)
    rewards = _rewards(workspace, TOTAL)
    drawn = {key: reward for key, reward in rewards if random.Random(f"{seed} {key}").random() < share}
    for episode in stored_episodes(workspace, sorted(drawn)):
        stored = drawn[episode.episode_id]
        with as_of(stored.reward_id):
            again = _score_one(workspace, episode, process, truths, dry_run=True).total
        yield Regraded(episode_id=episode.episode_id, stored=stored.value, again=again)


def _rewards(workspace: WorkspaceCore, name: str) -> Iterator[tuple[str, Reward]]:
    """Yields the computed rewards of episodes that are called ``name``, the newest of each episode last."""
    where = {"name": name, "source": COMPUTED, "span_id": None, "decision_id": None}
    for each in workspace.store.iterate(Reward, where=where):
        if each.episode_id is not None:
            yield each.episode_id, each


def _is_same(first: float | None, second: float | None) -> bool:
    return first is second if first is None or second is None else abs(first - second) <= _SAME


def _is_more(first: float | None, second: float | None) -> bool:
    """Returns whether both are known and the first is more; what is not known is neither more nor less."""
    return first is not None and second is not None and first > second + _SAME


def _lines(file: Path, kind: type[Line]) -> Iterator[tuple[int, Line]]:
    try:
        with file.open("rb") as stream:
            for number, text in enumerate(stream, start=1):
                if text.strip():
                    yield number, decode_json(text, f"{file}, line {number}", kind)
    except OSError as error:
        raise NotFoundError(f"{file} cannot be read: {error.strerror}") from error
