"""Finds the code in an answer."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import Literal

_FENCE = re.compile(r"^([ \t]*)(`{3,}|~{3,})[ \t]*([\w+#.-]*)[^\n]*$", re.MULTILINE)
_NAMES = {
    "python": frozenset({"python", "py", "python3", "py3"}),
    "shell": frozenset({"sh", "bash", "shell", "zsh", "console"}),
}
MAX_CODE = 256 * 1024
"""Characters of code that are tested; no honest answer to a task is longer."""


def fenced_blocks(text: str) -> list[tuple[str, str]]:
    """Returns the fenced blocks of a Markdown text: the language in lower case (empty: none named) and the content.

    A block that is never closed ends with the text (CommonMark 0.31, section 4.5).
    """
    found: list[tuple[str, str]] = []
    opened: tuple[str, str, str, int] | None = None
    for match in _FENCE.finditer(text):
        indent, fence, language = match.groups()
        if opened is None:
            opened = (indent, fence, language.lower(), match.end() + 1)
        elif fence[0] == opened[1][0] and len(fence) >= len(opened[1]) and not language:
            found.append((opened[2], _outdented(text[opened[3] : match.start()], opened[0])))
            opened = None
    if opened is not None:
        found.append((opened[2], _outdented(text[opened[3] :], opened[0])))
    return found


def _outdented(content: str, indent: str) -> str:
    """Returns a block without the indent of its fence: in a list, its lines have it too."""
    return re.sub(rf"^[ \t]{{1,{len(indent)}}}", "", content, flags=re.MULTILINE) if indent else content


def code_of(answer: str, language: Literal["python", "shell"], called: Sequence[str] = ()) -> str | None:
    """Returns the code of an answer; None where there is none.

    Of the blocks of this language, or else of those that name none, the last one that defines the first of the
    names ``called`` that any defines, or else the last; a whole answer without blocks where it is code by itself.
    """
    if len(answer) > MAX_CODE:
        return None
    blocks = fenced_blocks(answer)
    named = [content for name, content in blocks if name in _NAMES[language]]
    candidates = named or [content for name, content in blocks if not name]
    if blocks:
        defining = [each for name in called for each in reversed(candidates) if _defines(each, name)]
        return next(iter((*defining, *candidates[-1:])), None)
    if language == "python" and python_fault(answer) is not None:
        return None
    return answer if answer.strip() else None


def _defines(code: str, name: str) -> bool:
    return (
        re.search(rf"^(?:async\s+)?(?:def|class)\s+{re.escape(name)}\b|^{re.escape(name)}\s*=", code, re.M) is not None
    )


def python_fault(code: str) -> Exception | None:
    """Returns why ``code`` is no Python; None: it is."""
    try:
        ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:  # the last two: nested too deeply
        return error
    return None
