"""Finds secrets in text: tokens by how their makers mark them, values by the name that they are assigned to.

Each rule is looked for by a literal first, then matched at that place alone, and each match is bounded: the time is
linear in the text, whatever the text is. What no maker marked and nobody named (a bare password in a sentence) is not
found.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

KEY_TOKEN = "[key]"
"""What stands where a secret stood."""

Span = tuple[int, int]
_START = r"(?:(?<![A-Za-z0-9_-])|(?<=\\[nrtbf])|(?<=\\u[0-9A-Fa-f]{4})|(?<=%[0-9A-Fa-f]{2}))"
"""A token begins where a word does, or behind an escape of JSON or of a URL."""
_NAMES = (
    r"(?:passw(?:or)?d|passphrase|secret(?:[_ -]?(?:access[_ -]?)?key)?|(?:api|access|private|account)[_ -]?key|_pwd"
    r"|(?:access|auth|refresh|session|api|bot)[_ -]?token)s?"
)
_WORDS = ("password", "passwd", "passphrase", "secret", "_pwd")
_COMPOUNDS = tuple(
    first + between + second
    for first, second in (
        ("api", "key"), ("api", "token"), ("access", "key"), ("access", "token"), ("private", "key"),
        ("account", "key"), ("auth", "token"), ("refresh", "token"), ("session", "token"), ("bot", "token"),
    )
    for between in ("", "_", "-", " ")
)  # fmt: skip
_SECRET_NAME = re.compile(rf"{_NAMES}$|authorization$", re.IGNORECASE)
_ASSIGNMENT = re.compile(
    rf"(?P<name>{_NAMES})(?P<operator>\\*[\"']?\s{{0,4}}(?:=>|:=|={{1,3}}|:)\s{{0,4}})(?P<quote>\\*[\"'])?",
    re.IGNORECASE,
)
_BARE = re.compile(r"[^\s\"'`,;&<>(){}\[\]\\|]{1,512}+")
_STAND_IN = re.compile(r"\[key\]|\*+|\$\{[^}]*\}|\{\{.*\}\}|<[A-Za-z_ -]+>|%\([a-z_]+\)s")
_VARIABLE = re.compile(r"\$[A-Z][A-Z0-9_]*")
_CONSTANTS = frozenset({"none", "null", "true", "false", "undefined", "str", "string", "required", "optional"})
_MAX_VALUE = 4_096
_STRONG = 20
"""A word of so many characters behind a secret's name is taken for one, digits or not."""


class Rule(NamedTuple):
    """What to look for."""

    literal: str
    """In lower case; without it the rule finds nothing."""
    find: Callable[[str, int], Span | None]
    """Returns where a secret lies whose literal is at a place in a text; None: there is none."""


def find_secrets(text: str) -> list[Span]:
    """Returns where secrets lie in ``text``, in order, none overlapping another."""
    lowered = _lower(text)
    found: list[Span] = []
    for rule in _RULES:
        end = 0
        place = lowered.find(rule.literal)
        while place >= 0:
            span = None if place < end else rule.find(text, place)
            if span is not None:
                found.append(span)
                end = span[1]
            place = lowered.find(rule.literal, place + 1)
    return merged(found)


def merged(spans: Iterable[Span]) -> list[Span]:
    """Returns spans in order, those that overlap or touch as one."""
    joined: list[Span] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined


@lru_cache(maxsize=4_096)
def names_secret(name: str) -> bool:
    """Returns whether a field of that name holds a secret, such as ``DB_PASSWORD`` or ``apiKey``."""
    return _SECRET_NAME.search(name.strip()) is not None


def _lower(text: str) -> str:
    """Returns ``text`` in lower case, each character at its place."""
    lowered = text.lower()
    if len(lowered) == len(text):
        return lowered
    return "".join(each if len(each.lower()) > 1 else each.lower() for each in text)


def _token(literals: str, pattern: str, *, anywhere: bool = False) -> Iterator[Rule]:
    """Yields a rule for each of the literals that a pattern begins with."""
    compiled = re.compile(pattern if anywhere else _START + pattern)

    def find(text: str, place: int) -> Span | None:
        match = compiled.match(text, place)
        return None if match is None else match.span("secret" if "secret" in compiled.groupindex else 0)

    return (Rule(literal, find) for literal in literals.split())


def _assigned(text: str, place: int) -> Span | None:
    head = _ASSIGNMENT.match(text, place)
    if head is None:
        return None
    start, quote = head.end(), head["quote"]
    if quote:
        end = _closing(text, start, quote)
        value = text[start:end]
        return None if not value.strip() or _STAND_IN.fullmatch(value) else (start, end)
    bare = _BARE.match(text, start)
    if bare is None or _is_code(text, bare):
        return None
    operator = head["operator"]
    is_tight = operator == "=" or '"' in operator or "'" in operator
    value = bare[0].rstrip(".!?:")
    return (start, start + len(value)) if value and (is_tight or _is_strong(value)) else None


def _closing(text: str, start: int, quote: str) -> int:
    """Returns where a quoted value ends: at its quote, unless more backslashes stand before that, or the line's end."""
    place = text.find(quote, start)
    while place >= 0 and place > start and text[place - 1] == "\\":
        place = text.find(quote, place + 1)
    limit = min(len(text), start + _MAX_VALUE)
    return min(place, limit) if place >= 0 else limit


def _is_code(text: str, bare: re.Match[str]) -> bool:
    """Returns whether what is assigned is a name of a program, what stands for a value or a constant, no value."""
    value = bare[0]
    following = text[bare.end() : bare.end() + 1]
    if following in ("(", "[") or (following == "{" and value == "$"):
        return True
    last = value.rpartition(".")[2]
    return bool(
        value.lower() in _CONSTANTS
        or _STAND_IN.fullmatch(value)
        or _VARIABLE.fullmatch(value)
        or (last.lstrip("$").isidentifier() and names_secret(last))
    )


def _is_strong(value: str) -> bool:
    """Returns whether a word looks made up: it has digits or is long."""
    plain = value.replace("_", "").replace("-", "")
    return len(value) >= 6 and (any(each.isdigit() for each in value) or (len(value) >= _STRONG and plain.isalnum()))


_BEARER = re.compile(r"bearer\s{1,4}(?P<secret>[A-Za-z0-9._~+/=-]{6,4096}+)", re.IGNORECASE)
_AUTHORIZATION = re.compile(
    r"authorization\\*[\"']?\s{0,4}(?:=>|=|:)\s{0,4}(?:\\*[\"'])?"
    r"(?P<scheme>(?:basic|bearer|token|digest|apikey|negotiate)\s{1,4})?(?P<secret>[^\s\"'\\,;\[]{3,4096}+)",
    re.IGNORECASE,
)


def _bearer(text: str, place: int) -> Span | None:
    match = _BEARER.match(text, place)
    return match.span("secret") if match and _is_strong(match["secret"]) else None


def _authorization(text: str, place: int) -> Span | None:
    match = _AUTHORIZATION.match(text, place)
    return match.span("secret") if match and (match["scheme"] or _is_strong(match["secret"])) else None


_RULES: tuple[Rule, ...] = (
    *_token("sk-", r"sk-[A-Za-z0-9_-]{16,}+"),
    *_token("akia asia", r"A(?:KIA|SIA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
    *_token("ghp_ gho_ ghu_ ghs_ ghr_", r"gh[pousr]_[A-Za-z0-9]{20,}+"),
    *_token("github_pat_", r"github_pat_[A-Za-z0-9_]{20,}+"),
    *_token("hf_", r"hf_[A-Za-z0-9]{24,}+"),
    *_token("xox", r"xox[a-z]-[A-Za-z0-9-]{10,}+"),
    *_token("aiza", r"AIza[A-Za-z0-9_-]{30,}+"),
    *_token("sk_live_ sk_test_ rk_live_ rk_test_", r"[sr]k_(?:live|test)_[A-Za-z0-9]{10,}+"),
    *_token("whsec_", r"whsec_[A-Za-z0-9+/=]{16,}+"),
    *_token("eyj", r"eyJ[A-Za-z0-9_-]{6,}+\.[A-Za-z0-9_-]{6,}+(?:\.[A-Za-z0-9_-]++)?"),
    *_token("llk_", r"llk_[A-Za-z0-9_-]{16,}+"),
    *_token(
        "-----begin",
        r"(?s:-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
        r"(?:.*?-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|.*))",
        anywhere=True,
    ),
    *_token("://", r"://[^\s/:@\"'\\]{0,256}:(?P<secret>[^\s/@\"'\\\[]{1,256})@", anywhere=True),
    Rule("bearer", _bearer),
    Rule("authorization", _authorization),
    *(Rule(word, _assigned) for word in (*_WORDS, *_COMPOUNDS)),
)

_HINTS: tuple[str, ...] = (
    "sk-", "akia", "asia", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "hf_", "xox", "aiza", "k_live_",
    "k_test_", "whsec_", "eyj", "llk_", "-----begin", "bearer", "authorization", "passw", *_WORDS[2:],
)  # fmt: skip


def may_hold_secret(lowered: str) -> bool:
    """Returns whether ``find_secrets`` could find something in what has this text in lower case, JSON or not."""
    if any(hint in lowered for hint in _HINTS) or ("@" in lowered and "://" in lowered):
        return True
    if "key" not in lowered and "token" not in lowered:
        return False
    return any(hint in lowered for hint in _COMPOUNDS)
