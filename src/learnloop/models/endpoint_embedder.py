"""A client of any OpenAI-compatible embedding model, and embeddings as its API writes them."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import msgspec
import numpy as np

from learnloop.core.arrays import F32
from learnloop.core.checks import check_range
from learnloop.core.decoding import decode_json
from learnloop.core.errors import UsageError
from learnloop.models.chat_wire import shortened
from learnloop.models.connections import MAX_ANSWER_BYTES
from learnloop.models.endpoint_config import EndpointConfig
from learnloop.models.transport import Client, Exchange, Transport
from learnloop.models.vectors import MAX_DIMENSION, checked_texts, unit_vectors, whole_text

_OWN_FIELDS = frozenset(("model", "input", "dimensions", "encoding_format"))
_BYTES_PER_TOKEN = 4
_BYTES_PER_NUMBER = 32
"""Of a number in JSON, at most."""
MAX_BATCH = 2048
"""Texts in a request, as OpenAI allows."""


class EndpointEmbedderConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which embedding model, and how its vectors are asked for."""

    endpoint: EndpointConfig
    """Where it is; of what it says of chats nothing is used. ``/embeddings`` is added to its address."""
    dimension: int
    """How many numbers its vectors have, such as 1536; another answer is an error."""
    dimensions: bool = False
    """Whether ``dimension`` is sent as ``dimensions``, for models that can give vectors of several."""
    encoding: Literal["float", "base64"] = "float"
    """How the numbers come; base64 is a quarter of the bytes."""
    batch_size: int = 64
    """Texts in one request."""

    def __post_init__(self) -> None:
        """Refuses values without a meaning."""
        check_range("dimension", self.dimension, 1, MAX_DIMENSION)
        check_range("batch_size", self.batch_size, 1, MAX_BATCH)
        taken = sorted(_OWN_FIELDS & self.endpoint.extra_body.keys())
        if taken:
            raise UsageError(f"extra_body has {taken[0]!r}, which has a place of its own; see EndpointEmbedderConfig")
        if self.endpoint.cache is not None:
            raise UsageError("the endpoint of an embedder has a cache; leave it out, the cache folder keeps vectors")


class EndpointEmbedder(Client):
    """Embeds texts with a model behind an address, several batches at the same time. For any number of threads.

    Attributes:
        name: the model and its address, without user and password.
        dimension: as configured.
        content_id: of address, model, dimension and further fields of the requests.
    """

    def __init__(self, config: EndpointEmbedderConfig) -> None:
        """Connects to nothing yet.

        Raises:
            UsageError: the address is not a valid one, or the variable with the key is not set.
        """
        endpoint = config.endpoint
        self._config = config
        super().__init__(Transport(endpoint, "/embeddings"))
        self.name = f"{endpoint.model} at {self._transport.name}"
        self.dimension = config.dimension
        self.content_id = _content_id(config, self._transport.name)
        self._batch_size = max(1, min(config.batch_size, MAX_ANSWER_BYTES // (_BYTES_PER_NUMBER * config.dimension)))

    def embed(self, texts: Sequence[str]) -> F32:
        """Returns the vector of each text at the length 1, shape ``(len(texts), dimension)``.

        A text that is too long for the model is as the endpoint treats it: most refuse it, some cut it.

        Raises:
            AuthError: the endpoint refuses the key (401, 403).
            NotFoundError: it has no such model or path (404).
            UsageError: it refuses the request, or answers something else than vectors of this dimension.
            UnreachableError: it does not answer, or not usefully, after all repetitions or in time.
            ConflictError: ``max_requests`` or ``max_total_tokens`` are used up.
        """
        listed = [whole_text(text) for text in checked_texts(texts)]
        batches = [listed[start : start + self._batch_size] for start in range(0, len(listed), self._batch_size)]
        if not batches:
            return np.empty((0, self.dimension), dtype=np.float32)
        if len(batches) == 1:
            return self._embed(batches[0])
        num_threads = min(self._config.endpoint.max_in_flight, len(batches))
        with ThreadPoolExecutor(num_threads, thread_name_prefix="learnloop-embed") as threads:
            asked = [threads.submit(self._embed, batch) for batch in batches]
            try:
                return np.concatenate([each.result() for each in asked])
            finally:
                for each in asked:  # after a failure nothing more is sent
                    each.cancel()

    def _embed(self, texts: Sequence[str]) -> F32:
        config = self._config
        dimensions = config.dimension if config.dimensions else None
        body = embedding_body(config.endpoint.model, texts, config.encoding, dimensions, config.endpoint.extra_body)

        def read(exchange: Exchange) -> F32:
            data = self._transport.read_json(exchange)
            vectors, num_tokens = read_embeddings(data, self._transport.name, len(texts), config.dimension)
            if num_tokens is not None:
                exchange.settle(num_tokens)
            exchange.close()
            return vectors

        return self._transport.ask(body, len(body) // _BYTES_PER_TOKEN, read)


def _content_id(config: EndpointEmbedderConfig, address: str) -> str:
    parts = [address, config.endpoint.model, config.dimension, config.dimensions, config.endpoint.extra_body]
    data = msgspec.json.encode(parts, order="deterministic")
    return f"endpoint-{hashlib.sha256(data).hexdigest()[:32]}"


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
        UsageError: this is not such an answer; a text has no vector, or two; a vector has another dimension, numbers
            that are not finite, or only zeros.
    """
    what = f"{where} answers with no embeddings"
    answer = decode_json(data, what, _Answer, error=UsageError, hint=f": {shortened(data)}")
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
        raise UsageError(f"{where} gives text {item.index} a vector that is not base64 of float32: {error}") from error
