"""OpenAI's APIs of models with choices, which most servers speak, and its embeddings."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from learnloop.traces.conversation.dialects import base
from learnloop.traces.conversation.dialects.base import Body, ModelRequest, ModelResponse, add_text, join_texts
from learnloop.traces.conversation.messages import Message, message, read_message, text_part
from learnloop.traces.json_values import find, known_integer, known_list, known_object, known_text, present

_TEXTS = ("content", "refusal", "reasoning_content", "reasoning")


class _Choices(base.Dialect):
    """Answers that are a list of choices."""

    @abstractmethod
    def read_choice(self, choice: Body) -> Message:
        """Returns one of the answers."""

    @abstractmethod
    def add(self, choice: dict[str, Any], chunk: Body) -> None:
        """Adds a chunk's part of one answer."""

    def close(self, choice: dict[str, Any]) -> dict[str, Any]:
        """Returns an answer to which all its parts were added."""
        return join_texts(choice)

    def read_response(self, body: Body) -> ModelResponse:
        """Returns what a response says."""
        choices = _objects(body, "choices")
        output = [self.read_choice(each) for each in choices]
        return base.response_of(body, output, [each.get("finish_reason") for each in choices], **_tokens(body, choices))

    def join_chunks(self, chunks: Sequence[Body]) -> Body:
        """Returns the response that the chunks make together."""
        made: dict[str, Any] = {}
        choices: dict[int, dict[str, Any]] = {}
        for chunk in chunks:
            made.update(present({name: chunk.get(name) for name in ("id", "model", "usage")}))
            for each in _objects(chunk, "choices"):
                choice = choices.setdefault(known_integer(each.get("index")) or 0, {})
                self.add(choice, each)
                if each.get("finish_reason"):
                    choice["finish_reason"] = each["finish_reason"]
        made["choices"] = [self.close(choices[index]) for index in sorted(choices)]
        return made


class ChatCompletions(_Choices):
    """``POST /chat/completions``."""

    def read_request(self, body: Body) -> ModelRequest:
        """Returns what a request says."""
        return base.request_of(body, [read_message(each) for each in known_list(body.get("messages"))])

    def read_choice(self, choice: Body) -> Message:
        """Returns one of the answers."""
        return read_message({"role": "assistant", **known_object(choice.get("message"))})

    def add(self, choice: dict[str, Any], chunk: Body) -> None:
        """Adds a chunk's part of one answer."""
        said, delta = choice.setdefault("message", {"role": "assistant"}), known_object(chunk.get("delta"))
        for name in _TEXTS:
            add_text(said, name, delta.get(name))
        pieces = _objects(delta, "tool_calls")
        for place, piece in enumerate(pieces):
            calls = said.setdefault("_calls", {})
            _add_call(calls.setdefault(_place(calls, piece, place if len(pieces) > 1 else None), {}), piece)
        content = known_list(find(chunk, "logprobs", "content"))
        if content:
            choice.setdefault("logprobs", {"content": []})["content"].extend(content)
        if known_list(chunk.get("token_ids")):
            choice.setdefault("token_ids", []).extend(chunk["token_ids"])

    def close(self, choice: dict[str, Any]) -> dict[str, Any]:
        """Returns an answer with its calls of tools in order."""
        said = join_texts(choice["message"])
        calls = said.pop("_calls", None)
        if calls:
            said["tool_calls"] = [join_texts(calls[index]) for index in sorted(calls)]
        return choice


class Completions(_Choices):
    """``POST /completions``: the old text completions."""

    operation = "text_completion"

    def read_request(self, body: Body) -> ModelRequest:
        """Returns what a request says: the prompt; where it is made of token ids, these."""
        prompt = body.get("prompt")
        said = _texts(prompt)
        return base.request_of(body, said, prompt_token_ids=None if said else prompt)

    def read_choice(self, choice: Body) -> Message:
        """Returns one of the answers."""
        return message("assistant", text_part(known_text(choice.get("text")) or ""))

    def add(self, choice: dict[str, Any], chunk: Body) -> None:
        """Adds a chunk's part of one answer."""
        add_text(choice, "text", chunk.get("text"))


class Embeddings(base.Dialect):
    """``POST /embeddings``: what was embedded is kept, the vectors are not."""

    operation = "embeddings"

    def read_request(self, body: Body) -> ModelRequest:
        """Returns which texts are to be embedded."""
        return base.request_of(body, _texts(body.get("input")), dimensions=body.get("dimensions"))

    def read_response(self, body: Body) -> ModelResponse:
        """Returns how many vectors came."""
        return base.response_of(body, [], num_vectors=len(known_list(body.get("data"))))

    def join_chunks(self, chunks: Sequence[Body]) -> Body:
        """Returns the last chunk: embeddings are not streamed."""
        return chunks[-1] if chunks else {}


def _objects(raw: Body, name: str) -> list[Mapping[str, Any]]:
    return [known_object(each) for each in known_list(raw.get(name))]


def _texts(given: Any) -> list[Message]:
    texts = [given] if isinstance(given, str) else [each for each in known_list(given) if isinstance(each, str)]
    return [message("user", text_part(text)) for text in texts]


def _tokens(body: Body, choices: Sequence[Body]) -> dict[str, Any]:
    """Returns token ids and log-probabilities of the first answer where the server gave them (as vLLM does)."""
    first = choices[0] if choices else {}
    completion = first.get("token_ids") or first.get("completion_token_ids")
    ids = present({"prompt": body.get("prompt_token_ids"), "completion": completion})
    logprobs = [find(each, "logprob") for each in known_list(find(first, "logprobs", "content"))]
    return {"token_ids": ids if completion else None, "logprobs": logprobs or None}


def _place(calls: Mapping[int, Mapping[str, Any]], piece: Mapping[str, Any], place: int | None) -> int:
    """Returns which call a piece belongs to: by its index, unless a new id shows that it is another one.

    Some servers number no call, or all of them 0.
    """
    index, call_id = known_integer(piece.get("index")), piece.get("id") or None
    if index is None and call_id is None:
        return max(calls, default=0) if place is None else place
    if index is None:
        index = next((number for number, call in calls.items() if call.get("id") == call_id), None)
    elif call_id is not None and calls.get(index, {}).get("id") not in (None, call_id):
        index = None
    return max(calls, default=-1) + 1 if index is None else index


def _add_call(call: dict[str, Any], chunk: Mapping[str, Any]) -> None:
    """Adds a chunk's part of one call; arguments come in pieces, the rest at once."""
    call.update(present({"id": chunk.get("id") or None, "name": find(chunk, "function", "name") or None}))
    add_text(call, "arguments", find(chunk, "function", "arguments"))
