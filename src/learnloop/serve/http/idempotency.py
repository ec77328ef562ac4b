"""``Idempotency-Key``: the same request again gets the answer that it got before, and nothing is done twice.

A route declares ``idempotent=True``. Without the header it costs one look-up in the request's headers. With it the
request is claimed before it runs, and its answer is kept (``KeptAnswers``, the application's) before it is sent.

A server that dies between the effect and the answer leaves its claim: the same request is a 409 until the application
takes the claim for dead, then it runs again. So that the effect then happens once all the same, an endpoint gives what
it makes the id ``call_of(request.scope).effect_id`` (the same one each time), and makes nothing where that is there
already.

Source: draft-ietf-httpapi-idempotency-key-header-07, sections 2.2 to 2.7; the answers as Stripe gives them.
"""

from __future__ import annotations

import hashlib
import logging
from functools import partial

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as HttpScope

from learnloop.serve.http.calls import Call, call_of
from learnloop.serve.http.problems import Problem
from learnloop.serve.http.site import Claim, KeptAnswer, KeptAnswers

_log = logging.getLogger(__name__)

HEADER = b"idempotency-key"
REPLAYED = "idempotency-replayed"
MAX_KEY = 255
_PASSING = frozenset({408, 425, 429})
"""Refusals that say nothing of the request: the same one may be tried again."""


def once(inner: ASGIApp) -> ASGIApp:
    """Returns ``inner`` such that requests with the same ``Idempotency-Key`` run once; each has to have one."""

    async def run(scope: HttpScope, receive: Receive, send: Send) -> None:
        call = call_of(scope)
        key = call.headers[HEADER]
        _check_key(key)
        answers = call.site.answers
        if answers is None:
            raise TypeError("a route is idempotent, but its application keeps no answers; give Site(answers=...)")
        body = b"" if call.body is None else await call.body.read()
        fingerprint = fingerprint_of(scope, body)
        found = await answers.claim(answer_id_of(call, key), fingerprint)
        if isinstance(found, KeptAnswer):
            await _answer_again(found, fingerprint)(scope, receive, send)
            return
        call.effect_id = found.effect_id
        call.settle = partial(_settle, answers, found)
        await inner(scope, receive, send)

    return run


async def _settle(answers: KeptAnswers, claim: Claim, status: int, media_type: str, body: bytes) -> None:
    """Keeps the answer before it is sent, or gives up the claim where the request may be tried again.

    What happened has happened: where it cannot be kept, the client is answered all the same, and the claim stays.
    """
    try:
        if status >= 500 or status in _PASSING:
            await answers.release(claim)
        else:
            await answers.keep(claim, status, media_type, body)
    except Problem as error:
        _log.warning("an answer to a request with an Idempotency-Key was not kept: %s", error)


def answer_id_of(call: Call, key: bytes) -> str:
    """Returns SHA-256 over who asks and the key: the same key of another client is another one."""
    owner = "" if call.caller is None else call.caller.caller_id
    return _digest(owner.encode(), key)


def fingerprint_of(scope: HttpScope, body: bytes) -> str:
    """Returns SHA-256 over method, path, query and body (decompressed)."""
    return _digest(scope["method"].encode(), scope["raw_path"], scope["query_string"], body)


def _digest(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()


def _check_key(key: bytes) -> None:
    if not 1 <= len(key) <= MAX_KEY or not all(0x21 <= byte <= 0x7E for byte in key):
        raise Problem(
            400,
            f"an Idempotency-Key is 1 to {MAX_KEY} visible ASCII characters without spaces, such as a UUID",
            kind="idempotency-key",
        )


def _answer_again(found: KeptAnswer, fingerprint: str) -> Response:
    """Returns the answer to a request whose key was used before.

    Raises:
        Problem: 422 where it was used for another request, 409 where that one still runs.
    """
    if found.fingerprint != fingerprint:
        raise Problem(
            422,
            "this Idempotency-Key was used for another request (route, query or body); use a new one for each request",
            kind="idempotency-key-reused",
        )
    if found.status is None:
        raise Problem(
            409,
            "the request with this Idempotency-Key is still worked on; send it again in a moment",
            kind="idempotency-key-in-use",
            headers={"retry-after": "1"},
        )
    headers = {REPLAYED: "true"}
    if found.media_type:
        headers["content-type"] = found.media_type
    return Response(found.body, found.status, headers)
