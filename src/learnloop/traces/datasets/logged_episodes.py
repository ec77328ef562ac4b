"""Logged episodes as a learner needs them: what was chosen, what was known before, what it earned.

``EpisodeGatherer`` takes records in any order and keeps of each only what counts, so that outputs and inputs, which are
most of a log, are gone at once. What came of a step reaches later steps only: a result counts as known once it is
there.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from learnloop.core.clock import to_micros
from learnloop.core.records import Decision, Episode, EpisodeStatus, Json, Record, Reward, Span, SpanStatus
from learnloop.core.rewards import Part, Parts, RewardParts, part_key, part_of
from learnloop.traces.json_values import sorted_text

StepKind = Literal["auto", "decisions", "spans"]
RewardKind = Literal["auto", "steps", "episode"]

UNKNOWN, FAILED, SUCCEEDED = range(3)
"""What is known of how the step before came out."""

IN_FILE_ORDER = "goal"
"""Episodes of this source are in the order in which their steps ended, and then of the file: when a step began is
computed from how long it took, which nobody knew before it."""

STILL_RUNNING = "it has not ended"
NO_EPISODE = "its steps have no episode record"
NO_STEPS = "it has no step: no decision and no executed tool"
NO_REWARD = "it has no reward"
PENDING = "its reward may still come"
STEP_WITHOUT_REWARD = "a step has no reward while others have"
NOT_COMPUTED = "its reward, or that of a step, could not be computed"
FORBIDDEN_ACTION = "it took an action that its own mask forbids"


class LeftOut(Exception):
    """An episode cannot be learned from; the text is the reason, one of those above."""


class LoggedStep(NamedTuple):
    """One choice of an agent."""

    action: str
    previous_outcome: int
    """``UNKNOWN``, ``FAILED`` or ``SUCCEEDED``: what was known of the step before when this one began."""
    context: Json
    allowed: tuple[str, ...] | None
    """The actions that could be chosen; None: the log does not say."""
    reward: float


class LoggedEpisode(NamedTuple):
    """One try of an agent, whole."""

    place: tuple[int, int, str]
    """Episodes lie in this order."""
    goal: str
    steps: Sequence[LoggedStep]
    last_outcome: int
    """How the last step came out, which only what follows an episode's cut may see."""
    terminated: bool
    """It ended of its own; otherwise it was cut."""


class _Call(NamedTuple):
    """An executed tool."""

    span_id: str
    name: str
    started: int
    ended: int
    succeeded: bool


class _Choice(NamedTuple):
    """A decision."""

    decision_id: str
    created: int
    action: str
    context: Json
    allowed: tuple[str, ...]


class _Given(NamedTuple):
    """One part of a reward."""

    order: tuple[int, int, str]
    """Later ones replace earlier ones: by the log where it says when they came, else by their time."""
    decision_id: str | None
    span_id: str | None
    key: str
    """Of what it replaces."""
    part: Part | None
    """None: not computed."""


@dataclass(slots=True)
class _Gathered:
    """What is known of one episode so far."""

    episode: Episode | None = None
    input: Any = None
    calls: dict[str, _Call] = field(default_factory=dict)
    choices: dict[str, _Choice] = field(default_factory=dict)
    parts: list[_Given] = field(default_factory=list)
    starts: dict[str, int] = field(default_factory=dict)
    """When each span that is not an executed tool began, in microseconds."""
    arrivals: dict[str, int] = field(default_factory=dict)
    """When the first reward of each span came, among all rewards: the order of the file."""


class _Step(NamedTuple):
    """A step before its reward is known."""

    key: str
    """The id of its decision or span."""
    place: int
    """Microseconds; steps are in this order."""
    arrival: int
    """Their order within one moment, where the order of the file counts; else 0."""
    action: str
    previous_outcome: int
    context: Json
    allowed: tuple[str, ...] | None


class EpisodeGatherer:
    """Episodes as they are gathered from records."""

    def __init__(self, steps: StepKind, rewards: RewardKind, policy: str | None, agent_id: str | None) -> None:
        """Says what to look at.

        Args:
            steps: what a step is; ``auto``: a decision where an episode has some, else an executed tool.
            rewards: which rewards count; ``auto``: those of steps, and those of the episode at its last step.
            policy: only its decisions are steps; None: all.
            agent_id: only its episodes; None: all.
        """
        self._steps = steps
        self._rewards = rewards
        self._policy = policy
        self._agent_id = agent_id
        self._episodes: dict[str, _Gathered] = {}
        self._homes: dict[str, str] = {}
        """The episode of each decision, by the decision's id."""
        self._homeless: list[_Given] = []
        """Parts that name a decision and no episode."""
        self._num_rewards = 0
        self.awaited: Collection[str] = ()
        """Ids of episodes, or of decisions outside of one, whose reward may still come."""

    def add(self, record: Record) -> None:
        """Takes what counts of one record."""
        if isinstance(record, Reward):
            self.add_reward(record)
        elif isinstance(record, Span):
            self.add_span(record)
        elif isinstance(record, Decision):
            self.add_decision(record)
        elif isinstance(record, Episode):  # agents and tasks say nothing about what was done
            self.add_episode(record)

    def add_episode(self, episode: Episode) -> None:
        """Takes an episode; one that was running takes over what a later record says, as in the store."""
        gathered = self._of(episode.episode_id)
        if gathered.episode is None or gathered.episode.status is EpisodeStatus.RUNNING:
            gathered.episode = episode

    def add_span(self, span: Span) -> None:
        """Takes an executed tool, or the input of a run."""
        if span.episode_id is None:
            return
        gathered = self._of(span.episode_id)
        started = to_micros(span.started_at)
        if span.operation == "execute_tool":
            succeeded = span.status is SpanStatus.OK
            call = _Call(span.span_id, sys.intern(span.name), started, to_micros(span.ended_at), succeeded)
            gathered.calls.setdefault(span.span_id, call)
        else:
            gathered.starts[span.span_id] = started
            if span.parent_id is None:
                gathered.input = span.attributes.get("input")

    def add_decision(self, decision: Decision) -> None:
        """Takes a decision; one that was made outside of an episode is an episode of one step."""
        if self._policy not in (None, decision.policy):
            return
        episode_id = decision.episode_id or decision.decision_id
        gathered = self._of(episode_id)
        if decision.episode_id is None:
            gathered.episode = _episode_of(decision)
        allowed = decision.actions
        if decision.mask is not None:
            allowed = [name for name, is_open in zip(allowed, decision.mask, strict=False) if is_open]
        names = tuple(sys.intern(name) for name in allowed)
        created, action = to_micros(decision.created_at), sys.intern(decision.action)
        choice = _Choice(decision.decision_id, created, action, decision.context, names)
        gathered.choices.setdefault(decision.decision_id, choice)
        self._homes[decision.decision_id] = episode_id

    def add_reward(self, reward: Reward, sequence: int | None = None) -> None:
        """Takes a part of a reward; a metric, which has the weight 0, is nothing to learn from.

        ``sequence`` says when it came, among all; None: after those that were taken before.
        """
        self._num_rewards += 1
        if reward.weight == 0.0:
            return
        order = (sequence or 0, to_micros(reward.created_at), reward.reward_id)
        key = sys.intern(part_key(reward))
        part = _Given(order, reward.decision_id, reward.span_id, key, part_of(reward))
        if reward.episode_id is None:
            self._homeless.append(part)
            return
        gathered = self._of(reward.episode_id)
        gathered.parts.append(part)
        if reward.span_id is not None:
            gathered.arrivals.setdefault(reward.span_id, self._num_rewards if sequence is None else sequence)

    def take_all(self) -> Iterator[LoggedEpisode | str]:
        """Yields each episode that was gathered, or why it is left out, and forgets all."""
        for part in self._homeless:
            home = self._homes.get(part.decision_id or "")
            if home is not None:
                self._episodes[home].parts.append(part)
        gathered = self._episodes
        self._episodes, self._homes, self._homeless = {}, {}, []
        for key, each in gathered.items():
            if each.episode is not None and self._agent_id not in (None, each.episode.agent_id):
                continue
            try:
                yield self._finish(each)
            except LeftOut as reason:
                is_missing = str(reason) in (NO_REWARD, STEP_WITHOUT_REWARD)
                yield PENDING if is_missing and key in self.awaited else str(reason)

    def _of(self, episode_id: str) -> _Gathered:
        found = self._episodes.get(episode_id)
        if found is None:
            found = self._episodes[episode_id] = _Gathered()
        return found

    def _finish(self, gathered: _Gathered) -> LoggedEpisode:
        episode = gathered.episode
        if episode is None:
            raise LeftOut(NO_EPISODE)
        if episode.status is EpisodeStatus.RUNNING:
            raise LeftOut(STILL_RUNNING)
        by_decision = self._steps == "decisions" or (self._steps == "auto" and bool(gathered.choices))
        steps, last = (
            _choices_as_steps(gathered) if by_decision else _calls_as_steps(gathered, episode.source == IN_FILE_ORDER)
        )
        if not steps:
            raise LeftOut(NO_STEPS)
        if any(step.allowed is not None and step.action not in step.allowed for step in steps):
            raise LeftOut(FORBIDDEN_ACTION)
        earned = self._reward_steps(gathered, steps)
        return LoggedEpisode(
            place=(steps[0].place, steps[0].arrival, episode.episode_id),
            goal=_goal(episode, gathered.input),
            steps=[LoggedStep(*step[3:], reward) for step, reward in zip(steps, earned, strict=True)],
            last_outcome=last,
            # An end of the task's own counts where both are said; a run that failed without either was cut.
            terminated=episode.terminated or (episode.status is EpisodeStatus.COMPLETED and not episode.truncated),
        )

    def _reward_steps(self, gathered: _Gathered, steps: Sequence[_Step]) -> list[float]:
        """Returns the reward of each step: what it was worth, and at the last step what the whole episode was."""
        whole = _Earned()
        earned = [_Earned() for _ in steps]
        places = _Places(gathered, steps)
        for given in sorted(gathered.parts, key=lambda given: given.order):
            place = places.of(given)
            if place is not None:
                (earned[place] if place >= 0 else whole).take(given)
        return _pay_out(earned, whole, self._rewards)


class _Earned:
    """What is known of what a step, or a whole episode, earned."""

    def __init__(self) -> None:
        self.has_unknown = False
        self._parts: dict[str, Parts] = {}
        """By the decision or span that they are of."""

    def take(self, given: _Given) -> None:
        """Takes a part, later ones after earlier ones; one that could not be computed changes nothing."""
        if given.part is None:
            self.has_unknown = True
        else:
            self._parts.setdefault(given.decision_id or given.span_id or "", {})[given.key] = given.part

    def total(self, whole: _Earned | None = None) -> float | None:
        """Returns what it earned in all; defaults count where nothing is known of the ``whole`` episode.

        None: it is not known.
        """
        of_episode = {} if whole is None else whole._parts.get("", {})
        found = [RewardParts(parts, of_episode).own_total for parts in self._parts.values()]
        known = [each for each in found if each is not None]
        return sum(known) if known else None


class _Places:
    """Which step of an episode a part of a reward is for.

    What is not said of a step itself goes to the step that it belongs to in time: a decision to the tool that was
    executed next, a span to the step that was on when it began.
    """

    def __init__(self, gathered: _Gathered, steps: Sequence[_Step]) -> None:
        self._gathered = gathered
        self._places = {step.key: index for index, step in enumerate(steps)}
        self._starts = [step.place for step in steps]

    def of(self, part: _Given) -> int | None:
        """Returns the number of the step; -1: the episode as a whole; None: a decision that is not looked at."""
        key = part.decision_id or part.span_id
        if key is None:
            return -1
        if key in self._places:
            return self._places[key]
        if part.decision_id is not None:
            choice = self._gathered.choices.get(key)
            return None if choice is None else min(bisect_left(self._starts, choice.created), len(self._starts) - 1)
        call = self._gathered.calls.get(key)
        began = self._gathered.starts.get(key) if call is None else call.started
        return -1 if began is None else bisect_right(self._starts, began) - 1


def _pay_out(steps: list[_Earned], whole: _Earned, kind: RewardKind) -> list[float]:
    if kind == "episode":
        steps = [_Earned() for _ in steps]
    elif kind == "steps":
        whole = _Earned()
    totals, last = [each.total(whole) for each in steps], whole.total()
    has_rewards = any(total is not None for total in totals)
    lacking = [step for step, total in zip(steps, totals, strict=True) if total is None]
    if not has_rewards and last is None:
        raise LeftOut(NOT_COMPUTED if any(each.has_unknown for each in [*steps, whole]) else NO_REWARD)
    if has_rewards and lacking:
        raise LeftOut(NOT_COMPUTED if any(each.has_unknown for each in lacking) else STEP_WITHOUT_REWARD)
    earned = [total or 0.0 for total in totals]
    earned[-1] += last or 0.0
    return earned


def _calls_as_steps(gathered: _Gathered, by_file: bool) -> tuple[list[_Step], int]:
    """Returns executed tools as steps, and how the last came out."""
    arrivals = gathered.arrivals
    placed = [
        ((each.ended, arrivals.get(key, 0), key) if by_file else (each.started, 0, key), each)
        for key, each in gathered.calls.items()
    ]
    steps: list[_Step] = []
    before: _Call | None = None
    for (place, arrival, key), call in sorted(placed):
        is_known = before is not None and (by_file or before.ended <= call.started)
        outcome = _outcome([before] if before is not None and is_known else [])
        steps.append(_Step(key, place, arrival, call.name, outcome, {}, None))
        before = call
    return steps, _outcome([] if before is None else [before])


def _choices_as_steps(gathered: _Gathered) -> tuple[list[_Step], int]:
    """Returns decisions as steps, and how the last came out: did the tools succeed that ran after it."""
    calls = sorted(gathered.calls.values(), key=lambda call: (call.started, call.span_id))
    choices = sorted(gathered.choices.values(), key=lambda choice: (choice.created, choice.decision_id))
    starts = [call.started for call in calls]
    steps: list[_Step] = []
    since: int | None = None
    for choice in choices:
        ran = [] if since is None else calls[bisect_left(starts, since) : bisect_left(starts, choice.created)]
        outcome = _outcome([call for call in ran if call.ended <= choice.created])
        key, context = choice.decision_id, choice.context
        steps.append(_Step(key, choice.created, 0, choice.action, outcome, context, choice.allowed))
        since = choice.created
    return steps, _outcome([] if since is None else calls[bisect_left(starts, since) :])


def _outcome(calls: Sequence[_Call]) -> int:
    if not calls:
        return UNKNOWN
    return SUCCEEDED if all(call.succeeded for call in calls) else FAILED


def _goal(episode: Episode, given: Any) -> str:
    """Returns what the episode is to reach: its task, else the input of its run, else nothing."""
    return sorted_text(given) if episode.task_id is None else episode.task_id


def _episode_of(decision: Decision) -> Episode:
    """Returns the episode of a decision that was made outside of one: it ends with it."""
    return Episode(
        episode_id=decision.decision_id,
        trace_id=decision.decision_id,
        agent_id=decision.agent_id,
        task_id=None,
        status=EpisodeStatus.COMPLETED,
        terminated=True,
        started_at=decision.created_at,
    )
