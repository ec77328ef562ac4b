"""How a version is named: ``packer.codec``, ``packer.codec@3``, ``packer.codec@latest``, ``packer.codec@champion``."""

from __future__ import annotations

from typing import NamedTuple

from learnloop.core.checks import check_name
from learnloop.core.errors import UsageError

CHAMPION = "champion"
"""The version that serves."""
PREVIOUS = "previous"
"""The champion before this one: where a rollback goes."""
LATEST = "latest"
"""The highest version number; not an alias that can be moved."""


class Reference(NamedTuple):
    """A policy's name and what stands after the ``@``."""

    policy: str
    version: int | None = None
    alias: str | None = None


def parse_reference(text: str) -> Reference:
    """Returns the parts of ``text``.

    Raises:
        UsageError: it is not ``NAME``, ``NAME@NUMBER`` or ``NAME@ALIAS``.
    """
    policy, at, rest = text.partition("@")
    check_name("a policy", policy)
    if not at:
        return Reference(policy)
    if rest.isascii() and rest.isdigit():
        return Reference(policy, version=int(rest[:20]))
    return Reference(policy, alias=check_name("an alias", rest))


def check_alias(alias: str) -> str:
    """Returns ``alias`` if it can be moved.

    Raises:
        UsageError: it is ``latest``, a number, or no name.
    """
    check_name("an alias", alias)
    if alias == LATEST or alias.isdigit():
        raise UsageError(
            f"{alias!r} is not an alias that can be moved; it always means a version number or the highest"
        )
    return alias
