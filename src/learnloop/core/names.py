"""What a name may look like, so that it is safe in a path, a URL and a log."""

from __future__ import annotations

import re

from learnloop.core.errors import UsageError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def check_name(kind: str, name: object) -> str:
    """Returns ``name`` if it can name a ``kind`` (an agent, a policy, an alias).

    Raises:
        UsageError: it is not 1 to 100 letters, digits, dots, dashes and underscores that start with a letter or digit.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot name {kind}: allowed are 1 to 100 letters, digits, '.', '_' and '-', "
            "of which the first is a letter or a digit"
        )
    return name
