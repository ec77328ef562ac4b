"""What a judge may still spend, in money too."""

from __future__ import annotations

import threading

from learnloop.core.errors import ConflictError
from learnloop.models import Budget, Completion
from learnloop.rewards.judge.config import JudgeConfig

_BYTES_PER_TOKEN = 4
"""By which the client turns the bytes of a question into the tokens that it reserves."""
_MILLION = 1_000_000


class JudgeBudget(Budget):
    """Requests, tokens and US dollars of several threads; a request that may pass a limit is not sent.

    Before a request the most that it can cost is taken: each byte of it may be a token, and the answer may be as long
    as ``max_tokens`` allows. When the answer comes, its price takes that place. What was asked and never answered stays
    in full, since it may have been billed; what the endpoint refused costs nothing.
    """

    def __init__(self, name: str, config: JudgeConfig) -> None:
        """``name`` tells in messages whose budget this is."""
        super().__init__(name, config.endpoint.max_requests, config.endpoint.max_total_tokens)
        self._owner = name
        self._max_usd = config.max_usd
        self._is_priced = config.input_usd_per_million is not None and config.output_usd_per_million is not None
        self._input_price = (config.input_usd_per_million or 0.0) / _MILLION
        self._output_price = (config.output_usd_per_million or 0.0) / _MILLION
        self._max_output = config.endpoint.max_tokens
        self._usd_lock = threading.Lock()
        self._usd = 0.0

    @property
    def spent_usd(self) -> float | None:
        """Spent or reserved so far; None where no prices are set."""
        with self._usd_lock:
            return self._usd if self._is_priced else None

    def reserve(self, num_tokens: int) -> None:
        """Takes one request, so many tokens and their price.

        Raises:
            ConflictError: too little is left; nothing was taken.
        """
        price = self._bound(num_tokens)
        with self._usd_lock:
            if self._max_usd is not None and self._usd + price > self._max_usd:
                raise ConflictError(
                    f"of the {self._max_usd:g} USD of {self._owner} (max_usd) {self._usd:.4g} are spent or reserved, "
                    f"and this request may cost {price:.4g}; raise the limit, or lower max_tokens or votes"
                )
            super().reserve(num_tokens)
            self._usd += price

    def settle(self, reserved: int, used: int) -> None:
        """Puts the most that ``used`` tokens can cost in the place of what was reserved; see ``pay``."""
        super().settle(reserved, max(0, used))
        with self._usd_lock:
            self._usd += self._most(used) - self._bound(reserved)

    def pay(self, answer: Completion) -> None:
        """Puts the price of an answer, where its tokens are told, in the place of what ``settle`` took."""
        if answer.num_tokens is None or answer.num_prompt_tokens is None or answer.num_completion_tokens is None:
            return
        price = max(0, answer.num_prompt_tokens) * self._input_price
        price += max(0, answer.num_completion_tokens) * self._output_price
        with self._usd_lock:
            self._usd += price - self._most(answer.num_tokens)

    def _bound(self, num_tokens: int) -> float:
        num_bytes = _BYTES_PER_TOKEN * (num_tokens - self._max_output + 1)
        return num_bytes * self._input_price + self._max_output * self._output_price

    def _most(self, num_tokens: int) -> float:
        return max(0, num_tokens) * max(self._input_price, self._output_price)
