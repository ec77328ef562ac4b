"""Embeddings as OpenAI's API writes them: the body of a request, and an answer."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from learnloop.core.arrays import F32
from learnloop.core.errors import UsageError
from learnloop.models.chat_wire import shortened
from learnloop.models.vectors import unit_vectors


class _Item(msgspec.Struct):
    index: int
    embedding: str | list[float | None]


class _Usage(msgspec.Struct):
    total_tokens: int | None = None


class _Answer(msgspec.Struct):
    data: list[_Item]
    usage: _Usage | None = None


def embedding_body(
    model: str, texts: Sequence[str], encoding: str, dimensions: int | None, extra: dict[str, Any]
) -> bytes:
    """Returns the JSON of a request; ``dimensions`` is not sent where it is None."""
    fields: dict[str, Any] = {**extra, "model": model, "input": list(texts), "encoding_format": encoding}
    if dimensions is not None:
        fields["dimensions"] = dimensions
    return msgspec.json.encode(fields)


def read_embeddings(data: bytes, where: str, num_texts: int, dimension: int) -> tuple[F32, int | None]:
    """Returns the vectors in the order of the texts, at the length 1, and the tokens that were counted, if told.

    Numbers as well as base64 of little-endian float32 are read, whichever was asked for.

    Raises:
        UsageError: this is no such answer; a text has no vector, or two; a vector has another dimension, numbers that
            are not finite, or only zeros.
    """
    try:
        answer = msgspec.json.decode(data, type=_Answer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{where} answers with no embeddings ({error}): {shortened(data)}") from error
    found: dict[int, Any] = {}
    for item in answer.data:
        if item.index in found or not 0 <= item.index < num_texts:
            raise UsageError(f"{where} answers with a vector {item.index} too many; {num_texts} texts were sent")
        found[item.index] = _numbers(item, where)
        if found[item.index].shape != (dimension,):
            raise UsageError(
                f"{where} gives text {item.index} a vector of {found[item.index].size} numbers; {dimension} "
                "are needed: set dimension to what the model gives, or dimensions to True where it can give others"
            )
    missing = [index for index in range(num_texts) if index not in found]
    if missing:
        raise UsageError(f"{where} answers without a vector for text {missing[0]}; {num_texts} texts were sent")
    vectors = np.stack([found[index] for index in range(num_texts)])
    tokens = None if answer.usage is None else answer.usage.total_tokens
    return unit_vectors(where, vectors, num_texts, dimension), tokens


def _numbers(item: _Item, where: str) -> Any:
    if not isinstance(item.embedding, str):
        # None, as some servers write NaN, becomes NaN here and is refused with it
        return np.array(item.embedding, dtype=np.float64)
    try:
        raw = base64.b64decode(item.embedding, validate=True)
        return np.frombuffer(raw, dtype="<f4")
    except (binascii.Error, ValueError) as error:
        raise UsageError(f"{where} gives text {item.index} a vector that is no base64 of float32: {error}") from error
