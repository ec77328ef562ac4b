"""Where a model is and how it is asked; the key itself is never part of it."""

from __future__ import annotations

import os
import re
from typing import Any, Literal
from urllib.parse import SplitResult, urlsplit

import msgspec

from learnloop.core.checks import check_number
from learnloop.core.errors import UsageError
from learnloop.models.chat import ChatRequest

MAX_WAIT_SECONDS = 60.0
"""An endpoint that asks to be left alone for longer is given up."""
_CREDENTIALS = re.compile(r"//[^/?#]*@")
_OWN_FIELDS = {*ChatRequest.__struct_fields__, "model", "max_completion_tokens", "stream", "stream_options"}
"""What a request's body has from other places, so ``extra_body`` may not."""


class EndpointConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a model is, and how it is asked."""

    base_url: str
    """Such as ``http://127.0.0.1:8080/v1``; ``/chat/completions`` is added."""
    model: str
    max_tokens: int = 256
    """Of one answer."""
    temperature: float | None = 0.0
    """None: not sent, for models that take none."""
    timeout_seconds: float = 60.0
    """For one request, from the connection to the last byte. Looking up the host's name is not limited by it."""
    deadline_seconds: float = 600.0
    """For one question, with its repetitions, the waits between them and the wait for a free place."""
    api_key_env: str | None = None
    """The environment variable that holds the key; None: no key is sent."""
    max_requests: int | None = None
    """Requests of this client, repeated ones included, those answered from ``cache`` not; None: any number."""
    max_total_tokens: int | None = None
    """Tokens of this client, of prompts and answers; None: any number. See ``Budget``."""
    max_in_flight: int = 8
    """Requests on their way at the same time; further threads wait."""
    max_retries: int = 4
    """How often a request is repeated after a failure that may pass."""
    backoff_seconds: float = 0.5
    """The wait before the first repetition; it doubles with each. ``Retry-After`` wins."""
    cache: str | None = None
    """A folder where answers are kept; a request that was answered before is not sent again."""
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    """What the endpoint calls the limit of an answer; OpenAI's newer models take only the second."""
    extra_body: dict[str, Any] = {}
    """Further fields of each request, such as ``{"reasoning_effort": "low"}``."""

    def __post_init__(self) -> None:
        """Refuses values without a meaning."""
        for name, value in (("model", self.model), ("api_key_env", self.api_key_env), ("cache", self.cache)):
            if value == "":
                raise UsageError(f"{name} is empty; give a name, or leave it out where there is none")
        lowest = {"max_tokens": 1, "max_requests": 1, "max_total_tokens": 1, "max_in_flight": 1, "max_retries": 0}
        for name, low in {**lowest, "temperature": 0}.items():
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), low)
        check_number("timeout_seconds", self.timeout_seconds, above=0)
        check_number("deadline_seconds", self.deadline_seconds, above=0)
        check_number("backoff_seconds", self.backoff_seconds, 0, MAX_WAIT_SECONDS)
        taken = sorted(_OWN_FIELDS & self.extra_body.keys())
        if taken:
            raise UsageError(f"extra_body is {self.extra_body}, but {taken[0]!r} has a place of its own; leave it out")

    def __repr__(self) -> str:
        """Returns the fields; a password in the address is not shown."""
        values = {**msgspec.structs.asdict(self), "base_url": without_credentials(self.base_url)}
        return f"EndpointConfig({', '.join(f'{name}={value!r}' for name, value in values.items())})"


def without_credentials(url: str) -> str:
    """Returns an address without user and password, which are nobody's business in a message."""
    return _CREDENTIALS.sub("//", url)


def checked_url(base_url: str) -> SplitResult:
    """Returns the parts of an ``http`` or ``https`` address.

    Raises:
        UsageError: it is something else.
    """
    shown = without_credentials(base_url)
    try:
        url = urlsplit(base_url)
        is_fine = url.scheme in ("http", "https") and bool(url.hostname) and (url.port or 1) > 0
    except ValueError as error:  # a port that is not a number, brackets that do not close
        raise UsageError(f"base_url {shown!r} is not a valid address: {without_credentials(str(error))}") from error
    if not is_fine or url.query or url.fragment:
        raise UsageError(f"base_url is {shown!r}; an address such as 'http://127.0.0.1:8080/v1' is needed")
    return url


def read_key(variable: str | None) -> str | None:
    """Returns the key in an environment variable; None where no variable is named.

    Raises:
        UsageError: the variable is not set, or what it holds can be no header.
    """
    if variable is None:
        return None
    key = os.environ.get(variable, "").strip()
    if not key:
        raise UsageError(f"the environment variable {variable} (api_key_env) is not set; put the key into it")
    if not key.isascii() or not key.isprintable():
        raise UsageError(f"the environment variable {variable} (api_key_env) holds characters that no header can carry")
    return key
