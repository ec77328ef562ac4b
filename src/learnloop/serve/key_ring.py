"""The keys in memory: read again every second by a thread of their own, so that no request waits for the store.

A guess therefore costs the store nothing. While the store does not answer, the keys that were read last go on holding.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from learnloop.core.errors import LearnloopError
from learnloop.core.records import ApiKey
from learnloop.loop.workspace.api_keys import PREFIX_LENGTH, verify_key
from learnloop.serve.http.problems import Problem
from learnloop.serve.http.site import Caller, Headers

_log = logging.getLogger("learnloop.serve")
CREDENTIALS = (b"authorization", b"x-learnloop-key")
"""The headers that a key may stand in."""
_SCHEME = "bearer"
_MAX_SECRET = 256
_STOP_SECONDS = 1.0


class KeyRing:
    """The keys that a server heeds.

    Args:
        read: gives all keys; raises a ``LearnloopError`` while it cannot.
        seconds: how often it is asked.
    """

    def __init__(self, read: Callable[[], Sequence[ApiKey]], seconds: float) -> None:
        self._read = read
        self._seconds = seconds
        self._stop = threading.Event()
        self._by_prefix: dict[str, list[ApiKey]] = {}
        self._is_failing = False
        self._thread = threading.Thread(target=self._run, name="learnloop-keys", daemon=True)
        self.refresh()

    def start(self) -> None:
        """Begins to read again and again."""
        self._thread.start()

    def stop(self) -> None:
        """Ends that; a read that is under way is waited for, for a moment."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(_STOP_SECONDS)

    @property
    def has_keys(self) -> bool:
        """Whether any key was ever made: then nothing is open any more, also when all have ended."""
        return bool(self._by_prefix)

    def refresh(self) -> None:
        """Reads the keys now."""
        by_prefix: dict[str, list[ApiKey]] = {}
        for key in self._read():
            by_prefix.setdefault(key.prefix, []).append(key)
        self._by_prefix = by_prefix

    def identify(self, headers: Headers) -> Caller | None:
        """Returns whose key a request shows; None where no key exists yet.

        ``X-Learnloop-Key`` wins: calls that pass the gateway may need ``Authorization`` for the model's own key.

        Raises:
            Problem: 401 where keys exist and this is not one of them.
        """
        if not self._by_prefix:
            return None
        ours = headers.get(b"x-learnloop-key")
        authorization = headers.get(b"authorization") if ours is None else b"Bearer " + ours
        if authorization is None:
            raise _unauthorized("this server has keys; send one as Authorization: Bearer llk_...", "")
        scheme, _, secret = authorization.decode("latin-1").partition(" ")
        secret = secret.strip()
        key = None
        if scheme.lower() == _SCHEME and len(secret) <= _MAX_SECRET:
            key = verify_key(self._by_prefix.get(secret[:PREFIX_LENGTH], ()), secret)
        if key is None:
            raise _unauthorized("this key is unknown, expired or revoked", ', error="invalid_token"')
        return Caller(key.api_key_id, key.name, tuple(key.scopes))

    def _run(self) -> None:
        while not self._stop.wait(self._seconds):
            try:
                self.refresh()
            except LearnloopError as error:
                if not self._is_failing:
                    _log.warning("the keys cannot be read, those of before hold: %s", error)
                self._is_failing = True
            else:
                self._is_failing = False


def _unauthorized(detail: str, error: str) -> Problem:
    return Problem(401, detail, headers={"www-authenticate": f'Bearer realm="learnloop"{error}'})
