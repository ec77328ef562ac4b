"""The keys of the HTTP API: made, listed, revoked and verified. The secret is shown once and never stored."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from learnloop.core.checks import check_name
from learnloop.core.clock import now
from learnloop.core.errors import NotFoundError, UsageError, one_of
from learnloop.core.ids import new_id
from learnloop.core.records import ApiKey, ApiScope
from learnloop.loop.workspace.core import WorkspaceCore
from learnloop.store.queries.records import change_records

_MARK = "llk_"
_SECRET_BYTES = 32
PREFIX_LENGTH = len(_MARK) + 8
"""How much of a secret is kept to tell keys apart: 48 of its 256 bits."""
MAX_DAYS = 36_500


class NewKey(msgspec.Struct, frozen=True, kw_only=True):
    """A key with its secret, which cannot be had again."""

    key: ApiKey
    secret: str
    """What a client sends: ``Authorization: Bearer SECRET``."""


def create_key(
    workspace: WorkspaceCore, name: str, scopes: Iterable[str], *, expires_days: int | None = None
) -> NewKey:
    """Makes a key, stores its SHA-256 and returns it with its secret of 256 random bits.

    Args:
        workspace: whose API it opens.
        name: what to call it.
        scopes: of ``ApiScope``, at least one.
        expires_days: after how many days it ends; None: never.

    Raises:
        UsageError: an unknown scope, or none; a wrong name or number of days.
    """
    check_name("a key", name)
    chosen = _check_scopes(scopes)
    created_at = now()
    secret = _MARK + secrets.token_urlsafe(_SECRET_BYTES)
    key = ApiKey(
        api_key_id=new_id(),
        name=name,
        prefix=secret[:PREFIX_LENGTH],
        secret_hash=hash_secret(secret),
        scopes=chosen,
        created_at=created_at,
        expires_at=_expiry(created_at, expires_days),
    )
    workspace.store.write([key])
    return NewKey(key=key, secret=secret)


def list_keys(workspace: WorkspaceCore) -> list[ApiKey]:
    """Returns all keys, the oldest first, those that ended too."""
    return list(workspace.store.iterate(ApiKey))


def revoke_key(workspace: WorkspaceCore, api_key_id: str) -> ApiKey:
    """Ends a key for good and returns it; one that is revoked already stays as it is.

    Raises:
        NotFoundError: there is no such key.
    """
    still_valid = {"api_key_id": api_key_id, "revoked_at": None}
    workspace.store.run(change_records, ApiKey, still_valid, {"revoked_at": now()})
    key = workspace.store.find(ApiKey, api_key_id)
    if key is None:
        raise NotFoundError(f"there is no key with the id {api_key_id!r}; learnloop keys list shows them")
    return key


def verify_key(keys: Iterable[ApiKey], secret: str, *, at: datetime | None = None) -> ApiKey | None:
    """Returns the key that ``secret`` is, compared in constant time; None: it is not a key, or ended, or was revoked.

    Args:
        keys: those to look among.
        secret: what a client sent.
        at: when; None: now.
    """
    hashed = hash_secret(secret)
    found = None
    for key in keys:
        if hmac.compare_digest(key.secret_hash, hashed):
            found = key
    return found if found is not None and is_valid(found, at or now()) else None


def is_valid(key: ApiKey, at: datetime) -> bool:
    """Returns whether ``key`` opens anything at that moment."""
    return key.revoked_at is None and (key.expires_at is None or at < key.expires_at)


def hash_secret(secret: str) -> str:
    """Returns what is stored of a secret; it is random, so a fast hash cannot be turned around."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def _check_scopes(scopes: Iterable[str]) -> list[str]:
    allowed = [scope.value for scope in ApiScope]
    chosen = list(dict.fromkeys(str(scope) for scope in scopes))
    wrong = [scope for scope in chosen if scope not in allowed]
    if wrong or not chosen:
        raise UsageError(f"{wrong[0] if wrong else 'no scope'!r} was given; a key has one or more of {one_of(allowed)}")
    return [scope for scope in allowed if scope in chosen]


def _expiry(created_at: datetime, days: int | None) -> datetime | None:
    if days is None:
        return None
    if type(days) is not int or not 1 <= days <= MAX_DAYS:
        raise UsageError(f"expires_days is {days!r}; allowed are 1 to {MAX_DAYS:,}, or None for a key that never ends")
    return created_at + timedelta(days=days)
