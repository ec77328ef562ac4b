"""What a client may still spend: requests and tokens, checked before anything is sent."""

from __future__ import annotations

import threading

from learnloop.core.errors import ConflictError


class Budget:
    """Counts requests and tokens of several threads against their limits.

    A request is let through when the tokens that were used, those that requests on their way may use, and those that
    this one may use stay within the limit. What it may use is estimated: its ``max_tokens`` and one token for four
    bytes of its body. When the answer comes, the endpoint's own count takes the place of the estimate; where none
    comes, the estimate stays, since the work may have been done.
    """

    def __init__(self, name: str, max_requests: int | None, max_tokens: int | None) -> None:
        """``name`` tells in messages whose budget this is."""
        self._name = name
        self._max_requests = max_requests
        self._max_tokens = max_tokens
        self._lock = threading.Lock()
        self.num_requests = 0
        self.num_tokens = 0

    def reserve(self, num_tokens: int) -> None:
        """Takes one request and so many tokens.

        Raises:
            ConflictError: too few are left; nothing was taken.
        """
        with self._lock:
            if self._max_requests is not None and self.num_requests >= self._max_requests:
                raise ConflictError(
                    f"the {self._max_requests} requests that {self._name} may be sent (max_requests) are used up; "
                    "raise it, or keep answers in a cache"
                )
            if self._max_tokens is not None and self.num_tokens + num_tokens > self._max_tokens:
                raise ConflictError(
                    f"of the {self._max_tokens} tokens of {self._name} (max_total_tokens) {self.num_tokens} are used, "
                    f"and this request may take {num_tokens}; raise the limit, or lower max_tokens"
                )
            self.num_requests += 1
            self.num_tokens += num_tokens

    def settle(self, reserved: int, used: int) -> None:
        """Puts the count of ``used`` tokens in the place of those that were reserved."""
        with self._lock:
            self.num_tokens += used - reserved
