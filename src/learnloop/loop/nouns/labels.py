"""``ws.labels``: what people say that runs were worth, whom to ask next, and the reward that is learned from it."""

from __future__ import annotations

import builtins
from pathlib import Path
from typing import TYPE_CHECKING

from learnloop.core.records import LabelRequest, Reward
from learnloop.core.rewards import LABEL
from learnloop.loop.nouns.listing import Noun, Page, columns
from learnloop.loop.rewards.labelling import ShownRequest, label, label_queue, read_label, show_requests

if TYPE_CHECKING:
    from learnloop.rewards.learned.reward import LearnedReward


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
        the mean. It answers the open request for one. Under another ``name`` it is one part of the reward among others.

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
        return label(self._workspace, episode, value, name=name, note=note, span=span, author=author)

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
        page = show_requests(self._workspace, limit=limit, after=after)
        return Page(page.shown, _ROW, page.next_cursor)

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
        return label_queue(self._workspace).answer(request_id, read_label(value), author, note=note)

    def accept(self, request_id: str, *, author: str, note: str | None = None) -> Reward:
        """Answers a request with the value that was suggested; raises as ``answer`` does.

        Raises:
            UsageError: nothing was suggested.
        """
        return label_queue(self._workspace).accept(request_id, author, note=note)

    def skip(self, request_id: str, *, author: str) -> LabelRequest:
        """Closes a request without an answer and returns it; raises as ``answer`` does."""
        return label_queue(self._workspace).skip(request_id, author)

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


_ROW = columns(
    "request.label_request_id", "request.episode_id", "prompt", "output", "request.suggested_value", "request.reason"
)
