"""JSON of others, whose parts may be anything: each is taken where it is what is expected, and is else not known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

_TOKENS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "input_tokens": (("prompt_tokens",), ("input_tokens",)),
    "output_tokens": (("completion_tokens",), ("output_tokens",)),
    "cached_input_tokens": (
        ("cached_input_tokens",),
        ("cached_tokens",),
        ("input_tokens_cache_read",),
        ("cache_read_input_tokens",),
        ("prompt_tokens_details", "cached_tokens"),
        ("input_tokens_details", "cached_tokens"),
        ("input_token_details", "cache_read"),
    ),
    "reasoning_tokens": (
        ("reasoning_tokens",),
        ("reasoning_output_tokens",),
        ("completion_tokens_details", "reasoning_tokens"),
        ("output_tokens_details", "reasoning_tokens"),
        ("output_token_details", "reasoning"),
    ),
}
"""Our words for numbers of tokens, and where APIs and programs write them; the first place that has one counts."""


def known_object(value: object) -> Mapping[str, Any]:
    """Returns ``value`` where it is a JSON object, else one without entries."""
    return value if isinstance(value, dict | Mapping) else {}


def known_list(value: object) -> Sequence[Any]:
    """Returns ``value`` where it is a JSON list, else an empty one."""
    return value if isinstance(value, list | tuple) else []


def known_text(value: object) -> str | None:
    """Returns ``value`` where it is a text that says something, else None."""
    return value if isinstance(value, str) and value else None


def known_integer(value: object) -> int | None:
    """Returns ``value`` where it is a whole number and no truth value, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def sorted_text(value: object) -> str:
    """Returns a value as text, the same for the same value: text as it is, nothing as nothing, all else as JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    return msgspec.json.encode(value, order="sorted").decode()


def find(value: object, *path: str) -> Any:
    """Returns what lies at ``path`` in objects within objects, None where there is no such place."""
    for key in path:
        value = known_object(value).get(key)
    return value


def present(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the entries that are not None."""
    return {name: value for name, value in values.items() if value is not None}


def token_usage(raw: object) -> dict[str, int] | None:
    """Returns the numbers of tokens that an API or a program reported, in our words; None where there are none."""
    counts: dict[str, int] = {}
    for name, paths in _TOKENS.items():
        numbers = (known_integer(find(raw, *path)) for path in paths)
        found = next((number for number in numbers if number is not None and number >= 0), None)
        if found is not None:
            counts[name] = found
    return counts or None


def anthropic_usage(raw: object) -> dict[str, int] | None:
    """Returns the numbers of tokens of Anthropic's API; the input is all of it, the cached too."""
    counts = token_usage(raw) or {}
    written = known_integer(find(raw, "cache_creation_input_tokens"))
    if "input_tokens" in counts:
        counts["input_tokens"] += counts.get("cached_input_tokens", 0) + (written or 0)
    if written is not None:
        counts["cache_write_input_tokens"] = written
    return counts or None
