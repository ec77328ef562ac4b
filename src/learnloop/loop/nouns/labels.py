"""``ws.labels``: what people say that runs were worth, whom to ask next, and the reward that is learned from it."""

from __future__ import annotations

import builtins
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from learnloop.core.errors import RewardError, UsageError
from learnloop.core.records import Episode, LabelRequest, Reward
from learnloop.core.rewards import LABEL, RewardTarget, check_reward, new_rewards
from learnloop.loop.nouns.listing import Noun, Page, columns
from learnloop.loop.rewards.attempts import attempt_of
from learnloop.loop.rewards.recording import find_target
from learnloop.loop.traces.reading import resolve_episode
from learnloop.rewards.learned.label_queue import LabelQueue

if TYPE_CHECKING:
    from learnloop.rewards.learned.reward import LearnedReward


WORDS: Final = {"good": 1.0, "bad": 0.0, "up": 1.0, "down": 0.0}


class ShownRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request for a label, with what a person needs to answer it."""

    request: LabelRequest
    prompt: str | None
    output: str | None


class Labels(Noun):
    """The labels of a workspace, and its queue of episodes that people are asked about."""

    def give(
        self,
        episode: str,
        value: str | float,
        *,
        name: str = LABEL,
        note: str | None = None,
        span: str | None = None,
        author: str | None = None,
    ) -> Reward:
        """Writes the reward that a person gives an episode, or a span of it, and returns it.

        It stands for the whole of the episode's reward: of each person the last label counts, and of several persons
        the mean. It answers the open request for one, where the queue has one of this episode. Under another ``name``
        it is one part of the reward among others, and replaces the one of this name.

        Args:
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
        target = find_target(self._workspace, RewardTarget(resolve_episode(self._workspace, episode), span_id=span))
        (reward,) = new_rewards(target, {name: number}, source=LABEL, author=author, reason=note)
        if name == LABEL:
            self._queue.record(reward)
        else:
            self._workspace.store.write([reward])
        return reward

    def ask(self, number: int, *, agent: str | None = None, seed: int = 0) -> builtins.list[LabelRequest]:
        """Opens requests for the episodes whose labels would teach most, with suggestions, and returns them.

        Args:
            number: how many at the most.
            agent: only this agent's; None: all.
            seed: of what is chosen by chance.

        Raises:
            MissingExtraError: the local embedder needs packages that are not installed.
        """
        from learnloop.loop.rewards.learned import fill_label_queue

        return fill_label_queue(self._workspace, number, agent=agent, seed=seed)

    def list(self, *, limit: int = 20, after: str | None = None) -> Page[ShownRequest]:
        """Returns open requests, the most useful first, each with what its episode was asked and answered.

        Args:
            limit: the most to list.
            after: ``next_cursor`` of the page before.

        Raises:
            UsageError: the limit is out of range, or the cursor is not valid.
        """
        page = self._queue.pending(limit=limit, after=after)
        return Page(map(self._with_attempt, page.requests), _ROW, page.next_cursor)

    def answer(self, request_id: str, value: str | float, *, author: str, note: str | None = None) -> Reward:
        """Answers a request, and returns the label.

        Args:
            request_id: which one.
            value: ``good``, ``bad`` (or ``up``, ``down``) or a number from 0 to 1.
            author: who says so.
            note: why.

        Raises:
            NotFoundError: there is no such request, or its episode was removed.
            ConflictError: it was answered or skipped already; nothing was written.
            UsageError: ``value`` is no such value.
        """
        return self._queue.answer(request_id, read_label(value), author, note=note)

    def accept(self, request_id: str, *, author: str, note: str | None = None) -> Reward:
        """Answers a request with the value that was suggested; raises as ``answer`` does.

        Raises:
            UsageError: nothing was suggested.
        """
        return self._queue.accept(request_id, author, note=note)

    def skip(self, request_id: str, *, author: str) -> LabelRequest:
        """Closes a request without an answer and returns it; raises as ``answer`` does."""
        return self._queue.skip(request_id, author)

    def learn(self, *, seed: int = 0) -> tuple[LearnedReward, Path]:
        """Learns a reward from all labels, keeps it, and returns it with its folder; its report says if it may be used.

        Args:
            seed: of the split by task.

        Raises:
            CheckFailedError: too few labels or tasks.
            MissingExtraError: the local embedder needs packages that are not installed.
        """
        from learnloop.loop.rewards.learned import learn_reward
        from learnloop.rewards.learned.reward import LearnedRewardConfig

        return learn_reward(self._workspace, LearnedRewardConfig(seed=seed))

    @property
    def _queue(self) -> LabelQueue:
        return LabelQueue(self._workspace.store)

    def _with_attempt(self, request: LabelRequest) -> ShownRequest:
        episode = self._workspace.store.find(Episode, request.episode_id)
        attempt = None if episode is None else attempt_of(self._workspace, episode, is_graded=False)
        prompt, output = (None, None) if attempt is None else (attempt.prompt, attempt.output)
        return ShownRequest(request=request, prompt=prompt, output=output)


def read_label(value: str | float) -> float:
    """Returns a label as a number from 0 to 1: ``good``, ``bad``, ``up``, ``down``, or a number.

    Raises:
        UsageError: it is none of these.
    """
    if isinstance(value, str) and value.lower() in WORDS:
        return WORDS[value.lower()]
    with suppress(ValueError, RewardError):
        number = check_reward(float(value))
        if 0.0 <= number <= 1.0:
            return number
    raise UsageError(f"{value!r} is not a label; give good, bad or a number from 0 to 1")


_ROW = columns(
    "request.label_request_id", "request.episode_id", "prompt", "output", "request.suggested_value", "request.reason"
)
