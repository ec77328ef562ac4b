"""OpenAI's embeddings: what was embedded is kept, the vectors are not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from learnloop.traces.conversation.dialects.base import Answer, Asked, Body, mapping, named, present, sequence
from learnloop.traces.conversation.dialects.chat_completions import usage_of
from learnloop.traces.conversation.messages import message, text_part


class Embeddings:
    """``POST /embeddings``."""

    operation = "embeddings"

    def asked(self, body: Body) -> Asked:
        """Returns which texts are to be embedded."""
        given = body.get("input")
        texts = [given] if isinstance(given, str) else [each for each in sequence(given) if isinstance(each, str)]
        attributes: dict[str, Any] = present(dimensions=body.get("dimensions"))
        return Asked(named(body.get("model")), [message("user", text_part(text)) for text in texts], attributes)

    def answer(self, body: Body) -> Answer:
        """Returns how many vectors came."""
        usage = usage_of(mapping(body.get("usage"))) or None
        return Answer([], present(num_vectors=len(sequence(body.get("data"))), model=body.get("model"), usage=usage))

    def assembled(self, chunks: Sequence[Body]) -> Body:
        """Returns the last chunk: embeddings are not streamed."""
        return chunks[-1] if chunks else {}
