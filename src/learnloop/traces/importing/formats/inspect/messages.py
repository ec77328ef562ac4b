"""The messages of an inspect_ai log: long texts are kept once (``attachment://``), and so are repeated messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from learnloop.core.errors import FormatError
from learnloop.traces.conversation.messages import Message, fingerprint, read_message
from learnloop.traces.importing.reader import required_list
from learnloop.traces.json_values import find, known_object, known_text, present

_PROTOCOL = "attachment://"
_MAX_DEPTH = 64
_MAX_RESOLVED = 64 * 1024 * 1024
"""Characters that references of one sample may grow to: a few bytes each can name one long text many times."""

Marked = tuple[str, Message]
"""A message, and a text that is the same where it is the same."""


class Attachments:
    """The long texts of a sample."""

    def __init__(self, texts: Any) -> None:
        self._texts = {key: text for key, text in known_object(texts).items() if isinstance(text, str)}
        self._left = _MAX_RESOLVED

    def resolve(self, value: Any, depth: int = 0) -> Any:
        """Returns ``value`` with texts in the place of references; one that cannot be followed stays."""
        if isinstance(value, str):
            return self._text(value)
        if depth >= _MAX_DEPTH or not self._texts:
            return value
        if isinstance(value, list):
            return [self.resolve(each, depth + 1) for each in value]
        if isinstance(value, dict):
            return {name: self.resolve(each, depth + 1) for name, each in value.items()}
        return value

    def size(self, content: Any) -> int:
        """Returns the length of a text, of what it refers to, or of a list."""
        if not isinstance(content, str):
            return len(content) if isinstance(content, list) else 0
        found = self._referred(content)
        return len(content if found is None else found)

    def _referred(self, value: str) -> str | None:
        return self._texts.get(value[len(_PROTOCOL) :]) if value.startswith(_PROTOCOL) else None

    def _text(self, value: str) -> str:
        found = self._referred(value)
        if found is None or len(found) > self._left:
            return value
        self._left -= len(found)
        return found


class Reader:
    """Reads the messages of one sample."""

    def __init__(self, attachments: Attachments, pool: Any) -> None:
        """Reads nothing yet.

        Args:
            attachments: of the sample.
            pool: the messages that calls refer to by their places (newer logs), or None.

        Raises:
            FormatError: the pool is not a list.
        """
        self._attachments = attachments
        self._pool = required_list("the pool of messages", pool)
        self._known: dict[str, Message] = {}

    def heard(self, event: Mapping[str, Any]) -> list[Marked]:
        """Returns the messages of a call of a model.

        Raises:
            FormatError: they are no list, or refer to messages that are not there.
        """
        raw = required_list("a model event's input", event.get("input"))
        if not raw and event.get("input_refs") is not None:
            raw = list(self._referred(event["input_refs"]))
        return [self.read(each) for each in raw]

    def read(self, raw: Any) -> Marked:
        """Returns one message; a call repeats those before it, which are read once."""
        raw = {"role": "user", "content": raw} if isinstance(raw, str) else raw
        key, size = known_text(find(raw, "id")), self._attachments.size(find(raw, "content"))
        mark = None if key is None else f"{key} {size}"
        if mark is not None and mark in self._known:
            return mark, self._known[mark]
        said = _message(self._attachments.resolve(raw))
        if mark is None:
            return fingerprint(said), said
        self._known[mark] = said
        return mark, said

    def _referred(self, refs: Any) -> Iterator[Any]:
        """Yields the messages at the places ``[first, after the last]`` of each pair in ``refs``."""
        for pair in required_list("input_refs", refs):
            ends = pair if isinstance(pair, list) and len(pair) == 2 else [None]
            if not all(type(end) is int and 0 <= end <= len(self._pool) for end in ends):
                raise FormatError(f"input_refs has {pair!r}; two places in a pool of {len(self._pool)} are needed")
            yield from self._pool[ends[0] : ends[1]]


def _message(raw: Any) -> Message:
    content = find(raw, "content")
    if isinstance(content, list):
        raw = {**raw, "content": [_block(block) for block in content]}
    said = read_message(raw)
    fault = known_object(find(raw, "error"))
    if fault and said["role"] == "tool":
        said["parts"] = [{**part, "is_error": True, "error": fault.get("message")} for part in said["parts"]]
    return said


def _block(block: Any) -> Any:
    """Returns a part of a message's content in our words, where inspect's are of its own."""
    kind = find(block, "type")
    if kind == "reasoning":
        text = known_text(block.get("reasoning")) or known_text(block.get("summary")) or ""
        return {**present({**block, "reasoning": None}), "type": "reasoning", "content": text}
    if kind == "tool_use":  # one that the model's own server ran
        return {**block, "type": "server_tool_call"}
    return block
