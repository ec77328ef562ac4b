"""What the readers of benchmark results share: keys of tasks, token counts, calls that repeat their history."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any

import msgspec

from learnloop.core.errors import FormatError
from learnloop.core.records import Record, Task
from learnloop.traces.conversation.messages import Message
from learnloop.traces.importing.building import EpisodeBuilder
from learnloop.traces.importing.formats.base import Source

Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
"""How many, or which one counted from 0."""
Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
"""How long something took."""

_COUNTED: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "input_tokens": (("input_tokens",), ("prompt_tokens",)),
    "output_tokens": (("output_tokens",), ("completion_tokens",)),
    "cached_input_tokens": (
        ("cached_input_tokens",),
        ("input_tokens_cache_read",),
        ("cache_read_input_tokens",),
        ("prompt_tokens_details", "cached_tokens"),
    ),
    "reasoning_tokens": (("reasoning_tokens",), ("completion_tokens_details", "reasoning_tokens")),
}


def digest(*texts: str) -> str:
    """Returns 12 characters that stand for ``texts``."""
    return hashlib.sha256("\x1f".join(texts).encode()).hexdigest()[:12]


def plain_name(source: Source) -> str:
    """Returns the name of the file without ``.gz``."""
    return source.file_name.removesuffix(".gz")


def known_text(value: Any) -> str | None:
    """Returns ``value`` where it is a text that says something."""
    return value if isinstance(value, str) and value else None


def known_object(value: Any) -> Mapping[str, Any]:
    """Returns ``value`` where it is a JSON object, else one without entries."""
    return value if isinstance(value, dict) else {}


def known_list(field: str, value: Any) -> list[Any]:
    """Returns ``value``, an empty list where it is None.

    Raises:
        FormatError: it is no list; the message names ``field``.
    """
    if value is None:
        return []
    if not isinstance(value, list):
        raise FormatError(f"{field} is a {type(value).__name__}; a list is needed")
    return value


def token_usage(raw: Any) -> dict[str, int] | None:
    """Returns the token counts that an API reported, in our words; None where there are none."""
    counts = {}
    for name, paths in _COUNTED.items():
        found = next((number for path in paths if (number := _count_at(raw, path)) is not None), None)
        if found is not None:
            counts[name] = found
    return counts or None


def _count_at(raw: Any, path: Sequence[str]) -> int | None:
    for key in path:
        raw = known_object(raw).get(key)
    return raw if type(raw) is int and raw >= 0 else None


class TaskNotes:
    """Says once what each task is: its definition belongs to the task, not to each try at it."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._known: set[str] = set()

    def of(self, task_id: str, metadata: Mapping[str, Any]) -> list[Record]:
        """Returns the record of a task the first time, nothing later; entries that are None are left out."""
        known = {name: value for name, value in metadata.items() if value is not None}
        if task_id in self._known or not known:
            return []
        self._known.add(task_id)
        return [Task(task_id=task_id, created_at=self._source.modified_at, metadata=known)]


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
