"""What the readers of benchmark results share: keys of tasks, calls that repeat their history."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from learnloop.traces.conversation.messages import Message
from learnloop.traces.importing.building import EpisodeBuilder


def digest(*texts: str) -> str:
    """Returns 12 characters that stand for ``texts``."""
    return hashlib.sha256("\x1f".join(texts).encode()).hexdigest()[:12]


class Calls:
    """Adds calls of a model that each repeat the conversation so far, and keeps of each what is new.

    A call that does not go on with what was said last (another agent's, or after the history was cut) is kept whole.
    """

    def __init__(self, builder: EpisodeBuilder) -> None:
        self._builder = builder
        self._said: list[str] = []
        """The marks of the conversation that went on last."""
        self._number = 0

    def add(
        self,
        model: str,
        messages: Sequence[Message],
        marks: Sequence[str],
        answers: Iterable[tuple[str, Message]],
        **rest: Any,
    ) -> str:
        """Adds a call and returns its span's id.

        Args:
            model: its name.
            messages: all that the call held.
            marks: one text for each message, the same where it is the same.
            answers: what the model said, each with its mark.
            rest: as for ``EpisodeBuilder.chat``.
        """
        said = list(answers)
        num_known = len(self._said)
        if not num_known or list(marks[:num_known]) != self._said:
            num_known = 0
            self._number += 1
        self._said = [*marks, *(mark for mark, _ in said)]
        output = [answer for _, answer in said] or None
        return self._builder.chat(model, messages[num_known:], output, thread=str(self._number), **rest)
