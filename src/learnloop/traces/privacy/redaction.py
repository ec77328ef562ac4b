"""Takes secrets, e-mail addresses and what a user's patterns find out of records, before they are stored.

One ``Redactor`` stands before everything that enters a store. What it takes out is replaced by a token: ``[key]``, a
pseudonym of an address (``[email:1a2b3c4d]``, the same for the same address, so that what is learned of it stays), or
``[NAME]`` of a pattern. Texts are looked at where people and programs write them: a span's name, error and attributes,
an episode's error and metadata, the reasons of rewards and of questions for labels, the metadata of a task and of a
reward's shares. Ids, names of tasks, the contexts of decisions and who gave a reward stay: they are what records are
found by, and what is learned from.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections import Counter
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, TypeVar

import msgspec

from learnloop.core.errors import UsageError, one_of
from learnloop.core.records import Episode, LabelRequest, Record, Reward, RewardShare, Span, Task
from learnloop.traces.privacy.patterns import Pattern, check_pattern
from learnloop.traces.privacy.secrets import KEY_TOKEN, find_secrets, may_hold_secret, merged, names_secret

KINDS = ("keys", "emails")
_R = TypeVar("_R", bound=Record)

_FIELDS: Mapping[type[Record], tuple[str, ...]] = {
    Span: ("name", "error", "attributes"),
    Episode: ("error", "metadata"),
    Reward: ("reason",),
    RewardShare: ("metadata",),
    LabelRequest: ("reason",),
    Task: ("metadata",),
}
"""What is looked at of each kind of record."""
_LOCAL = r"A-Za-z0-9._%+\-\u00c0-\u024f"
_EMAIL = re.compile(
    rf"(?<![{_LOCAL}])(?!git@)[{_LOCAL}]++(?:'[{_LOCAL}]++)*+@[A-Za-z0-9\u00c0-\u024f-]++(?:\.[A-Za-z0-9\u00c0-\u024f-]++)*"
    r"\.(?!(?:png|jpe?g|gif|webp|svg)\b)[A-Za-z]{2,24}(?![A-Za-z0-9])",
)
"""An address as people write them (RFC 5322's dot-atom); ``icon@2x.png`` is a file."""
_ENCODE_ERRORS = (TypeError, ValueError, OverflowError, NotImplementedError, RecursionError)


class RedactionSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is taken out of records."""

    kinds: tuple[str, ...] = KINDS
    """Of ``KINDS``; none switches both off."""
    patterns: Mapping[str, str] = {}
    """Regular expressions by name: what they find becomes ``[NAME]``."""


class Redactor:
    """Returns records without what is to be taken out; the same object where there is nothing. Safe in any thread.

    Attributes:
        found: how often each token took the place of something.
    """

    def __init__(self, settings: RedactionSettings, secret: Callable[[], bytes]) -> None:
        """Compiles and checks the patterns.

        Args:
            settings: what to take out.
            secret: returns the key by which addresses become pseudonyms; called when the first one is met.

        Raises:
            UsageError: an unknown kind, or a pattern that cannot be used; the message says why.
        """
        unknown = [kind for kind in settings.kinds if kind not in KINDS]
        if unknown:
            raise UsageError(f"redaction kinds {one_of(unknown)} are not known; allowed are {one_of(KINDS)}")
        self._keys = "keys" in settings.kinds
        self._emails = "emails" in settings.kinds
        self._patterns = [check_pattern(name, source) for name, source in settings.patterns.items()]
        self._tokens = _tokens(self._patterns)
        self._secret = secret
        self._pseudonym = lru_cache(maxsize=4_096)(self._make_pseudonym)
        self.found: Counter[str] = Counter()

    @property
    def is_off(self) -> bool:
        """Whether it takes out nothing at all."""
        return not (self._keys or self._emails or self._patterns)

    def __call__(self, record: _R) -> _R:
        """Returns ``record`` without what is to be taken out.

        Raises:
            UsageError: it is nested too deep to be looked at.
        """
        names = _FIELDS.get(type(record))
        if names is None:
            return record
        values = [getattr(record, name) for name in names]
        if not self._may_hold(values):
            return record
        try:
            clean = [self.value(value) for value in values]
        except RecursionError as error:
            raise UsageError(f"{type(record).__name__} is nested too deep to be looked through for secrets") from error
        changes = {name: new for name, old, new in zip(names, values, clean, strict=True) if new != old}
        return msgspec.structs.replace(record, **changes) if changes else record

    def value(self, value: Any) -> Any:
        """Returns a JSON value without what is to be taken out, in keys and in values."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return self._object(value)
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        return value

    def text(self, text: str) -> str:
        """Returns ``text`` without what is to be taken out."""
        if self._keys and may_hold_secret(text.lower()):
            text = self._without_secrets(text)
        if self._emails and "@" in text:
            text = _EMAIL.sub(self._address_token, text)
        for pattern in self._patterns:
            text = self._without_matches(text, pattern)
        return text

    def _may_hold(self, values: list[Any]) -> bool:
        """Returns whether something may have to be taken out; quick, for it runs on everything that is recorded."""
        if self._patterns:
            return True
        try:
            text = msgspec.json.encode(values).lower().decode("latin-1")
        except _ENCODE_ERRORS:
            return not self.is_off
        return (self._emails and "@" in text) or (self._keys and may_hold_secret(text))

    def _object(self, fields: Mapping[Any, Any]) -> dict[Any, Any]:
        clean: dict[Any, Any] = {}
        for name, item in fields.items():
            hides = self._keys and isinstance(name, str) and names_secret(name)
            key = self.text(name) if isinstance(name, str) else name
            while key in clean:  # two names with one token
                key = f"{key}'"
            clean[key] = self._hide(item) if hides else self.value(item)
        return clean

    def _hide(self, item: Any) -> Any:
        """Returns what a field holds that is named like a secret; a description of such a field is none."""
        if isinstance(item, list | tuple):
            return [self._hide(each) for each in item]
        is_secret = isinstance(item, str | int | float) and not isinstance(item, bool) and item not in ("", KEY_TOKEN)
        if not is_secret:
            return self.value(item)
        self.found[KEY_TOKEN] += 1
        return KEY_TOKEN

    def _without_secrets(self, text: str) -> str:
        spans = [(start, end) for start, end in find_secrets(text) if text[start:end] != KEY_TOKEN]
        self.found[KEY_TOKEN] += len(spans)
        return _replace_spans(text, spans, KEY_TOKEN)

    def _address_token(self, match: re.Match[str]) -> str:
        self.found["[email]"] += 1
        return self._pseudonym(match[0])

    def _make_pseudonym(self, address: str) -> str:
        digest = hmac.new(self._secret(), address.lower().encode("utf-8", "surrogatepass"), hashlib.sha256)
        return f"[email:{digest.hexdigest()[:8]}]"

    def _without_matches(self, text: str, pattern: Pattern) -> str:
        """Replaces what a pattern finds, but not in tokens that stand there already."""
        spans: list[tuple[int, int]] = []
        start = 0
        for token in self._tokens.finditer(text):
            spans.extend(pattern.find(text, start, token.start()))
            start = token.end()
        spans.extend(pattern.find(text, start, len(text)))
        self.found[pattern.token] += len(spans)
        return _replace_spans(text, merged(spans), pattern.token)


def _tokens(patterns: list[Pattern]) -> re.Pattern[str]:
    """Returns what finds the tokens of this redactor in a text."""
    names = "|".join([re.escape(KEY_TOKEN), r"\[email:[0-9a-f]{8}\]", *(re.escape(each.token) for each in patterns)])
    return re.compile(names)


def _replace_spans(text: str, spans: list[tuple[int, int]], token: str) -> str:
    parts = []
    last = 0
    for start, end in spans:
        parts += [text[last:start], token]
        last = end
    return "".join([*parts, text[last:]]) if spans else text
