"""What a person says of a run."""

from __future__ import annotations

from typing import Final

import msgspec

from learnloop.core.errors import RewardError, UsageError
from learnloop.core.records import Episode, LabelRequest, Reward
from learnloop.core.rewards import LABEL, Parts, RewardTarget, check_reward, new_rewards, take_part, total_of
from learnloop.loop.rewards.attempts import attempt_of
from learnloop.loop.rewards.recording import find_target
from learnloop.loop.traces.reading import resolve_episode
from learnloop.loop.workspace.core import WorkspaceCore
from learnloop.rewards.learned.label_queue import LabelQueue

WORDS: Final = {"good": 1.0, "bad": 0.0, "up": 1.0, "down": 0.0}


class ShownRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for a label, with what a person needs to answer it."""

    request: LabelRequest
    prompt: str | None
    output: str | None


class ShownRequests(msgspec.Struct, frozen=True, kw_only=True):
    """A page of them."""

    shown: list[ShownRequest]
    next_cursor: str | None


def label(
    workspace: WorkspaceCore,
    episode: str,
    value: str | float,
    *,
    name: str = LABEL,
    note: str | None = None,
    span: str | None = None,
    author: str | None = None,
) -> Reward:
    """Writes the reward that a person gives an episode, or a span of it, and returns it.

    It stands for the whole of the episode's reward: of each person the last label counts, and of several persons the
    mean. It answers the open request for one, where the queue has one of this episode. Under another ``name`` it is one
    part of the reward among others, and replaces the one of this name.

    Args:
        workspace: whose.
        episode: its id, or the beginning of it that no other has.
        value: ``good``, ``bad`` (or ``up``, ``down``) or a number from 0 to 1.
        name: of the part.
        note: why.
        span: the id of a span of the episode; a reward of a span is no part of the episode's.
        author: the person who says so; None: not known.

    Raises:
        NotFoundError: there is no such episode, or no such span in it.
        UsageError: ``value`` is no such value, or ``author`` is empty.
    """
    number = read_label(value)
    target = find_target(workspace, RewardTarget(resolve_episode(workspace, episode), span_id=span))
    (reward,) = new_rewards(target, {name: number}, source=LABEL, author=author, reason=note)
    if name == LABEL:
        LabelQueue(workspace.store).record(reward)
    else:
        workspace.store.write([reward])
    return reward


def labels_of(workspace: WorkspaceCore) -> dict[str, float]:
    """Returns what people say of each episode that they labelled: the last label of each, the mean over persons."""
    found: dict[str, Parts] = {}
    where = {"name": LABEL, "source": LABEL, "span_id": None, "decision_id": None}
    for reward in workspace.store.iterate(Reward, where=where):
        if reward.episode_id is not None:
            take_part(found.setdefault(reward.episode_id, {}), reward)
    return {each: value for each, parts in found.items() if (value := total_of(parts)) is not None}


def label_queue(workspace: WorkspaceCore) -> LabelQueue:
    """Returns the queue of episodes that people are asked about."""
    return LabelQueue(workspace.store)


def show_requests(workspace: WorkspaceCore, *, limit: int = 20, after: str | None = None) -> ShownRequests:
    """Returns open requests, the most useful first, each with what its episode was asked and answered.

    Raises:
        UsageError: the limit is out of range, or the cursor is none.
    """
    page = LabelQueue(workspace.store).pending(limit=limit, after=after)
    shown = []
    for request in page.requests:
        episode = workspace.store.find(Episode, request.episode_id)
        attempt = None if episode is None else attempt_of(workspace, episode, is_graded=False)
        shown.append(
            ShownRequest(
                request=request,
                prompt=None if attempt is None else attempt.prompt,
                output=None if attempt is None else attempt.output,
            )
        )
    return ShownRequests(shown=shown, next_cursor=page.next_cursor)


def read_label(value: str | float) -> float:
    """Returns a label as a number from 0 to 1: ``good``, ``bad``, ``up``, ``down``, or a number.

    Raises:
        UsageError: it is none of these.
    """
    if isinstance(value, str) and value.lower() in WORDS:
        return WORDS[value.lower()]
    try:
        number = check_reward(float(value))
    except (ValueError, RewardError) as error:
        raise UsageError(f"{value!r} is no label; give good, bad or a number from 0 to 1") from error
    if not 0.0 <= number <= 1.0:
        raise UsageError(f"{value!r} is no label; give good, bad or a number from 0 to 1")
    return number
