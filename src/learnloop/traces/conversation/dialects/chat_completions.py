"""OpenAI's chat completions, which most servers of models speak."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from learnloop.traces.conversation.messages import read_message

_TEXTS = ("content", "refusal", "reasoning_content", "reasoning")


class ChatCompletions:
    """``POST /chat/completions``."""

    operation = "chat"

    def asked(self, body: Body) -> Asked:
        """Returns what a request says."""
        messages = [read_message(each) for each in sequence(body.get("messages"))]
        return Asked(named(body.get("model")), messages, request_attributes(body), bool(body.get("stream")))

    def answer(self, body: Body) -> Answer:
        """Returns what a response says."""
        choices = [mapping(each) for each in sequence(body.get("choices"))]
        output = [read_message({"role": "assistant", **mapping(each.get("message"))}) for each in choices]
        reasons = [each["finish_reason"] for each in choices if each.get("finish_reason")]
        return Answer(output, {
            **present(
                finish_reasons=reasons or None,
                response_id=body.get("id"),
                model=body.get("model"),
                usage=usage_of(mapping(body.get("usage"))) or None,
                **_tokens(body, choices),
            ),
        })  # fmt: skip

    def assembled(self, chunks: Sequence[Body]) -> Body:
        """Returns the response that the chunks make together."""
        made: dict[str, Any] = {}
        choices: dict[int, dict[str, Any]] = {}
        for chunk in chunks:
            made.update(present(id=chunk.get("id"), model=chunk.get("model"), usage=chunk.get("usage")))
            for each in map(mapping, sequence(chunk.get("choices"))):
                index = integer(each.get("index")) or 0
                _add(choices.setdefault(index, {"message": {"role": "assistant"}}), each)
        made["choices"] = [_closed(choices[index]) for index in sorted(choices)]
        return made


def usage_of(usage: Mapping[str, Any]) -> dict[str, int]:
    """Returns the counts of tokens under the names that our spans have."""
    prompt = mapping(usage.get("prompt_tokens_details") or usage.get("input_tokens_details"))
    completion = mapping(usage.get("completion_tokens_details") or usage.get("output_tokens_details"))
    counts = {
        "input_tokens": integer(usage.get("prompt_tokens", usage.get("input_tokens"))),
        "output_tokens": integer(usage.get("completion_tokens", usage.get("output_tokens"))),
        "cached_input_tokens": integer(prompt.get("cached_tokens")),
        "reasoning_tokens": integer(completion.get("reasoning_tokens")),
    }
    return {name: count for name, count in counts.items() if count is not None}


def _tokens(body: Body, choices: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Returns token ids and log-probabilities of the first answer where the server gave them (as vLLM does)."""
    first = choices[0] if choices else {}
    prompt = body.get("prompt_token_ids")
    completion = first.get("token_ids") or first.get("completion_token_ids")
    ids = present(prompt=prompt, completion=completion)
    logprobs = [mapping(each).get("logprob") for each in sequence(mapping(first.get("logprobs")).get("content"))]
    return present(token_ids=ids if completion else None, logprobs=logprobs or None)


def _add(choice: dict[str, Any], chunk: Mapping[str, Any]) -> None:
    """Adds a chunk's part of one answer."""
    said, delta = choice["message"], mapping(chunk.get("delta"))
    for name in _TEXTS:
        add_text(said, name, delta.get(name))
    pieces = [mapping(each) for each in sequence(delta.get("tool_calls"))]
    for place, piece in enumerate(pieces):
        calls = said.setdefault("_calls", {})
        _add_call(calls.setdefault(_place(calls, piece, place if len(pieces) > 1 else None), {}), piece)
    if chunk.get("finish_reason"):
        choice["finish_reason"] = chunk["finish_reason"]
    content = sequence(mapping(chunk.get("logprobs")).get("content"))
    if content:
        choice.setdefault("logprobs", {"content": []})["content"].extend(content)
    if sequence(chunk.get("token_ids")):
        choice.setdefault("token_ids", []).extend(chunk["token_ids"])


def _place(calls: Mapping[int, Mapping[str, Any]], piece: Mapping[str, Any], place: int | None) -> int:
    """Returns which call a piece belongs to: by its index, unless a new id shows that it is another one.

    Some servers number no call, or all of them 0.
    """
    index, call_id = integer(piece.get("index")), piece.get("id") or None
    if index is None and call_id is None:
        return max(calls, default=0) if place is None else place
    if index is None:
        index = next((number for number, call in calls.items() if call.get("id") == call_id), None)
    elif call_id is not None and calls.get(index, {}).get("id") not in (None, call_id):
        index = None
    return max(calls, default=-1) + 1 if index is None else index


def _add_call(call: dict[str, Any], chunk: Mapping[str, Any]) -> None:
    """Adds a chunk's part of one call; arguments come in pieces, the rest at once."""
    function = mapping(chunk.get("function"))
    call.update(present(id=chunk.get("id") or None, name=function.get("name") or None))
    add_text(call, "arguments", function.get("arguments"))


def _closed(choice: dict[str, Any]) -> dict[str, Any]:
    said = join_texts(choice["message"])
    calls = said.pop("_calls", None)
    if calls:
        said["tool_calls"] = [join_texts(calls[index]) for index in sorted(calls)]
    return choice
