"""What the framework is told of the application that it serves: all that differs from one application to the next."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import msgspec

from learnloop.serve.http.problems import ErrorTable, Problem, ProblemBody

Headers = dict[bytes, bytes]
"""By their names in lower case; the last one where a name comes twice."""

MIB = 1 << 20


class RequestLimits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one request may cost."""

    body_bytes: int = 8 * MIB
    """The largest body as it arrives; a route may allow more."""
    decoded_bytes: int = 64 * MIB
    """The largest body after decompression."""
    ratio: int = 100
    """How many bytes one compressed byte may become; asked of bodies above ``MIN_RATIO_BYTES`` only."""
    body_seconds: float = 30.0
    """How long a body may take to arrive."""
    header_seconds: float = 10.0
    """How long the headers of a request may take to arrive."""
    header_bytes: int = 64 << 10
    """The largest headers, request line included."""
    num_active: int = 1024
    """How many requests are worked on at once; further ones are answered 503."""
    num_threads: int = 8
    """How many calls that block run at once."""
    num_waiting: int = 256
    """How many calls that block may wait for a thread; further ones are answered 503."""


@dataclass(frozen=True, kw_only=True)
class About:
    """How an application calls itself, in its documentation and in its errors."""

    title: str
    version: str
    summary: str | None = None
    description: str | None = None
    problem_types: str = "urn:problem:"
    """How the type of each problem begins."""
    realm: str = "api"
    """What a key is for (RFC 9110, section 11.5)."""
    host_advice: str = "have the server allow that name"
    """What to do where a request calls the server by a name that it does not know."""
    origin_advice: str = "have the server allow its origin"
    """What to do where a page of another site wants to write."""
    path_advice: str = "see the documentation for those that there are"
    """What to do where a path is not there."""


class Caller(NamedTuple):
    """Who asks."""

    caller_id: str
    name: str
    scopes: tuple[str, ...]
    """What the caller may do; a route names the one that it needs."""


class Claim(Protocol):
    """That a run may answer a request with an ``Idempotency-Key``."""

    @property
    def effect_id(self) -> str:
        """For what the request makes: the same one when the request runs again after its server died."""
        ...


class KeptAnswer(NamedTuple):
    """What is known of a request that was claimed before."""

    fingerprint: str
    status: int | None
    """None: it is still worked on."""
    media_type: str
    body: bytes


class KeptAnswers(Protocol):
    """Who works on a request with an ``Idempotency-Key``, and what was answered.

    Its methods raise a ``Problem`` where that cannot be told or kept.
    """

    async def claim(self, answer_id: str, fingerprint: str) -> Claim | KeptAnswer:
        """Claims a request, or returns what is known of it where it is not to be run.

        Args:
            answer_id: made of who asks and of the key.
            fingerprint: of the request.
        """
        ...

    async def keep(self, claim: Claim, status: int, media_type: str, body: bytes) -> None:
        """Puts the answer in the place of its claim; when this returns it outlives the server."""
        ...

    async def release(self, claim: Claim) -> None:
        """Gives up a claim, so that the request may be tried again at once."""
        ...


@dataclass(kw_only=True)
class Site:
    """An application as the framework sees it."""

    about: About
    limits: RequestLimits = field(default_factory=RequestLimits)
    hosts: tuple[str, ...] = ()
    """Names by which clients may call the server, besides those of the loopback."""
    origins: tuple[str, ...] = ()
    """Web origins other than its own whose pages may call it, such as ``https://dash.example.com``."""
    errors: ErrorTable = field(default_factory=lambda: ErrorTable({}))
    identify: Callable[[Headers], Caller | None] = lambda headers: None
    """Returns who asks, None where everybody may; raises a 401 ``Problem`` where no one is shown who may."""
    credentials: tuple[bytes, ...] = (b"authorization",)
    """The headers that ``identify`` looks at; a request may have each of them once."""
    full_scope: str | None = None
    """The scope that has all others in it."""
    answers: KeptAnswers | None = None
    """None: no route is idempotent."""
    new_id: Callable[[], str] = lambda: str(uuid.uuid4())
    """Makes the id of a request that brings none."""
    is_draining: bool = False
    """The server is about to stop: it is not ready any more."""

    def problem_body(self, problem: Problem, instance: str, request_id: str) -> ProblemBody:
        """Returns the body of the answer to ``request_id``, which asked for the path ``instance``."""
        return ProblemBody(
            type=f"{self.about.problem_types}{problem.kind}",
            title=problem.title,
            status=problem.status,
            detail=problem.detail,
            instance=instance,
            request_id=request_id,
            errors=problem.errors,
        )
