"""OpenAI's old text completions, which many servers of models still speak."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from learnloop.traces.conversation.dialects.base import (
    Answer,
    Asked,
    Body,
    add_text,
    integer,
    join_texts,
    mapping,
    named,
    present,
    request_attributes,
    sequence,
)
from learnloop.traces.conversation.dialects.chat_completions import usage_of
from learnloop.traces.conversation.messages import message, text_part


class Completions:
    """``POST /completions``."""

    operation = "text_completion"

    def asked(self, body: Body) -> Asked:
        """Returns what a request says: the prompt; where it is made of token ids, these."""
        prompt = body.get("prompt")
        texts = [prompt] if isinstance(prompt, str) else [each for each in sequence(prompt) if isinstance(each, str)]
        attributes = request_attributes(body)
        if prompt is not None and not texts:
            attributes["prompt_token_ids"] = prompt
        messages = [message("user", text_part(text)) for text in texts]
        return Asked(named(body.get("model")), messages, attributes, bool(body.get("stream")))

    def answer(self, body: Body) -> Answer:
        """Returns what a response says."""
        choices = [mapping(each) for each in sequence(body.get("choices"))]
        reasons = [each["finish_reason"] for each in choices if each.get("finish_reason")]
        return Answer([message("assistant", text_part(named(each.get("text")))) for each in choices], present(
            finish_reasons=reasons or None,
            response_id=body.get("id"),
            model=body.get("model"),
            usage=usage_of(mapping(body.get("usage"))) or None,
        ))  # fmt: skip

    def assembled(self, chunks: Sequence[Body]) -> Body:
        """Returns the response that the chunks make together."""
        made: dict[str, Any] = {}
        choices: dict[int, dict[str, Any]] = {}
        for chunk in chunks:
            made.update(present(id=chunk.get("id"), model=chunk.get("model"), usage=chunk.get("usage")))
            for each in map(mapping, sequence(chunk.get("choices"))):
                choice = choices.setdefault(integer(each.get("index")) or 0, {"text": ""})
                add_text(choice, "text", each.get("text"))
                choice.update(present(finish_reason=each.get("finish_reason")))
        made["choices"] = [join_texts(choices[index]) for index in sorted(choices)]
        return made
